"""Makes the lab's fixtures known to the tests of this folder and marks those that use it."""

from pathlib import Path

import pytest

from .fixtures import lab, llama

__all__ = ["lab", "llama"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents and "lab" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.lab)
