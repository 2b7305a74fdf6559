"""Logins at a real sshd: what works, and in which words the rest fails."""

from __future__ import annotations

import re
import socket
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from support.sshd import Sshd, free_port, make_key

from llmgwctl.domain.desired import Host
from transport.conftest import Client, failure, listener

pytestmark = pytest.mark.sshd


def test_a_good_login_runs_a_script(client: Client, server: Sshd):
    """A trusted server and an accepted key: output, errors and exit status come back."""
    done = client.to(server).run("echo out; echo err >&2; exit 3", timeout_s=20)
    assert (done.exit_status, done.stdout, done.stderr) == (3, b"out\n", b"err\n")


def test_an_unknown_host_key_is_refused_with_the_way_out(client: Client, serve: Callable[..., Sshd]):
    """Strict by default: a host that no file knows gets nothing, and the error names ssh-keyscan and accept-new."""
    server = serve()
    problem = failure(client.to(server))
    assert problem.code == "host_key_unknown"
    assert f"ssh-keyscan -p {server.port} 127.0.0.1" in problem.message
    assert "accept-new" in problem.message
    assert "SHA256:" in problem.message
    assert "gpu-1" in problem.message
    assert client.known_hosts.read_text() == ""


def test_a_changed_host_key_names_the_old_line_and_both_fingerprints(client: Client, server: Sshd, tmp_path: Path):
    """Another key than the known one is never accepted, not even with accept-new."""
    other = make_key(tmp_path / "other")
    kind, text = Path(f"{other}.pub").read_text().split()[:2]
    line = f"# a comment\n[127.0.0.1]:{server.port} {kind} {text}\n"
    client.known_hosts.write_text(line)
    for host_keys in ("strict", "accept-new"):
        problem = failure(client.to(server, host_keys=host_keys))
        assert problem.code == "host_key_changed"
        assert f"{client.known_hosts}:2" in problem.message
        assert len(set(re.findall(r"SHA256:\S{43}", problem.message))) == 2
    assert client.known_hosts.read_text() == line


def test_a_known_key_of_another_type_counts_as_changed(client: Client, server: Sshd, tmp_path: Path):
    """A server that can't show the known RSA key can't get in by showing an ed25519 key."""
    other = make_key(tmp_path / "rsa", "rsa")
    kind, text = Path(f"{other}.pub").read_text().split()[:2]
    client.known_hosts.write_text(f"[127.0.0.1]:{server.port} {kind} {text}\n")
    assert failure(client.to(server, host_keys="accept-new")).code == "host_key_changed"


def test_a_server_with_several_keys_is_asked_for_the_known_one(client: Client, serve: Callable[..., Sshd]):
    """known_hosts has only the RSA key; the server would offer ed25519 first."""
    server = serve(host_key_types=("ed25519", "ecdsa", "rsa"))
    client.known_hosts.write_text(server.known_lines().splitlines()[2] + "\n")
    assert client.to(server).run("echo hi", timeout_s=20).stdout == b"hi\n"


def test_accept_new_records_the_key_once(client: Client, serve: Callable[..., Sshd]):
    """accept-new writes the line; afterwards strict is content, and parallel logins write no second line."""
    server = serve()
    client.known_hosts.write_text("other ssh-ed25519 AAAA")
    connector = client.connector(host_keys="accept-new")
    transports = [connector.connect(client.host(server, f"gpu-{n}")) for n in range(6)]
    threads = [threading.Thread(target=t.run, args=("true",), kwargs={"timeout_s": 20}) for t in transports]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert client.known_hosts.read_text() == "other ssh-ed25519 AAAA\n" + server.known_lines()
    assert client.to(server).run("echo hi", timeout_s=20).stdout == b"hi\n"


def test_a_hashed_name_is_found(client: Client, server: Sshd):
    """ssh-keygen -H leaves no readable name, and the host is known all the same."""
    subprocess.run(["ssh-keygen", "-q", "-H", "-f", client.known_hosts], check=True, capture_output=True)
    assert "127.0.0.1" not in client.known_hosts.read_text()
    assert client.to(server).run("echo hi", timeout_s=20).stdout == b"hi\n"


def test_a_revoked_key_is_refused(client: Client, server: Sshd):
    """@revoked outranks a line that knows the same key."""
    client.known_hosts.write_text(server.known_lines() + "@revoked * " + server.known_lines().split(" ", 1)[1])
    problem = failure(client.to(server))
    assert problem.code == "host_key_changed"
    assert "revoked" in problem.message


def test_a_certificate_authority_is_said_to_be_unsupported(client: Client, serve: Callable[..., Sshd]):
    """A host that only a @cert-authority line knows is not silently unknown."""
    server = serve()
    client.known_hosts.write_text("@cert-authority * " + server.known_lines().split(" ", 1)[1])
    problem = failure(client.to(server))
    assert problem.code == "host_key_unknown"
    assert "@cert-authority" in problem.message


def test_a_key_that_the_host_does_not_know(client: Client, serve: Callable[..., Sshd]):
    """The error says which keys were tried, by fingerprint and file, and shows no key material."""
    server = serve()
    client.trust(server)
    server.authorized_keys.write_text("")
    problem = failure(client.to(server))
    assert problem.code == "auth"
    assert str(client.key) in problem.message
    assert "authorized_keys" in problem.message
    assert "PRIVATE KEY" not in problem.message


def test_no_key_at_all(client: Client, server: Sshd):
    """Without agent and files nothing is tried and nothing is asked for."""
    client.key.unlink()
    problem = failure(client.to(server))
    assert problem.code == "no_key"
    assert "id_ed25519" in problem.message


def test_a_key_with_a_passphrase_and_no_agent(client: Client, server: Sshd):
    """The error says that the key has a passphrase and that ssh-add helps."""
    client.key.unlink()
    client.key.with_name("id_ed25519.pub").unlink()
    make_key(client.key, passphrase="a-passphrase")
    problem = failure(client.to(server))
    assert problem.code == "no_key"
    assert f"ssh-add {client.key}" in problem.message


@pytest.mark.parametrize("kind", ["ecdsa", "rsa"])
def test_other_kinds_of_keys_log_in(client: Client, server: Sshd, tmp_path: Path, kind: str):
    """ECDSA and RSA identity files work, named by IdentityFile."""
    server.authorized_keys.write_text("")
    server.authorize(make_key(tmp_path / "mine", kind))
    client.ssh_config.write_text(f"Host 127.0.0.1\n  IdentityFile {tmp_path}/mine\n")
    assert client.to(server).run("echo hi", timeout_s=20).stdout == b"hi\n"


def test_a_user_certificate_logs_in(client: Client, server: Sshd, tmp_path: Path):
    """A -cert.pub beside the key is shown, where only the authority is authorized."""
    authority = make_key(tmp_path / "ca")
    user = client.settings.user
    command = ["ssh-keygen", "-q", "-s", authority, "-I", "test", "-n", user, client.key]
    subprocess.run(command, check=True, capture_output=True)
    server.authorized_keys.write_text("")
    server.authorize(authority, "cert-authority")
    assert client.to(server).run("echo hi", timeout_s=20).stdout == b"hi\n"


@pytest.mark.usefixtures("agent")
def test_the_agent_holds_the_key(client: Client, server: Sshd):
    """A key that only the agent can use logs in, for several hosts at once; IdentityAgent none turns it off."""
    subprocess.run(["ssh-add", "-q", client.key], check=True, capture_output=True)
    client.key.unlink()
    connector = client.connector()
    answers = []

    def one(number: int) -> None:
        answers.append(connector.connect(client.host(server, f"gpu-{number}")).run("echo hi", timeout_s=20).stdout)

    threads = [threading.Thread(target=one, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == [b"hi\n"] * 8
    client.ssh_config.write_text("IdentityAgent none\n")
    assert failure(client.to(server)).code == "no_key"


@pytest.mark.usefixtures("agent")
def test_an_agent_with_many_keys_does_not_use_up_the_tries(client: Client, server: Sshd, tmp_path: Path):
    """The configured key is tried before the agent's eight others: sshd ends a login after six."""
    for number in range(8):
        subprocess.run(["ssh-add", "-q", make_key(tmp_path / f"other{number}")], check=True, capture_output=True)
    client.ssh_config.write_text(f"Host *\n  IdentityFile {client.key}\n  IdentitiesOnly yes\n")
    assert client.to(server).run("echo hi", timeout_s=20).stdout == b"hi\n"


def test_a_refused_port(client: Client):
    """No sshd there: refused, with address and port."""
    port = free_port()
    problem = failure(client.connector().connect(Host("gpu-1", "127.0.0.1", port=port)))
    assert problem.code == "refused"
    assert f"127.0.0.1:{port}" in problem.message


def test_a_name_that_does_not_exist(client: Client):
    """An unknown name is told as such."""
    problem = failure(client.connector().connect(Host("gpu-1", "no-such-host.invalid")))
    assert problem.code == "dns"
    assert "no-such-host.invalid" in problem.message


def test_a_server_that_accepts_and_never_speaks(client: Client):
    """It costs the connect time-out and is said to be silent."""
    with listener(lambda connection: None) as port:
        problem = failure(client.connector(connect_timeout_s=0.5).connect(Host("gpu-1", "127.0.0.1", port=port)))
    assert problem.code == "timeout"
    assert "says nothing" in problem.message


def test_a_server_that_says_hello_and_then_hangs(client: Client):
    """A key exchange that never ends costs the connect time-out, too."""
    with listener(lambda connection: connection.sendall(b"SSH-2.0-Hangs\r\n")) as port:
        problem = failure(client.connector(connect_timeout_s=0.5).connect(Host("gpu-1", "127.0.0.1", port=port)))
    assert problem.code == "timeout"
    assert "key exchange" in problem.message


def test_a_server_that_resets(client: Client):
    """Tried a few times (sshd drops logins when it has many), then said in plain words."""

    def reset(connection: socket.socket) -> None:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        connection.close()

    with listener(reset) as port:
        problem = failure(client.connector(connect_timeout_s=3).connect(Host("gpu-1", "127.0.0.1", port=port)))
    assert problem.code == "reset"
    assert "MaxStartups" in problem.message


def test_a_connection_that_is_reset_once_is_tried_again(client: Client, server: Sshd, monkeypatch):
    """A reset can come before the connection stands, or after: it is the same to the user."""
    resets = [ConnectionResetError(104, "Connection reset by peer")]

    class Socket(socket.socket):
        def connect(self, place):
            if resets:
                raise resets.pop()
            super().connect(place)

    monkeypatch.setattr("llmgwctl.hosts.ssh_dial.socket.socket", Socket)
    assert client.to(server).run("echo hi", timeout_s=20).stdout == b"hi\n"
    assert not resets


def test_a_server_that_is_no_ssh_server(client: Client):
    """What it says instead is shown, without control characters."""

    def garbage(connection: socket.socket) -> None:
        connection.sendall(b"HTTP/1.1 400 Bad\x1b[31m Request\r\n\r\n")
        connection.close()

    with listener(garbage) as port:
        problem = failure(client.connector(connect_timeout_s=3).connect(Host("gpu-1", "127.0.0.1", port=port)))
    assert problem.code == "banner"
    assert "HTTP/1.1 400" in problem.message
    assert "\x1b" not in problem.message


def test_dropped_handshakes_are_tried_again(client: Client, serve: Callable[..., Sshd]):
    """A server that drops most logins beyond two at once (MaxStartups 2:60:10) is reached by all of 16."""
    server = serve("MaxStartups 2:60:10")
    client.trust(server)
    connector = client.connector()
    answers = []

    def one(number: int) -> None:
        answers.append(connector.connect(client.host(server, f"gpu-{number}")).run("echo hi", timeout_s=30).stdout)

    threads = [threading.Thread(target=one, args=(n,)) for n in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == [b"hi\n"] * 16


def test_nothing_is_printed_when_a_login_fails(client: Client, serve: Callable[..., Sshd], capfd):
    """The own log of paramiko, which holds tracebacks, stays silent."""
    server = serve()
    failure(client.to(server))
    assert capfd.readouterr() == ("", "")
