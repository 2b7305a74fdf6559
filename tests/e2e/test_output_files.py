"""What --out writes: files whole, pipes and devices through, links followed, and never one of our own files."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import threading

import pytest

from .program import Program

FLEET = {
    "hosts": [{"name": "h", "connection": "simulated", "simulate": {"gpus": 8, "gpu_class": "demo"}}],
    "models": [
        {
            "name": "m",
            "source": "s",
            "scaling": {"min": 2},
            "profiles": [{"name": "p", "engine": "sim", "gpu_class": "demo", "env": {"T": {"from_file": "token"}}}],
        }
    ],
    "settings": {"ssh": {"known_hosts": "known"}},
}


OURS = (
    "fleet.yaml",
    "new.yaml",
    "new.yml",
    "llmgwctl.state.json",
    "llmgwctl.state.json.backup",
    "llmgwctl.state.json.lock",
    "llmgwctl.state.json.steps",
    "llmgwctl.simulated.json",
    "llmgwctl.simulated.json.journal",
    "known",
    "token",
    "link",
    "hardlink",
    "sub/../fleet.yaml",
    "sub",
    "nowhere/plan",
)


@pytest.fixture
def program(tmp_path):
    (tmp_path / "fleet").mkdir()
    program = Program(tmp_path / "fleet")
    program.write(FLEET)
    (program.directory / "token").write_text("secret")
    (program.directory / "known").write_text("")
    program.run("apply", "--auto-approve")
    return program


@pytest.fixture(params=["plan", "inventory"])
def command(request):
    return request.param


def test_our_own_files_are_not_overwritten(program, command):
    """Neither by their names nor through links; and it is said before any host is looked at."""
    folder = program.directory
    (folder / "sub").mkdir()
    (folder / "link").symlink_to("llmgwctl.state.json")
    os.link(folder / "fleet.yaml", folder / "hardlink")
    before = {p.name: p.read_bytes() for p in folder.iterdir() if p.is_file()}
    for name in OURS:
        done = program.run(command, "--out", str(folder / name), code=64)
        assert done.stdout == ""
        assert str(folder / name) in done.stderr
        assert {p.name: p.read_bytes() for p in folder.iterdir() if p.is_file()} == before


def test_a_yaml_file_elsewhere_is_a_file_like_others(program, command, tmp_path):
    """Only what the configuration would take in is refused."""
    program.run(command, "--out", str(tmp_path / "out.yaml"))
    assert json.loads((tmp_path / "out.yaml").read_text())["format_version"]


def test_a_link_is_followed(program, command, tmp_path):
    """The file behind it is replaced, whole, and the link stays; one that leads nowhere makes the file."""
    (tmp_path / "real").write_text("old")
    for name in ("real", "new"):
        link = tmp_path / f"link-to-{name}"
        link.symlink_to(tmp_path / name)
        program.run(command, "--out", str(link))
        assert link.is_symlink()
        assert json.loads((tmp_path / name).read_text())["format_version"] == "1.0"
        assert not (tmp_path / name).is_symlink()


def test_a_device_is_written_to(program, command, tmp_path):
    """It stays a device; a full one is an error, not a fault of ours."""
    if os.geteuid() != 0:
        pytest.skip("devices of our own need root; nobody else could replace one")
    null, full = tmp_path / "null", tmp_path / "full"
    os.mknod(null, 0o666 | stat.S_IFCHR, os.makedev(1, 3))
    os.mknod(full, 0o666 | stat.S_IFCHR, os.makedev(1, 7))
    try:
        null.write_bytes(b"")
    except OSError:
        pytest.skip("devices can't be opened on this file system")
    program.run(command, "--out", str(null))
    failed = program.run(command, "--out", str(full), code=1)
    assert stat.S_ISCHR(null.stat().st_mode)
    assert stat.S_ISCHR(full.stat().st_mode)
    assert f"{full} can't be written: No space left on device" in failed.stderr
    assert "bug" not in failed.stderr


def test_a_pipe_is_written_to(program, command, tmp_path):
    """Whoever reads it gets all, and it stays a pipe."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    read = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_text()), daemon=True)
    reader.start()
    program.run(command, "--out", str(pipe))
    reader.join(timeout=10)
    assert json.loads(read[0])["format_version"] == "1.0"
    assert stat.S_ISFIFO(pipe.stat().st_mode)


@pytest.mark.parametrize("redirected", [True, False])
def test_standard_output_by_its_name(program, command, tmp_path, redirected):
    """What is printed besides is there as well, before or behind it."""
    arguments = [sys.executable, "-m", "llmgwctl", "-C", str(program.directory), command, "--out", "/dev/stdout"]
    target = tmp_path / "shown"
    with target.open("w") as file:
        done = subprocess.run(
            arguments, stdout=file if redirected else subprocess.PIPE, text=True, env=program.env, check=True
        )
    shown = target.read_text() if redirected else done.stdout
    assert '"format_version"' in shown
    assert ("The plan is saved" if command == "plan" else "Saved /dev/stdout") in shown


def test_a_full_disk_is_told(program, command, tmp_path):
    """The file that was there stays, and nothing half is left beside it."""
    if os.geteuid() != 0:
        pytest.skip("a small file system needs root")
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8k", "tmpfs", str(disk)], check=False).returncode != 0:
        pytest.skip("a tmpfs can't be mounted here")
    try:
        (disk / "out").write_text("old")
        (disk / "full").write_bytes(b"x" * 4096)
        failed = program.run(command, "--out", str(disk / "out"), code=1)
        assert f"{disk / 'out'} can't be written: No space left on device" in failed.stderr
        assert (disk / "out").read_text() == "old"
        assert sorted(os.listdir(disk)) == ["full", "out"]
    finally:
        subprocess.run(["umount", str(disk)], check=True)
