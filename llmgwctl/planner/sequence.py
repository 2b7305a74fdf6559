"""Orders actions so that every prefix is safe: a stop before the start that needs its room."""

from __future__ import annotations

from collections.abc import Iterable

from llmgwctl.domain.plan import Action, ActionKind
from llmgwctl.planner.naming import model_of

_STAGE = {
    ActionKind.FORGET: 0,
    ActionKind.STOP: 1,
    ActionKind.REPLACE: 2,
    ActionKind.MOVE: 3,
    ActionKind.START: 4,
    ActionKind.DEFER: 5,
    ActionKind.KEEP: 6,
}


def in_safe_order(actions: Iterable[Action]) -> tuple[Action, ...]:
    """Return the actions by kind and name, each after all that it waits for.

    `waits_for` only ever names what was seated earlier, so it has no cycles; a violation is told by check_plan.
    """
    ordered = sorted(actions, key=_key)
    waiting = {a.replica for a in ordered if a.changes}
    done: list[Action] = []
    while ordered:
        ready = [a for a in ordered if not any(w in waiting and w != a.replica for w in a.waits_for)]
        ready = ready or ordered
        done += ready
        chosen = {id(a) for a in ready}
        waiting -= {a.replica for a in ready}
        ordered = [a for a in ordered if id(a) not in chosen]
    return tuple(done)


def _key(action: Action) -> tuple[int, str, int, str]:
    node = action.placement[0].node if action.placement else ""
    return (_STAGE[action.kind], model_of(action.replica), int(action.replica.rpartition("/")[2]), node)
