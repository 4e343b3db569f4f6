"""Fixtures for the client's tests: a site served by gunicorn, and `runboard_eval` as users install it."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from packages.evaluation_wheel import write_tree
from tests.servers.web import serving


@pytest.fixture(scope="package")
def site(django_db_setup: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of the site."""
    with serving(tmp_path_factory.mktemp("web")) as started:
        yield started[0]


@pytest.fixture(scope="package")
def package(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The package `runboard_eval` can be imported."""
    folder = tmp_path_factory.mktemp("package")
    write_tree(folder, kernel=False)
    sys.path.insert(0, str(folder))
    yield
    sys.path.remove(str(folder))
