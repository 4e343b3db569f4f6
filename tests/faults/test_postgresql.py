"""PostgreSQL is killed and started again under uploads: nothing acknowledged is lost, and no page is half a page."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import pytest
from django.conf import settings
from django.db import connection, connections
from django.test import Client
from django.urls import reverse

from leaderboard.core.storage.store import Area, path_of
from submissions.models import Job, State, Submission
from tests.factories import make_user
from tests.faults.clients import Reader, Submitter, ask, meanwhile, serve, submit
from tests.faults.repetitions import full
from tests.faults.site import Site
from tests.faults.work import Work, doubled, ended, lost, tell_everybody
from tests.submissions.collections import run_text

pytestmark = pytest.mark.database

#: Times that the server is killed under uploads, and submitters meanwhile (of whom each may send 60 runs a minute).
KILLS = 20 if full() else 2
SUBMITTERS = 8 if full() else 3


@pytest.fixture
def killable(site: Site) -> Site:
    """The site, on a database server of this session."""
    if site.database is None:
        pytest.skip("DATABASE_URL names a server that is not ours to kill")
    return site


@contextmanager
def away(site: Site) -> Iterator[None]:
    """The server is killed, and is there again after the block."""
    site.database.kill()
    try:
        yield
    finally:
        site.database.start()
        connections.close_all()


def pages(work: Work) -> list[str]:
    """Of every kind: pages, exports, feeds, the API."""
    board = f"/datasets/{work.open.slug}/"
    return [
        *("/", "/datasets/", board, f"{board}board.csv", "/news/", "/news/atom.xml", "/submit/", "/compare/"),
        *(reverse("account_login"), "/submissions/", "/rounds/", "/admin/"),
        *("/api/v1/datasets/", f"/api/v1/datasets/{work.open.slug}/board/", "/api/v1/submissions/"),
    ]


def kill_again_and_again(site: Site, submitters: list[Submitter], times: int) -> None:
    for _ in range(times):
        before = [len(each.acknowledged) for each in submitters]
        # The next one dies among uploads, not before the first.
        deadline = time.monotonic() + 60
        while all(len(each.acknowledged) <= then for each, then in zip(submitters, before, strict=True)):
            assert time.monotonic() < deadline, [each.unexpected for each in submitters]
            time.sleep(0.02)
        with away(site):
            time.sleep(0.2)


def not_kept(acknowledged: list[str]) -> list[str]:
    """What is not there exactly once of what was acknowledged, row and bytes."""
    found = []
    counts = Counter(Submission.objects.values_list("system__name", flat=True))
    runs = dict(Job.objects.values_list("submission__system__name", "payload__run_sha256"))
    for name in acknowledged:
        if counts[name] != 1:
            found.append(f"{name}: {counts[name]} submissions")
        elif not path_of(Area.RUNS, runs[name]).exists():
            found.append(f"{name}: no run")
    return found


def test_no_acknowledged_upload_is_lost(
    killable: Site, queue_site: Site, work: Work, noted: Callable[[str], None]
) -> None:
    """Killed under uploads and under the workers that score them: answers are 201 or 503, each run is there once."""
    site = killable
    serve(site)
    submitters = [
        Submitter(site.address, make_user(f"Person{number}"), work.open.slug, number) for number in range(SUBMITTERS)
    ]
    reader = Reader(site.address, pages(work)[:6])
    began = time.monotonic()
    meanwhile([*submitters, reader], lambda: kill_again_and_again(site, submitters, KILLS))
    acknowledged = [name for each in submitters for name in each.acknowledged]
    answers = Counter(answer.status for each in submitters for answer in each.answers)
    seconds = time.monotonic() - began
    noted(f"PostgreSQL killed x {KILLS}: {len(acknowledged)} acknowledged in {seconds:.0f} s, {dict(answers)}")
    noted(f"pages meanwhile {dict(reader.seen)}, the slowest {reader.slowest:.1f} s")
    assert [each.unexpected for each in submitters] == [[]] * SUBMITTERS
    assert reader.unexpected == []
    assert not_kept(acknowledged) == []
    if full():
        assert answers[503] > 0
        assert reader.seen[503] > 0
    queue_site.wait_for(lambda: ended(Submission.objects.all()), "all jobs to end")
    tell_everybody()
    assert lost() == []
    assert doubled() == []


def test_every_page_says_that_we_are_away_and_comes_back(killable: Site, work: Work) -> None:
    """503 with an id and when to come back, for visitors and for those signed in, and never a part of a page."""
    site = killable
    serve(site)
    client = Client()
    client.force_login(work.person)
    session = {"Cookie": f"{settings.SESSION_COOKIE_NAME}={client.cookies[settings.SESSION_COOKIE_NAME].value}"}
    asked = [(path, headers) for path in pages(work) for headers in ({}, session)]
    for path, headers in asked:
        assert ask(site.address, path, headers=headers).status in (200, 302, 401), path
    forgotten = {
        "/api/v1/submissions/",
        "/submissions/",
        "/submit/",
        "/admin/",
    }  # these send strangers away first
    with away(site):
        for path, headers in asked:
            answer = ask(site.address, path, headers=headers)
            assert answer.is_whole, path
            if not headers and path in forgotten | {reverse("account_login"), "/compare/"}:
                assert answer.status in (200, 302, 401, 503), path
                continue
            assert (path, answer.status, answer.headers.get("Retry-After")) == (path, 503, "30")
            if path.startswith("/api/"):
                assert (answer.json["code"], len(answer.json["fault"])) == ("unavailable", 8)
            else:
                assert b"We are briefly unavailable" in answer.body
                assert b"Fault <code>" in answer.body
        assert ask(site.address, "/healthz").json["database"] == "unavailable"
    for path, headers in asked:
        assert ask(site.address, path, headers=headers).status in (200, 302, 401), path


def test_what_was_committed_before_the_disk_had_it_is_gone(
    transactional_db: None, running_site: Site, work: Work
) -> None:
    """The control in short: one submission by a session without `synchronous_commit`, and the server dies."""
    if running_site.database is None:
        pytest.skip("DATABASE_URL names a server that is not ours to kill")
    running_site.stop()  # whatever else commits would write down what came before it
    kept = work.submit([work.open]).system.name
    with connection.cursor() as cursor:
        cursor.execute("SELECT pid FROM pg_stat_activity WHERE backend_type = 'walwriter'")
        (writer,) = cursor.fetchone()
        cursor.execute("SET synchronous_commit = off")
    # After ten idle seconds it sleeps, and such a commit wakes it: it would write at once, and not after a while.
    os.kill(writer, signal.SIGSTOP)
    try:
        lost = work.submit([work.open]).system.name
        assert not_kept([kept, lost]) == []
        with away(running_site):
            os.kill(writer, signal.SIGKILL)  # it would hold the memory of the server that is gone
        assert not_kept([kept, lost]) == [f"{lost}: 0 submissions"]
    finally:
        with suppress(ProcessLookupError):
            os.kill(writer, signal.SIGCONT)
        connections.close_all()  # what was set is this session's


@pytest.mark.long
def test_an_answer_before_the_disk_has_it_would_be_a_lie(killable: Site, work: Work) -> None:
    """The control: where PostgreSQL says “committed” before it has written, what was acknowledged is lost."""
    site = killable
    site.stop()  # whatever else commits would write down what came before it
    name = connection.settings_dict["NAME"]
    with connection.cursor() as cursor:
        cursor.execute(f'ALTER DATABASE "{name}" SET synchronous_commit = off')
        cursor.execute("ALTER SYSTEM SET wal_writer_delay = '10s'")
        cursor.execute("SELECT pg_reload_conf()")
    site.start_web()
    submitter = Submitter(site.address, work.person, work.open.slug, 1)
    try:
        with away(site):
            pass  # nothing else is in memory only
        meanwhile([submitter], lambda: time.sleep(1.0))
        with away(site):
            pass
        assert submitter.unexpected == [], site.services["web"].log.read_text()[-6000:]
        assert not_kept(submitter.acknowledged) != []
    finally:
        with connection.cursor() as cursor:
            cursor.execute(f'ALTER DATABASE "{name}" RESET synchronous_commit')
            cursor.execute("ALTER SYSTEM RESET wal_writer_delay")
            cursor.execute("SELECT pg_reload_conf()")
        connections.close_all()
        site.stop()


def test_the_same_upload_sent_again_is_the_same_submission(killable: Site, work: Work) -> None:
    """Whoever got no answer sends it again: to a new system, or to the one that is there now."""
    site = killable
    serve(site)
    person = Submitter(site.address, work.person, work.open.slug, 1)
    content = run_text().encode()
    assert submit(site.address, person.token, "Sent twice", work.open.slug, content).status == 201
    again = submit(site.address, person.token, "Sent twice", work.open.slug, content)
    assert (again.status, again.json["code"]) == (400, "already_submitted")
    assert Submission.objects.count() == 1
    Job.objects.update(state=State.CANCELLED)
