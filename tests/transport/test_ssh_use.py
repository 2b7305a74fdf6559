"""What is done over an SSH connection: scripts, login shells, jump hosts, HTTP, and connections that break."""

from __future__ import annotations

import contextlib
import http.server
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.sshd import IS_ROOT, Sshd, free_port, make_key, user

from llmgwctl.domain.desired import Host
from llmgwctl.domain.inventory import Node
from llmgwctl.hosts.gather import gather
from llmgwctl.hosts.transport import HttpRequest, PortClosedError, TransportError
from transport.conftest import Client

pytestmark = pytest.mark.sshd

SHELLS = {"bash": "/bin/bash", "fish": "/usr/bin/fish", "tcsh": "/usr/bin/tcsh", "dash": "/bin/dash"}


@pytest.mark.parametrize("name", SHELLS)
def test_the_login_shell_does_not_matter(client: Client, server: Sshd, name: str):
    """A script for sh runs alike under bash, fish, tcsh and dash, quotes, here-documents and exit status included."""
    if not IS_ROOT:
        pytest.skip("making users needs root")
    if shutil.which(SHELLS[name]) is None:
        pytest.skip(f"{name} is not installed")
    script = "x='a \"b\" $c !d'\ncat <<'E'\nhere `doc`\nE\nprintf '%s\\n' \"$x\"; [ 1 = 1 ] && exit 7"
    with user(name, SHELLS[name]) as login:
        done = client.to(server, user=login).run(script, timeout_s=30)
    assert (done.exit_status, done.stdout) == (7, b'here `doc`\na "b" $c !d\n')


def test_a_chatty_bashrc_does_not_hide_the_answer(client: Client, server: Sshd):
    """What rc files print comes before the script's output, and both streams arrive."""
    if not IS_ROOT:
        pytest.skip("making users needs root")
    with user("chatty", "/bin/bash") as login:
        home = Path(f"~{login}").expanduser()
        (home / ".bashrc").write_text("echo Welcome to the machine; echo warning >&2\n")
        done = client.to(server, user=login).run("echo begin-1f; echo ok; echo end-1f", timeout_s=30)
    assert done.stdout == b"Welcome to the machine\nbegin-1f\nok\nend-1f\n"
    assert done.stderr == b"warning\n"


def test_a_secret_in_a_script_is_in_no_process_list(client: Client, server: Sshd):
    """The script goes to standard input: neither argv nor environment of any process shows it."""
    script = "token=canary-5e7d\nfor f in /proc/[0-9]*/cmdline; do tr '\\0' ' ' <$f 2>/dev/null; echo; done"
    listed = client.to(server).run(script, timeout_s=20).stdout
    assert b"/bin/sh -s" in listed
    assert b"canary-5e7d" not in listed


def test_commands_in_a_script_cannot_eat_the_script(client: Client, server: Sshd):
    """A command that reads standard input sees its end, not the rest of the script."""
    assert client.to(server).run("cat\necho after", timeout_s=20).stdout == b"after\n"


def test_large_scripts_and_large_answers_on_both_streams(client: Client, server: Sshd):
    """Three megabytes in, and five out on each stream, more than SSH's window holds."""
    text = "x" * 3_000_000
    script = f"printf %s {text} | wc -c\nhead -c 5000000 /dev/zero >&2\nhead -c 5000000 /dev/zero"
    done = client.to(server).run(script, timeout_s=60)
    assert done.stdout[:8] == b"3000000\n"
    assert (len(done.stdout), len(done.stderr)) == (5_000_008, 5_000_000)


def test_a_script_that_hangs_ends_at_its_deadline(client: Client, server: Sshd):
    """The error says that it may still run; the connection is good for the next script."""
    transport = client.to(server)
    with pytest.raises(TransportError) as caught:
        transport.run("sleep 30", timeout_s=0.5)
    assert caught.value.code == "command_timeout"
    assert transport.run("echo next", timeout_s=20).stdout == b"next\n"


def test_a_forced_command_that_hangs_ends_at_the_deadline(client: Client, server: Sshd):
    """A host whose shell never comes to our script does not hold us."""
    server.authorized_keys.write_text("")
    server.authorize(client.key, 'command="sleep 30"')
    with pytest.raises(TransportError) as caught:
        client.to(server).run("echo hi", timeout_s=0.5)
    assert caught.value.code == "command_timeout"


def test_a_killed_script_is_no_answer(client: Client, server: Sshd):
    """A shell that dies by a signal has no exit status; that is an error, not a success."""
    with pytest.raises(TransportError) as caught:
        client.to(server).run("kill -KILL $$", timeout_s=20)
    assert caught.value.code == "closed"


def test_a_connection_that_died_between_two_scripts_is_made_anew(client: Client, server: Sshd):
    """The user of the transport does not notice; the server sees a second login."""
    transport = client.to(server)
    first = transport.run("echo $SSH_CONNECTION", timeout_s=20).stdout
    server.drop_connections()
    second = transport.run("echo $SSH_CONNECTION", timeout_s=20).stdout
    assert second.startswith(b"127.0.0.1 ")
    assert first != second


def test_one_connection_serves_many_scripts_at_once(client: Client, server: Sshd):
    """Twenty scripts at once share the connection, although sshd allows ten sessions (MaxSessions)."""
    transport = client.to(server)
    answers: list[bytes] = []
    threads = [
        threading.Thread(target=lambda: answers.append(transport.run("echo $SSH_CONNECTION", timeout_s=30).stdout))
        for _ in range(20)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(answers) == 20
    assert len(set(answers)) == 1


def test_a_connection_that_breaks_under_a_script_is_not_repeated(client: Client, server: Sshd, tmp_path: Path):
    """A script must not run twice: the break is told, and the script ran once."""
    mark = server.folder / "ran"
    mark.touch()
    mark.chmod(0o666)
    transport = client.to(server)
    failures: list[TransportError] = []

    def run() -> None:
        try:
            transport.run(f"echo once >> {mark}; sleep 30", timeout_s=30)
        except TransportError as problem:
            failures.append(problem)

    thread = threading.Thread(target=run)
    thread.start()
    until = time.monotonic() + 20
    while not mark.read_text() and time.monotonic() < until:
        time.sleep(0.02)
    server.drop_connections()
    thread.join(20)
    assert [f.code for f in failures] == ["closed"]
    assert mark.read_text() == "once\n"


def test_a_followed_log_ends_when_asked_and_leaves_nothing_behind(client: Client, server: Sshd):
    """Data comes as it is written; after `stop` no process of the script is left on the host."""
    log = server.folder / "engine.log"
    log.write_text("one\n")
    log.chmod(0o644)
    stop, seen = threading.Event(), bytearray()

    def on_data(data: bytes) -> None:
        seen.extend(data)
        if b"two" in seen:
            assert _running(f"tail -n 5 -f {log}")
            stop.set()
        else:
            with log.open("a") as file:
                file.write("two\n")

    assert client.to(server).stream(f"tail -n 5 -f {log}", on_data, stop=stop) == 0
    assert seen == b"one\ntwo\n"
    until = time.monotonic() + 10
    while _running(f"tail -n 5 -f {log}") and time.monotonic() < until:
        time.sleep(0.05)
    assert not _running(f"tail -n 5 -f {log}")


def test_a_streamed_script_that_ends_gives_its_status(client: Client, server: Sshd):
    """Without `stop` a stream ends with its script."""
    seen: list[bytes] = []
    assert client.to(server).stream("echo a; exit 4", seen.append, stop=threading.Event()) == 4
    assert b"".join(seen) == b"a\n"


def _running(command: str) -> bool:
    listed = subprocess.run(["ps", "-ww", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    return command in listed.splitlines()


def test_sudo_that_asks_for_a_password_is_told(client: Client, server: Sshd, login: str):
    """With `sudo: true` and no NOPASSWD nothing hangs, and the error says what sudoers needs."""
    if shutil.which("sudo") is None or not IS_ROOT:
        pytest.skip("needs sudo, and root to make a user without rights")
    transport = client.connector().connect(client.host(server, sudo=True))
    with pytest.raises(TransportError) as caught:
        transport.run("id -u", timeout_s=20)
    assert caught.value.code == "auth"
    assert "NOPASSWD" in caught.value.message


class Hello(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = f"{self.command} {self.path} {self.headers['Host']}".encode()
        self.send_response(200 if self.path == "/health" else 503)
        self.send_header("X-Engine", "sim")
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self) -> None:
        self.send_response(201)
        self.end_headers()
        self.wfile.write(self.rfile.read(int(self.headers["Content-Length"])))

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def engine_port() -> Iterator[int]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hello) as engine:
        thread = threading.Thread(target=engine.serve_forever)
        thread.start()
        yield engine.server_port
        engine.shutdown()
        thread.join()


def test_http_through_the_connection(client: Client, server: Sshd, engine_port: int):
    """GET and POST reach a port of the host; status, headers and body come back, errors' too."""
    transport = client.to(server)
    reply = transport.http("127.0.0.1", engine_port, HttpRequest("GET", "/health"), timeout_s=10)
    assert (reply.status, reply.headers["x-engine"]) == (200, "sim")
    assert reply.body == f"GET /health 127.0.0.1:{engine_port}".encode()
    assert transport.http("127.0.0.1", engine_port, HttpRequest("GET", "/x"), timeout_s=10).status == 503
    reply = transport.http("127.0.0.1", engine_port, HttpRequest("POST", "/", body=b"x" * 300_000), timeout_s=10)
    assert (reply.status, len(reply.body)) == (201, 300_000)


def test_a_closed_port_is_told_apart(client: Client, server: Sshd):
    """Nothing listens: the engine still loads. That is no fault of the host."""
    port = free_port()
    with pytest.raises(PortClosedError) as caught:
        client.to(server).http("127.0.0.1", port, HttpRequest("GET", "/"), timeout_s=10)
    assert f"127.0.0.1:{port}" in caught.value.message


def test_an_engine_that_never_answers(client: Client, server: Sshd):
    """A port that accepts and stays silent costs the time-out."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        with pytest.raises(TransportError) as caught:
            client.to(server).http("127.0.0.1", port, HttpRequest("GET", "/"), timeout_s=0.5)
    assert caught.value.code == "timeout"


def test_a_port_that_speaks_no_http(client: Client, server: Sshd):
    """An sshd's banner is no HTTP answer, and the error is in plain words."""
    with pytest.raises(TransportError) as caught:
        client.to(server).http("127.0.0.1", server.port, HttpRequest("GET", "/"), timeout_s=10)
    assert caught.value.code == "protocol"


def test_a_host_that_forbids_forwarding(client: Client, serve: Callable[..., Sshd], engine_port: int):
    """AllowTcpForwarding no is named, instead of "still loading" for ever."""
    server = serve("AllowTcpForwarding no")
    client.trust(server)
    with pytest.raises(TransportError) as caught:
        client.to(server).http("127.0.0.1", engine_port, HttpRequest("GET", "/health"), timeout_s=10)
    assert "AllowTcpForwarding" in caught.value.message


def test_hosts_behind_a_jump_host_share_its_connection(client: Client, serve: Callable[..., Sshd]):
    """Ten hosts behind one jump host: one login there, and HTTP works through it as well."""
    inner, jump = serve(), serve()
    for server in (inner, jump):
        client.trust(server)
    connector = client.connector()
    where = f"{client.settings.user}@127.0.0.1:{jump.port}"
    transports = [connector.connect(client.host(inner, f"gpu-{n}", jump=where)) for n in range(10)]
    seen: list[bytes] = []
    threads = [
        threading.Thread(target=lambda t=t: seen.append(t.run("echo $SSH_CONNECTION", timeout_s=30).stdout))
        for t in transports
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(seen)) == 10
    assert len(_sessions(jump)) == 1
    with pytest.raises(PortClosedError):
        transports[0].http("127.0.0.1", free_port(), HttpRequest("GET", "/"), timeout_s=10)


def _sessions(server: Sshd) -> list[str]:
    command = ["ps", "-o", "args=", "--ppid", str(server.pid)]
    listed = subprocess.run(command, capture_output=True, text=True, check=False)
    return listed.stdout.splitlines()


def test_a_chain_of_jump_hosts_from_the_ssh_configuration(client: Client, serve: Callable[..., Sshd]):
    """ProxyJump a,b with ports and HostName from the file, an Include, and strict keys for all three servers."""
    inner, first, second = serve(), serve(), serve()
    for server in (inner, first, second):
        client.trust(server)
    (client.home / ".ssh" / "more").write_text(f"Host hop-b\n  HostName 127.0.0.1\n  Port {second.port}\n")
    jumps = f"127.0.0.1:{first.port},hop-b"
    client.ssh_config.write_text(
        f"Include more\nHost inner\n  HostName 127.0.0.1\n  Port {inner.port}\n  ProxyJump {jumps}\n"
    )
    transport = client.connector().connect(Host("gpu-1", "inner"))
    assert transport.run("echo hi", timeout_s=30).stdout == b"hi\n"
    assert _sessions(first)
    assert _sessions(second)


def test_a_jump_host_that_cannot_reach_the_host(client: Client, serve: Callable[..., Sshd]):
    """The error names both, and that it was the jump host that could not connect."""
    jump = serve()
    client.trust(jump)
    host = Host("gpu-1", "127.0.0.1", port=free_port(), jump=f"127.0.0.1:{jump.port}")
    with pytest.raises(TransportError) as caught:
        client.connector().connect(host).run("true", timeout_s=10)
    assert caught.value.code == "jump"
    assert f"127.0.0.1:{jump.port}" in caught.value.message
    assert f"127.0.0.1:{host.port}" in caught.value.message


def test_dead_hosts_behind_a_jump_host_do_not_hold_up_the_living(client: Client, serve: Callable[..., Sshd]):
    """Twelve silent hosts, more than logins at once through a jump host, and one that lives behind it: it answers."""
    inner, jump = serve(), serve()
    for server in (inner, jump):
        client.trust(server)
    connector = client.connector(connect_timeout_s=2)
    where = f"127.0.0.1:{jump.port}"

    def probe(host: Host) -> Node:
        connector.connect(host).run("true", timeout_s=20)
        return Node(host.name)

    with contextlib.ExitStack() as stack:
        silent = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(12)]
        hosts = [Host(f"a-{n:02}", "127.0.0.1", port=s.getsockname()[1], jump=where) for n, s in enumerate(silent)]
        hosts.append(client.host(inner, "b", jump=where))
        observed = gather(hosts, probe, workers=13, deadline_s=30, taken_at="2026-01-01T00:00:00Z")
    assert [n.name for n in observed.nodes if n.reachable] == ["b"]
    assert all("key exchange" in (n.error or "") for n in observed.nodes[:-1])


def test_http_is_sent_again_over_a_new_connection(client: Client, server: Sshd, engine_port: int):
    """A connection that died before a request is made anew for it."""
    transport = client.to(server)
    transport.run("true", timeout_s=20)
    server.drop_connections()
    assert transport.http("127.0.0.1", engine_port, HttpRequest("GET", "/health"), timeout_s=10).status == 200


def test_the_key_of_a_jump_host_is_checked_too(client: Client, serve: Callable[..., Sshd]):
    """A jump host that no file knows is refused, although the host behind it is known."""
    inner, jump = serve(), serve()
    client.trust(inner)
    with pytest.raises(TransportError) as caught:
        client.connector().connect(client.host(inner, jump=f"127.0.0.1:{jump.port}")).run("true", timeout_s=10)
    assert caught.value.code == "host_key_unknown"


def test_a_proxy_command(client: Client, server: Sshd):
    """ProxyCommand carries the connection, to the configuration's port; its process ends with the transport."""
    relay = client.home / "relay.py"
    relay.write_text(
        "import os,socket,sys,threading\ns=socket.create_connection((sys.argv[1],int(sys.argv[2])))\n"
        "def up():\n  while d:=os.read(0,65536): s.sendall(d)\n"
        "threading.Thread(target=up,daemon=True).start()\nwhile d:=s.recv(65536): os.write(1,d)\n"
    )
    client.ssh_config.write_text(
        f"Host gpu-x\n  HostName 127.0.0.1\n  Port {free_port()}\n  ProxyCommand {sys.executable} {relay} %h %p\n"
    )
    transport = client.connector().connect(Host("gpu-x", "gpu-x", port=server.port))
    assert transport.run("echo hi", timeout_s=30).stdout == b"hi\n"
    assert _running(f"{sys.executable} {relay} 127.0.0.1 {server.port}")
    transport.close()
    assert not _running(f"{sys.executable} {relay} 127.0.0.1 {server.port}")


def test_a_hundred_hosts_at_once(client: Client, serve: Callable[..., Sshd]):
    """A hundred aliases of one server answer in one gathering, each over a login of its own."""
    server = serve("MaxStartups 100:30:200")
    client.trust(server)
    connector = client.connector()

    def probe(host: Host) -> Node:
        transport = connector.connect(host)
        said = transport.run("echo $SSH_CONNECTION", timeout_s=60).stdout.decode().split()
        transport.close()
        return Node(host.name, os=said[1])

    hosts = [client.host(server, f"gpu-{n:03}") for n in range(100)]
    observed = gather(hosts, probe, workers=50, deadline_s=60, taken_at="2026-01-01T00:00:00Z")
    assert [n.name for n in observed.nodes] == [h.name for h in hosts]
    assert all(n.reachable for n in observed.nodes), {n.error for n in observed.nodes}
    assert len({n.os for n in observed.nodes}) == 100


def test_a_frozen_sshd_costs_its_own_row_only(client: Client, serve: Callable[..., Sshd]):
    """One host whose session hangs for a minute is given up at the deadline; the other one answers."""
    good, sick = serve(), serve()
    for server in (good, sick):
        client.trust(server)
    sick.authorized_keys.write_text("")
    sick.authorize(client.key, 'command="sleep 60"')
    connector = client.connector()

    def probe(host: Host) -> Node:
        connector.connect(host).run("echo hi", timeout_s=60)
        return Node(host.name)

    hosts = [client.host(sick, "a-sick"), client.host(good, "b-good")]
    observed = gather(hosts, probe, workers=1, deadline_s=3, taken_at="2026-01-01T00:00:00Z")
    assert [(n.reachable, n.error) for n in observed.nodes] == [(False, "no answer within 3 s"), (True, None)]


def test_explicit_values_win_over_the_ssh_configuration(client: Client, server: Sshd, tmp_path: Path):
    """The file says another user, port and key; the configuration's user and port count, its key is used."""
    make_key(tmp_path / "wrong")
    client.ssh_config.write_text(
        f"Host 127.0.0.1\n  User nobody-here\n  Port {free_port()}\n  StrictHostKeyChecking no\n"
        f"  UserKnownHostsFile {os.devnull}\n  IdentityFile {tmp_path}/wrong\n  IdentityFile {client.key}\n"
    )
    assert client.to(server).run("id -un", timeout_s=20).stdout.decode().strip() == client.settings.user


def test_the_ssh_configuration_cannot_switch_off_the_host_key(client: Client, serve: Callable[..., Sshd]):
    """StrictHostKeyChecking no is for ssh; here only settings.ssh.host_keys loosens the check."""
    server = serve()
    client.ssh_config.write_text("Host *\n  StrictHostKeyChecking no\n")
    with pytest.raises(TransportError) as caught:
        client.to(server).run("true", timeout_s=10)
    assert caught.value.code == "host_key_unknown"


def test_a_host_key_alias_names_the_host_in_known_hosts(client: Client, serve: Callable[..., Sshd]):
    """HostKeyAlias: the key is looked up under that name."""
    server = serve()
    key = server.known_lines().split(" ", 1)[1]
    client.known_hosts.write_text(f"the-alias {key}")
    client.ssh_config.write_text("Host 127.0.0.1\n  HostKeyAlias the-alias\n")
    assert client.to(server).run("echo hi", timeout_s=20).stdout == b"hi\n"
