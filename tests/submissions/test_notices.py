"""People are told what happened: once, as they wish, and nothing that they may not know."""

from __future__ import annotations

import threading
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.core import mail
from django.core.cache import cache
from django.db import connections
from django.test import Client
from django.utils import timezone

from leaderboard.audit import acting
from leaderboard.models import (
    Benchmark,
    BenchmarkMember,
    Challenge,
    Dataset,
    Entry,
    Membership,
    Rescore,
    Round,
    User,
)
from leaderboard.publishing.switching import switch_board
from leaderboard.work import request_notice
from submissions.lifecycle import advance
from submissions.models import (
    Job,
    Notice,
    NoticeKind,
    NoticePreference,
    QuotaUse,
    State,
    Submission,
    Webhook,
)
from submissions.notices import ended, sending
from submissions.notices.ended import tell_of_ended
from submissions.notices.outbox import Message, tell
from submissions.notices.sending import ring_for_notices, take_turn
from submissions.people.teams import personal_team
from tests.factories import make_user
from tests.submissions.conftest import Api, run_text, upload, work
from tests.submissions.receiver import Receiver
from tests.submissions.rescores import more_judgements, rescored

pytestmark = [pytest.mark.django_db, pytest.mark.database]

FOREVER = float("inf")


def notices_of(person: User) -> list[Notice]:
    """What the person was told, the oldest first."""
    return list(Notice.objects.filter(person=person).order_by("pk"))


def only_notice(person: User) -> Notice:
    """The one notice that the person has."""
    (notice,) = notices_of(person)
    return notice


def scored(api: Api, **fields: Any) -> str:
    """The id of a submission that was scored."""
    answer = api.submit(**fields)
    assert answer.status == 201, answer.body
    work()
    return str(answer.body["id"])


# --- submissions that ended


def test_a_scored_submission_is_told_to_the_submitter_and_the_team(
    demo: Dataset, baseline: None, api: Api, alice: User
) -> None:
    mate, outsider = make_user("Mate"), make_user("Outsider")
    Membership.objects.create(team=personal_team(alice), user=mate)
    identifier = scored(api)
    assert tell_of_ended() == 1
    notice = only_notice(alice)
    assert notice.kind == NoticeKind.FINISHED
    assert notice.subject == "Scored: My system on Demo"
    assert notice.text.startswith("Demo: nDCG@10 ")
    assert "My system" not in notice.text
    assert "(BM25 " in notice.text
    assert notice.path == f"/submissions/{identifier}/"
    assert notice.mail_state == "waiting"
    assert only_notice(mate).text == notice.text
    assert notices_of(outsider) == []


def test_what_is_under_way_is_not_told(demo: Dataset, api: Api, alice: User) -> None:
    api.submit()
    assert tell_of_ended() == 0
    assert notices_of(alice) == []


def test_an_end_is_told_once(demo: Dataset, api: Api, alice: User) -> None:
    scored(api)
    assert tell_of_ended() == 1
    assert tell_of_ended() == 0
    Submission.objects.update(noticed_at=None)  # even so
    tell_of_ended()
    assert len(notices_of(alice)) == 1


def test_a_crash_while_telling_tells_nobody_and_the_next_look_tells(
    demo: Dataset, api: Api, alice: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    scored(api)

    def crash(*_: Any) -> None:
        raise OSError("out of power")

    with monkeypatch.context() as patch:
        patch.setattr(ended, "deliver", crash)  # after the notices were written
        assert tell_of_ended() == 0
    assert notices_of(alice) == []
    assert Submission.objects.get().noticed_at is None
    assert tell_of_ended() == 1
    assert len(notices_of(alice)) == 1


@pytest.mark.django_db(transaction=True)
def test_two_that_look_at_once_tell_once(demo: Dataset, api: Api, alice: User) -> None:
    scored(api)
    told: list[int] = []
    barrier = threading.Barrier(2)

    def look() -> None:
        barrier.wait()
        told.append(tell_of_ended())
        connections.close_all()

    threads = [threading.Thread(target=look) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(told) == [0, 1]
    assert len(notices_of(alice)) == 1


def test_a_rejected_file_is_told_with_lines_and_hints(demo: Dataset, api: Api, alice: User) -> None:
    identifier = scored(api)
    report = {
        "problems": [
            {
                "severity": "error",
                "code": "unknown_documents",
                "count": 7,
                "lines": [1, 2, 3, 4, 5],
                "message": "7 documents are not in the corpus",
                "hint": "Use the corpus's ids.",
            }
        ]
    }
    Job.objects.update(state=State.REJECTED, entry=None, report=report, error_code="invalid_run")
    tell_of_ended()
    notice = only_notice(alice)
    assert notice.kind == NoticeKind.REJECTED
    assert notice.subject == "Not scored: My system on Demo"
    assert (
        "- 7 documents are not in the corpus (lines 1, 2, 3, 4, 5, …). Use the corpus's ids." in notice.text
    )
    assert notice.path == f"/submissions/{identifier}/"


def test_a_fault_of_ours_is_told_with_its_id_and_the_quota(secret: Dataset, api: Api, alice: User) -> None:
    api.submit(dataset="secret")
    assert advance(Job.objects.get().pk, State.FAILED, fault="deadbeef", error_code="fault")
    tell_of_ended()
    notice = only_notice(alice)
    assert notice.kind == NoticeKind.FAILED
    assert "deadbeef" in notice.text
    assert "does not count towards the quota on Secret, because the fault was ours" in notice.text


@pytest.mark.parametrize("state", [State.CANCELLED, State.WITHDRAWN])
def test_what_people_ended_themselves_they_are_not_told(
    demo: Dataset, api: Api, alice: User, state: State
) -> None:
    scored(api)
    Job.objects.update(state=state)
    assert tell_of_ended() == 1
    assert notices_of(alice) == []


def test_what_ended_long_ago_is_no_news(demo: Dataset, api: Api, alice: User) -> None:
    scored(api)
    Job.objects.update(finished_at=timezone.now() - timedelta(days=4))
    assert tell_of_ended() == 1
    assert notices_of(alice) == []


def test_a_held_result_is_told_without_its_score(secret: Dataset, api: Api, alice: User) -> None:
    identifier = scored(api, dataset="secret")
    entry = Entry.objects.get(submission_reference=identifier)
    score = f"{entry.scores['nDCG@10']:.3f}"
    Entry.objects.update(visibility=Entry.Visibility.HELD, scores={})
    tell_of_ended()
    text = only_notice(alice).text
    assert "no significant change" in text.casefold()
    assert score not in text


@pytest.mark.parametrize("kind", [Job.Kind.SCORE, Job.Kind.MODEL])
def test_what_ran_too_long_is_told_as_the_ledger_has_it(
    secret: Dataset, api: Api, alice: User, kind: str
) -> None:
    """A run that took the scorer too long costs nothing; a model's own time is its owner's affair."""
    identifier = str(api.submit(dataset="secret").body["id"])
    Job.objects.update(kind=kind, started_at=timezone.now())
    job = Job.objects.get(submission=identifier)
    assert advance(job.pk, State.SCORING)
    assert advance(job.pk, State.TIMED_OUT)
    tell_of_ended()
    told = "not count towards the quota on Secret, because the fault was ours." in only_notice(alice).text
    assert told is (QuotaUse.objects.get().refunded_at is not None) is (kind == Job.Kind.SCORE)


# --- events of boards


def test_a_rescore_is_told_to_teams_with_results_there(
    demo: Dataset, baseline: None, api: Api, alice: User, stranger: Api, tmp_path: Path
) -> None:
    scored(api)
    tell_of_ended()
    before = Entry.objects.get(system__name="My system").scores["nDCG@10"]
    rescore = rescored(demo, more_judgements(demo, tmp_path), make_user("Carol"))
    with acting(make_user("Dan"), "a pool"):
        switch_board(rescore)
    take_turn()
    take_turn()
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
    tell_of_ended()
    qrels = secret.current_qrels
    rescore = Rescore.objects.create(
        dataset=secret, from_qrels=qrels, to_qrels=qrels, state=Rescore.State.SWITCHED
    )
    request_notice("rescored", rescore=rescore.pk)
    take_turn()
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
    take_turn()
    assert not Notice.objects.filter(kind=NoticeKind.RESCORED).exists()


def test_a_challenge_is_told_to_the_systems_team_and_its_end_to_the_challenger(
    demo: Dataset, api: Api, alice: User
) -> None:
    scored(api)
    tell_of_ended()
    doubter = make_user("Doubter")
    system = Entry.objects.get(jobs__submission__submitter=alice).system
    challenge = Challenge.objects.create(
        system=system, claim="training", text="Buy watches at http://spam.example", raised_by=doubter
    )
    request_notice("challenged", challenge=challenge.pk)
    take_turn()
    told = Notice.objects.get(person=alice, kind=NoticeKind.CHALLENGED)
    assert told.subject == "Challenged: My system"
    assert "spam" not in told.text  # what strangers write is on the page, not in anybody's mail
    assert doubter.name not in told.text
    assert notices_of(doubter) == []
    Challenge.objects.update(state=Challenge.State.UPHELD, decision="It was trained on it.")
    request_notice("challenged", challenge=challenge.pk)
    take_turn()
    assert "It was trained on it." in only_notice(doubter).text
    assert Notice.objects.filter(person=alice, kind=NoticeKind.CHALLENGED).count() == 2


def test_an_event_whose_rows_are_gone_is_taken_and_told_to_nobody(db: None) -> None:
    for event, name in (("rescored", "rescore"), ("challenged", "challenge"), ("round_revealed", "round")):
        request_notice(event, **{name: 987654})
    take_turn()
    assert not Notice.objects.exists()
    assert not ring_for_notices()


def test_a_turn_that_took_too_long_leaves_the_next_ones_lock_alone(
    db: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    held: list[bool] = []

    def while_it_sends(until: float) -> int:
        held.append(cache.add("notices-turn", "another's"))
        cache.set("notices-turn", "another's")  # ours has run out, and another has begun
        return 0

    monkeypatch.setattr(sending, "send_mail", while_it_sends)
    cache.delete("notices-turn")
    take_turn()
    take_turn()
    assert held == [False]
    assert cache.get("notices-turn") == "another's"
    cache.delete("notices-turn")


# --- preferences


def test_a_kind_that_is_switched_off_is_not_told(demo: Dataset, api: Api, alice: User) -> None:
    NoticePreference.objects.create(person=alice, kind=NoticeKind.FINISHED, by_mail=False, in_inbox=False)
    scored(api)
    tell_of_ended()
    assert notices_of(alice) == []


def test_mail_and_inbox_are_switched_off_apart(signed_in: Client, alice: User) -> None:
    form = {f"{kind}-{way}": "on" for kind in NoticeKind for way in ("mail", "inbox")}
    del form["finished-mail"], form["rejected-inbox"]
    assert signed_in.post("/inbox/preferences/", form).status_code == 302
    tell([alice], Message(NoticeKind.FINISHED, "a", "one", "text"))
    tell([alice], Message(NoticeKind.REJECTED, "b", "two", "text"))
    tell([alice], Message(NoticeKind.FAILED, "c", "three", "text"))
    assert [(row.in_inbox, row.mail_state) for row in notices_of(alice)] == [
        (True, "none"),
        (False, "waiting"),
        (True, "waiting"),
    ]
    page = signed_in.get("/inbox/preferences/").content.decode()
    assert 'name="finished-mail" aria' in page.replace("\n", " ")
    assert "two" not in signed_in.get("/inbox/").content.decode()


def test_somebody_who_left_or_was_switched_off_is_told_nothing(demo: Dataset, api: Api, alice: User) -> None:
    former, idle = make_user("Former"), make_user("Idle", is_active=False)
    team = personal_team(alice)
    Membership.objects.create(team=team, user=idle)
    Membership.objects.create(team=team, user=former).delete()
    scored(api)
    tell_of_ended()
    assert notices_of(former) == notices_of(idle) == []


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
    tell_of_ended()
    Notice.objects.all().delete()
    round_ = make_round(demo)
    for _ in range(2):
        take_turn()
    opening = only_notice(alice)
    assert opening.kind == NoticeKind.ROUND_OPENING
    assert f"{round_.closes_at:%H:%M} UTC" in opening.text
    Round.objects.update(closes_at=timezone.now() + timedelta(hours=20))
    for _ in range(2):
        take_turn()
    Round.objects.update(revealed_at=timezone.now())
    request_notice("round_revealed", round=round_.pk)
    take_turn()
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
    take_turn()
    told = set(Notice.objects.values_list("person__name", flat=True))
    assert told == {"Alice", "Eager"}


def test_a_round_before_its_time_or_of_a_dataset_in_preparation_is_told_to_nobody(demo: Dataset) -> None:
    eager = make_user("Eager")
    NoticePreference.objects.create(person=eager, kind=NoticeKind.ROUND_OPENING, everywhere=True)
    make_round(demo, opens_at=timezone.now() + timedelta(hours=1))
    assert not ring_for_notices()
    make_round(demo)
    Dataset.objects.update(state=Dataset.State.PREPARING)
    assert not ring_for_notices()
    take_turn()
    assert notices_of(eager) == []


def test_the_dispatcher_rings_only_where_there_is_something_to_tell(
    demo: Dataset, api: Api, alice: User
) -> None:
    assert not ring_for_notices()
    api.submit()
    assert not ring_for_notices()
    work()
    assert ring_for_notices()
    take_turn()
    assert not ring_for_notices()
    assert len(mail.outbox) == 1
