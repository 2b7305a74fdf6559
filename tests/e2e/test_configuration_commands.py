"""The whole program on configurations as people write them: `validate`, `fmt`, `--help` and options by environment."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from llmgwctl.app.formatting import format_directory, rewrite
from llmgwctl.errors import LlmgwctlError

from .program import Program

LOCAL = b"hosts:\n  - name: a # here\n    connection: local\n"
UGLY = b"hosts:\n- name: a   # here\n  connection:   local  \n\n\n"
HEAVY = ("paramiko", "cryptography", "jsonschema", "ruamel", "yaml", "deepdiff", "hypothesis", "tabulate", "psycopg")
PEAK = (
    "import resource, subprocess, sys; subprocess.run(sys.argv[1:], stdout=2);"
    "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss // 1024)"
)


@pytest.fixture
def program(tmp_path):
    (tmp_path / "fleet").mkdir()
    return Program(tmp_path / "fleet")


def put(program: Program, **files: bytes) -> None:
    """Write files; the two underscores in a name are a dot."""
    for name, content in files.items():
        (program.directory / name.replace("__", ".")).write_bytes(content)


def contents(program: Program) -> dict[str, tuple[bytes, int, int]]:
    """Return what is in each file, its inode and when it was written."""
    paths = [p for p in program.directory.iterdir() if p.is_file()]
    return {p.name: (p.read_bytes(), p.stat().st_ino, p.stat().st_mtime_ns) for p in paths}


def test_every_problem_of_every_file_at_once(program):
    """Exit code 3; each problem has its file, line and column, in that order, and what may have been meant."""
    put(
        program,
        b__yml=b"modles: []\nsettings: {headrom: none}\nquotas:\n  team:x: {parent: 'org:o'}\n",
        a__yaml=b"hosts:\n  - {name: a, adress: 10.0.0.1}\n  - {name: a, port: 0}\nmodels:\n  - name: m\n",
        c__yaml=b"hosts:\n\t- name: x\n",
    )
    document = program.json("validate", code=3)
    assert (document["valid"], document["error_count"], document["warning_count"]) == (False, 8, 0)
    places = [(d["file"], d["line"], d["column"]) for d in document["diagnostics"]]
    assert places == sorted(places)
    shown = program.run("validate", code=3)
    assert shown.stdout == ""
    for words in (
        "a.yaml:2:15: Host `a`: Unknown key `adress`.\n  Did you mean `address`?",
        "a.yaml:3:12: The host `a` is declared twice; first at a.yaml:2:12.",
        "a.yaml:3:21: Host `a`: `port` is 0; it has to be at least 1.",
        "a.yaml:5:5: Model `m`: it has no `profiles`.",
        "a.yaml:5:5: Model `m`: it has no `source`.",
        "b.yml:1:1: Unknown key `modles`.\n  Did you mean `models`?",
        "b.yml:2:12: Unknown key `headrom` in `settings`.\n  Did you mean `headroom`?",
        "c.yaml:2:1: A tab is used to indent.",
        "The configuration is invalid: 8 errors.",
    ):
        assert words in shown.stderr
    (program.directory / "c.yaml").unlink()
    assert "b.yml:4:20: Quota `team:x`: the parent `org:o` is not declared." in program.run("validate", code=3).stderr


def test_a_warning_is_no_error(program):
    """What is valid exits with 0: the sum on standard output, the warnings on the other one."""
    put(program, a__yaml=LOCAL.replace(b"local", b"local\n    jump: b"))
    done = program.run("validate")
    assert done.stdout == "The configuration is valid: 1 host, 0 models, 0 quotas.\n"
    assert "Warning: a.yaml:4:11: Host `a`: jump means nothing" in done.stderr
    document = program.json("validate")
    assert (document["valid"], document["error_count"], document["warning_count"]) == (True, 0, 1)


EXPLODING = b"a: &a [x,x,x,x,x,x,x,x,x]\n" + b"".join(
    b"%c: &%c [%s]\n" % (n + 1, n + 1, b",".join([b"*%c" % n] * 9)) for n in range(ord("a"), ord("i"))
)
UNREADABLE = {
    "tab": (b"hosts:\n\t- name: a\n", "2:1", "A tab"),
    "duplicate": (b"hosts: []\nhosts: []\n", "2:1", "written twice; first at x.yaml:1:1"),
    "exploding": (EXPLODING, "6:", "200000 values"),
    "Windows-1252": (b'hosts: [{name: "M\xfcller"}]\n', "1:18", "not UTF-8"),
    "UTF-16": ("hosts: []\n".encode("utf-16"), "1:1", "UTF-16"),
    "NUL": (b'hosts: [{name: "a\0"}]\n', "1:18", "U+0000"),
    "a list": (b"- a\n- b\n", "1:1", "does not begin with a key"),
    "two documents": (b"hosts: []\n---\nmodels: []\n", "2:1", "second document"),
    "deep": (b"hosts: " + b"[" * 1_000_000, "", "deep"),
    "long line": (b"hosts: [" + b"a: b " * 2_000_000, "1:", "valid YAML"),
}


@pytest.mark.parametrize("case", UNREADABLE)
def test_what_is_no_configuration_is_told_alike_by_each_command(program, case):
    """`validate`, `plan` and `fmt` refuse the same with the same words, soon, and change nothing."""
    content, place, words = UNREADABLE[case]
    put(program, x__yaml=content)
    before = contents(program)
    for command in (("validate",), ("plan",), ("fmt",), ("fmt", "--check")):
        failed = program.run(*command, code=3, timeout_s=30)
        assert failed.stdout == ""
        assert failed.stderr.startswith(f"Error: x.yaml:{place}")
        assert words in failed.stderr.replace("depth", "deep")
        assert len(failed.stderr) < 1000
    assert contents(program) == before


@pytest.mark.parametrize("kind", ["huge", "pipe", "dangling link", "none", "folder", "no directory", "file"])
def test_what_is_no_file_is_told_alike_by_each_command(program, kind):
    """A pipe isn't waited for, a huge file not read, and what isn't there is told: exit code 3, with little memory."""
    path = program.directory / "x.yaml"
    match kind:
        case "huge":
            with path.open("wb") as file:
                file.truncate(100 * 1024 * 1024)
        case "pipe":
            os.mkfifo(path)
        case "dangling link":
            path.symlink_to("nowhere")
        case "folder":
            path.mkdir()
        case "no directory":
            program.directory = program.directory / "gone"
        case "file":
            program.directory = program.directory / "file"
            program.directory.write_text("hosts: []\n")
    words = {
        "huge": "x.yaml:1:1: The file has 100 MiB; at most 20 MiB are read.",
        "pipe": "x.yaml:1:1: This is not a regular file.",
        "dangling link": "x.yaml:1:1: This link leads nowhere.",
        "no directory": "does not exist",
        "file": "is not a directory",
    }.get(kind, "There is no *.yaml or *.yml file in")
    for command in ("validate", "plan", "fmt"):
        assert words in program.run(command, code=3, timeout_s=30).stderr
        whole = [sys.executable, "-c", PEAK, sys.executable, "-m", "llmgwctl", "-C", str(program.directory), command]
        peak_mib = int(subprocess.run(whole, capture_output=True, text=True, check=True, timeout=30).stdout)
        assert peak_mib < 80


def test_the_directory_is_named_whole(program):
    """`.` would be lost at the end of a sentence: the whole path is told, in quotes."""
    for option in ((), ("-C", "."), ("-C", "../fleet")):
        done = subprocess.run(
            [sys.executable, "-m", "llmgwctl", *option, "validate"],
            cwd=program.directory,
            capture_output=True,
            text=True,
            check=False,
        )
        assert f"There is no *.yaml or *.yml file in `{program.directory}`." in done.stderr


def test_empty_files_and_folders_beside_are_fine(program):
    """No bytes, comments only, a byte order mark, other line ends, and folders and hidden files that aren't read."""
    (program.directory / "folder.yaml").mkdir()
    put(
        program,
        a__yaml=b"",
        b__yaml=b"# later\n",
        c__yaml=b"\xef\xbb\xbf" + LOCAL.replace(b"\n", b"\r\n"),
        __d__yaml=b"[",
    )
    assert "1 host," in program.run("validate").stdout
    program.run("fmt")
    assert (program.directory / "c.yaml").read_bytes() == LOCAL
    assert (program.directory / ".d.yaml").read_bytes() == b"["


def test_secrets_are_in_no_message(program):
    """Whatever is wrong with a variable, its value isn't shown."""
    head = b"models:\n  - name: m\n    source: s\n    profiles:\n      - name: p\n        gpu_class: g\n        env"
    for env in (
        b": TOKEN=hunter2",
        b": [TOKEN=hunter2]",
        b": {TOKEN=hunter2}",
        b": {T: [hunter2]}",
        b": {T: {hunter2: 1}}",
    ):
        put(program, x__yaml=head + env + b"\n")
        program.run("validate", code=3)
        program.json("validate", code=3)
        program.run("plan", code=3)
    for value in (b"!hunter2", b"*hunter2", b"@hunter2", b'"hunter2', b"{{hunter2}}", b"'hunter2'x"):
        put(program, x__yaml=head + b":\n          T: " + value + b"\n")
        for command in ("validate", "plan", "fmt"):
            program.run(command, code=3)
    assert program.output.count("x.yaml:") > 20
    assert "hunter2" not in program.output


def test_odd_file_names_and_encodings(program):
    """Names that are no text stay on their line, and JSON is JSON, whatever the terminal can show."""
    for name in (b"\xff.yaml", b"a\n\x1b[31m.yaml"):
        Path(os.fsencode(program.directory).decode(errors="surrogateescape"), os.fsdecode(name)).write_bytes(b"a: 1\n")
    put(program, z__yaml="hosts: [{näme: x}]\n".encode())
    for encoding in ("utf-8:strict", "ascii:strict", "utf-8:surrogateescape"):
        program.env["PYTHONIOENCODING"] = encoding
        assert [d["file"] for d in program.json("validate", code=3)["diagnostics"]][1:] == [
            "z.yaml",
            "z.yaml",
            "\udcff.yaml",
        ]
        told = program.run("validate", code=3)
        assert "a\\n\\x1b[31m.yaml:1:1: " in told.stderr
        assert "\\udcff.yaml:1:1: " in told.stderr
        assert "\x1b" not in told.stderr


def test_fmt_rewrites_only_what_is_not_in_its_normal_form(program):
    """It names what it changes; comments, mode, owner and links stay, and what is right already isn't touched."""
    put(program, a__yaml=LOCAL, b__yml=UGLY.replace(b"name: a", b"name: b"), c__yaml=b"models: []")
    (program.directory.parent / "elsewhere").write_bytes(UGLY.replace(b"name: a", b"name: d").replace(b"\n", b"\r\n"))
    (program.directory / "d.yaml").symlink_to("../elsewhere")
    (program.directory / "b.yml").chmod(0o640)
    if os.geteuid() == 0:
        os.chown(program.directory / "b.yml", 12345, 54321)
    before, owner = contents(program), (program.directory / "b.yml").stat()
    checked = program.run("fmt", "--check", "--diff", code=3)
    assert [line for line in checked.stdout.splitlines() if not line.startswith(("-", "+", "@", " ", "\\"))] == [
        str(program.directory / name) for name in ("b.yml", "c.yaml", "d.yaml")
    ]
    assert "-- name: b   # here\n" in checked.stdout
    assert "+  - name: b # here\n" in checked.stdout
    assert "-models: []\n\\ No newline at end of file\n+models: []\n" in checked.stdout
    assert contents(program) == before
    program.run("fmt")
    after = contents(program)
    assert after["a.yaml"] == before["a.yaml"]
    assert after["b.yml"][0] == LOCAL.replace(b"name: a", b"name: b")
    assert after["c.yaml"][0] == b"models: []\n"
    assert (program.directory / "d.yaml").is_symlink()
    assert (program.directory.parent / "elsewhere").read_bytes() == LOCAL.replace(b"name: a", b"name: d")
    now = (program.directory / "b.yml").stat()
    assert (now.st_mode, now.st_uid, now.st_gid) == (owner.st_mode, owner.st_uid, owner.st_gid)
    assert program.run("fmt", "--check", "--diff").stdout == program.run("fmt").stdout == ""
    assert contents(program) == after


def test_fmt_tells_every_bad_file_and_rewrites_none(program):
    """What can't be read, and what would lose a comment, is told at once, and the good file is not rewritten either."""
    put(program, a__yaml=UGLY, b__yaml=b"hosts: [\n", c__yaml=b"hosts: [a,\n  # why\n  b]\n", d__yaml=b"\xff")
    before = contents(program)
    failed = program.run("fmt", code=3)
    assert failed.stdout == ""
    assert [line.split(": ")[1] for line in failed.stderr.splitlines() if line.startswith("Error")] == [
        "b.yaml:2:1",
        "c.yaml:2:1",
        "d.yaml:1:1",
    ]
    assert contents(program) == before


def test_fmt_that_can_not_finish_leaves_the_file_whole(program):
    """Where writing fails halfway, here at a limit as on a full disk, the old text is there and nothing else."""
    put(program, a__yaml=UGLY)
    before = contents(program)
    command = [sys.executable, "-m", "llmgwctl", "-C", str(program.directory), "fmt"]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (10, 10)),
    )
    assert done.returncode == 1
    assert "a.yaml can't be written: File too large" in done.stderr
    assert contents(program) == before


def test_fmt_loses_no_edit_of_someone_else(program):
    """A file that was changed between reading and writing is left as it is."""
    put(program, a__yaml=UGLY)
    (file,) = format_directory(str(program.directory))
    put(program, a__yaml=UGLY + b"models: []\n")
    with pytest.raises(LlmgwctlError, match="changed by someone else"):
        rewrite(file)
    assert (program.directory / "a.yaml").read_bytes() == UGLY + b"models: []\n"
