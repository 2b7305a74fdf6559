"""The JSON Schema: found, sound, fast and told in plain words."""

import json
from pathlib import Path

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llmgwctl.config.accept import Acceptors
from llmgwctl.config.documents import read_text
from llmgwctl.config.nodes import node_of
from llmgwctl.config.schema import check_document, schema_path
from llmgwctl.errors import ConfigError

from .support import problems

SCHEMA = json.loads(schema_path("config").read_text())
ACCEPT = Acceptors(SCHEMA)
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)


def test_the_schema_is_a_valid_schema_with_descriptions():
    """Editors get draft 2020-12 and a description of every key."""
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    for name, definition in SCHEMA["$defs"].items():
        for key, entry in definition.get("properties", {}).items():
            assert "$ref" in entry or entry["description"], f"{name}.{key}"


def test_unknown_keywords_are_refused():
    """A rule that the quick check does not know is never silently passed over."""
    with pytest.raises(ValueError, match="multipleOf"):
        Acceptors({"properties": {"a": {"multipleOf": 2}}})


SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 70000),
    st.sampled_from([0.5, 4.0, -1.0, float("inf")]),
    st.sampled_from(
        ["", "a", "ssh", "team:a", "tem:a", "10%", "200%", "20m", "5 m", "file", "llama/0", "a b", "-x", "x\n"]
    ),
)


def _values(schema, depth=0):
    """Yield values that are mostly what a schema wants, now and then something else."""
    if "$ref" in schema:
        schema = SCHEMA["$defs"][schema["$ref"].removeprefix("#/$defs/")]
    options = [SCALARS]
    if "enum" in schema:
        options.append(st.sampled_from(schema["enum"]))
    if "examples" in schema:
        options += [st.just(schema["examples"][0])] * 3
    if "items" in schema:
        options += [st.lists(st.deferred(lambda: _values(schema["items"], depth + 1)), max_size=2)] * 3
    if "properties" in schema or isinstance(schema.get("additionalProperties"), dict):
        known = {k: st.deferred(lambda v=v: _values(v, depth + 1)) for k, v in schema.get("properties", {}).items()}
        required = {k: known[k] for k in schema.get("required", ())}
        optional = {k: v for k, v in known.items() if k not in required}
        whole = st.fixed_dictionaries(required, optional=optional)
        others = schema.get("additionalProperties")
        extra = _values(others, depth + 1) if isinstance(others, dict) else SCALARS
        names = st.sampled_from(["A", "A-B", "org:a", "team:b", "name", "nmae", "x"])
        options += [
            st.builds(lambda a, b: {**b, **a}, whole, st.dictionaries(names, extra, max_size=1 if depth else 0)),
            st.builds(lambda a: dict(list(a.items())[:3]), whole),
        ] * 3
        if isinstance(others, dict):
            options += [st.dictionaries(names, extra, max_size=2)] * 2
    return st.one_of(options)


@settings(max_examples=400, deadline=None)
@given(st.sampled_from(sorted(SCHEMA["$defs"])).flatmap(lambda k: st.tuples(st.just(k), _values(SCHEMA["$defs"][k]))))
def test_the_quick_check_agrees_with_jsonschema(case):
    """Over good and bad values of every definition, the quick check says yes exactly where jsonschema does."""
    kind, value = case
    slow = jsonschema.Draft202012Validator({"$defs": SCHEMA["$defs"], "$ref": f"#/$defs/{kind}"})
    assert ACCEPT.definition(kind)(node_of(value)) == slow.is_valid(value)


@settings(max_examples=100, deadline=None)
@given(_values(SCHEMA))
def test_whole_documents_get_words_exactly_where_jsonschema_refuses(value):
    """A document is told something if and only if jsonschema refuses it."""
    if not isinstance(value, dict):
        return
    text = json.dumps(value, allow_nan=False) if "Infinity" not in json.dumps(value) else "{}"
    document = read_text(text, "f")
    assert bool(check_document(document)) != VALIDATOR.is_valid(json.loads(text))


@pytest.mark.parametrize(
    ("text", "place", "words"),
    [
        ("hots: []", "1:1", "Did you mean `hosts`?"),
        ("hosts:\n  - {name: h, adress: x}", "2:15", "Did you mean `address`?"),
        ("hosts:\n  - {name: ok}\n  - {address: x}", "3:5", "no `name`"),
        ("hosts:\n  - {name: a/b}", "2:12", "file names"),
        ("hosts:\n  - {name: h, port: 70000}", "2:21", "at most 65535"),
        ("hosts:\n  - {name: h, address: -oProxyCommand=x}", "2:24", "does not begin with `-`"),
        ("hosts:\n  - {name: h, connection: shs}", "2:27", "ssh, local or simulated"),
        ("hosts: {}", "1:8", "has to be a list. Write for example `hosts: [{name: gpu-a1}]`"),
        ("hosts: [a]", "1:9", "has to be a mapping. Write for example `{name: gpu-a1}`"),
        ("models:\n  - {name: m, source: s, profiles: []}", "2:36", "is empty"),
        ("models:\n  - {name: m, source: 7, profiles: [{name: p}]}", "2:23", "the number 7; it has to be text"),
        (
            "models:\n  - {name: m, profiles: [{name: p, tp: four}]}",
            "2:40",
            "Model `m`, profile `p`: `tp` is the text four",
        ),
        ("quotas:\n  tem:a: {}", "2:3", "org:ID"),
        ("quotas:\n  team:a: {limit: {gpus: 1.5}}", "2:26", "GPUs are given whole"),
        ("quotas:\n  team:a: {limit: {gpus: -1}}", "2:26", "at least 0"),
        ("settings: {headroom: all}", "1:22", "none or fill"),
        ("hosts:\n  - {name: h, reserve: {memory_gb: .nan}}", "2:36", "no number"),
        ("hosts:\n  - {name: h, labels: {a: .NaN}}", "2:27", "no number"),
        ("quotas:\n  team:a: {limit: {cores: .nan}}", "2:27", "no number"),
    ],
)
def test_words_for_people(text, place, words):
    """What the schema refuses is told with its place, what was found, and what to write."""
    found = [line for line in problems(text) if line.startswith(f"a.yaml:{place}: ")]
    assert any(words in line for line in found), problems(text)


def test_a_value_of_env_is_never_shown():
    """An error about a variable shows no value, wherever it was written by mistake: it may be a secret."""
    envs = [
        "{T: [hunter2]}",
        "{T: {from_env: hunter2-x}}",
        "{T: {hunter2: 1}}",
        "{T: {from_env: A, from_file: hunter2}}",
        "{T: {from_command: hunter2}}",
        "{T=hunter2}",
        "{T=hunter2: a}",
        "T=hunter2",
        "[T=hunter2]",
    ]
    for env in envs:
        for place in ("profiles: [{name: p, gpu_class: h, env: %s}]", "engines: {vllm: {env: %s}}"):
            kind = "models:\n  - {name: m, source: s, " if place.startswith("profiles") else "settings: {"
            found = problems(kind + place % env + "}")
            assert found
            assert "hunter2" not in str(found)
    assert "Did you mean `from_env`?" in str(problems("settings: {engines: {vllm: {env: {T: {from_evn: A}}}}}"))


@pytest.mark.parametrize("secret", ["!hunter2", "*hunter2", "!!hunter2", "!<hunter2>", "&a *hunter2", "@hunter2"])
def test_a_secret_that_yaml_takes_for_something_else_is_not_shown(secret):
    """A password without quotes may look like a tag or an alias: messages say where it is, never what."""
    with pytest.raises(ConfigError) as caught:
        read_text(f"env:\n  T: {secret}\n", "f.yaml")
    assert str(caught.value).startswith("f.yaml:2:")
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    "file", sorted(Path(__file__).parents[2].glob("examples/*/*.yaml")), ids=lambda p: p.parent.name
)
def test_examples_have_a_modeline_to_the_schema(file):
    """Each example tells editors where its schema is."""
    target = file.read_text().splitlines()[0].partition("$schema=")[2]
    assert (file.parent / target).resolve() == schema_path("config").resolve()
