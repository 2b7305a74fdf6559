"""Engines by name, those of other packages included."""

from __future__ import annotations

import sys

import pytest

from llmgwctl.engines import registry
from llmgwctl.engines.base import Engine
from tests.engines.cases import model, profile, sites

ENGINE = """
from llmgwctl.domain.launch import LaunchSpec, Readiness, StopPolicy

class Tgi:
    name = "tgi"
    cpu_capable = False
    def check(self, model, profile):
        return ()
    def ports_needed(self, profile):
        return 3
    def launch(self, model, profile, sites, rank):
        site = sites[rank]
        argv = ("text-generation-launcher", "--model-id", model.source, "--port", str(site.port), *profile.args)
        gpus = tuple(g.uuid for g in site.gpus)
        return LaunchSpec(site.folder, self.name, argv, (), gpus, "CUDA_VISIBLE_DEVICES", (), site.address, site.port,
                          Readiness("/health", "/v1/models", model.name), StopPolicy(), profile.startup_timeout_s, 3)

class Liar(Tgi):
    name = "other"
"""
POINTS = """[llmgwctl.engines]
tgi = their_engine:Tgi
ready_made = their_engine:made
broken = their_missing_module:X
half = their_engine:LaunchSpec
liar = their_engine:Liar
vllm = their_engine:Tgi
"""


@pytest.fixture
def package(tmp_path, monkeypatch):
    """Install a package the way pip leaves it: a module, and metadata with entry points."""
    (tmp_path / "their_engine.py").write_text(ENGINE + '\nmade = Tgi()\nmade.name = "ready_made"\n')
    info = tmp_path / "their_engines-1.2.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: their-engines\nVersion: 1.2\n")
    (info / "entry_points.txt").write_text(POINTS)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield
    sys.modules.pop("their_engine", None)


def test_built_in_engines_are_there():
    """Each is an Engine under its own name; what does not exist is None."""
    for name in ("llamacpp", "sglang", "sim", "vllm"):
        engine = registry.get(name)
        assert isinstance(engine, Engine)
        assert engine.name == name
        assert name in registry.names()
    assert registry.get("nothing") is None


def test_another_packages_engine_is_found_and_used(package):
    """A third party adds an engine without a change here."""
    engine = registry.get("tgi")
    way = profile("tgi", args=("--num-shard", "1"))
    spec = engine.launch(model("org/chat"), way, sites(1, 1), 0)
    assert spec.argv == ("text-generation-launcher", "--model-id", "org/chat", "--port", "20000", "--num-shard", "1")
    assert engine.ports_needed(way) == spec.ports == 3
    assert registry.get("ready_made").name == "ready_made"
    assert {"tgi", "vllm", "broken"} <= set(registry.names())


def test_listing_names_loads_no_foreign_code(package):
    """A broken package does not break `validate` for the others."""
    registry.names()
    assert "their_engine" not in sys.modules


def test_a_built_in_engine_cannot_be_replaced(package):
    """A package that claims `vllm` changes nothing."""
    assert type(registry.get("vllm")).__module__ == "llmgwctl.engines.vllm"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("broken", "can't be loaded: ModuleNotFoundError"),
        ("half", "can't be loaded: TypeError"),
        ("liar", "calls itself 'other'"),
    ],
)
def test_a_broken_engine_is_named_with_its_package(package, name, words):
    """The user learns which package to repair; other engines go on."""
    with pytest.raises(registry.BrokenEngineError, match=r"their-engines 1\.2") as raised:
        registry.get(name)
    assert words in raised.value.message
    assert registry.get("tgi").name == "tgi"
