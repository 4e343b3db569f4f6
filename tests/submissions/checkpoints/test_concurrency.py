"""Checkpoints are looked at a few at a time, over all web processes; others hear when to come back."""

from __future__ import annotations

import multiprocessing
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from django.test import Client

from leaderboard.models import Dataset
from submissions.checkpoints import concurrency
from submissions.models import Checkpoint, Submission
from tests.submissions.clients import Api, upload
from tests.submissions.models import static_archive, submit_model, with_corpus

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("models_run_here", "corpus")]


@pytest.fixture
def corpus(demo: Dataset, tmp_path: Path) -> Dataset:
    """The open dataset, its documents kept here."""
    return with_corpus(demo, tmp_path)


@pytest.fixture
def all_taken(monkeypatch: pytest.MonkeyPatch) -> Iterator[ExitStack]:
    """Every place taken, by others who do not hurry; closed, they are free again."""
    monkeypatch.setattr(concurrency, "PATIENCE_SECONDS", 0.3)
    with ExitStack() as others:
        for _ in range(concurrency.MAX_CHECKS):
            others.enter_context(concurrency.checking_slot())
        yield others


def test_the_api_says_when_to_come_back_and_stores_nothing(api: Api, all_taken: ExitStack) -> None:
    check = {"kind": "model", "checkpoint": upload(static_archive(), "static.zip")}
    for answer in (submit_model(api), api.post("check/", **check)):
        assert (answer.status, answer.body["code"]) == (429, "busy")
        assert int(answer.headers["Retry-After"]) == concurrency.RETRY_SECONDS
        assert "Your checkpoint was neither rejected nor stored" in answer.problem("busy")["hint"]
    assert not any(model.objects.exists() for model in (Submission, Checkpoint))

    all_taken.close()
    assert submit_model(api).status == 201


def test_what_was_kept_before_needs_no_place(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    assert submit_model(api).status == 201
    monkeypatch.setattr(concurrency, "MAX_CHECKS", 0)
    monkeypatch.setattr(concurrency, "MAX_WAITING", 0)
    assert submit_model(api, configuration="another seed").status == 201


def test_the_page_says_so_in_words(signed_in: Client, all_taken: ExitStack) -> None:
    fields = {"action": "check", "engine": "dense", "checkpoint": upload(static_archive(), "static.zip")}
    answer = signed_in.post("/submit/model/", fields)

    assert (answer.status_code, answer["Retry-After"]) == (429, str(concurrency.RETRY_SECONDS))
    assert f"Send it again in {concurrency.RETRY_SECONDS} seconds" in answer.content.decode()


def test_who_waits_gets_the_place_that_is_left(api: Api, all_taken: ExitStack, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(concurrency, "PATIENCE_SECONDS", 20)
    leaving = threading.Timer(0.5, all_taken.close)
    leaving.start()
    try:
        assert submit_model(api).status == 201
    finally:
        leaving.join()


def test_few_wait_so_that_others_can_read(api: Api, all_taken: ExitStack, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(concurrency, "PATIENCE_SECONDS", 600)
    monkeypatch.setattr(concurrency, "MAX_WAITING", 0)
    assert submit_model(api).status == 429


def test_another_process_counts_and_one_that_dies_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(concurrency, "PATIENCE_SECONDS", 0.3)
    monkeypatch.setattr(concurrency, "MAX_CHECKS", 1)
    context = multiprocessing.get_context("fork")
    there, held = context.Event(), context.Event()
    process = context.Process(target=_hold, args=(there, held))
    process.start()
    try:
        assert there.wait(120)
        with pytest.raises(concurrency.TooManyChecks), concurrency.checking_slot():
            pass
    finally:
        process.kill()
        process.join()
    with concurrency.checking_slot():
        pass


def _hold(there: threading.Event, held: threading.Event) -> None:
    with concurrency.checking_slot():
        there.set()
        held.wait(60)
