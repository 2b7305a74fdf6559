"""The lab's fixtures; a conftest outside this folder imports them from here."""

import os
from collections.abc import Iterator
from contextlib import ExitStack
from typing import NoReturn

import pytest

from . import Lab, LabUnavailableError, LlamaAssets, llama_assets


@pytest.fixture(scope="session")
def lab() -> Iterator[Lab]:
    """Open an empty lab for the whole session; tests name their hosts so that no two clash."""
    with ExitStack() as stack:
        try:
            opened = stack.enter_context(Lab())
        except LabUnavailableError as error:
            refuse(error)
        yield opened


@pytest.fixture(scope="session")
def llama() -> LlamaAssets:
    """Provide a real llama-server and a model on this machine."""
    try:
        return llama_assets()
    except LabUnavailableError as error:
        refuse(error)


def refuse(error: LabUnavailableError) -> NoReturn:
    """Skip and say why; where everything ought to be there, as in CI, fail."""
    if os.environ.get("CI") == "true":
        pytest.fail(str(error), pytrace=False)
    pytest.skip(str(error))
