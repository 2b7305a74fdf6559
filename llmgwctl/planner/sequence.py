"""Orders actions so that every prefix is safe: a stop before the start that needs its room."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

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

    A replica that stops in one action and starts again in another is waited for in the first. There are no circles; a
    violation is told by check_plan.
    """
    ordered = sorted(actions, key=_key)
    first: dict[str, list[int]] = {}
    for place, action in enumerate(ordered):
        if action.changes:
            first.setdefault(action.replica, []).append(place)
    waiting = {place: _awaited(place, action, first) for place, action in enumerate(ordered)}
    done: list[Action] = []
    while waiting:
        ready = [place for place, on in waiting.items() if not on & waiting.keys()] or list(waiting)
        done += [ordered[place] for place in ready]
        for place in ready:
            del waiting[place]
    return tuple(done)


def awaited(actions: Sequence[Action]) -> list[set[int]]:
    """Return, for each action of a plan, the earlier ones that must be done before it, by their places."""
    places: dict[str, list[int]] = {}
    on = []
    for place, action in enumerate(actions):
        names = (*action.waits_for, action.replica)
        on.append({p for name in names for p in places.get(name, ())})
        if action.changes:
            places.setdefault(action.replica, []).append(place)
    return on


def _awaited(place: int, action: Action, first: dict[str, list[int]]) -> set[int]:
    own = first.get(action.replica, [])[:1] if action.changes else []
    others = [first[name][0] for name in action.waits_for if name in first and name != action.replica]
    return {p for p in (*own, *others) if p != place}


def _key(action: Action) -> tuple[int, str, int, str]:
    node = action.placement[0].node if action.placement else ""
    return (_STAGE[action.kind], model_of(action.replica), int(action.replica.rpartition("/")[2]), node)
