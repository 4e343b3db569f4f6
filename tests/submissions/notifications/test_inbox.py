"""What people are told reaches them: by mail, from the outbox, and in the inbox."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.core import mail
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from leaderboard.models import User
from submissions.accounts.teams import personal_team
from submissions.models import Delivery, Notice, NoticeKind, Webhook
from submissions.notifications.inbox import Message, notify
from submissions.notifications.sending import notice_mailer
from tests.factories import make_user
from tests.pages import one_line
from tests.submissions.clients import Api

pytestmark = [pytest.mark.django_db, pytest.mark.sampled_on_postgresql]

FOREVER = float("inf")


def make_notice(person: User, key: str = "x", **fields: Any) -> Notice:
    """A notice in the inbox, to be mailed."""
    values = {
        "kind": NoticeKind.FINISHED,
        "subject": "Scored: mine",
        "text": "It was scored.",
        "path": "/submissions/",
        "mail_state": "waiting",
        **fields,
    }
    return Notice.objects.create(person=person, key=key, **values)


# --- mail


def test_mail_says_what_the_inbox_says_and_where_to_switch_it_off(alice: User, settings: Any) -> None:
    settings.SITE_ADDRESS = "https://board.example.org"
    make_notice(alice)
    assert notice_mailer.send(FOREVER) == 1
    assert notice_mailer.send(FOREVER) == 0
    (sent,) = mail.outbox
    assert sent.to == [alice.email]
    assert sent.subject == "Scored: mine"
    assert sent.body.startswith("It was scored.\n\nhttps://board.example.org/submissions/\n")
    assert "https://board.example.org/inbox/preferences/" in sent.body
    assert sent.extra_headers["List-Unsubscribe"] == "<https://board.example.org/inbox/preferences/>"
    assert Notice.objects.get().mail_state == "sent"


def test_names_cannot_write_headers(alice: User) -> None:
    notify([alice], Message(NoticeKind.FINISHED, "k", "Scored: x\r\nBcc: victim@example.org\n\nbody", "text"))
    assert notice_mailer.send(FOREVER) == 1
    lines = mail.outbox[0].message().as_string().splitlines()
    assert not any(line.startswith("Bcc") for line in lines)
    assert mail.outbox[0].subject == "Scored: x Bcc: victim@example.org body"


class BrokenServer:
    """A mail server that is away."""

    def __init__(self, *_: Any, **__: Any) -> None:
        self.tried = 0

    def send_messages(self, messages: list[Any]) -> int:
        """Refuse."""
        raise ConnectionRefusedError(f"not for {messages[0].to}")

    def close(self) -> None:
        """Nothing to close."""


def test_mail_is_tried_three_times_and_then_in_the_inbox(
    alice: User, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    make_notice(alice, in_inbox=False)
    monkeypatch.setattr("submissions.notifications.sending.get_connection", BrokenServer)
    for attempt in range(1, 5):
        notice_mailer.send(FOREVER)
        assert notice_mailer.send(FOREVER) == 0  # not before its time
        notice = Notice.objects.get()
        assert notice.mail_attempts == min(attempt, 3)
        Notice.objects.update(not_before=None)
    assert (notice.mail_state, notice.in_inbox) == ("failed", True)
    assert alice.email not in caplog.text
    client = Client()
    client.force_login(alice)
    assert "could not be sent by mail" in client.get("/inbox/").content.decode()


def test_a_mail_claimed_by_somebody_who_died_is_sent_by_another(alice: User) -> None:
    make_notice(alice, mail_attempts=1, not_before=timezone.now() + timedelta(minutes=2))
    assert notice_mailer.send(FOREVER) == 0
    Notice.objects.update(not_before=timezone.now() - timedelta(seconds=1))
    assert notice_mailer.send(FOREVER) == 1


# --- inbox


def test_the_inbox_lists_pages_and_marks_as_read(signed_in: Client, alice: User) -> None:
    for number in range(30):
        make_notice(alice, key=str(number), subject=f"Notice <{number}>")
    make_notice(make_user("Other"), subject="Not yours")
    first = signed_in.get("/inbox/").content.decode()
    assert "Notice &lt;29&gt;" in first
    assert "Notice &lt;0&gt;" not in first
    assert "Notice &lt;0&gt;" in signed_in.get("/inbox/?page=2").content.decode()
    assert "Not yours" not in first
    assert "30 unread" in first
    newest = Notice.objects.filter(person=alice).first()
    assert newest is not None
    opened = signed_in.post("/inbox/read/", {"notice": newest.pk, "open": "1"})
    assert opened.headers["Location"] == "/submissions/"
    assert "29 unread" in signed_in.get("/inbox/").content.decode()
    signed_in.post("/inbox/read/")
    assert "All notices are read." in signed_in.get("/inbox/").content.decode()
    assert Notice.objects.filter(read_at=None).count() == 1  # somebody else's


def test_nobody_reads_or_marks_what_is_anothers(signed_in: Client, stranger: Api) -> None:
    assert stranger.user is not None
    theirs = make_notice(stranger.user)
    assert signed_in.post("/inbox/read/", {"notice": theirs.pk}).status_code == 404
    assert Client().get("/inbox/").status_code == 302
    assert stranger.get("notices/").body["count"] == 1


def test_an_empty_inbox_says_what_will_be_there(signed_in: Client) -> None:
    assert "Notices appear here" in signed_in.get("/inbox/").content.decode()


def test_the_head_of_pages_counts_what_is_unread_with_one_query(signed_in: Client, alice: User, client: Client) -> None:
    make_notice(alice)
    with CaptureQueriesContext(connection) as captured:
        page = one_line(signed_in.get("/measures/").content.decode())
    assert (
        '<a class="unread" href="/inbox/"><b class="count">1</b> <span class="count-of">unread notice</span></a>'
        in page
    )
    assert sum("submissions_notice" in query["sql"] for query in captured) == 1
    with CaptureQueriesContext(connection) as captured:
        client.get("/measures/")
    assert not any("submissions_notice" in query["sql"] for query in captured)


def test_notices_by_the_api(api: Api, alice: User, nobody: Api) -> None:
    first, second = make_notice(alice, key="1"), make_notice(alice, key="2", path="")
    answer = api.get("notices/").body
    assert (answer["count"], answer["unread"]) == (2, 2)
    assert answer["results"][0] == {
        "id": second.pk,
        "kind": "finished",
        "subject": "Scored: mine",
        "text": "It was scored.",
        "url": None,
        "at": second.created_at.isoformat(),
        "read": False,
    }
    assert answer["results"][1]["url"] == "http://testserver/submissions/"
    assert api.post("notices/read/", id=first.pk).body == {"marked": 1, "unread": 1}
    assert [each["id"] for each in api.get("notices/?unread=true").body["results"]] == [second.pk]
    assert api.post("notices/read/").body == {"marked": 1, "unread": 0}
    assert api.post("notices/read/", id="x").status == 400
    assert nobody.get("notices/").status == 401


def test_curators_see_whether_it_arrived_and_nothing_of_what_was_said(alice: User, admin_client: Client) -> None:
    notice = make_notice(alice, text="for Alice alone")
    webhook = Webhook.objects.create(
        team=personal_team(alice),
        url="https://hooks.example.org/key-in-path",
        secret="s3cret",
        created_by=alice,
    )
    delivery = Delivery.objects.create(webhook=webhook, event="test", key="1", body={"outcome": "in the body"})
    pages = "".join(
        admin_client.get(f"/admin/submissions/{path}", follow=True).content.decode()
        for row in (notice, webhook, delivery)
        for path in (f"{row._meta.model_name}/", f"{row._meta.model_name}/{row.pk}/change/")
    )
    assert "Scored: mine" in pages
    assert "hooks.example.org" in pages
    for private in ("for Alice alone", "key-in-path", "s3cret", "in the body", alice.email):
        assert private not in pages
