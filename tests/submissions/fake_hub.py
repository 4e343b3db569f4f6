"""A hub of models on this machine."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.evaluation.small_checkpoint import files
from tests.servers.hub import FakeHub, answering

NAME = "someone/small-model"


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, settings: Any) -> Iterator[FakeHub]:
    """A hub with one model, which the site may fetch from."""
    monkeypatch.setenv("SECRET_KEY", "not for the hub")
    settings.HUB_DOWNLOADS = True
    model = files() | {"pytorch_model.bin": b"pickle", "modeling.py": b"raise SystemExit"}
    with answering(FakeHub("models", NAME, model), monkeypatch) as fake:
        yield fake
