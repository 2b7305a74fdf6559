"""The ssh configuration is read as ssh reads it: what `ssh -G` says of a host, our routes say too."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from llmgwctl.domain.desired import Host, SshSettings
from llmgwctl.hosts.ssh_config import Routes
from llmgwctl.hosts.transport import TransportError

CANONICAL = "CanonicalizeHostname yes\n"
STRICT = CANONICAL + "CanonicalDomains invalid\nCanonicalizeFallbackLocal no\n"
CONFIGS = {
    "no domains": CANONICAL + "Host x\n  Port 77\n",
    "domains none": CANONICAL + "CanonicalDomains none\nHost x\n  Port 77\n",
    "always": "CanonicalizeHostname always\nHost x\n  Port 77\n",
    "an alias": CANONICAL + "Host x\n  HostName 127.0.0.5\n  User one\n",
    "an alias that is a name": CANONICAL + "Host x\n  HostName y\nHost y\n  Port 78\n",
    "match canonical": CANONICAL + "Match canonical\n  User canon\n",
    "match canonical and an address": CANONICAL + "Host x\n  HostName 127.0.0.5\nMatch canonical\n  User canon\n",
    "match canonical and a proxy": CANONICAL + "ProxyCommand nc %h %p\nMatch canonical\n  User canon\n",
    "match canonical host": CANONICAL + "Host x\n  HostName y\nMatch canonical host y\n  User canon\n",
    "capitals": "CanonicalizeHostname YES\nMatch canonical\n  User canon\n",
    "match final": "Match final\n  User last\n",
    "match final and an alias": "Host x\n  HostName y\nMatch final host y\n  User last\n",
    "an address and no way back": CANONICAL
    + "CanonicalDomains invalid\nCanonicalizeFallbackLocal no\nHost x\n  HostName ::1\n",
    "many dots and no way back": CANONICAL
    + "CanonicalDomains invalid\nCanonicalizeFallbackLocal no\nHost x\n  HostName a.b.c\n",
    "a domain that does not know it": CANONICAL + "CanonicalDomains invalid\nHost x\n  Port 79\n",
    "a jump host and always": "CanonicalizeHostname always\nHost x\n  HostName 127.0.0.5\n  ProxyJump j\n",
    "a jump host": CANONICAL
    + "CanonicalDomains invalid\nCanonicalizeFallbackLocal no\nHost x\n  ProxyJump 127.0.0.9\n",
    "no jump host": CANONICAL + "Host x\n  ProxyJump none\n",
    "a proxy": STRICT + "Host x\n  ProxyCommand nc %h %p\n",
    "off": "CanonicalizeHostname no\nCanonicalDomains invalid\nHost x\n  Port 80\n",
}


@pytest.mark.parametrize("name", CONFIGS)
def test_address_port_and_user_are_what_ssh_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str):
    """CanonicalizeHostname, with and without domains, and what is looked at again after it."""
    if shutil.which("ssh") is None:
        pytest.skip("OpenSSH's client is not installed")
    file = tmp_path / "config"
    file.write_text(CONFIGS[name])
    asked = subprocess.run(["ssh", "-G", "-F", file, "x"], check=True, capture_output=True, text=True)
    said = dict(line.split(" ", 1) for line in asked.stdout.splitlines() if " " in line)
    monkeypatch.setenv("LLMGWCTL_SSH_CONFIG", str(file))
    hop = Routes(SshSettings()).to(Host("gpu-1", "x"))[-1]
    assert (hop.address, str(hop.port), hop.user) == (said["hostname"], said["port"], said["user"])


def test_a_name_that_can_not_be_made_canonical_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """With CanonicalizeFallbackLocal no, ssh gives up; the reason says which name and setting."""
    file = tmp_path / "config"
    file.write_text(STRICT + "")
    monkeypatch.setenv("LLMGWCTL_SSH_CONFIG", str(file))
    with pytest.raises(TransportError) as caught:
        Routes(SshSettings()).to(Host("gpu-1", "x"))
    assert "x is in none of the CanonicalDomains" in caught.value.message
