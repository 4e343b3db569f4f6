"""A rolling benchmark: two scheduled renewals, its page, and the gap of a trained model."""

from __future__ import annotations

import json
import re
from datetime import timedelta
from random import Random
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from django.test import Client
from playwright.sync_api import Page, expect

from evaluation.collections.beir import read_queries
from leaderboard.boards.topic_sources import rolling_benchmark_page
from leaderboard.core.storage.store import Area, path_of
from leaderboard.datasets.qrels import load_qrels
from leaderboard.importing.topics.code_search import Function
from leaderboard.importing.topics.renewal import RenewalRefused, renew, request_due_renewals, request_renewal
from leaderboard.models import Dataset, Entry, TopicSource
from leaderboard.results.publishing.visibility import quarantine, unpublish
from leaderboard.results.significance.computing import request_missing_certainty
from submissions.jobs.kinds.renewal import create_jobs_on_new_batches
from submissions.jobs.runner import drain_queue
from submissions.models import Job, State, Submission
from submissions.queue.queue import create_requested_jobs
from submissions.quotas.ledger import QuotaUse
from tests.factories import make_a_curator, make_dataset, make_topic_source
from tests.submissions.model_jobs import make_submission, queue_model

pytestmark = pytest.mark.django_db

TOPICS = 40
WORDS = [f"{start}{end}" for start in ("lo", "ba", "ti", "mu", "re", "so", "pa") for end in ("ran", "kel", "dis", "vo")]


def make_library(size: int = 5 * TOPICS) -> list[Function]:
    """Return functions with docstrings. The code of every second one contains three words of its docstring."""
    random, functions = Random(1), []
    for number in range(size):
        words = random.sample(WORDS, 5)
        code = " ".join([*random.sample(WORDS, 6), *(words[:3] if number % 2 else ())])
        functions.append(Function(f"lib.f{number}", f"def f{number}(): {code}", f"{' '.join(words)} n{number}."))
    return functions


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> list[Function]:
    """Replace the installed packages with a generated library."""
    functions = make_library()
    for module in ("batches", "renewal"):
        monkeypatch.setattr(f"leaderboard.importing.topics.{module}.read_library", lambda generator: functions)
    return functions


def dispatch_and_work() -> None:
    """Run the tasks of the dispatcher and the workers until all jobs are done."""
    for _ in range(4):
        create_jobs_on_new_batches()
        request_missing_certainty()
        create_requested_jobs()
        for queue in ("score", "cpu", "score"):
            drain_queue(queue, "test-worker")
    assert not Job.objects.exclude(state=State.DONE).exists(), list(
        Job.objects.exclude(state=State.DONE).values_list("kind", "state", "log")
    )


def renew_at(moment: Any) -> None:
    request_due_renewals(moment)
    dispatch_and_work()


def relevant_documents(dataset: Dataset) -> dict[str, str]:
    """Return the relevant document of each topic, keyed by the topic's text."""
    dataset.refresh_from_db()
    assert dataset.current_version is not None
    assert dataset.current_qrels is not None
    graded = load_qrels(dataset.current_qrels).as_dict()
    queries = read_queries(path_of(Area.FILES, dataset.current_version.queries_sha256))
    return {query.text: next(iter(graded[query.id])) for query in queries}


def submit_model(dataset: Dataset, name: str, memory: dict[str, str]) -> Submission:
    submission = make_submission(name, memory=json.dumps(memory))
    queue_model(dataset, submission)
    return submission


@pytest.mark.browser
@pytest.mark.django_db(transaction=True)
def test_two_renewals_reveal_batches_and_show_which_model_was_trained_on_one(
    with_toy_engine: None, unmeasured: None, library: list[Function], page: Page, live_server: Any
) -> None:
    source = make_topic_source(slug="docs", name="Docs", generator="packages", batch_size=TOPICS)
    renew_at(source.next_at)
    first = source.batches.get(number=1).dataset
    assert first is not None
    submit_model(first, "Trained", relevant_documents(first))
    submit_model(first, "Control", {})
    dispatch_and_work()
    for _ in range(2):
        source.refresh_from_db()
        renew_at(source.next_at + timedelta(minutes=1))
    datasets = [batch.dataset for batch in source.batches.select_related("dataset__twin_of") if batch.dataset]
    assert [dataset.slug for dataset in datasets] == ["docs", "docs-batch-2", "docs-batch-3", "docs-batch-4"]
    assert [dataset.hidden for dataset in datasets] == [False, False, False, True]
    assert [dataset.queries_visibility for dataset in datasets] == ["public", "public", "public", "curators"]
    assert [dataset.twin_of for dataset in datasets] == [None, None, None, datasets[2]]
    assert len({dataset.current_version.corpus_sha256 for dataset in datasets if dataset.current_version}) == 1
    for dataset in datasets[2:]:
        systems = Entry.objects.filter(dataset=dataset, visibility="public").values_list("system__name", flat=True)
        assert sorted(systems) == ["BM25", "Control", "Trained"]
    assert Submission.objects.count() == 2
    assert QuotaUse.objects.count() == 0
    texts = [text for dataset in datasets for text in relevant_documents(dataset)]
    assert len(set(texts)) == len(texts) == 4 * TOPICS
    # Anyone can recompute the revealed batches, but not the hidden one.
    addresses = [f"/datasets/{dataset.slug}/files/qrels.test.tsv.gz" for dataset in datasets]
    assert [Client().get(address).status_code for address in addresses] == [200, 200, 200, 404]
    assert Client().get("/datasets/docs-batch-4/files/queries.jsonl.gz").status_code in (403, 404)
    page.goto("/rolling/docs/")
    table = page.get_by_role("region", name="Systems over time")
    expect(table.get_by_role("row")).to_have_count(4)
    trained, control = (table.get_by_role("row", name=name) for name in ("Trained", "Control"))
    expect(trained.get_by_text("significant gap")).to_be_visible()
    expect(control.get_by_text("significant gap")).to_have_count(0)
    expect(trained.locator(".up")).to_have_count(1)
    expect(control.locator(".up")).to_have_count(0)
    rows = rolling_benchmark_page(source)["rows"]
    gaps = {row.name: [result.gap if result else None for result in row.results] for row in rows}
    on_first, on_second, on_third, on_hidden = gaps["Trained"]
    assert on_first is not None
    assert on_third is not None
    assert (on_first.shown, on_third.shown) == (True, False), gaps
    assert (on_second, on_hidden) == (None, None)
    assert not any(gap.shown for gap in gaps["Control"] if gap)
    expect(page.locator(".forest")).to_contain_text(re.compile(r"Trained, .*\(batch 1\)"))
    expect(page.locator(".forest")).not_to_contain_text("Control")
    assert not Axe().run(page).response["violations"]
    page.set_viewport_size({"width": 390, "height": 844})
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    batches = page.get_by_role("region", name="Batches")
    assert batches.evaluate("element => element.scrollWidth <= element.clientWidth")
    page.goto("/datasets/docs-batch-3/")
    page.get_by_role("link", name="Rolling benchmark").click()
    expect(page.get_by_role("heading", level=1, name="Docs")).to_be_visible()


def start_first(source: TopicSource) -> Dataset:
    """Create the first batch with its baseline, and hide the second one."""
    request_renewal(source)
    assert renew(TopicSource.objects.get(), 2)
    dispatch_and_work()
    first = source.batches.get(number=1).dataset
    assert first is not None
    return first


def systems_on(source: TopicSource, number: int) -> list[str]:
    batch = source.batches.get(number=number).dataset
    return sorted(Entry.objects.filter(dataset=batch).values_list("system__name", flat=True))


def test_removed_results_and_late_submissions_are_not_repeated_but_running_ones_are(
    with_toy_engine: None, unmeasured: None, library: list[Function]
) -> None:
    source = make_topic_source(slug="docs", name="Docs", generator="packages", batch_size=TOPICS)
    first = start_first(source)
    for name in ("Good", "Quarantined", "Unpublished"):
        submit_model(first, name, {name: name})
    dispatch_and_work()
    for name, act in (("Quarantined", quarantine), ("Unpublished", unpublish)):
        act(Entry.objects.get(system__name=name, dataset=first), "trained on the topics")
    submit_model(first, "Running", {"one": "two"})  # its job ends after the start of batch 3
    assert renew(TopicSource.objects.get(), 3)
    submit_model(first, "Late", {"late": "late"})
    dispatch_and_work()
    assert systems_on(source, 1) == ["BM25", "Good", "Late", "Quarantined", "Running", "Unpublished"]
    assert systems_on(source, 3) == ["BM25", "Good", "Running"]


def test_a_job_of_a_renewal_that_is_refused_ends_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    source = make_topic_source(dataset=make_dataset())

    def refuse(source: TopicSource, number: int) -> bool:
        raise RenewalRefused("Rolling, batch 2 is in a competition.")

    monkeypatch.setattr("submissions.jobs.kinds.renewal.renew", refuse)
    request_renewal(source)
    dispatch_and_work()
    assert "is in a competition." in Job.objects.get().log
    source.refresh_from_db()
    assert source.enabled
    assert source.is_overdue


def test_one_job_starts_a_batch_and_curators_see_a_failed_one() -> None:
    source = make_topic_source(dataset=make_dataset())
    for _ in range(2):
        request_renewal(source)
        create_requested_jobs()
    job = Job.objects.get()
    curator = Client()
    curator.force_login(make_a_curator())
    words = "renewal of a rolling benchmark failed"
    assert words not in curator.get("/admin/").content.decode()
    Job.objects.update(state=State.FAILED, log="A fault on our side (12345678) occurred three times.")
    assert words in curator.get("/admin/").content.decode()
    assert "A fault on our side (12345678)" in (
        curator.get(f"/admin/leaderboard/topicsource/{source.pk}/change/").content.decode()
    )
    request_renewal(source)
    create_requested_jobs()
    assert Job.objects.exclude(pk=job.pk).count() == 1
    assert words not in curator.get("/admin/").content.decode()
