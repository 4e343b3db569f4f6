"""Hostile text goes in wherever people write, and comes out as text: no output runs it, breaks on it or sends it on.

The outputs are the addresses of the URL configuration, so a new one is asked too.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from email import message_from_bytes, policy
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from django.core import mail
from django.core.cache import cache
from django.core.mail import EmailMessage

from leaderboard.models import Dataset, System
from submissions.accounts.outbox import queue_account_mail
from submissions.models import Notice, Submission
from submissions.notifications.events import notify_finished
from submissions.notifications.sending import account_mailer, notice_mailer
from submissions.notifications.webhooks import send_deliveries
from tests.doors.content import Site, build
from tests.doors.expected import ROWS
from tests.doors.walking import Door, doors_of
from tests.functional import hostile_text
from tests.submissions.clients import Api
from tests.submissions.collections import demo as demo
from tests.submissions.people import alice as alice
from tests.submissions.people import api as api
from tests.submissions.receiver import Receiver
from tests.submissions.receiver import receiver as receiver
from tests.submissions.receiver import webhook as webhook
from tests.submissions.workers import work

pytestmark = [pytest.mark.django_db]

FOREVER = float("inf")
#: Pages that the curators' site makes alike for every model.
ALIKE = ("changelist", "change", "history", "add", "delete", "simple_history")
#: What a name may be, and a program may still take for its own.
ACCEPTED = '=HYPERLINK("//e.example")</script><svg onload=x()>]]>\\input{/etc/passwd}%0d%0aBcc: a@b.c'


@pytest.fixture
def site(db: None, settings: Any, tmp_path: Path) -> Iterator[Site]:
    """One of everything, and hostile text in all of it."""
    settings.CACHES = {"default": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"}}
    settings.SESSION_ENGINE = "django.contrib.sessions.backends.signed_cookies"
    logging.disable(logging.CRITICAL)
    made = build(tmp_path)
    planted = hostile_text.plant(count(1))
    # Nothing that people say was passed over.
    assert planted >= {
        "System.name",
        "Team.name",
        "User.name",
        "Run.tag",
        "Dataset.citation",
        "Source.bibtex",
    }
    cache.clear()
    yield made
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("by_turns", [True, pytest.param(False, marks=pytest.mark.long)])
def test_every_output_stays_what_it_is(site: Site, by_turns: bool) -> None:
    wrong: list[str] = []
    kinds: set[str] = set()
    for number, door in enumerate(doors_of(site, ROWS)):
        if by_turns and not _in_turn(door, number):
            continue
        response = site.people["root" if door.address.startswith("/admin/") else "owner"].get(door.address)
        kind = response.headers.get("Content-Type", "").partition(";")[0]
        found = _wrong_headers(response) + _wrong_content(response, kind)
        wrong += [f"{door.name} ({door.address}, {kind}): {each[:200]}" for each in found[:3]]
        kinds.add(kind)
    assert not wrong, "\n".join(wrong)
    assert kinds - {""} == set(hostile_text.READERS), "what no output has any more, or none had"


@pytest.mark.parametrize("by_turns", [True, pytest.param(False, marks=pytest.mark.long)])
def test_what_an_address_asks_for_comes_back_as_text(site: Site, by_turns: bool) -> None:
    """Everything that a page may be asked for, and what no page is asked for, in the address."""
    asked = urlencode(dict.fromkeys(hostile_text.ASKED, hostile_text.NAME) | {"next": "javascript:x()"})
    wrong: list[str] = []
    for number, door in enumerate(doors_of(site, ROWS)):
        if by_turns and number % 8:
            continue
        person = "root" if door.address.startswith("/admin/") else "owner"
        response = site.people[person].get(f"{door.address}?{asked}")
        kind = response.headers.get("Content-Type", "").partition(";")[0]
        found = _wrong_headers(response) + _wrong_content(response, kind)
        wrong += [f"{door.name} ({kind}): {each[:200]}" for each in found[:3]]
    assert not wrong, "\n".join(wrong)


def _in_turn(door: Door, number: int) -> bool:
    """What `make test` asks: everything, but of the pages that are alike for every model of the curators' one each."""
    act = door.name.rpartition("_")[2]
    return not door.address.startswith("/admin/") or act not in ALIKE or number % len(ALIKE) == ALIKE.index(act)


def _wrong_headers(response: Any) -> list[str]:
    found = [f"{response.status_code}"] if response.status_code >= 500 else []
    named = response.headers.get("Content-Disposition", "inline")
    if not re.fullmatch(r'(inline|attachment)(; filename="[\w .@:+-]+")?', named):
        found.append(named)
    if response.headers.get("X-Content-Type-Options") != "nosniff":
        found.append("another kind may be guessed")
    return found + [name for name, value in response.headers.items() if "x()" in value or "evil" in value]


def _wrong_content(response: Any, kind: str) -> list[str]:
    content = b"".join(response.streaming_content) if response.streaming else response.content
    if not content:
        return []
    try:
        return hostile_text.READERS[kind](content)
    except Exception as error:
        return [f"{type(error).__name__}: {error}"]


@pytest.mark.parametrize(
    ("kind", "content"),
    [
        ("text/html", b"<script>x()</script>"),
        ("text/html", b"<a href=' java\nscript:x()'>a</a>"),
        ("text/html", b"<svg/onload=x()>"),
        ("image/svg+xml", b"<svg><script/></svg>"),
        ("text/csv", b"name,score\r\n=1+1,0.5\r\n"),
        ("text/markdown", b"| <img src=x onerror=x()> |"),
        ("text/x-bibtex", b"@misc{a, title = {\\input{x}}}"),
    ],
)
def test_what_is_looked_for_is_found(kind: str, content: bytes) -> None:
    assert hostile_text.READERS[kind](content)


def test_mail_has_the_headers_and_recipients_that_it_was_given(site: Site) -> None:
    queue_account_mail(EmailMessage("Hello\r\nBcc: a@b.c", hostile_text.TEXT, to=["olga@example.org"]))
    Notice.objects.update(mail_state="waiting", mail_attempts=0)
    told = Notice.objects.count()
    notice_mailer.send(FOREVER)
    account_mailer.send(FOREVER)
    assert len(mail.outbox) == told + 1 > 1
    for message in mail.outbox:
        read = message_from_bytes(message.message().as_bytes(), policy=policy.default)
        assert "Bcc" not in read
        assert message.recipients() == [read["To"]]
        assert read.get_content_type() == "text/plain"
        assert "<script>" in read.get_content()


def test_what_a_name_may_be_goes_on_as_text(
    demo: Dataset, api: Api, receiver: Receiver, webhook: Any, mailoutbox: list[EmailMessage]
) -> None:
    answer = api.submit(system=ACCEPTED[:120], tag="t-1")
    assert answer.body["system_name"] == ACCEPTED
    work()
    notify_finished()
    assert send_deliveries(FOREVER) == 1
    told = receiver.json()  # names are not in it, but addresses: what programs read anyway
    assert told["system"] == System.objects.get().slug
    assert not [value for value in told.values() if isinstance(value, str) and re.search(r"[<>\\]", value)]
    notice_mailer.send(FOREVER)
    (message,) = mailoutbox
    assert ACCEPTED in message.subject
    assert re.fullmatch(r"[^\r\n]+", message.subject)


@pytest.mark.parametrize(
    ("field", "value", "says"),
    [
        ("system", "a\u202eb", "U+202E"),
        ("system", "a\r\nBcc: x", "U+000D"),
        ("system", "x" * 10_000, "120"),
        ("system", "a\0b", "NUL"),
        ("description", "a\u202eb", "U+202E"),
        ("bibtex", "@misc{a, title = {\\input{/etc/passwd}}}", "\\input"),
        ("bibtex", "@misc{a, title = {\\write18{id}}}", "\\write"),
        ("bibtex", "@misc{a, title = {^^5cinput{x}}}", "^^"),
        ("parameters", '{"k\\u202e1": 1}', "U+202E"),
        ("parameters", '{"k1": ["a\\u0001"]}', "U+0001"),
        ("parameters", '{"k1": "\\u0000"}', "NUL"),
        ("training_datasets", "fiqa, a\u202eb", "U+202E"),
        ("note", "a\x01b", "U+0001"),
        ("paper", "javascript:x()", "URL"),
        ("code", "https://a.b/\r\nSet-Cookie: x", "URL"),
        ("model", "data:text/html,x", "URL"),
        ("tag", "a\nb", "U+000A"),
        ("configuration", "\u200b", "U+200B"),
    ],
)
def test_what_is_not_taken_is_said(demo: Dataset, api: Api, field: str, value: str, says: str) -> None:
    answer = api.submit(**{field: value})
    assert answer.status == 400
    told = [answer.body["detail"], *(problem["message"] for problem in answer.body["problems"])]
    assert any(says in sentence for sentence in told), told
    assert not Submission.objects.exists()
