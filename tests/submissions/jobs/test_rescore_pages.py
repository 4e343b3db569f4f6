"""The pages on which a curator decides about a rescore, and what everyone sees of it."""

from __future__ import annotations

from io import StringIO
from pathlib import Path

import pytest
from django.core.management import call_command
from django.test import Client

from leaderboard.core.audit import acting
from leaderboard.judgements.rescoring.switch import switch_board
from leaderboard.models import AuditRecord, Dataset, Entry, Rescore, User
from leaderboard.results.publishing.visibility import quarantine, restore, unpublish
from submissions.queue.queue import create_requested_jobs
from tests.factories import make_user
from tests.submissions.clients import Api
from tests.submissions.collections import make_collection, run_text
from tests.submissions.rescores import more_judgements, rescored
from tests.submissions.workers import work

pytestmark = pytest.mark.django_db


@pytest.fixture
def desk(curator: User) -> Client:
    """The site as the curator."""
    client = Client()
    client.force_login(curator)
    return client


@pytest.fixture
def rescore(demo: Dataset, baseline: None, api: Api, curator: User, tmp_path: Path) -> Rescore:
    """A rescore that waits for the decision; d2 is judged now, which the two runs show at other ranks."""
    api.submit(run_text(skip=0), system="First")
    api.submit(run_text(skip=3), system="Third", public="false")
    work()
    return rescored(demo, more_judgements(demo, tmp_path), curator, "the pool of October")


def test_the_comparison_shows_both_sides_and_is_sorted_by_links(desk: Client, rescore: Rescore) -> None:
    page = desk.get(f"/admin/leaderboard/rescore/{rescore.pk}/change/")
    text = page.content.decode()
    assert page.status_code == 200
    for words in ("3 of 3", "the pool of October", "Hole@10", "Switch the board", "baseline", "private"):
        assert words in text, words
    assert 'aria-sort="ascending"' in text
    by_name = desk.get(f"/admin/leaderboard/rescore/{rescore.pk}/change/?sort=-system&measure=RR@10").content.decode()
    assert by_name.index(">Third<") < by_name.index(">First<") < by_name.index(">BM25<")
    sheet = desk.get(f"/admin/leaderboard/rescore/{rescore.pk}/comparison.csv").content.decode().splitlines()
    assert len(sheet) == 1 + 3 * 3
    assert sheet[0].startswith("system,configuration,visibility,baseline,measure,before,after,delta")


def test_a_switch_asks_why_and_goes_by_what_was_seen(desk: Client, demo: Dataset, rescore: Rescore) -> None:
    address = f"/admin/leaderboard/rescore/{rescore.pk}/switch/"
    assert desk.post(address, {"seen": ""}).status_code == 400
    other = desk.post(address, {"seen": "something else", "why": "looks right"})
    assert other.status_code == 409
    assert "The scores have changed since you opened this page" in other.content.decode()
    demo.refresh_from_db()
    assert demo.current_qrels_id == rescore.from_qrels_id
    done = desk.post(address, {"seen": "", "why": "looks right"}, follow=True)
    assert "now uses qrels v2" in done.content.decode()
    assert AuditRecord.objects.filter(action="rescored", reason="looks right").count() == 2
    again = desk.post(address, {"why": "once more"})
    assert (again.status_code, "on the board by Cora" in again.content.decode()) == (409, True)
    kept = desk.get(f"/admin/leaderboard/rescore/{rescore.pk}/change/").content.decode()
    assert "▲" in kept or "=" in kept
    assert "Switch the board" not in kept


def test_only_those_who_may_judge_see_it(rescore: Rescore) -> None:
    client = Client()
    client.force_login(make_user("Staff", is_staff=True))
    for path in ("change/", "switch/", "discard/", "comparison.csv"):
        assert client.get(f"/admin/leaderboard/rescore/{rescore.pk}/{path}").status_code == 403


def test_rounded_values_are_all_that_is_shown_of_hidden_judgements(
    desk: Client, api: Api, curator: User, tmp_path: Path
) -> None:
    secret = make_collection(tmp_path, "secret", hidden=True)
    api.submit(run_text(skip=1), dataset="secret", system="Hidden one")
    work()
    rescore = rescored(secret, more_judgements(secret, tmp_path), curator)
    with acting(curator, "a pool"):
        switch_board(rescore)
    rescore.refresh_from_db()
    for row in rescore.comparison["rows"]:
        values = [*row["before"].values(), *row["after"].values(), row["hole_before"], row["hole_after"]]
        assert all(value == round(value, 3) for value in values)
    public = Client().get("/datasets/secret/rescores/1/").content.decode()
    assert "Hidden one" in public
    assert "Hole@10" not in public


def test_everyone_reads_what_changed_once_the_board_is_switched_and_nothing_before(
    demo: Dataset, desk: Client, rescore: Rescore, curator: User
) -> None:
    assert Client().get("/datasets/demo/rescores/1/").status_code == 404
    before = Client().get("/datasets/demo/").content.decode()
    assert "qrels v2" not in before
    assert "version 2" not in before
    assert "Rescore to qrels" not in before
    assert "Rescore to qrels v2" in desk.get("/datasets/demo/").content.decode()
    with acting(curator, "a pool"):
        switch_board(rescore)
    page = Client().get("/datasets/demo/rescores/1/")
    text = page.content.decode()
    assert page.status_code == 200
    assert "the pool of October" in text
    assert "First" in text
    assert "Third" not in text
    assert "/datasets/demo/rescores/1/" in Client().get("/datasets/demo/").content.decode()
    assert "on qrels v2: the pool of October" in Client().get("/news/").content.decode()


def test_what_was_taken_off_since_leaves_no_gap_in_the_ranks_and_quarantine_is_named(
    demo: Dataset, rescore: Rescore, curator: User
) -> None:
    with acting(curator, "a pool"):
        switch_board(rescore)
        first = Entry.objects.get(system__name="First")
        address = "/datasets/demo/rescores/1/"
        rows = Client().get(address).context["table"].lines
        assert [(row.system, row.rank_before, row.rank_after) for row in rows] == [
            ("BM25", 2, 1),
            ("First", 1, 1),
        ]
        unpublish(first, "asked for by its owner")
    page = Client().get(address)
    assert [(row.system, row.rank_before, row.rank_after) for row in page.context["table"].lines] == [("BM25", 1, 1)]
    assert "First" not in page.content.decode()
    with acting(curator, "looks copied"):
        first.refresh_from_db()
        restore(first)
        quarantine(first, "looks copied")
    text = Client().get(address).content.decode()
    assert "<h2>Quarantined</h2>" in text
    assert "looks copied" in text


def test_the_note_is_public_and_why_is_for_the_record_alone(
    demo: Dataset, baseline: None, desk: Client, client: Client, curator: User, tmp_path: Path
) -> None:
    work()
    first, second = (more_judgements(demo, tmp_path, extra) for extra in ("d2", "d4"))
    sent = {"qrels": first.pk, "note": "The pool of October", "why": "Internal: a team cheats"}
    assert desk.post("/admin/leaderboard/rescore/add/", sent).status_code == 302
    create_requested_jobs()
    work()
    address = f"/admin/leaderboard/rescore/{Rescore.objects.get().pk}/switch/"
    assert desk.post(address, {"seen": "", "why": "Internal: as agreed"}).status_code == 302
    who = {"by": curator.email, "why": "Internal: once more"}
    out = StringIO()
    call_command("rescore", "demo", qrels=second.number, note="A second pool", here=True, stdout=out, **who)
    call_command("switch_board", "demo", stdout=out, **who)
    for page in ("/news/", "/news/atom.xml", "/datasets/demo/", "/datasets/demo/rescores/1/"):
        text = client.get(page).content.decode()
        assert "Internal" not in text, page
        assert "The pool of October" in text or page == "/datasets/demo/"
    assert "A second pool" in client.get("/datasets/demo/rescores/2/").content.decode()
    reasons = set(AuditRecord.objects.values_list("reason", flat=True))
    assert {"Internal: a team cheats", "Internal: as agreed", "Internal: once more"} <= reasons
