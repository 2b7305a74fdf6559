"""Which keys are shown: IdentityFile, IdentitiesOnly and the agent, as ssh takes them."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from support.sshd import Sshd, make_key

from llmgwctl.hosts.transport import TransportError
from transport.conftest import Client, failure

pytestmark = [pytest.mark.sshd, pytest.mark.usefixtures("agent")]


def hold(*keys: Path) -> None:
    subprocess.run(["ssh-add", "-q", *keys], check=True, capture_output=True)


def others(folder: Path, count: int) -> list[Path]:
    return [make_key(folder / f"other{number}") for number in range(count)]


def test_a_public_key_as_identity_file_chooses_the_key_of_the_agent(client: Client, server: Sshd, tmp_path: Path):
    """`IdentityFile k.pub` and IdentitiesOnly: of the agent's nine keys only that one is shown."""
    hold(*others(tmp_path, 8), client.key)
    client.key.unlink()
    client.ssh_config.write_text(f"Host *\n  IdentityFile {client.key}.pub\n  IdentitiesOnly yes\n")
    assert client.to(server).run("echo hi", timeout_s=20).stdout == b"hi\n"


def test_a_private_key_that_only_the_agent_holds(client: Client, server: Sshd, tmp_path: Path):
    """`IdentityFile k` without a file k, but with a k.pub, chooses the agent's key."""
    hold(*others(tmp_path, 8), client.key)
    client.key.unlink()
    client.ssh_config.write_text(f"Host *\n  IdentityFile {client.key}\n  IdentitiesOnly yes\n")
    assert client.to(server).run("echo hi", timeout_s=20).stdout == b"hi\n"


def test_an_encrypted_key_without_its_public_file(client: Client, server: Sshd, tmp_path: Path):
    """An encrypted private key says in the clear which key it is: the agent's is taken, the file not opened."""
    hold(*others(tmp_path, 8), client.key)
    command = ["ssh-keygen", "-q", "-p", "-N", "a-passphrase", "-f", client.key]
    subprocess.run(command, check=True, capture_output=True)
    client.key.with_name("id_ed25519.pub").unlink()
    client.ssh_config.write_text(f"Host *\n  IdentityFile {client.key}\n  IdentitiesOnly yes\n")
    assert client.to(server).run("echo hi", timeout_s=20).stdout == b"hi\n"


def test_a_certificate_that_only_the_agent_can_use(client: Client, server: Sshd, tmp_path: Path):
    """With IdentitiesOnly, the agent's certificate for the named key is shown too."""
    authority = make_key(tmp_path / "ca")
    command = ["ssh-keygen", "-q", "-s", authority, "-I", "test", "-n", client.settings.user, client.key]
    subprocess.run(command, check=True, capture_output=True)
    hold(client.key)
    client.key.unlink()
    server.authorized_keys.write_text("")
    server.authorize(authority, "cert-authority")
    client.ssh_config.write_text(f"Host *\n  IdentityFile {client.key}\n  IdentitiesOnly yes\n")
    assert client.to(server).run("echo hi", timeout_s=20).stdout == b"hi\n"


@pytest.mark.parametrize("kind", ["ed25519", "rsa"])
def test_a_certificate_whose_key_only_the_agent_holds(client: Client, server: Sshd, tmp_path: Path, kind: str):
    """A certificate that was signed after ssh-add lies beside the key: it is shown, and the agent signs for it."""
    key, authority = make_key(tmp_path / "mine", kind), make_key(tmp_path / "ca")
    hold(key)
    command = ["ssh-keygen", "-q", "-s", authority, "-I", "test", "-n", client.settings.user, key]
    subprocess.run(command, check=True, capture_output=True)
    key.unlink()
    server.authorized_keys.write_text("")
    server.authorize(authority, "cert-authority")
    client.ssh_config.write_text(f"Host *\n  IdentityFile {key}\n  IdentitiesOnly yes\n")
    assert client.to(server).run("echo hi", timeout_s=20).stdout == b"hi\n"


def test_a_public_key_that_the_agent_does_not_hold(client: Client, server: Sshd):
    """The error says that the file is only a public key, and what would help."""
    client.ssh_config.write_text(f"Host *\n  IdentityFile {client.key}.pub\n  IdentitiesOnly yes\n")
    problem = failure(client.to(server))
    assert problem.code == "no_key"
    assert f"{client.key}.pub is a public key that the agent does not hold" in problem.message
    assert f"ssh-add {client.key}" in problem.message


def test_identity_file_none(client: Client, server: Sshd):
    """`IdentityFile none` names no file: only the agent's keys are shown."""
    client.ssh_config.write_text("Host *\n  IdentityFile none\n")
    problem = failure(client.to(server))
    assert problem.code == "no_key"
    assert "none does not exist" not in problem.message
    hold(client.key)
    assert client.to(server).run("echo hi", timeout_s=20).stdout == b"hi\n"


def test_a_key_comment_is_any_bytes(client: Client, server: Sshd, tmp_path: Path):
    """A comment that is no UTF-8, or steers terminals, hides no key and reaches no message raw."""
    other = make_key(tmp_path / "other")
    command = ["ssh-keygen", "-q", "-c", "-C", b"J\xfcrgen\x1b[31m\x07", "-f", other]
    subprocess.run(command, check=True, capture_output=True)
    hold(other)
    client.ssh_config.write_text("Host *\n  IdentityFile none\n")
    problem = failure(client.to(server))
    assert problem.code == "auth"
    assert "rgen" in problem.message
    assert problem.message.isprintable()


def refused_after(client: Client, server: Sshd) -> TransportError:
    """Return the refusal, which must come at the first connection."""
    log = server.folder / "log"
    log.write_text("")
    problem = failure(client.to(server))
    assert log.read_text().count("Connection from") == 1
    return problem


def test_more_keys_than_the_server_tries(client: Client, serve: Callable[..., Sshd], tmp_path: Path):
    """Eight wrong keys in the agent: the error names MaxAuthTries and the way out, and nothing is tried again."""
    server = serve("LogLevel VERBOSE")
    client.trust(server)
    hold(*others(tmp_path, 8))
    problem = refused_after(client, server)
    assert problem.code == "auth"
    assert "6 keys" in problem.message
    assert "Too many authentication failures" in problem.message
    assert "MaxAuthTries" in problem.message
    assert "IdentitiesOnly yes" in problem.message
    assert "MaxStartups" not in problem.message


def test_one_key_more_than_the_server_tries(client: Client, serve: Callable[..., Sshd]):
    """MaxAuthTries 1 and one wrong key is the same refusal, in the singular."""
    server = serve("LogLevel VERBOSE\nMaxAuthTries 1")
    client.trust(server)
    server.authorized_keys.write_text("")
    problem = refused_after(client, server)
    assert problem.code == "auth"
    assert "1 key " in problem.message
    assert "MaxAuthTries" in problem.message
