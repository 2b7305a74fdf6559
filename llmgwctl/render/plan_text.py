"""The plan for people, with Terraform's habits: symbols, reasons, a table of the placement, a summary line."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from llmgwctl.domain.plan import Action, ActionKind, MemberPlacement, Plan
from llmgwctl.render.changes import launch_changes
from llmgwctl.render.plan_json import shown_env
from llmgwctl.render.text import Style, count, plain, table

NO_CHANGES = "No changes. The fleet matches the configuration."

_MOST_NAMES, _MOST_CAUSES = 8, 40
_SYMBOLS = {
    ActionKind.START: ("+", "green"),
    ActionKind.STOP: ("-", "red"),
    ActionKind.REPLACE: ("-/+", "yellow"),
    ActionKind.MOVE: (">", "cyan"),
    ActionKind.FORGET: (".", "red"),
    ActionKind.DEFER: ("?", "dim"),
}
_LEGEND = {
    ActionKind.START: "start",
    ActionKind.STOP: "stop",
    ActionKind.REPLACE: "stop, then start again on the same host",
    ActionKind.MOVE: "move to another host",
    ActionKind.FORGET: "forget (nothing of it runs)",
    ActionKind.DEFER: "defer: its host can't be reached",
}
_VERBS = {
    ActionKind.START: "will be started on",
    ActionKind.STOP: "will be stopped on",
    ActionKind.REPLACE: "will be replaced on",
    ActionKind.MOVE: "will be moved to",
    ActionKind.FORGET: "will be forgotten; it was on",
    ActionKind.DEFER: "is left as it is on",
}


def plan_text(plan: Plan, style: Style, *, verbose: bool = False) -> str:
    """Return the whole plan; with `verbose`, every command line as well."""
    sections = [_drift(plan, style), _actions(plan, style, verbose), _placement(plan), _shortfalls(plan, style)]
    sections += [_headroom(plan), _summary(plan, style)]
    return "\n\n".join(s for s in sections if s)


def summary_line(plan: Plan) -> str:
    """Return the line that says how much will change."""
    words = {
        ActionKind.START: "to start",
        ActionKind.STOP: "to stop",
        ActionKind.REPLACE: "to replace",
        ActionKind.MOVE: "to move",
        ActionKind.FORGET: "to forget",
    }
    parts = [f"{plan.count(kind)} {text}" for kind, text in words.items() if plan.count(kind) or kind in _ALWAYS]
    return f"Plan: {', '.join(parts)}."


_ALWAYS = (ActionKind.START, ActionKind.STOP)


def _drift(plan: Plan, style: Style) -> str:
    if not plan.drift:
        return ""
    lines = [style.paint("Note: some replicas are not as the last apply left them:", "bold"), ""]
    tilde = style.paint("~", "yellow")
    lines += [f"  {tilde} {plain(d.replica)} ({d.condition.value}): {plain(d.text)}" for d in plan.drift]
    return "\n".join(lines)


def _actions(plan: Plan, style: Style, verbose: bool) -> str:
    shown = [a for a in plan.actions if a.kind is not ActionKind.KEEP]
    if not shown:
        return ""
    kinds = [k for k in _SYMBOLS if any(a.kind is k for a in shown)]
    lines = ["llmgwctl will do the following, in this order:" if any(a.changes for a in shown) else "Waiting:"]
    lines += [f"  {_symbol(k, style)} {_LEGEND[k]}" for k in kinds]
    for action in shown:
        lines += ["", *_action(action, style, verbose)]
    return "\n".join(lines)


def _action(action: Action, style: Style, verbose: bool) -> Iterable[str]:
    nodes = ", ".join(dict.fromkeys(p.node for p in action.placement))
    title = f"{plain(action.replica)}{' (simulated)' if action.simulated else ''}"
    yield f"  {_symbol(action.kind, style)} {style.paint(title, 'bold')} {_VERBS[action.kind]} {nodes}"
    source = "" if action.origin == "declared" else f", {action.origin}"
    owner = f", {action.owner}" if action.owner else ""
    yield (
        f"        profile {plain(action.profile)} ({action.engine}), {action.model_class}{owner}, "
        f"{action.standing.value}{source}"
    )
    makes_room = f" (makes room for {plain(action.reason.for_replica)})" if action.reason.for_replica else ""
    yield f"        because {plain(action.reason.text)}{makes_room}"
    if action.waits_for:
        yield f"        after {', '.join(plain(w) for w in action.waits_for)}"
    if action.starts and action.before:
        yield from (f"        {line}" for line in launch_changes(action))
    if verbose and action.changes:
        for launch, place in zip(action.launches, action.placement, strict=True):
            yield f"        {place.node} $ {_command(launch.argv)}"
            for name, value in sorted(shown_env(launch, place.gpu_indices).items()):
                yield f"            {name}={plain(value)}"


def _command(argv: Sequence[str]) -> str:
    import shlex

    return plain(" ".join(shlex.quote(w) for w in argv))


def _placement(plan: Plan) -> str:
    rows = [
        (a.replica, place.node, _gpus(place), place.port, a.engine, a.kind.value, a.standing.value)
        for a in plan.actions
        if a.starts
        for place in a.placement
    ]
    if not rows:
        return ""
    return "Placement:\n\n" + table(("replica", "host", "GPUs", "port", "engine", "action", "standing"), rows)


def _gpus(place: MemberPlacement) -> str:
    return ",".join(str(i) for i in place.gpu_indices) if place.gpu_indices else "none (CPU)"


def _shortfalls(plan: Plan, style: Style) -> str:
    if not plan.shortfalls:
        return ""
    lines = [style.paint(f"Not placed: {count(len(plan.shortfalls), 'replica')}.", "red", "bold")]
    alike: dict[tuple[str, ...], list[str]] = {}
    for shortfall in plan.shortfalls:
        told = tuple(f"{c.code}: {plain(c.text)}" for c in shortfall.causes)
        alike.setdefault(told, []).append(plain(shortfall.replica))
    for causes, names in list(alike.items())[:_MOST_CAUSES]:
        more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
        lines.append(f"\n  {style.paint('!', 'red')} {', '.join(names[:_MOST_NAMES])}{more}")
        lines += [f"      {cause}" for cause in causes]
    left = list(alike.values())[_MOST_CAUSES:]
    if left:
        lines.append(
            f"\n  … and {count(sum(map(len, left)), 'replica')} more, for other causes: plan --json tells all."
        )
    return "\n".join(lines)


def _headroom(plan: Plan) -> str:
    return "\n".join(f"{plain(h.model)}: {h.running} of at most {h.max} run ({h.code})." for h in plan.headroom_stops)


def _summary(plan: Plan, style: Style) -> str:
    lines = []
    deferred = plan.count(ActionKind.DEFER)
    if any(a.changes for a in plan.actions):
        lines.append(style.paint(summary_line(plan), "bold"))
    elif not plan.drift:
        lines.append(
            style.paint(NO_CHANGES, "green", "bold") if not plan.shortfalls else "No changes are possible now."
        )
    else:
        lines.append("Nothing has to be started or stopped. Apply to record what was found.")
    if deferred:
        lines.append(f"{count(deferred, 'replica')} on hosts that can't be reached: nothing is done about them.")
    if plan.shortfalls:
        lines.append(f"{count(len(plan.shortfalls), 'wanted replica')} can't be placed.")
    return "\n".join(lines)


def _symbol(kind: ActionKind, style: Style) -> str:
    symbol, colour = _SYMBOLS[kind]
    return style.paint(f"{symbol:>3}", colour)
