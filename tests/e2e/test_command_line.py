"""The command line as such: help, versions, options by environment, and output that can't be printed."""

from __future__ import annotations

import json
import subprocess
import sys

import click
import pytest

from llmgwctl.cli.main import COMMANDS, cli

from .program import Program

HEAVY = {"paramiko", "cryptography", "jsonschema", "ruamel", "yaml", "deepdiff", "hypothesis", "tabulate"}
LOADED = (
    "import json, sys; from llmgwctl.cli.main import main; code = main(sys.argv[1:]);"
    "print(json.dumps(sorted({m.partition('.')[0] for m in sys.modules})), file=sys.stderr); sys.exit(code)"
)


@pytest.fixture
def program(tmp_path):
    (tmp_path / "fleet").mkdir()
    program = Program(tmp_path / "fleet")
    program.write({"hosts": [{"name": "s", "connection": "simulated", "simulate": {"gpus": 1}}]}, "fleet.yaml")
    return program


@pytest.mark.parametrize("name", COMMANDS)
def test_help_of_each_command(program, name):
    """Both forms print the same on standard output, with every option, whatever the directory holds."""
    (program.directory / "fleet.yaml").write_text("[")
    long, short = program.run(name, "--help"), program.run(name, "-h")
    assert (long.stdout, long.stderr) == (short.stdout, "")
    assert long.stdout.startswith(f"Usage: llmgwctl {name} ")
    command = cli.get_command(click.Context(cli), name)
    for parameter in command.params:
        for option in parameter.opts if isinstance(parameter, click.Option) else ():
            assert option in long.stdout
    assert "-C DIR" in long.stdout


def test_help_and_version(program):
    """The help names every command and exit code; without a command it is printed as a usage error."""
    shown = program.run("--help")
    assert all(f"  {name}" in shown.stdout for name in COMMANDS)
    assert "64 usage" in " ".join(shown.stdout.split())
    bare = subprocess.run([sys.executable, "-m", "llmgwctl"], capture_output=True, text=True, check=False)
    assert (bare.returncode, bare.stdout) == (64, "")
    assert "Commands:" in bare.stderr
    assert program.run("--version").stdout.startswith("llmgwctl, version ")


@pytest.mark.parametrize(("word", "meant"), [("plna", "plan"), ("destory", "destroy"), ("xyzzy", None)])
def test_a_command_that_does_not_exist(program, word, meant):
    """Exit code 64, and the command that may have been meant."""
    failed = program.run(word, code=64)
    assert failed.stdout == ""
    assert f"There is no command {word!r}." in failed.stderr
    assert ("Did you mean" in failed.stderr) == (meant is not None)
    assert meant is None or repr(meant) in failed.stderr


@pytest.mark.parametrize(
    ("arguments", "allowed"),
    [
        (("--help",), set()),
        (("--version",), set()),
        (("apply", "--help"), {"tabulate"}),
        (("init", "--help"), set()),
        (("validate",), {"yaml"}),
        (("plan",), {"yaml", "tabulate"}),
    ],
    ids=lambda value: " ".join(sorted(value)),
)
def test_what_is_slow_to_import_is_imported_only_when_it_is_needed(program, arguments, allowed):
    """Help loads none of it; a valid configuration without SSH hosts needs the YAML reader alone."""
    command = [sys.executable, "-c", LOADED, "-C", str(program.directory), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, env=program.env, check=True)
    loaded = set(json.loads(done.stderr.splitlines()[-1]))
    assert "llmgwctl" in loaded
    assert loaded & HEAVY <= allowed


def test_each_option_by_its_variable(program):
    """LLMGWCTL_COMMAND_OPTION is the option's name as it is typed; a value that makes no sense is a usage error."""
    for command in ("validate", "plan", "status"):
        program.env[f"LLMGWCTL_{command.upper()}_JSON"] = "1"
        assert json.loads(program.run(command).stdout)
    program.env["LLMGWCTL_VALIDATE_JSON"] = "perhaps"
    assert "comes from LLMGWCTL_VALIDATE_JSON" in program.run("validate", code=64).stderr
    program.env["LLMGWCTL_VALIDATE_JSON"] = "0"
    assert "valid:" in program.run("validate").stdout
    program.env |= {"LLMGWCTL_FMT_CHECK": "1", "LLMGWCTL_FMT_DIFF": "1"}
    (program.directory / "ugly.yaml").write_text("models:   []\n")
    assert "-models:   []" in program.run("fmt", code=3).stdout
    program.env |= {"LLMGWCTL_PLAN_TARGET": "no-such-model another"}
    assert "--target another: no model is called that" in program.run("plan", code=64).stderr
    bare = [sys.executable, "-m", "llmgwctl", "validate"]
    for name in ("LLMGWCTL_DIRECTORY", "LLMGWCTL_VALIDATE_DIRECTORY"):
        env = {**program.env, name: str(program.directory)}
        assert "1 host" in subprocess.run(bare, capture_output=True, text=True, env=env, cwd="/", check=True).stdout
    program.env |= {"LLMGWCTL_DIRECTORY": "/nowhere", "LLMGWCTL_VALIDATE_DIRECTORY": "/nowhere"}
    assert "1 host" in program.run("validate").stdout  # what is typed wins, here by -C before the command


def test_every_option_has_a_variable_of_its_name():
    """No option is left out, and none is called otherwise than it is typed."""
    for name in COMMANDS:
        for option in cli.get_command(click.Context(cli), name).params:
            for long in [o for o in option.opts if o.startswith("--")]:
                assert option.envvar == f"LLMGWCTL_{name}_{long[2:]}".upper().replace("-", "_")


def test_a_variable_of_an_installer_disturbs_nothing(program):
    """LLMGWCTL_VERSION is not an option: scripts keep there what they install."""
    program.env["LLMGWCTL_VERSION"] = "0.1.0"
    program.run("validate")


@pytest.mark.parametrize("arguments", [("validate",), ("validate", "--json"), ("--help",), ("plan",)])
def test_output_that_has_nowhere_to_go(program, arguments):
    """A full disk is told and exits with 1; closed streams change nothing."""
    program.env.pop("LLMGWCTL_DEBUG")
    command = f"exec {sys.executable} -m llmgwctl -C {program.directory} {' '.join(arguments)}"

    def shell(redirection: str) -> subprocess.CompletedProcess:
        return subprocess.run(
            ["/bin/sh", "-c", f"{command} {redirection}"], capture_output=True, text=True, env=program.env, check=False
        )

    full = shell("> /dev/full")
    assert full.returncode == 1
    assert full.stderr == "Error: What was to be printed can't be written: No space left on device.\n"
    for redirection in (">&-", "2>&-", "<&-", ">&- 2>&- <&-"):
        assert shell(redirection).returncode == 0


@pytest.mark.parametrize("moment", ["import", "callback"])
def test_an_interrupt_while_modules_load(program, tmp_path, moment):
    """One line and exit code 130, also where Python could only say that it ignores it."""
    # A job in the background begins with interrupts ignored, and so would the program.
    heard = "signal.signal(signal.SIGINT, signal.default_int_handler)"
    interrupt = f"import os, signal, time; {heard}; os.kill(os.getpid(), signal.SIGINT); time.sleep(5)"
    if moment == "callback":
        interrupt = f"class Late:\n    def __del__(self):\n        {interrupt}\nlate = Late()\ndel late"
    (tmp_path / "early").mkdir()
    (tmp_path / "early" / "click.py").write_text(interrupt)
    program.env["PYTHONPATH"] = f"{tmp_path / 'early'}:{program.env.get('PYTHONPATH', '')}"
    done = program.run("plan", code=130)
    assert (done.stdout, done.stderr) == ("", "Interrupted.\n")
