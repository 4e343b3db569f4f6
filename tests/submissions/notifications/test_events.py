"""People are told of rescores, challenges and rounds that concern them."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.core.cache import cache
from django.utils import timezone

from leaderboard.core.audit import acting
from leaderboard.core.work_requests import request_notice
from leaderboard.judgements.rescoring.switch import switch_board
from leaderboard.models import (
    Benchmark,
    BenchmarkMember,
    Challenge,
    Dataset,
    Entry,
    Rescore,
    Round,
    User,
)
from submissions.models import (
    Notice,
    NoticeKind,
    NoticePreference,
    Submission,
    Webhook,
)
from submissions.notifications import sending
from submissions.notifications.events import notify_finished
from submissions.notifications.sending import send_notifications, wake_notifier
from tests.factories import make_user
from tests.submissions.clients import Api, upload
from tests.submissions.collections import run_text
from tests.submissions.outbox import notices_of, only_notice, scored
from tests.submissions.receiver import Receiver
from tests.submissions.rescores import more_judgements, rescored
from tests.submissions.workers import work

pytestmark = [pytest.mark.django_db, pytest.mark.sampled_on_postgresql]

FOREVER = float("inf")


# --- events of boards


def test_a_rescore_is_told_to_teams_with_results_there(
    demo: Dataset, baseline: None, api: Api, alice: User, stranger: Api, tmp_path: Path
) -> None:
    scored(api)
    notify_finished()
    before = Entry.objects.get(system__name="My system").scores["nDCG@10"]
    rescore = rescored(demo, more_judgements(demo, tmp_path), make_user("Carol"))
    with acting(make_user("Dan"), "a pool"):
        switch_board(rescore)
    send_notifications()
    send_notifications()
    notice = Notice.objects.get(person=alice, kind=NoticeKind.RESCORED)
    assert "Demo" in notice.subject
    after = Entry.objects.get(system__name="My system").scores["nDCG@10"]
    assert f"My system: nDCG@10 {before:.4f} → {after:.4f}, rank 1 → 1." in notice.text
    assert notice.path == "/datasets/demo/rescores/1/"
    assert "R@100" not in notice.text
    assert stranger.user is not None
    assert notices_of(stranger.user) == []


def test_a_rescore_tells_of_its_dataset_alone(
    demo: Dataset, secret: Dataset, api: Api, receiver: Receiver, webhook: Webhook, alice: User
) -> None:
    answer = api.submit(dataset=["demo", "secret"], file=[upload(run_text()), upload(run_text())])
    assert answer.status == 201, answer.body
    work()
    notify_finished()
    qrels = secret.current_qrels
    rescore = Rescore.objects.create(dataset=secret, from_qrels=qrels, to_qrels=qrels, state=Rescore.State.SWITCHED)
    request_notice("rescored", rescore=rescore.pk)
    send_notifications()
    text = Notice.objects.get(person=alice, kind=NoticeKind.RESCORED).text
    message = receiver.json()
    assert (message["event"], message["datasets"]) == ("rescored", ["secret"])
    assert "Secret" in text
    assert "Secret: nDCG@10 " in message["outcome"]
    for said in (text, message["outcome"]):
        assert "Demo" not in said


def test_a_rescore_that_was_thrown_away_is_told_to_nobody(demo: Dataset, api: Api, alice: User) -> None:
    scored(api)
    qrels = demo.current_qrels
    rescore = Rescore.objects.create(dataset=demo, from_qrels=qrels, to_qrels=qrels, state="discarded")
    request_notice("rescored", rescore=rescore.pk)
    send_notifications()
    assert not Notice.objects.filter(kind=NoticeKind.RESCORED).exists()


def test_a_challenge_is_told_to_the_systems_team_and_its_end_to_the_challenger(
    demo: Dataset, api: Api, alice: User
) -> None:
    scored(api)
    notify_finished()
    doubter = make_user("Doubter")
    system = Entry.objects.get(jobs__submission__submitter=alice).system
    challenge = Challenge.objects.create(
        system=system, claim="training", text="Buy watches at http://spam.example", raised_by=doubter
    )
    request_notice("challenged", challenge=challenge.pk)
    send_notifications()
    told = Notice.objects.get(person=alice, kind=NoticeKind.CHALLENGED)
    assert told.subject == "Challenged: My system"
    assert "spam" not in told.text  # what strangers write is on the page, not in anybody's mail
    assert doubter.name not in told.text
    assert notices_of(doubter) == []
    Challenge.objects.update(state=Challenge.State.UPHELD, decision="It was trained on it.")
    request_notice("challenged", challenge=challenge.pk)
    send_notifications()
    assert "It was trained on it." in only_notice(doubter).text
    assert Notice.objects.filter(person=alice, kind=NoticeKind.CHALLENGED).count() == 2


def test_an_event_whose_rows_are_gone_is_taken_and_told_to_nobody(db: None) -> None:
    for event, name in (("rescored", "rescore"), ("challenged", "challenge"), ("round_revealed", "round")):
        request_notice(event, **{name: 987654})
    send_notifications()
    assert not Notice.objects.exists()
    assert not wake_notifier()


def test_a_turn_that_took_too_long_leaves_the_next_ones_lock_alone(db: None, monkeypatch: pytest.MonkeyPatch) -> None:
    held: list[bool] = []

    def while_it_sends(deadline: float) -> int:
        held.append(cache.add("notices-turn", "another's"))
        cache.set("notices-turn", "another's")  # ours has run out, and another has begun
        return 0

    monkeypatch.setattr(sending.notice_mailer, "send", while_it_sends)
    cache.delete("notices-turn")
    send_notifications()
    send_notifications()
    assert held == [False]
    assert cache.get("notices-turn") == "another's"
    cache.delete("notices-turn")


# --- rounds


def make_round(dataset: Dataset | None = None, **fields: Any) -> Round:
    """A round that opened a day ago and closes in a week."""
    now = timezone.now()
    values = {
        "slug": f"round-{Round.objects.count()}",
        "name": "Round one",
        "opens_at": now - timedelta(days=1),
        "closes_at": now + timedelta(days=7),
        "reveals_at": now + timedelta(days=8),
        **fields,
    }
    return Round.objects.create(dataset=dataset, **values)


def test_a_round_is_told_when_it_opens_before_it_closes_and_when_it_is_revealed(
    demo: Dataset, api: Api, alice: User, stranger: Api
) -> None:
    scored(api)
    notify_finished()
    Notice.objects.all().delete()
    round_ = make_round(demo)
    for _ in range(2):
        send_notifications()
    opening = only_notice(alice)
    assert opening.kind == NoticeKind.ROUND_OPENING
    assert f"{round_.closes_at:%H:%M} UTC" in opening.text
    Round.objects.update(closes_at=timezone.now() + timedelta(hours=20))
    for _ in range(2):
        send_notifications()
    Round.objects.update(revealed_at=timezone.now())
    request_notice("round_revealed", round=round_.pk)
    send_notifications()
    assert [notice.kind for notice in notices_of(alice)] == [
        NoticeKind.ROUND_OPENING,
        NoticeKind.ROUND_CLOSING,
        NoticeKind.ROUND_REVEALED,
    ]
    assert stranger.user is not None
    assert notices_of(stranger.user) == []


def test_rounds_of_a_benchmark_concern_those_who_submitted_to_a_part_and_who_wants_all(
    demo: Dataset, api: Api, alice: User, stranger: Api
) -> None:
    scored(api)
    Submission.objects.update(noticed_at=timezone.now())
    benchmark = Benchmark.objects.create(slug="all", name="All")
    BenchmarkMember.objects.create(benchmark=benchmark, dataset=demo)
    eager = make_user("Eager")
    NoticePreference.objects.create(person=eager, kind=NoticeKind.ROUND_OPENING, everywhere=True)
    make_round(benchmark=benchmark)
    send_notifications()
    told = set(Notice.objects.values_list("person__name", flat=True))
    assert told == {"Alice", "Eager"}


def test_a_round_before_its_time_or_of_a_dataset_in_preparation_is_told_to_nobody(demo: Dataset) -> None:
    eager = make_user("Eager")
    NoticePreference.objects.create(person=eager, kind=NoticeKind.ROUND_OPENING, everywhere=True)
    make_round(demo, opens_at=timezone.now() + timedelta(hours=1))
    assert not wake_notifier()
    make_round(demo)
    Dataset.objects.update(state=Dataset.State.PREPARING)
    assert not wake_notifier()
    send_notifications()
    assert notices_of(eager) == []
