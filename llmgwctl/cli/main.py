"""The command tree, and how a failure becomes an exit code."""

from __future__ import annotations

import errno
import importlib
import io
import os
import sys
from collections.abc import Sequence
from typing import Any

import click
from click.core import ParameterSource

from llmgwctl import __version__
from llmgwctl.errors import ConfigError, LlmgwctlError

EXIT_USAGE, EXIT_INTERRUPTED, EXIT_PIPE = 64, 130, 141
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)

# Name: the module that has it, and its line in --help. A command's module is imported when it runs, so that
# `--help` stays instant.
COMMANDS = {
    "init": ("llmgwctl.cli.configuration", "Write a small, valid configuration for this machine or for hosts."),
    "validate": ("llmgwctl.cli.configuration", "Check the configuration; tell every problem at once."),
    "fmt": ("llmgwctl.cli.configuration", "Rewrite the configuration in its normal form, comments kept."),
    "plan": ("llmgwctl.cli.planning", "Show what would start where, what would stop, and why."),
    "apply": ("llmgwctl.cli.applying", "Do what the plan says."),
    "destroy": ("llmgwctl.cli.applying", "Stop every replica of ours, and leave nothing behind."),
    "show": ("llmgwctl.cli.planning", "Show a saved plan."),
    "status": ("llmgwctl.cli.looking", "Show each replica: where it runs, its phase and its endpoint."),
    "inventory": ("llmgwctl.cli.looking", "Look at all hosts: cores, memory, GPUs and who takes them."),
    "logs": ("llmgwctl.cli.looking", "Show a replica's log."),
}


class LazyGroup(click.Group):
    """A group whose commands are imported when they are run."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names in the order of the table."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return a command."""
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = getattr(importlib.import_module(COMMANDS[cmd_name][0]), f"{cmd_name}_command")
        _name_variables(command, cmd_name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the table without importing anything."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Say which command may have been meant."""
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            import difflib

            close = difflib.get_close_matches(args[0], COMMANDS, n=1)
            hint = f" Did you mean {close[0]!r}?" if close else ""
            raise click.UsageError(f"There is no command {args[0]!r}.{hint}", ctx)
        return super().resolve_command(ctx, args)


@click.group(
    cls=LazyGroup,
    context_settings={
        "help_option_names": ["-h", "--help"],
        "auto_envvar_prefix": "LLMGWCTL",
        "max_content_width": 110,
    },
    epilog="Exit codes: 0 done or nothing to do, 1 error, 2 changes pending (plan --detailed-exitcode), "
    "3 configuration invalid, 4 not everything can be placed (--require-all), 5 state, lock or stale plan, "
    "6 host unreachable, "
    "7 apply incomplete, 64 usage, 130 interrupted.",
)
@click.option("-C", "directory", metavar="DIR", default=".", help="The configuration directory (default: this one).")
@click.option("--color", type=click.Choice(["auto", "always", "never"]), default="auto", help="Colours in the output.")
# Scripts that install a given version may well have it in LLMGWCTL_VERSION.
@click.version_option(__version__, prog_name="llmgwctl", allow_from_autoenv=False)
@click.pass_context
def cli(ctx: click.Context, directory: str, color: str) -> None:
    """Plan and apply for a fleet of GPU hosts that serve language models."""
    ctx.color = {"always": True, "never": False}.get(color)
    ctx.obj = {"directory": directory, "color": color}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    _ready_streams()
    try:
        code = cli.main(
            args=None if arguments is None else list(arguments), prog_name="llmgwctl", standalone_mode=False
        )
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except click.exceptions.Exit as leave:
        return leave.exit_code
    except click.UsageError as problem:
        problem.show()
        _tell_variable(problem)
        return EXIT_USAGE
    except click.ClickException as problem:
        problem.show()
        return 1
    except (click.Abort, KeyboardInterrupt):
        click.echo("Interrupted.", err=True)
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        # Whoever read our output has gone; nothing can be told to them.
        _print_nowhere()
        return EXIT_PIPE
    except LlmgwctlError as problem:
        _tell(problem)
        return problem.exit_code
    except OSError as problem:
        if problem.errno not in _NO_ROOM or problem.filename is not None:
            return _own_fault(problem)
        _print_nowhere()
        click.echo(f"Error: What was to be printed can't be written: {problem.strerror}.", err=True)
        return 1
    except Exception as problem:
        return _own_fault(problem)


def _name_variables(command: click.Command, name: str) -> None:
    """Let each option be given by LLMGWCTL_COMMAND_OPTION; click would take the names of our parameters."""
    for option in command.params:
        long = [o.removeprefix("--") for o in option.opts if o.startswith("--")]
        if isinstance(option, click.Option) and long:
            option.envvar = f"LLMGWCTL_{name}_{long[0]}".replace("-", "_").upper()


def _tell_variable(problem: click.UsageError) -> None:
    """Say where a value came from that nobody typed."""
    option = problem.param if isinstance(problem, click.BadParameter) else None
    if problem.ctx is None or option is None or option.name is None or option.envvar is None:
        return
    if problem.ctx.get_parameter_source(option.name) is ParameterSource.ENVIRONMENT:
        click.echo(f"  The value comes from {option.envvar}.", err=True)


def _ready_streams() -> None:
    """Make printing safe: a closed stream leads nowhere, and a character that the terminal lacks is escaped."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _print_nowhere() -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _own_fault(problem: Exception) -> int:
    if os.environ.get("LLMGWCTL_DEBUG"):
        raise problem
    click.echo(f"Error: llmgwctl failed on its own: {type(problem).__name__}: {problem}", err=True)
    click.echo("  This is a bug. LLMGWCTL_DEBUG=1 shows where; please report it.", err=True)
    return 1


def _tell(problem: LlmgwctlError) -> None:
    from llmgwctl.cli.output import style_for
    from llmgwctl.render.text import Style, diagnostics_text, printable

    context: Any = click.get_current_context(silent=True)
    style = style_for(sys.stderr, context.obj["color"]) if context and context.obj else Style()
    if isinstance(problem, ConfigError):
        click.echo(diagnostics_text(problem.diagnostics, style), err=True)
        return
    click.echo(f"{style.paint('Error:', 'red', 'bold')} {printable(problem.message)}", err=True)
    if problem.detail:
        click.echo("  " + printable(problem.detail).replace("\n", "\n  "), err=True)
