"""What the client's tests share: `runboard_eval`, as whoever installs it has it."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from packages.evaluation_wheel import write_tree


@pytest.fixture(scope="package")
def package(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The package `runboard_eval` can be imported."""
    folder = tmp_path_factory.mktemp("package")
    write_tree(folder, kernel=False)
    sys.path.insert(0, str(folder))
    yield
    sys.path.remove(str(folder))
