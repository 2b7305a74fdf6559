"""What servers, proxies and login shells say is in the reason: bounded, on one line, without control characters."""

from __future__ import annotations

import contextlib
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import paramiko
import pytest
from support.sshd import IS_ROOT, Sshd, make_key, user

from llmgwctl.domain.desired import Host
from llmgwctl.errors import LlmgwctlError
from llmgwctl.hosts.session import GatherRequest
from llmgwctl.hosts.shell import ShellSession
from llmgwctl.hosts.transport import HttpRequest, TransportError
from transport.conftest import Client, failure, listener

pytestmark = pytest.mark.sshd


def behind(client: Client, command: str) -> TransportError:
    """Return why a host behind a proxy command can't be reached."""
    client.ssh_config.write_text(f"Host gpu-x\n  HostName 127.0.0.1\n  ProxyCommand {command}\n")
    return failure(client.connector(connect_timeout_s=2).connect(Host("gpu-1", "gpu-x")))


def test_a_proxy_command_that_does_not_exist(client: Client):
    """Its shell's words and exit status are told, and that it is the ProxyCommand."""
    problem = behind(client, "no-such-relay %h %p")
    assert problem.code == "proxy"
    assert "its ProxyCommand ended with exit status 127: " in problem.message
    assert "no-such-relay: not found" in problem.message
    assert "MaxStartups" not in problem.message
    assert "tries" not in problem.message, "a command that isn't there was tried again"


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("echo first >&2; printf 'la\\033[31mst\\007 \\377line\\n\\n' >&2; exit 3", "exit status 3: last? \ufffdline"),
        ("exit 1", "exit status 1 without a word"),
        ("kill -9 $$", "signal 9 without a word"),
        ("yes 0123456789 | head -c 300000 >&2; printf '\\nthe end' >&2; exit 4", "exit status 4: the end"),
        ("yes 0123456789 | tr -d '\\n' | head -c 300000 >&2; exit 5", "exit status 5: "),
    ],
)
def test_a_proxy_command_that_fails(client: Client, script: str, words: str):
    """Exit status and the last line of its error output are told: without control characters, and bounded."""
    relay = client.home / "relay"
    relay.write_text(f"{script}\n")
    problem = behind(client, f"sh {relay}")
    assert problem.code == "proxy"
    assert words in problem.message
    assert problem.message.isprintable()
    assert len(problem.message) < 600


def test_a_proxy_command_that_says_why_it_waits(client: Client):
    """A proxy that is still there at the time-out is named with its last words, not taken for an sshd."""
    relay = client.home / "relay"
    relay.write_text("echo waiting for the token >&2; exec sleep 60\n")
    problem = behind(client, f"sh {relay}")
    assert problem.code == "timeout"
    assert "its ProxyCommand" in problem.message
    assert "waiting for the token" in problem.message


def test_a_proxy_command_whose_server_ends_the_login(client: Client, server: Sshd):
    """A refusal by the server behind a proxy is the server's, not the proxy's."""
    server.authorized_keys.write_text("")
    relay = client.home / "relay.py"
    relay.write_text(
        "import os,socket,sys,threading\ns=socket.create_connection((sys.argv[1],int(sys.argv[2])))\n"
        "def up():\n  while d:=os.read(0,65536): s.sendall(d)\n"
        "threading.Thread(target=up,daemon=True).start()\nwhile d:=s.recv(65536): os.write(1,d)\n"
    )
    client.ssh_config.write_text(f"Host gpu-x\n  HostName 127.0.0.1\n  ProxyCommand {sys.executable} {relay} %h %p\n")
    problem = failure(client.connector().connect(Host("gpu-1", "gpu-x", port=server.port)))
    assert problem.code == "auth"
    assert "ProxyCommand" not in problem.message


WORDS = "Go\x1b[2J away\x07\r\n\u202eevil " + "x" * 5000


class Rude(paramiko.ServerInterface):
    """A server that refuses every key; at key number `hang_up_at` it closes the connection instead.

    With `says` it disconnects with these words before it answers the first key.
    """

    def __init__(self, transport: paramiko.Transport, methods: str, hang_up_at: int, says: str) -> None:
        self._transport, self._methods, self._left, self._says = transport, methods, hang_up_at, says

    def check_auth_publickey(self, username: str, key: paramiko.PKey) -> int:
        self._left -= 1
        if self._says:
            message = paramiko.Message()
            message.add_byte(bytes([paramiko.common.MSG_DISCONNECT]))
            message.add_int(11)
            message.add_string(self._says.encode() + b"\xff")
            message.add_string("")
            self._transport._send_message(message)
        if self._left == 0:
            self._transport.sock.close()
        return paramiko.AUTH_FAILED

    def get_allowed_auths(self, username: str) -> str:
        return self._methods


@contextmanager
def rude(client: Client, *, methods: str = "publickey", hang_up_at: int = 0, says: str = "") -> Iterator[Host]:
    """Serve rudely; with `says` the connection ends with a disconnect message during the login."""
    key = paramiko.RSAKey.generate(2048)
    served: list[paramiko.Transport] = []

    def begin(connection: socket.socket) -> None:
        transport = paramiko.Transport(connection)
        transport.add_server_key(key)
        served.append(transport)
        threading.Thread(target=serve, args=(transport,), daemon=True).start()

    def serve(transport: paramiko.Transport) -> None:
        transport.start_server(server=Rude(transport, methods, hang_up_at, says))

    with listener(begin) as port:
        client.known_hosts.write_text(f"[127.0.0.1]:{port} ssh-rsa {key.get_base64()}\n")
        yield Host("gpu-1", "127.0.0.1", port=port)
    for transport in served:
        transport.close()
    assert len(served) == 1, "a refusal was tried again"


def test_a_disconnect_message_is_told_without_its_control_characters(client: Client):
    """What the server says as it ends the login is the reason; it is cut and can't steer a terminal."""
    with rude(client, says=WORDS) as host:
        problem = failure(client.connector(connect_timeout_s=5).connect(host))
    assert "Go away" in problem.message
    assert problem.message.isprintable()
    assert len(problem.message) < 1000


def test_methods_that_a_server_offers_are_told_without_their_control_characters(client: Client):
    """The list of methods is the server's text, too."""
    with rude(client, methods="\x1b[31mpass\x07word," + "y" * 5000) as host:
        problem = failure(client.connector(connect_timeout_s=5).connect(host))
    assert "accepts no keys, only: pass?word" in problem.message
    assert problem.message.isprintable()
    assert len(problem.message) < 1000


def test_a_server_that_closes_after_a_refused_key(client: Client):
    """Without a message too, a close after a refused key is a refusal: it is told at once, with what may help."""
    client.ssh_config.write_text(
        f"Host *\n  IdentityFile {client.key}\n  IdentityFile {make_key(client.home / 'other')}\n"
    )
    with rude(client, hang_up_at=2) as host:
        problem = failure(client.connector(connect_timeout_s=5).connect(host))
    assert problem.code == "auth"
    assert "after 1 refused key" in problem.message
    assert "MaxAuthTries" in problem.message


def test_words_instead_of_a_banner_are_told_without_their_control_characters(client: Client):
    """`Exceeded MaxStartups`, and whatever a server puts behind it."""

    def full(connection: socket.socket) -> None:
        connection.sendall(b"Exceeded MaxStartups\x1b[2J\x07 now\r\n")
        connection.close()

    with listener(full) as port:
        problem = failure(client.connector(connect_timeout_s=1).connect(Host("gpu-1", "127.0.0.1", port=port)))
    assert problem.code == "reset"
    assert "Exceeded MaxStartups? now" in problem.message
    assert problem.message.isprintable()


def test_a_port_that_answers_with_control_characters(client: Client, server: Sshd):
    """What an engine's port says instead of HTTP is shown without them, and cut."""

    def garbage(connection: socket.socket) -> None:
        connection.sendall(b"\x1b[2J\x07garbage" + b"x" * 5000 + b"\r\n\r\n")
        connection.close()

    with listener(garbage) as port, pytest.raises(TransportError) as caught:
        client.to(server).http("127.0.0.1", port, HttpRequest("GET", "/"), timeout_s=10)
    assert "garbage" in caught.value.message
    assert caught.value.message.isprintable()
    assert len(caught.value.message) < 600


@pytest.mark.parametrize(
    ("shell", "words", "status"),
    [
        ("printf 'The \\033[31mcluster\\007 is\\nclosed\\n' >&2; exit 7", "The cluster? is closed", 7),
        ("echo This account is currently not available.; exit 1", "This account is currently not available.", 1),
        ("echo This account is currently not available. >&2; exit 1", "This account is currently not available.", 1),
        ("echo Welcome; echo 'Come back at noon' >&2; exit 3", "Welcome; Come back at noon", 3),
        ("seq 1000; echo the end; exit 4", "999 1000 the end", 4),
        ("exit 5", "", 5),
    ],
)
def test_a_login_shell_that_starts_nothing(client: Client, server: Sshd, shell: str, words: str, status: int):
    """Its words are in the reason, on whichever stream they come, for a look at the host and for a change of it."""
    if not IS_ROOT:
        pytest.skip("making users needs root")
    file = server.folder / "shell"
    file.write_text(f"#!/bin/sh\n{shell}\n")
    file.chmod(0o755)
    with user("shut", str(file)) as login:
        host = client.host(server, user=login)
        with contextlib.closing(ShellSession(host, client.connector().connect, command_timeout_s=20)) as session:
            for use in (lambda: session.gather(GatherRequest()), lambda: session.log_tail("/tmp", "x", 5)):
                with pytest.raises(LlmgwctlError) as caught:
                    use()
                assert words in caught.value.message
                assert f"exit status {status}" in caught.value.message
                assert caught.value.message.isprintable()
                assert len(caught.value.message) < 400


def test_a_shell_that_ends_before_it_has_read_its_script(client: Client, server: Sshd):
    """It is no broken connection: what it said and its exit status come back."""
    if not IS_ROOT:
        pytest.skip("making users needs root")
    file = server.folder / "shell"
    file.write_text("#!/bin/sh\necho closed; exit 9\n")
    file.chmod(0o755)
    with user("shut", str(file)) as login:
        done = client.to(server, user=login).run("#" + "x" * 8_000_000, timeout_s=20)
    assert (done.exit_status, done.stdout) == (9, b"closed\n")
