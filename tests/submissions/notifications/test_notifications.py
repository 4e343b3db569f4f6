"""People are told what happened: once, as they wish, and nothing that they may not know."""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import Any

import pytest
from django.core import mail
from django.db import connections
from django.test import Client
from django.utils import timezone

from leaderboard.models import (
    Dataset,
    Entry,
    Membership,
    User,
)
from submissions.accounts.teams import personal_team
from submissions.models import (
    Job,
    NoticeKind,
    NoticePreference,
    QuotaUse,
    State,
    Submission,
)
from submissions.notifications import events
from submissions.notifications.events import notify_finished
from submissions.notifications.inbox import Message, notify
from submissions.notifications.sending import send_notifications, wake_notifier
from submissions.queue.queue import advance
from tests.factories import make_user
from tests.pages import one_line
from tests.submissions.clients import Api
from tests.submissions.outbox import notices_of, only_notice, scored
from tests.submissions.workers import work

pytestmark = [pytest.mark.django_db, pytest.mark.database]

FOREVER = float("inf")


# --- submissions that ended


def test_a_scored_submission_is_told_to_the_submitter_and_the_team(
    demo: Dataset, baseline: None, api: Api, alice: User
) -> None:
    mate, outsider = make_user("Mate"), make_user("Outsider")
    Membership.objects.create(team=personal_team(alice), user=mate)
    identifier = scored(api)
    assert notify_finished() == 1
    notice = only_notice(alice)
    assert notice.kind == NoticeKind.FINISHED
    assert notice.subject == "Scored: My system on Demo"
    assert notice.text.startswith("Demo: nDCG@10 ")
    assert "My system" not in notice.text
    assert "over BM25" in notice.text
    assert notice.path == f"/submissions/{identifier}/"
    assert notice.mail_state == "waiting"
    assert only_notice(mate).text == notice.text
    assert notices_of(outsider) == []


def test_what_is_under_way_is_not_told(demo: Dataset, api: Api, alice: User) -> None:
    api.submit()
    assert notify_finished() == 0
    assert notices_of(alice) == []


def test_an_end_is_told_once(demo: Dataset, api: Api, alice: User) -> None:
    scored(api)
    assert notify_finished() == 1
    assert notify_finished() == 0
    Submission.objects.update(noticed_at=None)  # even so
    notify_finished()
    assert len(notices_of(alice)) == 1


def test_a_crash_while_telling_tells_nobody_and_the_next_look_tells(
    demo: Dataset, api: Api, alice: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    scored(api)

    def crash(*_: Any) -> None:
        raise OSError("out of power")

    with monkeypatch.context() as patch:
        patch.setattr(events, "queue_delivery", crash)  # after the notices were written
        assert notify_finished() == 0
    assert notices_of(alice) == []
    assert Submission.objects.get().noticed_at is None
    assert notify_finished() == 1
    assert len(notices_of(alice)) == 1


@pytest.mark.django_db(transaction=True)
def test_two_that_look_at_once_tell_once(demo: Dataset, api: Api, alice: User) -> None:
    scored(api)
    told: list[int] = []
    barrier = threading.Barrier(2)

    def look() -> None:
        barrier.wait()
        told.append(notify_finished())
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
    notify_finished()
    notice = only_notice(alice)
    assert notice.kind == NoticeKind.REJECTED
    assert notice.subject == "Not scored: My system on Demo"
    assert "- 7 documents are not in the corpus (lines 1, 2, 3, 4, 5 …). Use the corpus's ids." in notice.text
    assert notice.path == f"/submissions/{identifier}/"


def test_a_fault_of_ours_is_told_with_its_id_and_the_quota(secret: Dataset, api: Api, alice: User) -> None:
    api.submit(dataset="secret")
    assert advance(Job.objects.get().pk, State.FAILED, fault="deadbeef", error_code="fault")
    notify_finished()
    notice = only_notice(alice)
    assert notice.kind == NoticeKind.FAILED
    assert "deadbeef" in notice.text
    assert "does not count towards the quota on Secret, because the fault was ours" in notice.text


@pytest.mark.parametrize("state", [State.CANCELLED, State.WITHDRAWN])
def test_what_people_ended_themselves_they_are_not_told(demo: Dataset, api: Api, alice: User, state: State) -> None:
    scored(api)
    Job.objects.update(state=state)
    assert notify_finished() == 1
    assert notices_of(alice) == []


def test_what_ended_long_ago_is_no_news(demo: Dataset, api: Api, alice: User) -> None:
    scored(api)
    long_ago = timezone.now() - timedelta(days=4)
    Job.objects.update(finished_at=long_ago)
    Entry.objects.update(published_at=long_ago)
    assert notify_finished() == 1
    assert notices_of(alice) == []


def test_a_held_result_is_told_without_its_score(secret: Dataset, api: Api, alice: User) -> None:
    identifier = scored(api, dataset="secret")
    entry = Entry.objects.get(submission_reference=identifier)
    score = f"{entry.scores['nDCG@10']:.3f}"
    Entry.objects.update(visibility=Entry.Visibility.HELD, scores={})
    notify_finished()
    text = only_notice(alice).text
    assert "no significant change" in text.casefold()
    assert score not in text


@pytest.mark.parametrize("kind", [Job.Kind.SCORE, Job.Kind.MODEL])
def test_what_ran_too_long_is_told_as_the_ledger_has_it(secret: Dataset, api: Api, alice: User, kind: str) -> None:
    """A run that took the scorer too long costs nothing; a model's own time is its owner's affair."""
    identifier = str(api.submit(dataset="secret").body["id"])
    Job.objects.update(kind=kind, started_at=timezone.now())
    job = Job.objects.get(submission=identifier)
    assert advance(job.pk, State.SCORING)
    assert advance(job.pk, State.TIMED_OUT)
    notify_finished()
    told = "not count towards the quota on Secret, because the fault was ours." in only_notice(alice).text
    assert told is (QuotaUse.objects.get().refunded_at is not None) is (kind == Job.Kind.SCORE)


# --- preferences


def test_a_kind_that_is_switched_off_is_not_told(demo: Dataset, api: Api, alice: User) -> None:
    NoticePreference.objects.create(person=alice, kind=NoticeKind.FINISHED, by_mail=False, in_inbox=False)
    scored(api)
    notify_finished()
    assert notices_of(alice) == []


def test_mail_and_inbox_are_switched_off_apart(signed_in: Client, alice: User) -> None:
    form = {f"{kind}-{way}": "on" for kind in NoticeKind for way in ("mail", "inbox")}
    del form["finished-mail"], form["rejected-inbox"]
    assert signed_in.post("/inbox/preferences/", form).status_code == 302
    notify([alice], Message(NoticeKind.FINISHED, "a", "one", "text"))
    notify([alice], Message(NoticeKind.REJECTED, "b", "two", "text"))
    notify([alice], Message(NoticeKind.FAILED, "c", "three", "text"))
    assert [(row.in_inbox, row.mail_state) for row in notices_of(alice)] == [
        (True, "none"),
        (False, "waiting"),
        (True, "waiting"),
    ]
    page = one_line(signed_in.get("/inbox/preferences/").content.decode())
    assert 'name="finished-mail" aria' in page
    assert "two" not in signed_in.get("/inbox/").content.decode()


def test_somebody_who_left_or_was_switched_off_is_told_nothing(demo: Dataset, api: Api, alice: User) -> None:
    former, idle = make_user("Former"), make_user("Idle", is_active=False)
    team = personal_team(alice)
    Membership.objects.create(team=team, user=idle)
    Membership.objects.create(team=team, user=former).delete()
    scored(api)
    notify_finished()
    assert notices_of(former) == notices_of(idle) == []


def test_the_dispatcher_rings_only_where_there_is_something_to_tell(demo: Dataset, api: Api, alice: User) -> None:
    assert not wake_notifier()
    api.submit()
    assert not wake_notifier()
    work()
    assert wake_notifier()
    send_notifications()
    assert not wake_notifier()
    assert len(mail.outbox) == 1
