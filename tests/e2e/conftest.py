"""Fixtures for tests that run the whole program."""

from __future__ import annotations

from pathlib import Path

import pytest
from lab.fixtures import lab, llama

__all__ = ["lab", "llama"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        names = getattr(item, "fixturenames", ())
        if here in item.path.parents and "lab" in names:
            item.add_marker(pytest.mark.lab)
        if here in item.path.parents and "llama" in names:
            item.add_marker(pytest.mark.real_engine)
