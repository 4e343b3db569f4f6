"""The baseline that a worker makes, and the example runs that come with it."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path
from typing import Any

import pytest
from django.test import Client

from leaderboard.core.storage.runs import open_run
from leaderboard.importing.collections.importer import ImportResult, import_dataset
from leaderboard.importing.collections.source import ImportOptions
from leaderboard.importing.demo.stdlib_search import DEMO_SLUG
from leaderboard.models import Dataset, Entry, Evaluation
from leaderboard.results.records import per_query_values
from leaderboard.systems.baselines import request_baseline
from submissions.jobs.runner import drain_queue
from submissions.models import Job, State
from submissions.queue.queue import create_requested_jobs
from tests.submissions.clients import Api, upload
from tests.submissions.collections import HEADER
from tests.submissions.workers import work

pytestmark = pytest.mark.django_db

DOCUMENTS = 130
#: t1 is judged, t2 is not, and t3 is for training.
QUERIES = {"t1": "common word", "t2": "common text", "t3": "common words of train"}
JUDGED = "t1\td1\t1\n"


def make_baseline(
    folder: Path, slug: str = "small", qrels: tuple[str, str] | None = None, **options: Any
) -> ImportResult:
    """A collection whose every document holds a word of every query, published by a worker."""
    (folder / "qrels").mkdir(parents=True)
    rows = [{"_id": f"d{n}", "title": f"word {n}", "text": "common " * n} for n in range(1, DOCUMENTS + 1)]
    (folder / "corpus.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    queries = [{"_id": name, "text": text} for name, text in QUERIES.items()]
    (folder / "queries.jsonl").write_text("".join(json.dumps(query) + "\n" for query in queries))
    name, judged = qrels or ("qrels/test.tsv", HEADER + JUDGED)
    (folder / name).write_text(judged)
    (folder / "qrels" / "train.tsv").write_text(HEADER + "t3\td2\t1\n")
    imported = import_dataset(folder, ImportOptions(slug=slug, **options))
    create_requested_jobs()
    drain_queue("cpu", "test-worker")
    assert Job.objects.get(dataset=imported.dataset, kind=Job.Kind.BASELINE).state == State.DONE
    return imported


def download(slug: str, name: str) -> bytes:
    """An offered file, as a visitor gets it."""
    answer: Any = Client().get(f"/datasets/{slug}/files/{name}")
    assert answer.status_code == 200
    return b"".join(answer.streaming_content)


def queries_in(run: bytes) -> set[str]:
    """The queries that a run answers."""
    return {line.split()[0].decode() for line in run.splitlines()}


def test_the_baseline_answers_the_topics_alone(tmp_path: Path) -> None:
    make_baseline(tmp_path)
    entry = Entry.objects.get(is_baseline=True)
    assert entry.evaluation is not None
    with open_run(entry.evaluation.run.sha256) as text:
        assert queries_in(text.read()) == {"t1", "t2"}


def test_a_run_for_the_topics_is_complete_and_more_is_ignored(tmp_path: Path, api: Api) -> None:
    make_baseline(tmp_path)
    lines = {query: f"{query} Q0 d1 1 1.5 mine\n" for query in QUERIES}
    problems = api.check(lines["t1"] + lines["t2"], dataset="small").body["problems"]
    assert [problem["code"] for problem in problems] == ["shallow"]
    problem = api.check("".join(lines.values()), dataset="small").problem("unknown_queries")
    assert (problem["severity"], problem["count"], problem["lines"]) == ("warning", 1, [3])
    assert "ignored" in problem["message"]


@pytest.mark.parametrize("hidden", [True, False])
def test_the_example_run_answers_all_topics_judged_or_not_and_may_be_uploaded(
    tmp_path: Path, api: Api, hidden: bool
) -> None:
    make_baseline(tmp_path, hidden=hidden)
    content = download("small", "small.bm25.run.txt.gz")
    run = gzip.decompress(content)
    assert queries_in(run) == {"t1", "t2"}
    assert len(run.splitlines()) == 2 * 100
    identifier = api.submit(content, dataset="small").body["id"]
    work()
    assert api.get(f"submissions/{identifier}/").body["state"] == "done"


def test_the_baseline_made_again_offers_the_same_example(tmp_path: Path) -> None:
    imported = make_baseline(tmp_path)
    before = set(imported.version.files.values_list("name", "sha256"))
    again = Job.objects.get(kind=Job.Kind.BASELINE)
    Job.objects.create(kind=Job.Kind.BASELINE, queue="cpu", dataset=again.dataset, state=State.QUEUED)
    drain_queue("cpu", "test-worker")
    assert set(imported.version.files.values_list("name", "sha256")) == before


def test_the_mistakes_of_the_demos_broken_run_are_told_on_the_submit_page(tmp_path: Path, signed_in: Client) -> None:
    make_baseline(tmp_path, DEMO_SLUG, hidden=False)
    kinds = [file["kind"] for file in Client().get(f"/api/v1/datasets/{DEMO_SLUG}/files/").json()]
    assert kinds[-2:] == ["example_run", "broken_run"]
    broken = download(DEMO_SLUG, f"{DEMO_SLUG}.broken.run.txt")
    answer = signed_in.post("/submit/", {"action": "check", f"run:{DEMO_SLUG}": upload(broken)})
    links = re.sub(r'<a href="/formats/#(\w+)"[^>]*>', r" \1 ", answer.content.decode())
    page = " ".join(re.sub(r"<[^>]+>", " ", links).split())
    for code, lines in {
        "fields": "lines 3, 20",
        "score": "lines 7, 8",
        "duplicate": "line 12",
        "encoding": "line 16",
    }.items():
        assert re.search(rf"{lines} · {code}", page), page
    assert Dataset.objects.get().entries.count() == 1


def test_a_baseline_asked_for_again_ends_well_and_stays_one_entry(tmp_path: Path) -> None:
    imported = make_baseline(tmp_path)
    request_baseline(imported.dataset)
    create_requested_jobs()
    drain_queue("cpu", "test-worker")
    assert set(Job.objects.values_list("state", flat=True)) == {State.DONE}
    assert Entry.objects.count() == 1


def test_an_evaluation_keeps_every_query_unrounded(tmp_path: Path) -> None:
    make_baseline(tmp_path)
    evaluation = Evaluation.objects.get()
    values = per_query_values(evaluation)
    assert values.shape == (evaluation.judged_queries, len(evaluation.measures))
    assert dict(zip(evaluation.measures, values.mean(axis=0), strict=True)) == pytest.approx(evaluation.means)


def test_the_baseline_answers_a_topic_that_begins_with_a_number_sign(tmp_path: Path, api: Api) -> None:
    means = []
    for name in ("t1", "#1"):
        with pytest.MonkeyPatch.context() as patch:
            patch.setitem(globals(), "QUERIES", {name: "word 7", "t2": "word 9", "t3": "text"})
            patch.setitem(globals(), "JUDGED", f"{name}\td7\t1\nt2\td8\t1\n")
            imported = make_baseline(tmp_path / name, f"small{len(means)}")
        evaluation = Entry.objects.get(dataset=imported.dataset).evaluation
        assert evaluation is not None
        assert evaluation.missing_queries == 0
        means.append(evaluation.means)
        with open_run(evaluation.run.sha256) as text:
            run = text.read()
        assert run.startswith(f"{name} Q0 d7 1 ".encode())
        problems = api.check(run, dataset=imported.dataset.slug).body["problems"]
        assert {problem["code"] for problem in problems} <= {"ties"}
    assert means[0] == means[1]
    assert means[0]["RR@10"] >= 0.5
