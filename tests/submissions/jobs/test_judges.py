"""Who judged and how much is the judging: from a pool and two judges to what the board says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from django.test import Client
from sklearn.metrics import cohen_kappa_score

from evaluation.judgements.merge import Judge
from evaluation.judgements.qrels import Qrels as Judgements
from evaluation.runs.score import ScoringTarget, score_run
from leaderboard.core.audit import acting
from leaderboard.core.storage.runs import run_path
from leaderboard.datasets.qrels import load_qrels
from leaderboard.judgements import pools
from leaderboard.judgements.imports import Conflicts, import_judgements, request_merge
from leaderboard.judgements.pools import JudgingRefused
from leaderboard.judgements.rescoring.switch import switch_board
from leaderboard.models import Dataset, Entry, JudgementImport, Pool, Qrels, Rescore, Run, User
from submissions.jobs.runner import drain_queue
from submissions.queue.queue import create_requested_jobs
from tests.pages import one_line
from tests.submissions.clients import Api
from tests.submissions.collections import QUERIES, run_text
from tests.submissions.workers import work

pytestmark = pytest.mark.django_db

PEOPLE = Judge("people", "NIST assessors")
MODEL = Judge("model", "Umbrela", "gpt-4o-2024-08-06", "3f" * 32)


def scorer() -> None:
    create_requested_jobs()
    drain_queue("score", "test-worker")


def bring(dataset: Dataset, judge: Judge, folder: Path, lines: list[str], pool: Pool | None = None) -> JudgementImport:
    path = folder / "judged.qrels"
    path.write_text("".join(lines))
    brought = import_judgements(Dataset.objects.get(pk=dataset.pk), path, judge, pool=pool)
    scorer()
    brought.refresh_from_db()
    return brought


def merge(brought: JudgementImport, policy: Conflicts = Conflicts.KEEP) -> Qrels:
    """Merge, rescore and switch."""
    request_merge(brought, policy)
    scorer()
    scorer()  # the rescore that was asked for
    switch_board(Rescore.objects.get(state=Rescore.State.READY))
    scorer()
    brought.refresh_from_db()
    assert brought.qrels is not None
    return brought.qrels


@pytest.fixture
def pooled(demo: Dataset, baseline: None, api: Api, stranger: Api, curator: User) -> Pool:
    """A pool of depth 4 that two teams' runs fed: one shows d3 to d6 first, the other d5 to d8."""
    api.submit(run_text(skip=2), system="First")
    stranger.submit(run_text(skip=4), system="Second")
    work()
    with acting(curator, "the pool of October"):
        chosen = Run.objects.filter(system__name__in=["First", "Second"])
        pool = pools.request_pool(demo, depth=4, runs=chosen)
        scorer()
    pool.refresh_from_db()
    return pool


def grade(query: str, document: str) -> int:
    return (int(query[1:]) * 5 + int(document[1:]) * 7) % 3


def judged(pool: Pool, change: int = 0) -> list[str]:
    """The pool's pairs, each with a grade; every `change`-th one is graded one higher."""
    pairs = sorted((query, f"d{number}") for query in QUERIES[:10] for number in (4, 5, 6, 7, 8))
    assert pool.statistics["pairs"] >= len(pairs)
    return [
        f"{query} 0 {document} {(grade(query, document) + bool(change and place % change == 0)) % 3}\n"
        for place, (query, document) in enumerate(pairs)
    ]


def test_two_judges_of_one_pool_are_named_counted_and_compared(
    demo: Dataset, pooled: Pool, curator: User, client: Client, tmp_path: Path
) -> None:
    with acting(curator, "judged twice"):
        first = merge(bring(demo, PEOPLE, tmp_path, judged(pooled), pooled))
        second = bring(demo, MODEL, tmp_path, judged(pooled, change=4), pooled)
    grades = [[int(line.split()[3]) for line in judged(pooled, change)] for change in (0, 4)]
    (found,) = second.counts["agreement"]
    assert found["judges"] == ["NIST assessors", "Umbrela gpt-4o-2024-08-06 (model, prompt 3f3f3f3f)"]
    assert found["pairs"] == 50
    assert found["kappa"] == pytest.approx(cohen_kappa_score(*grades), abs=1e-12)
    binary = [[each >= 1 for each in of_judge] for of_judge in grades]
    assert found["kappa_relevant"] == pytest.approx(cohen_kappa_score(*binary), abs=1e-12)
    counts = {each["name"]: each["judgements"] for each in first.judged_by["judges"]}
    assert counts == {"judges not named": 30, "NIST assessors": 50}

    with acting(curator, "the model's word counts"):
        merged = merge(second, Conflicts.REPLACE)
    counts = {each["name"]: each["judgements"] for each in merged.judged_by["judges"]}
    assert counts == {"judges not named": 30, "NIST assessors": 37, "Umbrela": 13}
    page = one_line(client.get("/datasets/demo/").content.decode())
    assert "judged by judges not named 38%, NIST assessors 46%, Umbrela" in page.replace("\xa0", " ")
    (note,) = (each for each in board(client)["notes"] if each.startswith("Judged by"))
    assert f"both judged 50 pairs: Cohen’s κ {found['kappa']:.2f}, of relevant or not" in note
    page = one_line(client.get("/datasets/demo/rescores/2/").content.decode())
    assert "Kendall’s τ between the rankings by nDCG@10 before and after:" in page
    assert "Systems significantly better than the baseline:" in page
    assert Rescore.objects.latest("pk").comparison["marks"].keys() == {"better", "worse"}


def test_judges_of_hidden_judgements_are_named_and_not_counted(
    demo: Dataset, pooled: Pool, curator: User, client: Client, tmp_path: Path
) -> None:
    with acting(curator, "judged"):
        merge(bring(demo, PEOPLE, tmp_path, judged(pooled), pooled))
    Dataset.objects.filter(pk=demo.pk).update(hidden=True, board_revision=demo.board_revision + 1000)
    page = one_line(client.get("/datasets/demo/").content.decode())
    assert re.search(r"judged by judges not named, NIST assessors\s*<", page)
    assert "Upper bound" not in page


def board(client: Client) -> Any:
    return client.get("/api/v1/datasets/demo/board/").json()


def test_a_score_without_what_only_its_own_team_found(
    demo: Dataset, pooled: Pool, curator: User, client: Client, tmp_path: Path
) -> None:
    with acting(curator, "judged"):
        qrels = merge(bring(demo, PEOPLE, tmp_path, judged(pooled), pooled))
    # d3 was judged before. Both teams found d5 and d6; the first alone found d4, the second alone d7 and d8.
    own = {"First": {"d4"}, "Second": {"d7", "d8"}}
    columns = {column["key"]: column for column in board(client)["columns"]}
    assert columns["own-team-left-out"]["group_slug"] == "judged"
    (note,) = (each for each in board(client)["notes"] if each.startswith("Own team left out"))
    assert "Kendall’s τ with this order is" in note
    rows = {row["system"]: row["values"] for row in board(client)["rows"]}
    assert rows["BM25"]["own-team-left-out"] is None  # its team fed no pool
    for name, left_out in own.items():
        kept = {
            query: {document: each for document, each in graded.items() if document not in left_out}
            for query, graded in load_qrels(qrels).as_dict().items()
        }
        target = ScoringTarget(Judgements.from_dict(kept))
        path = run_path(Run.objects.get(system__name=name).sha256)
        expected = score_run(path, target, ["nDCG@10"]).means["nDCG@10"]
        assert rows[name]["own-team-left-out"] == pytest.approx(expected, abs=1e-6)
        assert rows[name]["own-team-left-out"] < rows[name]["nDCG@10"]
    assert 'id="by-own-team-left-out"' not in client.get("/datasets/demo/").content.decode()


def test_a_pool_whose_runs_are_gone_is_one_clear_line(
    demo: Dataset, pooled: Pool, curator: User, client: Client, tmp_path: Path
) -> None:
    with acting(curator, "judged"):
        brought = bring(demo, PEOPLE, tmp_path, judged(pooled), pooled)
        request_merge(brought, Conflicts.KEEP)
        scorer()
        scorer()
        run_path(Run.objects.get(system__name="Second").sha256).unlink()
        switch_board(Rescore.objects.get(state=Rescore.State.READY))
        scorer()
        again = pools.request_pool(demo, depth=5)
        scorer()
    gone = "because 1 of the 2 runs that fed the pool is no longer stored."
    assert f"Own team left out: unknown, {gone}" in board(client)["notes"]
    again.refresh_from_db()
    assert again.state == Pool.State.FAILED
    assert again.statistics["refused"].startswith("Runs of Second are no longer stored: restore them")


@pytest.mark.parametrize(
    ("judge", "line"),
    [
        (Judge("people", " "), r"Enter the judge \(--judge\): the name of a group"),
        (Judge("model", "Umbrela", "", "3f" * 32), "Enter the version of Umbrela and the SHA-256"),
        (Judge("model", "Umbrela", "1", "my prompt"), "64 hexadecimal digits"),
        (Judge("people", "NIST assessors", "1"), "Only a model has a version and a prompt"),
        (Judge("people", "srossessa TSIN\u202e"), r"The judge’s name: U\+202E is an invisible character"),
        (Judge("model", "Umbrela", "1\u200b", "3f" * 32), r"The model’s version: U\+200B"),
    ],
)
def test_judges_that_nobody_could_ask_again_are_refused(
    demo: Dataset, curator: User, tmp_path: Path, judge: Judge, line: str
) -> None:
    path = tmp_path / "judged.qrels"
    path.write_text("q1 0 d2 1\n")
    with acting(curator), pytest.raises(JudgingRefused, match=line):
        import_judgements(demo, path, judge)
    assert not JudgementImport.objects.exists()


def test_bounds_are_columns_of_the_board_and_say_how_sure_its_order_is(
    demo: Dataset, pooled: Pool, client: Client
) -> None:
    scorer()
    answer = board(client)
    column = next(column for column in answer["columns"] if column["key"] == "Upper(nDCG)@10")
    assert (column["label"], column["group_slug"]) == ("Upper bound", "judged")
    values = [row["values"] for row in answer["rows"]]
    assert all(row["Upper(nDCG)@10"] > row["nDCG@10"] for row in values)
    assert any(each.startswith("Upper bound: the maximum of nDCG@10 for any grades") for each in answer["notes"])
    assert Entry.objects.filter(scores__has_key="Upper(nDCG)@10").count() == 3
    assert "Upper bound" in client.get("/datasets/demo/?columns=effectiveness").content.decode()
    heads = client.get("/datasets/demo/").content.decode()
    assert 'id="by-Upper(nDCG)@10"' not in heads
