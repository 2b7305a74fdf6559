"""The whole program as it begins: `init`, and that what it writes works at once."""

from __future__ import annotations

import getpass
import json
import os
import shutil
import sys
from contextlib import nullcontext
from pathlib import Path

import jsonschema
import pytest
from support.sshd import IS_ROOT, SSHD, Sshd, free_port, make_key, user

import llmgwctl

from .program import Program

CONFIGURATION = "llmgwctl.yaml"
SCHEMA = "llmgwctl.schema.json"
NO_HOSTS = [
    *("@", "user@", "@host", "a@b@c", "a b@h", "u:password@h", "ssh://u@h", "", " ", "h\n", "h/x", "{h}", ".."),
    *("user@h:", "user@h:0", "user@h:99999", "h:" + "9" * 5000, "h:٣"),
    *("[h]", "[::1", "[::1]x", "[]", "1::2::3"),
    *("-oProxyCommand=x", "-oX=x@h", "u@-h", 'h"x', "h\x07", "host\x1b[31m"),
]


@pytest.fixture
def program(tmp_path):
    (tmp_path / "fleet").mkdir()
    return Program(tmp_path / "fleet")


def files(folder: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in folder.iterdir() if p.is_file()}


def test_this_machine_as_it_is(program):
    """In an empty directory: this machine's cores and memory, without a warning, in the normal form, and it plans."""
    done = program.run("init")
    assert done.stderr == ""
    assert f"llmgwctl -C {program.directory} plan" in done.stdout
    assert sorted(files(program.directory)) == [SCHEMA, CONFIGURATION]
    text = (program.directory / CONFIGURATION).read_text()
    node = program.json("inventory")["nodes"][0]
    assert f"# Found: {node['cores']:g} cores, {node['memory_gb']:.1f} GiB of memory." in text
    assert 0 < node["cores"] <= (os.cpu_count() or 1)
    total_kib = int(Path("/proc/meminfo").read_text().split()[1])
    assert 0 < node["memory_gb"] <= total_kib / 1024 / 1024
    for gpu in node["gpus"]:
        assert gpu["uuid"].startswith("SIM-") or gpu["product"] in text
    document = program.json("validate")
    assert (document["valid"], document["diagnostics"]) == (True, [])
    assert program.run("fmt", "--check", "--diff").stdout == ""
    assert [a["action"] for a in program.json("plan")["actions"]] == ["start"]


def test_its_first_line_tells_editors_where_the_schema_is(program):
    """The modeline names a JSON Schema beside the file, so it holds in every copy of the repository."""
    program.run("init")
    copy = shutil.copytree(program.directory, program.directory.parent / "another clone")
    shutil.rmtree(program.directory)
    text = (copy / CONFIGURATION).read_text()
    first = text.splitlines()[0]
    prefix = "# yaml-language-server: $schema="
    assert first.startswith(prefix)
    schema = json.loads((copy / first.removeprefix(prefix)).read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate({"hosts": [{"name": "h"}]}, schema)
    for place in (str(program.directory.parent), sys.prefix, str(Path(llmgwctl.__file__).parents[1])):
        assert place not in text


def test_the_schema_is_written_anew_by_itself(program):
    """An older schema is replaced, the configuration left alone; what is no schema of ours is never replaced."""
    program.run("init")
    schema, configuration = program.directory / SCHEMA, program.directory / CONFIGURATION
    current, written = schema.read_text(), configuration.stat().st_mtime_ns
    schema.write_text('{"$id": "urn:llmgwctl:schema:config"}')
    assert program.run("init", "--schema").stdout == f"Wrote `{schema}`.\n"
    assert (schema.read_text(), configuration.stat().st_mtime_ns) == (current, written)
    assert "takes no --host" in program.run("init", "--schema", "--host", "h", code=64).stderr
    for foreign in ("{}", "[]", "mine", '{"$id": "https://example.org/mine"}'):
        schema.write_text(foreign)
        for command in (("init", "--schema"), ("-C", str(program.directory), "init", "--host", "host.invalid")):
            configuration.unlink(missing_ok=True)
            assert "left as it is" in program.run(*command, code=1).stderr
        assert files(program.directory) == {SCHEMA: foreign.encode()}


@pytest.mark.parametrize("name", [CONFIGURATION, "mine.yml", "dangling.yaml"])
def test_what_is_there_is_left_alone(program, name):
    """Where there is a configuration, under any name and be it a broken one, nothing is written."""
    path = program.directory / name
    if name == "dangling.yaml":
        path.symlink_to("nowhere")
    else:
        path.write_bytes(b"hosts: [ # mine\r\n")
    before = files(program.directory), path.lstat().st_mtime_ns
    for _ in range(2):
        assert name in program.run("init", code=1).stderr
    assert (files(program.directory), path.lstat().st_mtime_ns) == before


def test_a_second_init_changes_no_byte(program):
    """What init wrote it doesn't write again, also when it was edited."""
    program.run("init")
    with (program.directory / CONFIGURATION).open("a") as file:
        file.write("# mine\n")
    before = files(program.directory)
    assert "left as it is" in program.run("init", code=1).stderr
    assert files(program.directory) == before


def test_what_is_no_configuration_is_no_obstacle(program):
    """Hidden files, other endings and folders that are called like a file are not read, so they stop nothing."""
    (program.directory / ".hidden.yaml").write_text("x")
    (program.directory / "notes.txt").write_text("x")
    (program.directory / "folder.yaml").mkdir()
    program.run("init")
    program.run("plan")


def test_directories_are_made_or_refused_in_plain_words(tmp_path):
    """A directory that isn't there is made; a file in its place, or above it, is told before any host is looked at."""
    program = Program(tmp_path / "a b" / "c")
    assert f"-C '{program.directory}' plan" in program.run("init").stdout
    program.run("validate")
    (tmp_path / "file").write_text("x")
    for place in ("file", "file/below/it"):
        refused = Program(tmp_path / place).run("init", "--host", "host.invalid", code=1).stderr
        assert f"{tmp_path / 'file'} is not a directory" in refused
    assert (tmp_path / "file").read_text() == "x"


def test_a_host_that_does_not_answer(tmp_path):
    """Exit code 6 and a plain reason, once for each host; nothing is written and no directory made."""
    program = Program(tmp_path / "fleet")
    port = free_port()
    target = f"127.0.0.1:{port}"
    failed = program.run("init", "--host", target, "--host", target, "--host", f"[::1]:{port}", code=6)
    assert failed.stdout == ""
    assert "nothing was written" in failed.stderr
    assert failed.stderr.count(f"@{target} refuses the connection") == 1
    assert f"no sshd listens on port {port} there" in failed.stderr
    assert f"@[::1]:{port} refuses the connection" in failed.stderr
    assert not program.directory.exists()
    program.env["LLMGWCTL_INIT_HOST"] = target
    program.run("init", code=6)


@pytest.mark.parametrize("target", NO_HOSTS, ids=lambda target: repr(target)[:20])
def test_what_is_no_host_is_a_usage_error(program, target):
    """It is told what was given and what to write; nothing is contacted or written."""
    refused = program.run("init", "--host", target, code=64)
    assert "--host" in refused.stderr
    assert "user@address:port" in refused.stderr or "from 1 to 65535" in refused.stderr
    assert "\x1b" not in refused.stderr
    assert files(program.directory) == {}


def test_one_host_with_two_users_is_refused(program):
    """One machine under two names would have its GPUs counted twice."""
    for first, again in (("a@127.0.0.1", "b@127.0.0.1"), ("a@h", "b@H"), ("a@h", "b@h:22"), ("a@::1", "b@0::1")):
        assert "given twice" in program.run("init", "--host", first, "--host", again, code=64).stderr


@pytest.mark.sshd
@pytest.mark.skipif(SSHD is None or shutil.which("ssh-keygen") is None, reason="OpenSSH's server is not installed")
def test_hosts_over_ssh(program, tmp_path):
    """An unknown key is refused with what to do; accepted, it gives a valid configuration that plans at once."""
    (tmp_path / ".ssh").mkdir(mode=0o700)
    (tmp_path / "ssh_config").touch()
    key = make_key(tmp_path / ".ssh" / "id_ed25519")
    program.env |= {"HOME": str(tmp_path), "LLMGWCTL_SSH_CONFIG": str(tmp_path / "ssh_config")}
    program.env.pop("SSH_AUTH_SOCK", None)
    with user("init", "/bin/sh") if IS_ROOT else nullcontext(getpass.getuser()) as login, Sshd() as server:
        server.authorize(key)
        target = f"{login}@127.0.0.1:{server.port}"
        refused = program.run("init", "--host", target, code=6)
        assert "SHA256:" in refused.stderr
        assert "--host-keys accept-new" in refused.stderr
        assert files(program.directory) == {}
        program.run("init", "--host", target, "--host", target, "--host-keys", "accept-new")
        assert len((tmp_path / ".ssh" / "known_hosts").read_text().splitlines()) == 1
        text = (program.directory / CONFIGURATION).read_text()
        assert f"  - name: 127.0.0.1\n    user: {login}\n    port: {server.port}\n" in text
        assert "# Found: " in text
        assert program.json("validate")["diagnostics"] == []
        program.run("fmt", "--check")
        plan = program.json("plan")
        assert [(a["action"], a["placement"][0]["node"]) for a in plan["actions"]] == [("start", "127.0.0.1")]
