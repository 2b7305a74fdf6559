"""How known_hosts files are read, as OpenSSH reads them."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from llmgwctl.hosts.known_hosts import KnownHosts, Standing, fingerprint


def key(kind: str, text: bytes) -> bytes:
    return len(kind).to_bytes(4, "big") + kind.encode() + text


KEY, OTHER, RSA = key("ssh-ed25519", b"one"), key("ssh-ed25519", b"two"), key("ssh-rsa", b"three")


def line(names: str, blob: bytes, marker: str = "") -> str:
    kind = blob[4 : 4 + int.from_bytes(blob[:4], "big")].decode()
    return f"{marker} {names} {kind} {base64.b64encode(blob).decode()} a comment\n".lstrip()


@pytest.mark.parametrize(
    ("names", "name", "port", "standing"),
    [
        ("gpu-1", "gpu-1", 22, Standing.KNOWN),
        ("gpu-1,10.0.0.1", "10.0.0.1", 22, Standing.KNOWN),
        ("GPU-1", "gpu-1", 22, Standing.KNOWN),
        ("gpu-1", "gpu-10", 22, Standing.UNKNOWN),
        ("[gpu-1]:2222", "gpu-1", 2222, Standing.KNOWN),
        ("[gpu-1]:2222", "gpu-1", 22, Standing.UNKNOWN),
        ("[gpu-1]:2222", "gpu-1", 2223, Standing.UNKNOWN),
        ("gpu-1", "gpu-1", 2222, Standing.KNOWN),
        ("gpu-*", "gpu-7", 22, Standing.KNOWN),
        ("gpu-?", "gpu-77", 22, Standing.UNKNOWN),
        ("*,!gpu-7", "gpu-7", 22, Standing.UNKNOWN),
        ("*,!gpu-7", "gpu-8", 22, Standing.KNOWN),
        ("[gpu-*]:2222", "gpu-7", 2222, Standing.KNOWN),
        ("2001:db8::1", "2001:DB8::1", 22, Standing.KNOWN),
        ("[2001:db8::1]:2222", "2001:db8::1", 2222, Standing.KNOWN),
    ],
)
def test_names(tmp_path: Path, names: str, name: str, port: int, standing: Standing):
    """Lists, case, ports, wildcards and negations; a key recorded without a port counts for each port."""
    (tmp_path / "k").write_text("# comment\n\nbroken line\n" + line(names, KEY))
    assert KnownHosts([tmp_path / "k"]).check(name, port, KEY).standing is standing


def test_one_matching_line_in_any_file_is_enough(tmp_path: Path):
    """An old key in one file does not count against the right one in another."""
    (tmp_path / "a").write_text(line("gpu-1", OTHER))
    (tmp_path / "b").write_text(line("gpu-1", KEY))
    known = KnownHosts([tmp_path / "a", tmp_path / "missing", tmp_path / "b"])
    assert known.check("gpu-1", 22, KEY).standing is Standing.KNOWN


def test_the_line_of_the_same_type_is_named_when_a_key_changed(tmp_path: Path):
    """The old key's place and fingerprint are those that the user has to look at."""
    (tmp_path / "k").write_text(line("gpu-1", RSA) + line("gpu-1", OTHER))
    known = KnownHosts([tmp_path / "k"])
    verdict = known.check("gpu-1", 22, KEY)
    assert verdict.standing is Standing.CHANGED
    assert verdict.because is not None
    assert (verdict.because.line, verdict.because.fingerprint) == (2, fingerprint(OTHER))
    assert known.key_types("gpu-1", 22) == ("ssh-rsa", "ssh-ed25519")


def test_a_key_that_another_process_recorded_meanwhile_counts(tmp_path: Path):
    """Two processes meet a new host: the second one finds the first one's line, and another key is a changed key."""
    path = tmp_path / "new" / "known_hosts"
    first, second, third = KnownHosts([path]), KnownHosts([path]), KnownHosts([path])
    assert first.add(path, "gpu-1", 2222, KEY).standing is Standing.KNOWN
    assert second.add(path, "gpu-1", 2222, KEY).standing is Standing.KNOWN
    assert third.add(path, "gpu-1", 2222, OTHER).standing is Standing.CHANGED
    assert path.read_text() == line("[gpu-1]:2222", KEY).replace(" a comment", "")
    assert first.check("gpu-1", 2222, KEY).standing is Standing.KNOWN
