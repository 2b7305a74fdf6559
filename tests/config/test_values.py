"""What is refused of single values, in one message each that says what to write; and what only looks wrong."""

# ruff: noqa: E501 (a case a line reads better than a case broken up)

import json

import pytest

from llmgwctl.config.plain import plain_model
from llmgwctl.config.runtime import model_from_mapping

from .support import MODEL, desired, model_with, problems, warnings

MANY = "9" * 5000
OWNER = "Write org:ID, team:ID or project:ID, without blanks."


def about(value, key="owner"):
    return model_with(f"{key}: {value}")


@pytest.mark.parametrize(
    ("text", "place", "words"),
    [
        (about("x"), "4:12", f"`x` can't be the `owner`. {OWNER}"),
        (about("'team:'"), "4:12", f"`team:` can't be the `owner`. {OWNER}"),
        (about("'team:a b'"), "4:12", f"`team:a b` can't be the `owner`. {OWNER}"),
        (about("''"), "4:12", f"`owner` is empty. {OWNER}"),
        (about("5"), "4:12", "`owner` is the number 5; it has to be text. Write for example `owner: team:search`."),
        ("quotas: {team:a: {parent: x}}", "1:27", f"`x` can't be the `quotas.team:a.parent`. {OWNER}"),
        ("quotas: {team:a: {parent: ''}}", "1:27", f"`quotas.team:a.parent` is empty. {OWNER}"),
        ("hosts: [{name: h, address: -x}]", "1:28", "`-x` can't be the `address`."),
        (about("['']", "fallbacks"), "4:17", "One of `fallbacks` is empty."),
        (about("[' n']", "fallbacks"), "4:17", "The fallback ` n` begins or ends with a blank."),
        (about("[7]", "fallbacks"), "4:17", 'One of `fallbacks` is the number 7; it has to be text. Put it into quotes: `"7"`.'),
        (about("1e400", "context_length"), "4:21", "`context_length` is the number 1e400; it has to be a whole number."),
        (about(".inf", "context_length"), "4:21", "`context_length` is the number .inf; it has to be a whole number."),
        (about("-.inf", "max_output"), "4:17", "`max_output` is the number -.inf; it has to be a whole number."),
        (about(MANY, "context_length"), "4:21", "`context_length` is a number of 5000 characters; it has to be a whole number."),
        (about("'8192'", "context_length"), "4:21", "is the text 8192; it has to be a whole number. Take the quotes off: `context_length: 8192`."),
        (about("'true'", "prevent_stop"), "4:19", "Take the quotes off: `prevent_stop: true`."),
        (about("5", "class"), "4:12", "`5` is no class: it is critical, standard or opportunistic."),
        (model_with(profile="weight: .inf"), "5:44", "`weight` is .inf; it has to be at most 1000000000."),
        (MODEL.replace("name: m", "name: 5"), "2:11", '`name` is the number 5; it has to be text. Put it into quotes: `name: "5"`.'),
        (MODEL.replace("name: m", "name: true"), "2:11", 'Put it into quotes: `name: "true"`.'),
        (MODEL.replace("name: p", "name: 1.5"), "5:16", 'Put it into quotes: `name: "1.5"`.'),
        (model_with(profile="env: {A: {from_command: [1]}}"), "5:61", "One of `from_command` is a number; it has to be text. Put it into quotes."),
        (model_with(profile="env: {A: {from_file: 1}}"), "5:57", "`env.A.from_file` is a number; it has to be text. Put it into quotes."),
    ],
)  # fmt: skip
def test_one_value_has_one_message(text, place, words):
    """The place, what was found, and what to write; nothing else is said about the same value."""
    (line,) = problems(text)
    assert line.startswith(f"a.yaml:{place}: error: ")
    assert words in line
    assert len(line) < 400


@pytest.mark.parametrize(
    ("profile", "column", "words"),
    [
        ("gpus_per_node: 0", 51, "gpus_per_node is 0. Write `gpus_per_node: 1`, or leave it out."),
        ("gpus_per_node: 0, tp: 8, nodes: 2", 51, "Write `gpus_per_node: 4`"),
        ("gpus_per_node: -1", 51, "it has to be at least 0"),
        ("gpus_per_node: 0.5", 51, "GPUs are given whole"),
        ("pp: -1", 40, "`pp` is -1; it has to be at least 1. Write for example `pp: 1`."),
        ("pp: 0", 40, "`pp` is 0; it has to be at least 1."),
        ("startup_timeout: 5", 53, "`startup_timeout` is 5, without a unit. Write `startup_timeout: 5s`"),
        ("startup_timeout: 0.5", 53, "Write `startup_timeout: 0.5s`"),
        ("startup_timeout: '5'", 53, "Write `startup_timeout: 5s`"),
        ("startup_timeout: .inf", 53, "`.inf` can't be the `startup_timeout`."),
        ("startup_timeout: 1e400", 53, "`1e400` can't be the `startup_timeout`."),
        ("startup_timeout: true", 53, "it has to be a time with a unit."),
        ("startup_timeout: 99999999999h", 53, "startup_timeout is 99999999999h. Write at most `720h`."),
        (f"startup_timeout: {MANY}h", 53, "Write at most `720h`."),
    ],
)
def test_sizes_and_times_that_make_no_sense(profile, column, words):
    """Sizes that are no size, times without a unit and times that nobody would wait are refused, not bent."""
    (line,) = problems(model_with(profile=profile))
    assert line.startswith(f"a.yaml:5:{column}: error: Model `m`, profile `p`: ")
    assert words in line


@pytest.mark.parametrize("key", ["ttft_p99", "tpot_p99"])
def test_latencies_have_a_unit_and_an_end(key):
    """A bare number could be seconds or milliseconds, so it is refused; nothing at all is no promise."""
    assert f"Write `{key}: 5s`, or with another unit" in problems(model_with(f"slo: {{{key}: 5}}"))[0]
    assert "Write at most `24h`." in problems(model_with(f"slo: {{{key}: 99999999999h}}"))[0]
    assert problems(model_with(f"slo: {{{key}: 0}}")) == []


def test_gpus_of_a_profile_without_gpus():
    """0 is what such a profile has; more is warned of, since it would run on none."""
    text = "models:\n  - {name: m, source: /m.gguf, profiles: [{name: p, engine: llamacpp, min_memory_gb: 1, gpus_per_node: 0}]}\n"
    assert warnings(text) == []
    (line,) = warnings(text.replace("node: 0", "node: 2"))
    assert line.startswith("a.yaml:2:104: warning: Model `m`, profile `p`: gpus_per_node is 2, but without a gpu_class")


def test_the_shortest_time_goes_to_the_yaml_form_and_back():
    """A microsecond is written with its unit and without an exponent, so that it can be read again."""
    found = desired(model_with(profile="startup_timeout: 1us")).models[0]
    assert plain_model(found)["profiles"][0]["startup_timeout"] == "0.000001s"
    assert model_from_mapping("m", plain_model(found), desired()).profiles[0].startup_timeout_s == 0.000001


@pytest.mark.parametrize("path", ["/", "//", "/.", "/..", "/a/../b", "/a/..", "/a/./b", "a", "./a", "~/a", "''", "..", "'/a\nb'"])  # fmt: skip
def test_a_replica_dir_that_is_no_folder_of_its_own_is_refused(path):
    """The whole file system, a relative path and one that leads elsewhere hold no replicas."""
    (line,) = problems(f"settings: {{replica_dir: {json.dumps(path.strip(chr(39)))}}}")
    assert line.startswith("a.yaml:1:25: error: ")
    assert "/var/lib/llmgwctl/replicas" in line


@pytest.mark.parametrize("path", ["/a", "/a/b/", "/a//b", "/..a/b..", "/.a", "/srv/llm gw"])
def test_other_folders_for_replicas_are_fine(path):
    """Names may have dots, blanks and doubled slashes."""
    assert problems(f"settings: {{replica_dir: {path}}}") == []


PLACES = {
    "settings: {engines: {vllm: {env: {%s: x}}}}": "Settings, engine `vllm`",
    "hosts: [{name: h, engines: {sglang: {env: {%s: x}}}}]": "Host `h`, engine `sglang`",
}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("name", ["CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "VLLM_PORT", "VLLM_HOST_IP", "VLLM_API_KEY", "LLAMA_ARG_PORT", "MASTER_ADDR", "LLMGWCTL_X"])  # fmt: skip
def test_an_installation_may_not_set_what_the_placement_decides(place, name):
    """It would be dropped or break the start, so it is refused as in a profile."""
    text = place % name
    (line,) = problems(text)
    assert line.startswith(
        f"a.yaml:1:{text.index(': x') + 3}: error: {PLACES[place]}: {name} is not for an installation"
    )


@pytest.mark.parametrize("name", ["LD_PRELOAD", "LD_LIBRARY_PATH", "CUDA_HOME", "VLLM_LOGGING_LEVEL"])
@pytest.mark.parametrize("place", PLACES)
def test_an_installation_may_set_the_rest(place, name):
    """Also the code that is loaded into an engine, which a profile may not."""
    assert problems(place % name) == []


@pytest.mark.parametrize(
    ("args", "column", "variable"),
    [
        ("--hf-token, hunter2", 55, "HF_TOKEN: {from_env: HF_TOKEN}"),
        ("--hf-token=hunter2", 43, "HF_TOKEN: {from_env: HF_TOKEN}"),
        ("--hf_token, hunter2", 55, "HF_TOKEN: {from_env: HF_TOKEN}"),
        ("--store-password, hunter2", 61, "NAME: {from_env: NAME}"),
        ("--seed, 1, --x-access-key, hunter2", 70, "NAME: {from_env: NAME}"),
        ("--x, hf_hunter2hunter2hunter2", 48, "NAME: {from_env: NAME}"),
    ],
)
def test_a_secret_in_a_command_line_is_warned_of_and_not_shown(args, column, variable):
    """Everybody on the host sees it in `ps`, and everybody who reads the plan."""
    (line,) = warnings(model_with(profile=f"args: [{args}]"))
    assert line.startswith(f"a.yaml:5:{column}: warning: Model `m`, profile `p`: ")
    assert "`ps`" in line
    assert variable in line
    assert "hunter2" not in line


def test_a_secret_in_an_installations_command_is_warned_of():
    """The same holds for the first words of a command."""
    (line,) = warnings("hosts: [{name: h, engines: {vllm: {command: [wrap, --hf-token, hunter2, vllm]}}}]")
    assert line.startswith("a.yaml:1:64: warning: Host `h`, engine `vllm`: the value of `--hf-token`")
    assert "hunter2" not in line


def test_a_refused_key_is_told_once_and_not_shown():
    """What is an error already isn't warned of as well."""
    for args in ("[--api-key, hunter2]", "['--api-key=hunter2']", "['--api-key hunter2']"):
        (line,) = problems(model_with(profile=f"args: {args}"))
        assert "hunter2" not in line


@pytest.mark.parametrize(
    "args", ["--hf-token", "--hf-token, --seed, 1", "--image-token, <image>", "--eos-token-id, 2", "--api-key-path, /x", "--max-num-batched-tokens, 4096", "--tokenizer, /x"]
)  # fmt: skip
def test_what_is_no_secret_is_not_warned_of(args):
    """Tokens of a language, counts, paths, and a flag without a value."""
    assert [line for line in warnings(model_with(profile=f"args: [{args}]")) if "secret" in line] == []
