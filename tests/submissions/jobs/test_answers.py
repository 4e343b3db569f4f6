"""Answers from import to board: looked for by the scorer, kept with hidden judgements, offered with open ones."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from types import ModuleType

import pytest
from django.test import Client

from evaluation.judgements import answers
from evaluation.verification import references
from leaderboard.core.audit import acting
from leaderboard.core.storage.store import Area, path_of
from leaderboard.importing.collections.importer import import_dataset
from leaderboard.importing.collections.source import ImportOptions
from leaderboard.models import Entry, Rescore
from leaderboard.results.measures import RefusedMeasures, set_measures
from submissions.jobs.kinds.datasets import fail_lost_rescores
from submissions.jobs.runner import drain_queue
from submissions.models import Job, State
from submissions.queue.queue import create_requested_jobs
from tests.factories import make_a_curator
from tests.submissions.jobs.test_baseline import download, make_baseline

pytestmark = pytest.mark.django_db

MEASURES = ("Answer@1000", "R@2kt")


def with_answers(folder: Path, *answers: str) -> Path:
    folder.mkdir(exist_ok=True)
    line = {"_id": "t1", "answers": answers}
    (folder / "answers.jsonl.gz").write_bytes(gzip.compress(json.dumps(line).encode()))
    return folder


@pytest.mark.parametrize(("answer", "value"), [("Common COMMON", 1.0), ("word", 0.0)])  # titles are not read
def test_a_run_is_scored_by_the_answers_in_the_texts_that_it_names(answer: str, value: float, tmp_path: Path) -> None:
    make_baseline(with_answers(tmp_path, answer), primary="Answer@1000", measures=MEASURES, hidden=False)
    entry = Entry.objects.get(is_baseline=True)
    assert {name: entry.scores[name] for name in MEASURES} == dict.fromkeys(MEASURES, value)
    assert gzip.decompress(download("small", "answers.jsonl.gz")).decode() == json.dumps(
        {"_id": "t1", "answers": [answer]}
    )
    board = Client().get("/datasets/small/").content.decode()
    assert "Answer@1000" in board


def test_answers_of_hidden_judgements_are_offered_to_nobody(tmp_path: Path) -> None:
    imported = make_baseline(with_answers(tmp_path, "common common"), primary="Answer@1000", measures=("R@100",))
    assert imported.qrels is not None
    kept = path_of(Area.QRELS, imported.qrels.answers_sha256)
    assert json.loads(kept.read_text("utf-8"))["answers"] == ["common common"]
    assert not path_of(Area.FILES, imported.qrels.answers_sha256).exists()
    assert not imported.version.files.filter(name__contains="answers").exists()
    assert Client().get("/datasets/small/files/answers.jsonl.gz").status_code == 404


def test_other_answers_make_new_judgements_and_the_same_import_without_them_keeps_them(
    tmp_path: Path,
) -> None:
    first = make_baseline(with_answers(tmp_path, "common"), primary="Answer@1000", measures=MEASURES, hidden=False)
    with_answers(tmp_path, "absent")
    second = import_dataset(tmp_path, ImportOptions(slug="small"))
    assert second.changes[0].startswith("rescore on test qrels v2")
    (tmp_path / "answers.jsonl.gz").unlink()
    assert import_dataset(tmp_path, ImportOptions(slug="small")).qrels == first.qrels


def test_a_curator_cannot_choose_a_measure_whose_answers_are_not_there(tmp_path: Path) -> None:
    imported = make_baseline(tmp_path, hidden=False)
    with (
        acting(make_a_curator(), "to see"),
        pytest.raises(RefusedMeasures, match="Answer@5 cannot be computed"),
    ):
        set_measures(imported.dataset, "nDCG@10", ["Answer@5"])


@pytest.mark.parametrize(
    ("reader", "bound", "pattern"),
    [
        (answers, ("TEXT_SECONDS", 0.05), r"((?:[b-d]\w{5} )+)+#"),
        (references, ("RUN_SECONDS", -1.0), "common [b-d]"),
    ],
    ids=["scorer", "verification"],
)
def test_a_pattern_without_end_fails_the_job_at_once_and_operators_are_told_its_line(
    reader: ModuleType,
    bound: tuple[str, float],
    pattern: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(reader, *bound)
    line = {"_id": "t1", "patterns": [pattern]}
    (tmp_path / "answers.jsonl").write_text(json.dumps(line), "utf-8")
    with pytest.raises(AssertionError):
        make_baseline(tmp_path, primary="Answer@1000")
    job = Job.objects.get(kind=Job.Kind.BASELINE)
    assert (job.state, job.error_code, job.attempts) == (State.FAILED, "endless_pattern", 1)
    assert "is too slow" in job.log
    assert "answers.jsonl, line 1: a pattern takes" in caplog.text
    assert "b-d" not in caplog.text + job.log
    with_answers(tmp_path, "common common")
    (tmp_path / "answers.jsonl").unlink()
    import_dataset(tmp_path, ImportOptions(slug="small"))
    create_requested_jobs()
    drain_queue("cpu", "test-worker")
    assert Entry.objects.get(is_baseline=True).scores["Answer@1000"] == 1


def test_a_rescore_by_a_pattern_without_end_fails_and_loses_no_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_baseline(with_answers(tmp_path, "common"), primary="Answer@1000", measures=MEASURES, hidden=False)
    monkeypatch.setattr(references, "RUN_SECONDS", -1.0)
    (tmp_path / "answers.jsonl.gz").write_bytes(
        gzip.compress(json.dumps({"_id": "t1", "patterns": ["common [b-d]"]}).encode())
    )
    import_dataset(tmp_path, ImportOptions(slug="small"))
    create_requested_jobs()
    drain_queue("score", "test-worker")
    job = Job.objects.get(kind=Job.Kind.RESCORE)
    assert (job.state, job.error_code, job.attempts) == (State.FAILED, "endless_pattern", 1)
    assert fail_lost_rescores() == 1
    rescore = Rescore.objects.get()
    assert (rescore.state, rescore.lost) == (Rescore.State.FAILED, {})
