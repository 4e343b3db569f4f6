"""Two who change a board at once: one waits for the other, and neither is ended by the database for a circle."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest
from django.core.exceptions import ValidationError
from django.db import connection, connections
from django.test import Client
from django.utils import timezone

from leaderboard.models import Challenge, Dataset, Entry, Round, System, User
from leaderboard.rounds.lifecycle import reveal, save_round
from leaderboard.systems.challenges import raise_challenge
from leaderboard.systems.records import SystemFields, create_system, update_system
from submissions.accounts.teams import rename_team
from submissions.jobs.changes import merge_systems, set_public, withdraw
from submissions.models import Job, State, Submission
from tests.curating import filled
from tests.factories import make_user, team_of
from tests.submissions.clients import Api, upload
from tests.submissions.collections import make_collection, run_text
from tests.submissions.workers import work

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.database]

#: Statements that lock a row which somebody else may want as well.
LOCKS = re.compile(
    r'^UPDATE "leaderboard_(dataset|round|system)"'
    r'|FROM "leaderboard_(dataset|round|system)".* FOR (NO KEY )?UPDATE',
    re.DOTALL,
)
#: How long the first one waits, with its first lock, for the other to have one too.
PATIENCE = 1.0


def at_once(*verbs: Callable[[], object]) -> None:
    """Do the two things side by side, each going on once the other has a lock as well, if it can get one."""
    if connection.vendor == "sqlite":
        pytest.skip("SQLite lets one transaction write at a time: nobody waits for a row")
    locked, errors = [Event(), Event()], []

    def do(own: Event, other: Event, verb: Callable[[], object]) -> None:
        def meet(execute: Callable[..., Any], sql: str, params: Any, many: bool, context: Any) -> Any:
            result = execute(sql, params, many, context)
            if not own.is_set() and LOCKS.search(sql):
                own.set()
                other.wait(PATIENCE)
            return result

        try:
            with connection.execute_wrapper(meet):
                verb()
        except Exception as error:  # to be raised by the test's own thread
            errors.append(error)
        finally:
            own.set()
            connections.close_all()

    pairs = zip(verbs, locked, reversed(locked), strict=True)
    threads = [Thread(target=do, args=(own, other, verb)) for verb, own, other in pairs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for error in errors:
        raise error


@pytest.fixture
def round_(demo: Dataset) -> Round:
    """One that is open, of five runs."""
    now = timezone.now()
    closes = now + timedelta(hours=1)
    times = {"opens_at": now - timedelta(days=1), "closes_at": closes, "reveals_at": closes}
    return save_round(Round(slug="r", name="R", dataset=demo, **times))


def end_of(row: Round) -> Callable[[], object]:
    return lambda: reveal(row, row.reveals_at + timedelta(days=1))


def test_a_round_is_revealed_while_a_run_of_it_is_published(round_: Round, api: Api) -> None:
    assert api.submit(run_text(), run_type="automatic").status == 201
    at_once(end_of(round_), work)
    assert Job.objects.get(submission__isnull=False).state == State.DONE
    assert Round.objects.get().revealed_at is not None


def test_a_round_is_revealed_while_it_is_changed(round_: Round) -> None:
    # Whoever comes second is refused, or not, as after the other.
    other = Round.objects.get(pk=round_.pk)
    other.visible_per_team = 3

    def change() -> None:
        with suppress(ValidationError):  # it was revealed and can no longer change
            save_round(other)

    at_once(end_of(round_), change)
    assert Round.objects.get().revealed_at is not None


def test_a_round_is_revealed_while_a_curator_saves_it(round_: Round, curator: User) -> None:
    page = f"/admin/leaderboard/round/{round_.pk}/change/"
    client = Client()
    client.force_login(curator)
    data = {**filled(client, page), "why": "shorter", "description": "Anew."}
    statuses: list[int] = []
    at_once(end_of(round_), lambda: statuses.append(client.post(page, data).status_code))
    assert statuses in ([302], [403])  # as it comes before the other, or after
    assert Round.objects.get().revealed_at is not None


def test_two_send_runs_for_the_same_collecting_datasets(tmp_path: Path) -> None:
    for slug in ("one", "two"):
        make_collection(tmp_path, slug)
    Dataset.objects.update(current_qrels=None)

    def send(person: User, slugs: Sequence[str]) -> None:
        files = [upload(run_text(), f"{slug}.txt") for slug in slugs]
        answer = Api(person).submit(dataset=list(slugs), file=files, system=f"From {slugs[0]}")
        assert answer.status == 201, answer.body

    first, second = make_user("First"), make_user("Second")
    at_once(lambda: send(first, ("one", "two")), lambda: send(second, ("two", "one")))
    assert Submission.objects.count() == 2


@pytest.fixture
def system(demo: Dataset, api: Api) -> System:
    """Alice's, with a public result."""
    assert api.submit(run_text()).status == 201
    work()
    return System.objects.get(team__isnull=False)


def challenge(system: System) -> Callable[[], object]:
    doubter = make_user("Doubter")
    return lambda: raise_challenge(system, doubter, "training", "It has seen these topics before, I think.")


def test_a_system_is_challenged_while_a_curator_saves_it(system: System, curator: User) -> None:
    page = f"/admin/leaderboard/system/{system.pk}/change/"
    client = Client()
    client.force_login(curator)
    data = {**filled(client, page), "why": "a typo", "description": "Put right."}
    at_once(lambda: client.post(page, data), challenge(system))
    assert Challenge.objects.count() == 1
    assert System.objects.get(pk=system.pk).description == "Put right."


def test_a_system_is_challenged_while_its_team_edits_it(system: System) -> None:
    fields = SystemFields(name=system.name, architecture=system.architecture, description="Anew.")
    at_once(lambda: update_system(system, fields), challenge(system))
    assert Challenge.objects.count() == 1
    assert System.objects.get(pk=system.pk).description == "Anew."


def test_a_submission_is_shown_or_withdrawn_while_it_is_published(demo: Dataset, api: Api, alice: User) -> None:
    sent = Submission.objects.get(pk=api.submit(run_text(), public="false").body["id"])
    at_once(lambda: set_public(sent, True), work)
    assert Entry.objects.get(submission_reference=sent.pk).visibility == "public"
    again = Submission.objects.get(pk=api.submit(run_text(skip=1), configuration="other").body["id"])
    at_once(lambda: withdraw(again, "wrong file", alice), work)
    assert not Entry.objects.filter(submission_reference=again.pk, visibility="public").exists()


def test_a_system_is_merged_while_another_result_of_it_is_published(system: System, api: Api, alice: User) -> None:
    into = create_system(team_of(alice), SystemFields(name="The one", architecture="dense"))
    assert api.submit(run_text(skip=1), system="The one").status == 201
    at_once(lambda: merge_systems(system, into), work)
    assert set(Entry.objects.filter(system__team__isnull=False).values_list("system", flat=True)) == {into.pk}


def test_a_team_is_renamed_while_it_sends_a_run_to_be_kept(demo: Dataset, alice: User, system: System) -> None:
    Dataset.objects.update(current_qrels=None)
    team, api = team_of(alice), Api(alice)

    def send() -> None:
        assert api.submit(run_text(skip=1), configuration="other").status == 201

    at_once(lambda: rename_team(team, "Another name"), send)
    assert Submission.objects.count() == 2
