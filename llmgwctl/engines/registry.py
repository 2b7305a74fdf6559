"""Engines by name: the built-in ones, and those that other packages bring."""

from __future__ import annotations

from collections.abc import Iterable
from importlib.metadata import EntryPoint, entry_points

from llmgwctl.engines.base import Engine
from llmgwctl.engines.llamacpp import LlamaCpp
from llmgwctl.engines.sglang import SGLang
from llmgwctl.engines.sim import Sim
from llmgwctl.engines.vllm import Vllm
from llmgwctl.errors import LlmgwctlError

GROUP = "llmgwctl.engines"
"""The entry-point group through which other packages add engines."""

BUILT_IN: dict[str, Engine] = {e.name: e for e in (LlamaCpp(), SGLang(), Sim(), Vllm())}


class BrokenEngineError(LlmgwctlError):
    """An installed package says that it has an engine, and then it can't be loaded."""


def get(name: str) -> Engine | None:
    """Return the engine of that name, or None where nothing has it.

    Built-in engines can't be replaced. Raises BrokenEngineError where a package promises the engine and fails.
    """
    if name in BUILT_IN:
        return BUILT_IN[name]
    for point in _entry_points():
        if point.name == name:
            return _load(point)
    return None


def names() -> tuple[str, ...]:
    """Return every engine's name, sorted; those of other packages are listed without being loaded."""
    return tuple(sorted({*BUILT_IN, *(point.name for point in _entry_points())}))


def _entry_points() -> Iterable[EntryPoint]:
    return sorted(entry_points(group=GROUP), key=lambda p: (p.name, p.value))


def _load(point: EntryPoint) -> Engine:
    package = f" (package {point.dist.name} {point.dist.version})" if point.dist else ""
    try:
        loaded = point.load()
        engine = loaded() if isinstance(loaded, type) else loaded
    except Exception as error:  # somebody else's code: whatever it raises, ours must go on
        raise BrokenEngineError(
            f"the engine {point.name!r}{package} can't be loaded: {type(error).__name__}: {error}",
            f"Its entry point is {point.value!r} in the group {GROUP!r}: repair, update or uninstall that package.",
        ) from error
    if not isinstance(engine, Engine):
        raise BrokenEngineError(
            f"the engine {point.name!r}{package} is not an engine",
            f"{point.value!r} must have name, cpu_capable, check(), ports_needed() and launch().",
        )
    if engine.name != point.name:
        raise BrokenEngineError(
            f"the engine {point.name!r}{package} calls itself {engine.name!r}",
            "The entry point's name and the engine's name must be the same.",
        )
    return engine
