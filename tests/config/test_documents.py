"""Reading the files of a directory: places, limits, and everything wrong at once."""

import os

import pytest

from llmgwctl.config.documents import SIZE_LIMIT_BYTES, decode, load, read_text
from llmgwctl.config.nodes import plain
from llmgwctl.config.resolve import resolve
from llmgwctl.errors import ConfigError


def refused(text):
    with pytest.raises(ConfigError) as caught:
        read_text(text, "f.yaml")
    return [str(d) for d in caught.value.diagnostics]


def value(text):
    return plain(read_text(f"x: {text}", "f").root)["x"]


@pytest.mark.parametrize(
    "text", ["no", "on", "yes", "1_000", "0b1", "12:30:45", "2024-01-01", "+.inf.", "0o8", "=", "y"]
)
def test_words_of_older_yaml_are_text(text):
    """Only YAML 1.2's core forms are special; `no`, `1_000`, dates and sexagesimals are text."""
    assert value(text) == text


@pytest.mark.parametrize(
    ("text", "meaning"),
    [
        ("0o17", 15),
        ("0x1F", 31),
        ("012", 12),
        ("-7", -7),
        ("1.50", 1.5),
        ("1e3", 1000.0),
        (".5", 0.5),
        ("true", True),
        ("FALSE", False),
        ("~", None),
        ("Null", None),
        ("", None),
        ("-.inf", float("-inf")),
        ("'1'", "1"),
        ("9" * 5000, "9" * 5000),
    ],
)
def test_core_scalars(text, meaning):
    """Numbers, truth values and nulls are those of the core schema; quotes make text."""
    assert value(text) == meaning
    assert type(value(text)) is type(meaning)


def test_places_count_from_one():
    """Each key and value knows its line and column, also after characters beyond ASCII."""
    root = read_text("hosts:\n  - näme: [a, 'ü', c]\n", "f.yaml").root
    entry = root.value["hosts"].value[0]
    assert str(root.key_at("hosts")) == "f.yaml:1:1"
    assert str(entry.key_at("näme")) == "f.yaml:2:5"
    assert str(entry.value["näme"].value[2].at) == "f.yaml:2:20"


def test_every_duplicate_key_is_told_with_both_places():
    """A key written twice is an error for each repetition, at any depth."""
    found = refused("a: 1\nb: {c: 1, c: 2}\na: 2\n")
    assert [line.split(" error")[0] for line in found] == ["f.yaml:2:11:", "f.yaml:3:1:"]
    assert "first at f.yaml:1:1" in found[1]


@pytest.mark.parametrize(
    ("text", "place", "words"),
    [
        ("a:\n\tb: 1", "2:1", "A tab"),
        ("a: b: c", "1:5", "can't begin here"),
        ("a: @x", "1:4", "in quotes"),
        ("a: 1\n---\nb: 1", "2:1", "second document"),
        ("%YAML 1.1\n---\na: 1", "1:1", "YAML 1.2"),
        ("a: *x", "1:4", "refers to nothing"),
        ("a: &x [*x]", "1:8", "contains itself"),
        ("a: &x {b: {c: *x}}", "1:15", "contains itself"),
        ("a: !include x", "1:4", "This tag means nothing"),
        ("a: !!str 1", "1:4", "This tag means nothing"),
        ("a: !!map {}", "1:4", "This tag means nothing"),
        ("? [a]\n: b", "1:3", "A key has to be text"),
        ("- 1", "1:1", "does not begin with a key"),
        ("text", "1:1", "does not begin with a key"),
        ('a: "\\0"', "1:4", "NUL"),
        ("a: \x07", "1:4", "U+0007"),
        ("<<: 1", "1:1", "takes in"),
        ("{a: " * 5000, "1:257", "levels deep"),
        ("a: " + "[" * 5000, "", "deep"),
        ("a:\n" + "".join(" " * n + "- \n" for n in range(1, 80)), "", "levels deep"),
    ],
)
def test_refused_texts(text, place, words):
    """What is no plain YAML 1.2 document of text keys is refused in plain words at its place."""
    (line,) = refused(text)
    assert line.startswith(f"f.yaml:{place}")
    assert words in line.replace("depth", "deep")


def test_aliases_that_explode_are_refused_at_the_alias():
    """Nested aliases that stand for billions of values are refused, at once, where they pass the limit."""
    text = "a: &a [x,x,x,x,x,x,x,x,x]\n"
    for before, name in zip("abcdefghi", "bcdefghij", strict=True):
        text += f"{name}: &{name} [{','.join(['*' + before] * 9)}]\n"
    (line,) = refused(text)
    assert line.startswith("f.yaml:6:")
    assert "200000 values" in line


def test_aliases_and_merge_keys():
    """An alias stands for its anchor's value; a merged mapping gives what is not written, the first one winning."""
    text = "a: &a {x: 1, y: 1}\nb: &b {y: 2, z: 2}\nc: {<<: [*a, *b], x: 0}\nd: *a\n"
    root = read_text(text, "f.yaml").root
    assert plain(root)["c"] == {"x": 0, "y": 1, "z": 2}
    assert plain(root)["d"] == {"x": 1, "y": 1}
    assert str(root.value["c"].key_at("z")) == "f.yaml:2:14"


def test_empty_files_and_byte_order_marks(tmp_path):
    """A file of comments only is no error, and a byte order mark is no text."""
    (tmp_path / "a.yaml").write_bytes(b"")
    (tmp_path / "b.yml").write_bytes(b"\xef\xbb\xbfhosts: []\n")
    (tmp_path / "c.yaml").write_bytes(b"# nothing\n---\n")
    (tmp_path / ".d.yaml").write_bytes(b"][")
    (tmp_path / "e.txt").write_bytes(b"][")
    (tmp_path / "f.yaml").mkdir()
    files = load(str(tmp_path)).files
    assert [(d.file, d.root and plain(d.root)) for d in files] == [
        ("a.yaml", None),
        ("b.yml", {"hosts": []}),
        ("c.yaml", None),
    ]


def test_all_files_problems_at_once(tmp_path):
    """Every unreadable file is told, each with its own reason, and reading goes on after each."""
    (tmp_path / "a.yaml").write_bytes("hosts: # ü\n  - näme: ".encode() + b"\xff\n")
    (tmp_path / "b.yaml").symlink_to(tmp_path / "nowhere")
    (tmp_path / "c.yaml").write_bytes("a: 1".encode("utf-16"))
    with open(tmp_path / "d.yaml", "wb") as big:
        big.truncate(100 * 1024 * 1024)
    os.mkfifo(tmp_path / "e.yaml")
    (tmp_path / "f.yaml").write_text("a: [")
    (tmp_path / "g.yaml").write_text("a: 1")
    documents = load(str(tmp_path))
    assert [d.file for d in documents.files] == ["g.yaml"]
    found = [str(d) for d in documents.problems]
    assert [line.split(":")[0] for line in found] == ["a.yaml", "b.yaml", "c.yaml", "d.yaml", "e.yaml", "f.yaml"]
    assert found[0].startswith("a.yaml:2:11: error: Byte 0xff")
    for line, words in zip(
        found[1:], ["leads nowhere", "UTF-16", "100 MiB", "regular file", "not valid YAML"], strict=True
    ):
        assert words in line
    assert SIZE_LIMIT_BYTES < 100 * 1024 * 1024


def test_missing_directories_say_what_to_do(tmp_path):
    """No directory, a file in its place, and a directory without YAML each say how to go on."""
    (tmp_path / "file").touch()
    for path, words in [
        (tmp_path / "gone", "does not exist"),
        (tmp_path / "file", "not a directory"),
        (tmp_path, "llmgwctl init"),
    ]:
        with pytest.raises(ConfigError, match=words):
            load(str(path))


def test_what_is_readable_is_checked_beside_what_is_not(tmp_path):
    """A broken file and a key written twice hide nothing of what is wrong elsewhere; all is sorted by place."""
    (tmp_path / "a.yaml").write_text("hosts:\n  - {name: h, port: 0}\n  - {name: i, a: {b: 1, b: 2}}\nmodles: []\n")
    (tmp_path / "b.yaml").write_text("hosts: [\n")
    (tmp_path / "c.yaml").write_text("hosts: [{name: h}]\nmodels: [{name: m}]\nhosts: []\n")
    with pytest.raises(ConfigError) as caught:
        resolve(load(str(tmp_path)))
    found = [str(d) for d in caught.value.diagnostics]
    for line, start in zip(
        found,
        [
            "a.yaml:2:21: error: Host `h`: `port` is 0",
            "a.yaml:3:15: error: Host `i`: Unknown key `a`",
            "a.yaml:3:25: error: The key `b` is written twice",
            "a.yaml:4:1: error: Unknown key `modles`",
            "b.yaml:2:1: error: This is not valid YAML",
            "c.yaml:1:16: error: The host `h` is declared twice; first at a.yaml:2:12",
            "c.yaml:2:10: error: Model `m`: it has no `profiles`",
            "c.yaml:2:10: error: Model `m`: it has no `source`",
            "c.yaml:3:1: error: The key `hosts` is written twice",
        ],
        strict=True,
    ):
        assert line.startswith(start), found


@pytest.mark.parametrize("end", ["\r\n", "\r"])
def test_line_ends_of_other_systems(end):
    """Places are the same whichever line ends a file has."""
    text = "a: |\n  x\n\n  y\nb: 1\nb: 2\n"
    assert refused(text.replace("\n", end)) == refused(text)
    root = read_text(text.replace("b: 2\n", "").replace("\n", end), "f").root
    assert plain(root) == {"a": "x\n\ny\n", "b": 1}


def test_decode_tells_line_and_column_of_a_wrong_byte():
    """The column of a byte that is not UTF-8 counts characters, not bytes."""
    with pytest.raises(ConfigError) as caught:
        decode("a: é".encode() + b"\x80", "f.yaml")
    assert str(caught.value.diagnostics[0].at) == "f.yaml:1:5"


def test_without_libyaml_the_same_is_read(monkeypatch):
    """Where PyYAML was built without libyaml its own parser gives the same values and places."""
    text = "hosts:\n  - name: &n näme # c\n    labels: {a: *n, b: [1, 'x']}\n    t: |\n      a\n\n      b\n"
    fast = read_text(text, "f.yaml").root
    monkeypatch.setattr("yaml.__with_libyaml__", False)
    slow = read_text(text, "f.yaml").root
    assert plain(slow) == plain(fast)
    labels = [root.value["hosts"].value[0].value["labels"] for root in (fast, slow)]
    assert [str(found.value["b"].value[1].at) for found in labels] == ["f.yaml:3:28"] * 2
    assert refused("a: [" + "[" * 100)[0].startswith("f.yaml:1:67: error: This is nested more than 64")
