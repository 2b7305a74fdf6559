"""The normal form: nothing is lost, nothing changes its meaning, and it is its own normal form."""

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llmgwctl.config.documents import Documents, read_text
from llmgwctl.config.fmt import format_text, round_trip, value_of
from llmgwctl.config.layout import comments
from llmgwctl.config.nodes import plain
from llmgwctl.config.resolve import resolve
from llmgwctl.config.scaffold import scaffold
from llmgwctl.domain.desired import Connection, Host
from llmgwctl.domain.inventory import Gpu, Node
from llmgwctl.errors import ConfigError

EXAMPLES = sorted(Path(__file__).parents[2].glob("examples/*/*.yaml"))

UGLY = """\
# yaml-language-server: $schema=x
# first

hosts:
- name: a   # the first
  labels: {zone:   a,  n: 1_000, x: 1.50, o: 0o17}   


  # about the address
  address: "10.0.0.1"
  user: ~
  listen:
  # - name: out
- name: 'b'
  engines:
      vllm:
           command:
           - a long word a long word a long word a long word a long word a long word a long word a long word a long word
           env:
             X: |
               line one  

               # not a comment


               line two
             Y: >-
               folded
               text

               more
             no: yes
             "on": true
             E: 1e3

# end
models: []   # none


"""  # noqa: W291

NEAT = """\
# yaml-language-server: $schema=x
# first

hosts:
  - name: a # the first
    labels: {zone: a, n: 1_000, x: 1.50, o: 0o17}

    # about the address
    address: "10.0.0.1"
    user: ~
    listen:
    # - name: out
  - name: 'b'
    engines:
      vllm:
        command:
          - a long word a long word a long word a long word a long word a long word a long word a long word a long word
        env:
          X: |
            line one  

            # not a comment


            line two
          Y: >-
            folded
            text

            more
          no: yes
          "on": true
          E: 1e3

# end
models: []   # none
"""  # noqa: W291

CORPUS = [
    "a: {}\nb: []\nc: \nd: ~\ne: null\nf: ''\ng: \"\"\n",
    "a: {b: , c: [1, '2', \"3\", 0x1f, 1e3, .5, -.inf, .nan]}\n",
    "a: &x {b: 1}\nc: *x\nd:\n  <<: *x\n  e: 2\n",
    "a: |+\n  keep\n\n\nb: |-\n  strip\nc: >\n  fold\n  ed\n\n   more\n",
    "a: |2\n    indented\n  less\nb: 1\n",
    "a: plain text\n  over two lines\nb: 'single ''quoted'' \n\n  text'\nc: \"esc \\t \\u00e9 \\\n  joined\"\n",
    "a:\n- b:\n  - c:\n    - d\n- - e\n  - f\n",
    "'quoted key': 1\n\"a: b\": 2\n1: 3\ntrue: 4\n? long\n: 5\n",
    "a: x # one\n# two\nb:\n  # three\n  c: 1\n  # four\n\n# five\nd: 2\n# six\n",
    "a: [1,\n  2, # two\n  3]\n",
    "a: {b: 1, # one\n  c: 2}\n",
    "# only comments\n\n\n# here\n",
    "",
    "---\na: 1\n...\n",
    "a: 'it''s'\nb: yes\nc: 2024-01-01\nd: 12:30\ne: 1_000\nf: 0o17\ng: +1\nh: 1.\n",
    "b: 'é 😀 text' # 😀\nc: [ü] # ö\n",
    "a: x\r\nb:\r\n- y\r\n",
    "a: -1\nb: '- 1'\n",
    "key with blanks: 'value: x'\nurl: http://a/b#c\n",
]

LOSES_A_COMMENT = [t for t in CORPUS if t.startswith(("a: [1,\n", "a: {b: 1, #"))]


def test_the_normal_form():
    """Indentation, trailing blanks and blank lines are made even; comments go along, and all else stays as written."""
    assert format_text(UGLY, "f.yaml") == NEAT
    assert format_text(NEAT, "f.yaml") == NEAT


@pytest.mark.parametrize("text", CORPUS)
def test_corpus_keeps_meaning_and_comments(text):
    """What can be formatted means the same, keeps every comment, and is its own normal form; the rest is refused."""
    if text in LOSES_A_COMMENT:
        with pytest.raises(ConfigError, match="lose this comment"):
            format_text(text, "f.yaml")
        return
    formatted = format_text(text, "f.yaml")
    before, after = read_text(text, "f").root, read_text(formatted, "f").root
    assert repr(before and plain(before)) == repr(after and plain(after))
    assert [c for _, c in comments(formatted)] == [c for _, c in comments(text)]
    assert format_text(formatted, "f.yaml") == formatted


@pytest.mark.parametrize("text", [t for t in CORPUS if t and not t.startswith("# only")])
def test_both_readers_read_alike(text):
    """Ruamel's round trip and the quick reader give the same values for every document."""
    read = round_trip().load(text.replace("\r\n", "\n"))
    assert repr(value_of(read)) == repr(plain(read_text(text, "f").root))


SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(10**6), 10**6),
    st.floats(allow_nan=False, allow_infinity=False, width=16),
    st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Cs", "Zl", "Zp")), max_size=12),
    st.sampled_from(["no", "1_000", "~"]),
    st.sampled_from([ "a: b", "# x", "- a", "{", "'", '"', " a", "a ", "line\nline\n", "\n", "*a", "&a", "<<"]),
)  # fmt: skip
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text("abc<:# '", min_size=1, max_size=4), inner, max_size=3)
    ),
    max_leaves=12,
)


@settings(max_examples=150, deadline=None)
@given(st.dictionaries(st.sampled_from("abcd"), VALUES, min_size=1, max_size=4), st.booleans())
def test_generated_documents_are_read_alike_and_formatted_to_a_fixed_point(value, as_json):
    """For any values, written in flow or block form, both readers agree and formatting changes no meaning."""
    import yaml

    text = json.dumps(value) if as_json else yaml.safe_dump(value, allow_unicode=True, default_flow_style=False)
    try:
        root = read_text(text, "f").root
    except ConfigError:
        return  # a character that is not allowed unescaped
    assert repr(value_of(round_trip().load(text))) == repr(plain(root))
    formatted = format_text(text, "f")
    assert repr(plain(read_text(formatted, "f").root)) == repr(plain(root))
    assert format_text(formatted, "f") == formatted


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda p: f"{p.parent.name}/{p.name}")
def test_examples_are_in_their_normal_form(file):
    """The examples are written as fmt writes them."""
    assert format_text(file.read_text(), file.name) == file.read_text()


def test_a_file_that_is_not_yaml_is_refused():
    """Formatting tells what reading tells."""
    with pytest.raises(ConfigError, match=r"f\.yaml:2:1.*twice"):
        format_text("a: 1\na: 2\n", "f.yaml")


GPU = Gpu(0, "GPU-1", "NVIDIA H100 80GB HBM3", "h100-80gb", 81559)


@pytest.mark.parametrize("gpus", [(), (GPU, GPU)], ids=["no GPU", "GPUs"])
def test_the_first_configuration_is_valid_and_in_its_normal_form(gpus):
    """What `init` writes resolves without a warning to the hosts that were looked at, with GPUs to run the model on."""
    nodes = [Node("this-machine", millicores=2000, memory_mib=8000, gpus=gpus), Node("b", reachable=False, error="x")]
    hosts = [Host("this-machine", "127.0.0.1", connection=Connection.LOCAL), Host("z", "10.0.0.1", 2222, "no")]
    text = scaffold(nodes, hosts)
    found = resolve(Documents((read_text(text, "llmgwctl.yaml"),)))
    assert found.diagnostics == ()
    assert [(h.name, h.address, h.port, h.user, h.connection) for h in found.hosts] == [
        (h.name, h.address, h.port, h.user, h.connection) for h in hosts
    ]
    (profile,) = found.models[0].profiles
    pretended = found.hosts[0].simulate
    assert profile.engine == "sim"
    assert profile.gpu_class == ("h100-80gb" if gpus else "demo")
    assert (pretended is None) == bool(gpus)
    assert format_text(text, "f") == text
