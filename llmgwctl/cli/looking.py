"""`status`, `inventory` and `logs`."""

from __future__ import annotations

import codecs
import json
import signal
import sys
import threading

import click

from llmgwctl.cli.output import (
    directory_option,
    gather_progress,
    json_option,
    print_json,
    warn,
    workspace_of,
    write_file,
)


@click.command("status")
@directory_option
@json_option
@click.pass_context
def status_command(ctx: click.Context, *, as_json: bool) -> None:
    """Show each replica: model, host, GPUs, port, phase, age and endpoint."""
    from llmgwctl.app.gathering import must_reach_some
    from llmgwctl.app.status import fleet_status
    from llmgwctl.render.status import status_document, status_text

    workspace = workspace_of(ctx)
    with workspace.sessions() as sessions:
        rows, observation = fleet_status(workspace, sessions, gather_progress())
    if as_json:
        print_json(status_document(rows, observation.nodes))
    else:
        click.echo(status_text(rows, observation.nodes))
    must_reach_some(observation)


@click.command("inventory")
@directory_option
@json_option
@click.option("--out", metavar="FILE", help="Save the inventory, for plan --inventory FILE.")
@click.pass_context
def inventory_command(ctx: click.Context, *, as_json: bool, out: str | None) -> None:
    """Look at all hosts at once: cores, memory, GPUs and who takes them, engines, replicas of ours."""
    from llmgwctl.app.gathering import gather_fleet, must_reach_some
    from llmgwctl.render.inventory import inventory_text
    from llmgwctl.store.snapshot import snapshot_document

    workspace = workspace_of(ctx)
    if out:
        workspace.must_not_overwrite(out)
    lineage = workspace.store().load().lineage
    with workspace.sessions() as sessions:
        observation = gather_fleet(workspace.desired, sessions, lineage, progress=gather_progress())
    document = snapshot_document(observation)
    if out:
        write_file(out, json.dumps(document, indent=1, ensure_ascii=False) + "\n")
    if as_json:
        print_json(document)
    elif out:
        reached = sum(n.reachable for n in observation.nodes)
        click.echo(f"Saved {out}: {len(observation.nodes)} hosts, {reached} of them reached.")
    else:
        click.echo(inventory_text(observation))
    warn(ctx, ())
    must_reach_some(observation)


@click.command("logs")
@directory_option
@click.argument("replica")
@click.option("-f", "--follow", is_flag=True, help="Go on as the log grows.")
@click.option(
    "-n", "--lines", type=click.IntRange(0, 1_000_000), default=200, show_default=True, help="Lines to begin with."
)
@click.option("--member", type=click.IntRange(0), default=0, help="Which member of a multi-node replica.")
@click.pass_context
def logs_command(ctx: click.Context, *, replica: str, follow: bool, lines: int, member: int) -> None:
    """Show a replica's log."""
    from llmgwctl.app.status import show_log
    from llmgwctl.render.text import printable

    workspace = workspace_of(ctx)
    stop = threading.Event()
    if follow:
        signal.signal(signal.SIGINT, lambda *_: stop.set())
        signal.signal(signal.SIGTERM, lambda *_: stop.set())

    decode = codecs.getincrementaldecoder("utf-8")(errors="replace").decode
    to_terminal = sys.stdout.isatty()

    def write(data: bytes) -> None:
        # A pipe gets the log as it is; on a terminal only colours may come through.
        shown = printable(decode(data), colours=True).encode() if to_terminal else data
        sys.stdout.buffer.write(shown)
        sys.stdout.buffer.flush()

    with workspace.sessions() as sessions:
        show_log(workspace, sessions, replica, member=member, lines=lines, follow=follow, on_data=write, stop=stop)
