"""Collections in which BM25 finds nothing: published with a baseline of zero, or with a run that a curator names."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from django.test import Client

from evaluation.core.problems import InvalidContent
from leaderboard.core.storage.store import Area, put
from leaderboard.importing.collections.halves import import_twin
from leaderboard.importing.collections.importer import import_dataset
from leaderboard.importing.collections.source import ImportOptions
from leaderboard.models import Dataset, DatasetVersion, Entry
from leaderboard.systems.baselines import request_baseline
from submissions.jobs.runner import drain_queue
from submissions.models import Job, State
from submissions.queue.queue import create_requested_jobs
from tests.submissions.clients import Api
from tests.submissions.collections import HEADER

pytestmark = pytest.mark.django_db

RUN = "q1 Q0 d1 1 2.5 clir\nq1 Q0 d2 2 1.5 clir\nq2 Q0 d2 1 2.5 clir\n"
REMARK = "BM25 retrieves no documents for any query"


def write_collection(folder: Path, copies: int = 1) -> Path:
    """Write English queries over Chinese texts, two of each for each copy."""
    (folder / "qrels").mkdir(parents=True)
    pairs = [
        ("\u73bb\u7483\u7eb8\u5382\u5386\u53f2", "history of paper mills"),
        ("\u94c1\u8def\u6865\u6881", "railway bridges"),
    ]
    every = [(text, f"{query} {copy}") for copy in range(copies) for text, query in pairs]
    for name, prefix, place in (("corpus", "d", 0), ("queries", "q", 1)):
        records = [{"_id": f"{prefix}{number}", "text": pair[place]} for number, pair in enumerate(every, 1)]
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    judged = "".join(f"q{number}\td{number}\t1\n" for number in range(1, len(every) + 1))
    (folder / "qrels" / "test.tsv").write_text(HEADER + judged)
    return folder


def import_and_work(folder: Path, **options: Any) -> Dataset:
    """Import the collection, and do what that asks for."""
    imported = import_dataset(folder, ImportOptions(slug="clir", language="zh", **options))
    do_everything()
    return Dataset.objects.get(pk=imported.dataset.pk)


def do_everything() -> None:
    """Do all requested work, and what it asks for in turn: statistics of texts, intervals, and tests."""
    for _ in range(3):
        create_requested_jobs()
        drain_queue("cpu", "test-worker")
        drain_queue("score", "test-worker")
    assert not Job.objects.exclude(state=State.DONE).exists()


@pytest.mark.parametrize("hidden", [False, True])
def test_a_dataset_in_which_bm25_finds_nothing_is_published_and_takes_runs(
    tmp_path: Path, api: Api, hidden: bool
) -> None:
    dataset = import_and_work(write_collection(tmp_path), hidden=hidden)
    assert dataset.state == Dataset.State.PUBLISHED
    baseline = Entry.objects.get(is_baseline=True)
    assert set(baseline.scores.values()) == {0.0}
    assert api.check("", dataset="clir").body["valid"] is False
    identifier = api.submit(RUN, dataset="clir").body["id"]
    do_everything()
    assert api.get(f"submissions/{identifier}/").body["state"] == "done"
    board = Client().get("/api/v1/datasets/clir/board/").json()
    rows = {row["system"]: row for row in board["rows"]}
    assert rows["BM25"]["values"]["nDCG@10"] == 0
    ours = rows["My system"]["values"]
    assert (ours["nDCG@10"], ours["delta"], ours.get("delta-percent")) == (1, 1, None)
    assert any(note.startswith(REMARK) for note in board["notes"])
    about = Client().get("/api/v1/datasets/clir/").json()
    assert [text[: len(REMARK)] for text in about["remarks"]] == [REMARK]
    page = Client().get("/datasets/clir/").content.decode()
    assert REMARK in page
    for address in set(re.findall(r'href="(/(?:datasets|figures|systems)/[^"#]*)"', page)):
        assert Client().get(address.replace("&amp;", "&")).status_code == 200, address
    assert Client().get("/compare/?system=bm25&system=my-system").status_code == 200


def test_an_uploaded_run_without_lines_is_refused(tmp_path: Path, api: Api) -> None:
    import_and_work(write_collection(tmp_path), hidden=False)
    assert api.check("", dataset="clir").problem("empty")["severity"] == "error"
    assert api.submit("", dataset="clir").status == 400


def test_the_twins_of_a_collection_in_which_bm25_finds_nothing_are_drawn(tmp_path: Path) -> None:
    folder = write_collection(tmp_path, copies=12)
    options = ImportOptions(slug="clir", language="zh")
    public, hidden = import_twin(folder, options, 0.5, 0)
    assert [each.qrels.statistics["judged_queries"] for each in (public, hidden) if each.qrels] == [12, 12]


def test_a_curator_names_the_baseline_of_a_dataset_with_documents(tmp_path: Path) -> None:
    folder = write_collection(tmp_path / "clir")
    run = tmp_path / "clir.run"
    run.write_text(RUN)
    dataset = import_and_work(folder, hidden=False, baseline=run)
    assert dataset.state == Dataset.State.PUBLISHED
    assert Entry.objects.get(is_baseline=True).scores["nDCG@10"] == 1
    assert Entry.objects.public().get(system__slug="bm25").scores["nDCG@10"] == 0
    request_baseline(dataset)
    do_everything()
    assert Entry.objects.get(is_baseline=True).scores["nDCG@10"] == 1
    assert Entry.objects.count() == 2


def test_a_baseline_run_needs_judgements(tmp_path: Path) -> None:
    folder = write_collection(tmp_path / "clir")
    (folder / "qrels" / "test.tsv").unlink()
    run = tmp_path / "clir.run"
    run.write_text(RUN)
    with pytest.raises(InvalidContent, match="there are none yet"):
        import_and_work(folder, collecting=True, baseline=run)


@pytest.mark.parametrize("named", [False, True])
def test_a_dataset_that_stayed_in_preparation_is_published_by_importing_it_again(tmp_path: Path, named: bool) -> None:
    folder = write_collection(tmp_path / "clir")
    run = tmp_path / "clir.run"
    run.write_text(RUN)
    import_dataset(folder, ImportOptions(slug="clir", language="zh", hidden=False))
    create_requested_jobs()
    Job.objects.update(state=State.REJECTED)
    assert Dataset.objects.get().state == Dataset.State.PREPARING
    again = import_dataset(folder, ImportOptions(slug="clir", baseline=run if named else None))
    assert again.baseline_requested
    Job.objects.all().delete()
    do_everything()
    assert Dataset.objects.get().state == Dataset.State.PUBLISHED
    assert Entry.objects.get(is_baseline=True).scores["nDCG@10"] == float(named)


def test_a_bm25_with_other_results_takes_the_place_of_the_earlier_one(tmp_path: Path) -> None:
    dataset = import_and_work(write_collection(tmp_path), hidden=False)
    (before,) = Entry.objects.public()
    topics = tmp_path / "topics.jsonl"
    topics.write_text('{"_id": "q2", "text": "\u94c1\u8def"}\n')
    DatasetVersion.objects.update(topics_sha256=put(Area.FILES, topics))
    request_baseline(dataset)
    do_everything()
    (after,) = Entry.objects.public()
    assert (after.is_baseline, after.pk == before.pk, after.scores["nDCG@10"]) == (True, False, 0.5)
    assert not any(note.startswith(REMARK) for note in Client().get("/api/v1/datasets/clir/").json()["remarks"])
