"""A board comes to stand on other judgements: everything at once, or nothing."""

from __future__ import annotations

from pathlib import Path
from threading import Event, Thread
from time import sleep
from typing import Any

import pytest
from django.db import connections
from django.test import Client
from django.utils import timezone

from leaderboard.core.audit import acting
from leaderboard.core.storage.runs import run_path
from leaderboard.judgements.rescoring.campaigns import CannotRescore, discard_rescore, resume_rescore
from leaderboard.judgements.rescoring.switch import CannotSwitch, digest, get_comparison, switch_board
from leaderboard.models import (
    AuditRecord,
    Dataset,
    Entry,
    Evaluation,
    EvaluationPart,
    Rescore,
    Run,
    User,
    WorkRequest,
)
from submissions.jobs.kinds import score as score_kind
from submissions.models import Job, State
from submissions.queue.queue import create_requested_jobs
from tests.leaderboard.boards.test_permalinks import body_of, pass_time, permalink_of
from tests.pages import clear_page_cache
from tests.submissions.clients import Api, upload
from tests.submissions.collections import add_baseline, make_collection, run_text
from tests.submissions.rescores import more_judgements, rescored
from tests.submissions.workers import work

pytestmark = pytest.mark.django_db


def switched(rescore: Rescore, curator: User, why: str = "the pool of October") -> None:
    with acting(curator, why):
        switch_board(rescore)


def submit_all(api: Api, slug: str) -> None:
    """Three systems: a public one, a private one, and a set of two seeds."""
    api.submit(run_text(skip=1), dataset=slug, system="Public")
    api.submit(run_text(skip=2), dataset=slug, system="Private", public="false")
    files = [upload(run_text(skip=skip), f"{slug}.{skip}.txt") for skip in (0, 3)]
    answer = api.submit(system="Seeds", dataset=[slug, slug], file=files)
    assert answer.status == 201, answer.body
    work()


def numbers(dataset: Dataset) -> dict[str, Any]:
    """What is published and what is kept of each result, unrounded too."""
    found: dict[str, Any] = {}
    for entry in Entry.objects.filter(dataset=dataset).order_by("pk"):
        evaluations = [entry.evaluation] if entry.evaluation else [seed.evaluation for seed in entry.seeds.all()]
        found[str(entry.system)] = (
            entry.scores, entry.deviations, entry.missing_queries, entry.is_baseline, entry.visibility,
            [(each.means, bytes(each.values), each.measures) for each in evaluations],
            [seed.scores for seed in entry.seeds.all()],
        )  # fmt: skip
    return found


@pytest.mark.parametrize("hidden", [False, True])
def test_a_switched_board_equals_a_fresh_one_to_the_last_bit(
    api: Api, curator: User, tmp_path: Path, hidden: bool
) -> None:
    quotas = {"daily_quota": None, "monthly_quota": None}
    old = make_collection(tmp_path, "old", hidden=hidden, **quotas)
    fresh = make_collection(tmp_path, "fresh", hidden=hidden, **quotas)
    better = more_judgements(fresh, tmp_path)
    Dataset.objects.filter(pk=fresh.pk).update(current_qrels=better)
    submit_all(api, "old")
    submit_all(api, "fresh")
    before = numbers(old)
    rescore = rescored(old, more_judgements(old, tmp_path), curator)
    assert numbers(old) == before
    switched(rescore, curator)
    assert numbers(old) == numbers(fresh)
    assert numbers(old) != before
    old.refresh_from_db()
    assert old.current_qrels == rescore.to_qrels
    groups = Entry.objects.filter(dataset=old).values_list("comparison_group", flat=True)
    assert {group.split(":")[2] for group in groups} == {str(rescore.to_qrels_id)}


def test_permalinks_and_old_evaluations_keep_the_old_numbers(
    demo: Dataset, baseline: None, api: Api, curator: User, tmp_path: Path
) -> None:
    api.submit()
    work()
    create_requested_jobs()
    work()  # intervals too: they are of the old numbers, and go with them
    entry = Entry.objects.get(system__name="My system")
    old, score = entry.evaluation, f"{entry.scores['nDCG@10']:.4f}"
    pass_time()
    kept = permalink_of(Client(), "/datasets/demo/")
    then = body_of(Client(), kept)
    rescore = rescored(demo, more_judgements(demo, tmp_path), curator)
    switched(rescore, curator)
    clear_page_cache()
    entry.refresh_from_db()
    assert f"{entry.scores['nDCG@10']:.4f}" != score
    assert old is not None
    assert Evaluation.objects.get(pk=old.pk).means == old.means
    assert score in then
    assert body_of(Client(), kept) == then
    assert score not in Client().get("/datasets/demo/").content.decode()


def test_every_public_number_has_its_record_and_nothing_is_told_before_the_switch(
    demo: Dataset, baseline: None, api: Api, curator: User, tmp_path: Path
) -> None:
    api.submit()
    work()
    create_requested_jobs()
    work()
    page = Client().get("/datasets/demo/").content
    rescore = rescored(demo, more_judgements(demo, tmp_path), curator)
    assert Client().get("/datasets/demo/").content == page
    before = dict(Entry.objects.values_list("pk", "scores"))
    switched(rescore, curator)
    records = AuditRecord.objects.filter(action="rescored")
    assert {record.entry_id for record in records} == set(before)
    for record in records:
        assert (record.actor, record.reason) == (curator, "the pool of October")
        assert record.before["scores"] == before[record.entry_id]
        assert record.after["scores"] == Entry.objects.get(pk=record.entry_id).scores
    assert WorkRequest.objects.filter(kind="certainty", dataset=demo, taken_at=None).exists()
    notices = WorkRequest.objects.filter(kind="notify").values_list("payload", flat=True)
    assert list(notices) == [{"event": "rescored", "rescore": rescore.pk}]


def test_a_board_whose_baseline_cannot_move_does_not_move(
    demo: Dataset, baseline: None, api: Api, curator: User, tmp_path: Path
) -> None:
    api.submit()
    work()
    path = run_path(Run.objects.get(system__slug="bm25").sha256)
    kept = path.read_bytes()
    path.unlink()
    try:
        rescore = rescored(demo, more_judgements(demo, tmp_path), curator)
    finally:
        path.write_bytes(kept)
    before = numbers(demo)
    with pytest.raises(CannotSwitch, match="The baseline, BM25, could not be rescored: its file is no longer"):
        switched(rescore, curator)
    assert numbers(demo) == before


def test_what_changed_meanwhile_is_looked_at_again(demo: Dataset, api: Api, curator: User, tmp_path: Path) -> None:
    api.submit()
    work()
    rescore = rescored(demo, more_judgements(demo, tmp_path), curator)
    seen = digest(get_comparison(rescore))
    api.submit(run_text(skip=1), system="Late")
    work()
    with pytest.raises(CannotSwitch, match="because it is evaluating"):
        switched(rescore, curator)
    create_requested_jobs()
    work()
    with (
        acting(curator, "a pool"),
        pytest.raises(CannotSwitch, match="The scores have changed since you opened"),
    ):
        switch_board(rescore, reviewed_digest=seen)
    Dataset.objects.filter(pk=demo.pk).update(measures=["nDCG@10"])
    with pytest.raises(CannotSwitch, match=r"Settings of Demo changed .*\(measures\)"):
        switched(rescore, curator)
    with acting(curator, "one measure"):
        resume_rescore(rescore)
    create_requested_jobs()
    work()
    switched(rescore, curator)
    assert "RR@10" not in Entry.objects.get(system__name="Late").scores


def test_the_second_curator_sees_what_the_first_decided(
    demo: Dataset, api: Api, curator: User, alice: User, tmp_path: Path
) -> None:
    api.submit()
    work()
    rescore = rescored(demo, more_judgements(demo, tmp_path), curator)
    stale = Rescore.objects.get(pk=rescore.pk)
    switched(rescore, curator)
    with pytest.raises(CannotSwitch, match="because it is on the board by Cora"):
        switched(stale, alice)
    with acting(alice, "no"), pytest.raises(CannotRescore, match="on the board by Cora"):
        discard_rescore(stale)


def test_back_to_the_first_judgements_gives_the_first_numbers(
    demo: Dataset, baseline: None, api: Api, curator: User, tmp_path: Path
) -> None:
    submit_all(api, "demo")
    first, before = demo.current_qrels, numbers(demo)
    assert first is not None
    switched(rescored(demo, more_judgements(demo, tmp_path), curator), curator)
    switched(rescored(demo, first, curator, "the pool was a mistake"), curator)
    assert numbers(demo) == before


def test_a_job_that_scored_on_the_earlier_judgements_publishes_on_the_new_ones(
    demo: Dataset, api: Api, curator: User, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    api.submit()
    work()
    rescore = rescored(demo, more_judgements(demo, tmp_path), curator)
    publish = score_kind.publish_results
    calls = []

    def switch_before(*arguments: Any) -> Any:
        calls.append(arguments)
        if len(calls) == 1:
            switched(rescore, curator)
        return publish(*arguments)

    monkeypatch.setattr(score_kind, "publish_results", switch_before)
    api.submit(run_text(skip=1), system="Slow")
    work()
    slow = Entry.objects.get(system__name="Slow")
    assert slow.evaluation is not None
    assert (slow.evaluation.qrels, len(calls)) == (rescore.to_qrels, 2)
    job = Job.objects.get(entry=slow)
    assert job.state == State.DONE
    assert "The board now uses qrels v2" in job.log


def test_seeds_that_were_scored_on_both_sides_of_a_switch_are_one_set(
    demo: Dataset, api: Api, curator: User, tmp_path: Path
) -> None:
    files = [upload(run_text(skip=skip), f"demo.{skip}.txt") for skip in (0, 3)]
    api.submit(system="Seeds", dataset=["demo", "demo"], file=files)
    last = Job.objects.order_by("pk").last()
    assert last is not None
    Job.objects.filter(pk=last.pk).update(not_before=timezone.now() + timezone.timedelta(hours=1))
    work()
    rescore = rescored(demo, more_judgements(demo, tmp_path), curator)
    switched(rescore, curator)
    Job.objects.filter(pk=last.pk).update(not_before=None)
    work()
    seeds = Entry.objects.get(system__name="Seeds").seeds.all()
    assert {seed.evaluation.qrels_id for seed in seeds} == {rescore.to_qrels_id}


@pytest.mark.django_db(transaction=True)
def test_of_two_who_switch_at_once_one_does(demo: Dataset, api: Api, curator: User, tmp_path: Path) -> None:
    api.submit()
    work()
    rescore = rescored(demo, more_judgements(demo, tmp_path), curator)
    outcomes: list[str] = []

    def decide(verb: Any) -> None:
        try:
            with acting(curator, "at once"):
                verb(Rescore.objects.get(pk=rescore.pk))
            outcomes.append(verb.__name__)
        except ValueError:
            outcomes.append("too late")
        finally:
            connections["default"].close()

    threads = [Thread(target=decide, args=[verb]) for verb in (switch_board, discard_rescore, switch_board)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert outcomes.count("too late") == 2
    demo.refresh_from_db()
    rescore.refresh_from_db()
    assert demo.current_qrels is not None
    on_board = rescore.state == Rescore.State.SWITCHED
    assert demo.current_qrels.number == (2 if on_board else 1)
    assert AuditRecord.objects.filter(action="rescored").exists() == on_board


@pytest.mark.django_db(transaction=True)
def test_a_result_that_is_being_published_comes_before_the_switch(
    demo: Dataset, api: Api, curator: User, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    api.submit()
    work()
    rescore = rescored(demo, more_judgements(demo, tmp_path), curator)
    api.submit(run_text(skip=1), system="Slow")
    record, inside = score_kind.record_result, Event()

    def slowly(*arguments: Any) -> Any:
        inside.set()  # the board is locked, and nothing of it is committed
        sleep(0.5)
        return record(*arguments)

    monkeypatch.setattr(score_kind, "record_result", slowly)

    def publish() -> None:
        try:
            work()
        finally:
            connections["default"].close()

    thread = Thread(target=publish)
    thread.start()
    assert inside.wait(120)
    with pytest.raises(CannotSwitch, match="because it is evaluating"):
        switched(rescore, curator)
    thread.join()
    slow = Entry.objects.get(system__name="Slow")
    assert slow.evaluation is not None
    assert slow.evaluation.qrels == rescore.from_qrels


def test_a_competitions_parts_go_along_and_what_is_held_stays_without_scores(
    api: Api, curator: User, tmp_path: Path
) -> None:
    secret = make_collection(
        tmp_path, "secret", hidden=True, protection="competition", daily_quota=None, monthly_quota=None
    )
    add_baseline(secret, tmp_path, skip=4)
    api.submit(run_text(skip=0), dataset="secret", system="Good")
    work()
    api.submit(run_text(skip=0, tag="again"), dataset="secret", system="Good", configuration="again")
    work()
    held = Entry.objects.get(visibility=Entry.Visibility.HELD)
    rescore = rescored(secret, more_judgements(secret, tmp_path), curator)
    assert rescore.state == Rescore.State.READY
    parts = EvaluationPart.objects.filter(evaluation__qrels=rescore.to_qrels)
    assert parts.count() == 2 * Evaluation.objects.filter(qrels=rescore.to_qrels).count() == 6
    switched(rescore, curator)
    held.refresh_from_db()
    assert (held.scores, held.visibility) == ({}, Entry.Visibility.HELD)
    good = Entry.objects.get(visibility=Entry.Visibility.PUBLIC, is_baseline=False)
    assert good.evaluation is not None
    public = good.evaluation.parts.get(part="public").means
    assert good.scores == pytest.approx({name: 0.02 * round(public[name] / 0.02) for name in good.scores})
    row = next(row for row in rescore.comparison["rows"] if row["entry"] == held.pk)
    assert (row["before"], row["after"], row["hole_after"]) == ({}, {}, None)
