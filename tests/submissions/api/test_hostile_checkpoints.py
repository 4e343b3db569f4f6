"""Every hostile checkpoint, sent through the real API: refused with its code, and nothing outside is touched."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from evaluation.engines import ENGINES
from leaderboard.models import Dataset, System
from submissions.accounts.throttling import SubmitThrottle
from submissions.models import Checkpoint, Submission
from tests.evaluation.hostile_checkpoints import HOSTILE
from tests.submissions.clients import Api, upload
from tests.submissions.models import submit_model, with_corpus

pytestmark = pytest.mark.django_db


@pytest.fixture
def canary(settings: Any) -> Iterator[Path]:
    """A file beside the folders that archives are unpacked into, as somebody else's weights would lie there."""
    folder = Path(settings.VAR) / "store" / "checkpoints"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "canary.safetensors"
    path.write_bytes(b"somebody else's weights")
    yield path
    path.unlink()


def engine_for(kind: str) -> str:
    """The engine that runs such a checkpoint, and the fewest of other kinds."""
    fitting = [engine for engine in ENGINES.values() if kind in engine.checkpoints]
    return min(fitting, key=lambda engine: len(engine.checkpoints)).name


def everything_in(folder: Path) -> set[Path]:
    """All that lies in the folder, but for uploads on their way in."""
    return {path for path in folder.rglob("*") if "uploads" not in path.parts}


@pytest.mark.parametrize("every", [5, pytest.param(1, marks=pytest.mark.long)], ids=["a fifth", "all"])
@pytest.mark.usefixtures("models_run_here")
def test_every_one_is_refused_with_its_code_and_leaves_nothing(
    demo: Dataset,
    api: Api,
    canary: Path,
    tmp_path: Path,
    settings: Any,
    monkeypatch: pytest.MonkeyPatch,
    every: int,
) -> None:
    """What the validator says of each of them is asked in tests/evaluation; here, that the API says it too."""
    monkeypatch.setattr(SubmitThrottle, "THROTTLE_RATES", {"submit": "1000/min"})
    with_corpus(demo, tmp_path)
    before = everything_in(Path(settings.VAR) / "store")
    assert len(HOSTILE) >= 60
    wrong = {}
    said_at_once = [(name, each) for name, each in HOSTILE.items() if not each.deep]
    for number, (name, hostile) in enumerate(said_at_once[::every]):
        folder = tmp_path / str(number)
        folder.mkdir()
        archive = hostile.make(folder)
        sent = upload(archive.read_bytes(), archive.name)
        answer = submit_model(api, engine=engine_for(hostile.kind), checkpoint=sent, system=f"Hostile {number}")
        codes = {problem["code"] for problem in answer.body.get("problems", [])}
        if answer.status != 400 or hostile.code not in codes:
            wrong[name] = (answer.status, hostile.code, codes)
    assert wrong == {}
    assert canary.read_bytes() == b"somebody else's weights"
    assert everything_in(Path(settings.VAR) / "store") == before
    assert not any(model.objects.exists() for model in (Submission, Checkpoint))
    assert not System.objects.filter(name__startswith="Hostile").exists()
