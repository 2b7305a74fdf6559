"""How a script is packed before it is written to a shell's standard input."""

from __future__ import annotations

SHELL = "exec /bin/sh -s"
"""Read alike by sh, bash, zsh, fish, csh and tcsh, the login shells that may have to start it."""

SUDO_SHELL = "exec sudo -n /bin/sh -s"


def whole(script: str) -> bytes:
    """Return a text that runs the script only if all of it arrives; its commands can't read what follows it."""
    return f"{{\n{script}\n}} </dev/null\nexit\n".encode()


def watched(script: str) -> bytes:
    """Return a text that runs the script, and ends it with all its children once standard input is closed.

    The shell must lead its own process group: sshd and our local runner see to that.
    """
    # A background list gets /dev/null for its standard input before its own redirections: hence the detour by 3.
    return f"""{{
exec 3<&0
{{
{script}
}} </dev/null 3<&- &
script=$!
{{ cat; trap '' TERM; kill -TERM 0; }} <&3 >/dev/null 2>&1 &
watcher=$!
wait "$script"
status=$?
kill "$watcher" 2>/dev/null
exit "$status"
}}
""".encode()
