"""Where the program begins: an interrupt ends it with one line from the first moment on, while modules load too."""

from __future__ import annotations

import os
import sys

EXIT_INTERRUPTED = 130


def main() -> int:
    """Run the command line; returns the exit code."""
    try:
        sys.unraisablehook = _unraisable
        try:
            from llmgwctl.cli.main import main as run

            return run()
        finally:
            # All is done: an interrupt while the interpreter ends must not be told as a fault.
            import signal

            if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
                signal.signal(signal.SIGINT, signal.SIG_DFL)
    except KeyboardInterrupt:
        return _interrupted()


def _unraisable(problem: sys.UnraisableHookArgs) -> None:
    """End on an interrupt that came where Python can only ignore it, as in the callbacks of an import."""
    if problem.exc_type is KeyboardInterrupt:
        os._exit(_interrupted())
    sys.__unraisablehook__(problem)


def _interrupted() -> int:
    sys.stderr.write("Interrupted.\n")
    sys.stderr.flush()
    return EXIT_INTERRUPTED
