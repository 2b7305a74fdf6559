"""A host's session over a login shell that prints whatever it likes, before the script and on both streams."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest

from llmgwctl.domain.desired import Connection, Host
from llmgwctl.errors import LlmgwctlError
from llmgwctl.hosts.answers import after_mark
from llmgwctl.hosts.local import LocalTransport
from llmgwctl.hosts.session import GatherRequest, Life, StartRefusedError
from llmgwctl.hosts.shell import ShellSession

from .members import folder, listening, member, port, shell, wait_for

__all__ = ["member", "port", "shell"]

BANNER = "ended 3 1\nActiveState=failed\nWelcome to the machine"
HOST = Host("here", "127.0.0.1", connection=Connection.LOCAL)


class NoisyTransport(LocalTransport):
    """As a login whose ~/.bashrc prints; then it becomes our shell, or something that is none."""

    def __init__(self, host: Host, then: str = "exec /bin/sh -s") -> None:
        super().__init__(host)
        self._argv = ["/bin/sh", "-c", f'printf %s "$1"; printf %s "$1" >&2; {then}', "-", BANNER]


@pytest.fixture
def session():
    return ShellSession(HOST, NoisyTransport, command_timeout_s=60)


def test_a_banner_is_in_no_answer(session, member, port):
    """Neither in a status, nor in a boot id, a log, an error or a stop."""
    order = member()
    wait_for(lambda: listening(port), "the engine did not start")
    found = session.status(order.launch)
    assert (found.life, found.restarts, found.detail) == (Life.ALIVE, 0, "")
    session.mark_ready(order.launch)
    wait_for(lambda: "engine runs" in session.log_tail(order.launch.root, "m.0.0", 5), "nothing was logged")
    assert session.log_tail(order.launch.root, "m.0.0", 5) == "engine runs\n"
    session.gather(GatherRequest(replica_dir=order.launch.root))
    with pytest.raises(StartRefusedError) as caught:
        session.start(order)
    assert caught.value.message.endswith(f"there is already a replica in {folder(order)}")
    session.stop(order.launch, "lineage")
    assert not listening(port)
    session._supervisor = "setsid"
    boot_id = session.start(replace(order, launch=replace(order.launch, argv=("sleep", "600"), port=1)))
    assert len(boot_id) == 36
    assert "\n" not in boot_id
    session.stop(order.launch, "lineage")


def test_a_banner_is_in_no_log_that_is_followed(session, tmp_path):
    """Also where the answer comes in pieces."""
    (tmp_path / "m.0.0").mkdir()
    (tmp_path / "m.0.0" / "log").write_text("one\ntwo\n")
    stop, seen = threading.Event(), bytearray()

    def on_data(data: bytes) -> None:
        seen.extend(data)
        if seen.endswith(b"two\n"):
            stop.set()

    session.follow_log(str(tmp_path), "m.0.0", 10, on_data, stop)
    assert seen == b"one\ntwo\n"


@pytest.mark.parametrize("size", [1, 2, 7, 1000])
def test_the_mark_is_found_in_pieces_of_any_size(size):
    """What follows it comes whole, and nothing before it."""
    seen = bytearray()
    receive = after_mark(seen.extend, "mark")
    text = b"noise mark\nmark \n\nmark\nthe log\nmark\n"
    for start in range(0, len(text), size):
        receive(text[start : start + size])
    assert seen == b"the log\nmark\n"


def test_a_shell_that_runs_no_script_is_an_error_with_its_words(member, port):
    """A login that prints and ends must not look like an answer."""
    order = member()
    silent = ShellSession(HOST, lambda host: NoisyTransport(host, "exit 0"), command_timeout_s=60)
    for ask in (lambda: silent.status(order.launch), lambda: silent.stop(order.launch, "lineage")):
        with pytest.raises(LlmgwctlError, match=r"no script can be run there: .*Welcome to the machine"):
            ask()


@pytest.mark.parametrize(
    ("root", "what"),
    [
        ("/a\nb", "control character"),
        ("/a\tb", "control character"),
        ('/a"b', "double quote"),
        ("/a\\b", "backslash"),
        ("a", "absolute"),
    ],
)
def test_a_root_that_systemd_cannot_have_is_refused(session, member, root, what):
    """A snapshot or a home folder may lead there too, past the settings."""
    order = member()
    with pytest.raises(StartRefusedError, match=what):
        session.start(replace(order, launch=replace(order.launch, root=root, folder="n.0.0")))
