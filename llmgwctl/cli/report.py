"""What an apply says while it works: lines for people, or JSON events."""

from __future__ import annotations

import click

from llmgwctl.app.events import Failure
from llmgwctl.app.executor import Outcome
from llmgwctl.cli.output import print_json
from llmgwctl.domain.plan import Action, ActionKind
from llmgwctl.render.plan_json import action_document
from llmgwctl.render.text import Style, duration, plain, printable

_DOING = {
    ActionKind.START: "Starting",
    ActionKind.STOP: "Stopping",
    ActionKind.REPLACE: "Replacing",
    ActionKind.MOVE: "Moving",
    ActionKind.FORGET: "Forgetting",
}
_DONE = {
    ActionKind.START: "Ready",
    ActionKind.STOP: "Stopped",
    ActionKind.REPLACE: "Replaced and ready",
    ActionKind.MOVE: "Moved and ready",
    ActionKind.FORGET: "Forgotten",
}
_SUMMARY = {
    ActionKind.START: "started",
    ActionKind.STOP: "stopped",
    ActionKind.REPLACE: "replaced",
    ActionKind.MOVE: "moved",
    ActionKind.FORGET: "forgotten",
}


class TextReport:
    """A line for each step; the failures again at the end, where they are looked for."""

    def __init__(self, style: Style) -> None:
        self._style = style

    def begun(self, action: Action) -> None:
        """Say that an action starts."""
        nodes = ", ".join(p.node for p in action.placement)
        click.echo(f"{plain(action.replica)}: {_DOING[action.kind]} on {nodes} …")

    def waiting(self, action: Action, what: str, elapsed_s: float) -> None:
        """Say that an action still goes on."""
        click.echo(f"{plain(action.replica)}: Still waiting [{duration(elapsed_s)}]: {plain(what)}")

    def done(self, action: Action, elapsed_s: float) -> None:
        """Say that an action succeeded."""
        click.echo(f"{plain(action.replica)}: {_DONE[action.kind]} after {duration(elapsed_s)}{_endpoint(action)}")

    def failed(self, failure: Failure, elapsed_s: float) -> None:
        """Say that an action failed."""
        word = self._style.paint("Failed", "red", "bold")
        click.echo(f"{plain(failure.action.replica)}: {word} after {duration(elapsed_s)}: {plain(failure.message)}")

    def skipped(self, action: Action, why: str) -> None:
        """Say that an action was not begun."""
        click.echo(f"{plain(action.replica)}: Not begun: {plain(why)}")

    def summary(self, outcome: Outcome, operation: str, left: int = 0) -> None:
        """Say what was done, and what failed and why; `left` counts what could not be looked at."""
        parts = [f"{outcome.count(kind)} {word}" for kind, word in _SUMMARY.items() if outcome.count(kind)]
        whole = not (outcome.failures or outcome.skipped or outcome.interrupted or left)
        head = f"{operation.capitalize()} complete!" if whole else f"{operation.capitalize()} incomplete."
        click.echo("\n" + self._style.paint(f"{head} {', '.join(parts) or 'Nothing had to change'}.", "bold"))
        if outcome.skipped:
            click.echo(f"Not begun: {', '.join(plain(a.replica) for a in outcome.skipped)}")
        for failure in outcome.failures:
            click.echo(f"\n{self._style.paint('Failed:', 'red', 'bold')} {plain(failure.message)}")
            if failure.detail:
                click.echo("  " + printable(failure.detail).replace("\n", "\n  "))


class JsonReport:
    """One JSON object a line."""

    def begun(self, action: Action) -> None:
        """Say that an action starts."""
        document = action_document(action)
        _emit("begun", action, reason=document["reason"], placement=document["placement"])

    def waiting(self, action: Action, what: str, elapsed_s: float) -> None:
        """Say that an action still goes on."""
        _emit("waiting", action, what=what, elapsed_s=round(elapsed_s, 1))

    def done(self, action: Action, elapsed_s: float) -> None:
        """Say that an action succeeded."""
        _emit("done", action, elapsed_s=round(elapsed_s, 1))

    def failed(self, failure: Failure, elapsed_s: float) -> None:
        """Say that an action failed."""
        _emit("failed", failure.action, message=failure.message, detail=failure.detail, elapsed_s=round(elapsed_s, 1))

    def skipped(self, action: Action, why: str) -> None:
        """Say that an action was not begun."""
        _emit("skipped", action, why=why)

    def summary(self, outcome: Outcome, operation: str, left: int = 0) -> None:
        """Say what was done; `left` counts what could not be looked at."""
        print_json(
            {
                "type": "summary",
                "operation": operation,
                "done": len(outcome.done),
                "failed": len(outcome.failures),
                "skipped": len(outcome.skipped),
                "deferred": left,
                "interrupted": outcome.interrupted,
            },
            compact=True,
        )


def _endpoint(action: Action) -> str:
    if not action.starts or not action.launches:
        return ""
    head = action.launches[0]
    address = f"[{head.address}]" if ":" in head.address else head.address
    return f" [http://{address}:{head.port}{', simulated' if action.simulated else ''}]"


def _emit(event: str, action: Action, **fields: object) -> None:
    print_json({"type": event, "action": action.kind.value, "replica": action.replica, **fields}, compact=True)
