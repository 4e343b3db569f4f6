"""Rounds as curators and readers meet them: phases, overlaps, pages, the reveal, and scores by topic."""

from __future__ import annotations

import csv
import io
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import Permission
from django.core.exceptions import ValidationError
from django.core.management import CommandError, call_command
from django.test import Client
from django.utils import timezone

from leaderboard.core.audit import acting
from leaderboard.models import (
    AuditRecord,
    Benchmark,
    Dataset,
    Entry,
    Membership,
    Pool,
    Round,
    RoundSummary,
    Run,
    User,
    WorkRequest,
)
from leaderboard.rounds.lifecycle import (
    Phase,
    RevealTooEarly,
    current_round,
    phase,
    relative_time,
    reveal,
    save_round,
)
from leaderboard.rounds.topics import summarise_topics
from submissions.queue.queue import create_requested_jobs
from tests.factories import make_dataset, make_user, team_of
from tests.pages import one_line
from tests.submissions.clients import Api
from tests.submissions.collections import make_collection, run_text
from tests.submissions.workers import work

pytestmark = [pytest.mark.django_db, pytest.mark.sampled_on_postgresql]

OPENS = datetime(2026, 9, 1, 12, tzinfo=UTC)
CLOSES = OPENS + timedelta(days=30)
REVEALS = CLOSES + timedelta(days=14)
SECOND = timedelta(seconds=1)


def make_round(dataset: Dataset | None, **fields: Any) -> Round:
    """A round that runs through September 2026."""
    values = {"slug": "autumn", "name": "Autumn 2026", "dataset": dataset, "opens_at": OPENS,
              "closes_at": CLOSES, "reveals_at": REVEALS}  # fmt: skip
    return save_round(Round(**{**values, **fields}))


def at(monkeypatch: pytest.MonkeyPatch, moment: datetime) -> None:
    """Set the time of the whole site."""
    monkeypatch.setattr(timezone, "now", lambda: moment)


def curator(*rights: str) -> Client:
    """The admin as a curator with these rights beyond those on rounds."""
    person = make_user("Carol", is_staff=True)
    wanted = ("add_round", "change_round", "view_round", *rights)
    person.user_permissions.set(Permission.objects.filter(codename__in=wanted))
    client = Client()
    client.force_login(person)
    return client


def test_phases_follow_the_clock_to_the_second() -> None:
    row = make_round(make_dataset())
    assert phase(row, OPENS - SECOND) == Phase.BEFORE
    assert phase(row, OPENS) == Phase.OPEN
    assert phase(row, CLOSES - SECOND) == Phase.OPEN
    assert phase(row, CLOSES) == phase(row, REVEALS + SECOND) == Phase.CLOSED
    row.revealed_at = REVEALS
    assert phase(row, REVEALS) == Phase.REVEALED


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(30, "in less than a minute"), (90, "in 1 minute"), (3 * 3600, "in 3 hours"), (47 * 3600, "in 47 hours"),
     (3 * 86400, "in 3 days"), (-5 * 86400, "5 days ago")],
)  # fmt: skip
def test_how_far_off_is_said_in_words(seconds: int, words: str) -> None:
    assert relative_time(OPENS + timedelta(seconds=seconds), OPENS) == words


def test_the_round_that_governs_is_the_open_one_then_the_closed_then_the_next() -> None:
    dataset, other = make_dataset(), make_dataset()
    benchmark = Benchmark.objects.create(slug="both", name="Both")
    benchmark.members.create(dataset=dataset, position=0)
    first = make_round(dataset)
    second = make_round(
        None, benchmark=benchmark, slug="winter", name="Winter", opens_at=REVEALS,
        closes_at=REVEALS + timedelta(days=9), reveals_at=REVEALS + timedelta(days=9),
    )  # fmt: skip
    assert current_round(dataset, OPENS - SECOND) == first
    assert current_round(dataset, CLOSES) == first
    assert current_round(dataset, REVEALS) == second
    assert current_round(other, OPENS) is None
    Round.objects.update(revealed_at=REVEALS)
    assert current_round(dataset, REVEALS) is None


def test_rounds_that_cannot_be_are_refused_with_what_would_be_right() -> None:
    dataset = make_dataset()
    make_round(dataset)
    benchmark = Benchmark.objects.create(slug="both", name="Both")
    benchmark.members.create(dataset=dataset, position=0)
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"closes_at": OPENS}, "Enter a time after 1 Sep 2026, 12:00 UTC"),
        ({"reveals_at": OPENS}, "Enter 1 Oct 2026, 12:00 UTC or later"),
        ({"dataset": None}, "Choose either a dataset or a benchmark"),
        ({"runs_per_team": 0}, "1"),
        ({}, "Autumn 2026 is open from 1 Sep 2026, 12:00 UTC"),
        ({"dataset": None, "benchmark": benchmark}, "Open after that, or close before it"),
    ]
    for changes, words in wrong:
        with pytest.raises(ValidationError, match=words):
            make_round(**{"dataset": dataset, "slug": "second", **changes})
    assert Round.objects.count() == 1


def test_a_curator_makes_a_round_in_the_admin_and_learns_what_is_wrong() -> None:
    client, dataset = curator(), make_dataset()
    form = {
        "name": "Spring", "slug": "spring", "dataset": dataset.pk, "description": "", "runs_per_team": 3,
        "visible_per_team": 1, "opens_at_0": "2027-03-01", "opens_at_1": "12:00", "closes_at_0": "2027-02-01",
        "closes_at_1": "12:00", "reveals_at_0": "2027-05-01", "reveals_at_1": "12:00", "why": "yearly",
    }  # fmt: skip
    refused = client.post("/admin/leaderboard/round/add/", form)
    assert "The round closes before it opens. Enter a time after 1 Mar 2027, 12:00 UTC." in refused.content.decode()
    made = client.post("/admin/leaderboard/round/add/", {**form, "closes_at_0": "2027-04-01"})
    assert made.status_code == 302, made.content.decode()
    assert Round.objects.get().runs_per_team == 3
    assert "announced" in client.get("/admin/leaderboard/round/").content.decode()
    assert AuditRecord.objects.filter(reason="yearly").exists()


def test_a_round_is_made_and_revealed_from_a_terminal() -> None:
    dataset, person = make_dataset(), make_user("Carol")
    who = {"by": person.email, "why": "yearly"}
    times = {"opens": "2026-01-01T12:00", "closes": "2026-02-01T12:00", "reveals": "2026-02-02T12:00"}
    with pytest.raises(CommandError, match="The round closes before it opens"):
        call_command("round", "create", "r", dataset=dataset.slug, **who, **{**times, "closes": "2025-01-01"})
    call_command("round", "create", "r", dataset=dataset.slug, **who, **times)
    call_command("round", "change", "r", runs_per_team=9, **who)
    row = Round.objects.get()
    assert (row.opens_at, row.runs_per_team) == (datetime(2026, 1, 1, 12, tzinfo=UTC), 9)
    call_command("round", "reveal", "r", **who)
    with pytest.raises(CommandError, match="r was already revealed at"):
        call_command("round", "reveal", "r", **who)


def test_revealing_has_its_time_its_right_and_its_record(monkeypatch: pytest.MonkeyPatch) -> None:
    row = make_round(make_dataset())
    with pytest.raises(RevealTooEarly, match="cannot be revealed before 15 Oct 2026, 12:00 UTC"):
        reveal(row, CLOSES)
    at(monkeypatch, REVEALS)
    chosen = {"action": "reveal_round", "_selected_action": row.pk}
    curator().post("/admin/leaderboard/round/", {**chosen, "confirmed": "yes", "why": "over"})
    assert Round.objects.get().revealed_at is None  # without the right
    client = curator("reveal_dataset")
    assert b"You cannot undo this." in client.post("/admin/leaderboard/round/", chosen).content
    client.post("/admin/leaderboard/round/", {**chosen, "confirmed": "yes", "why": "over"})
    row.refresh_from_db()
    assert row.revealed_at == REVEALS
    assert row.revealed_by is not None
    assert AuditRecord.objects.filter(action="round revealed", reason="over").count() == 1
    assert WorkRequest.objects.filter(kind="notify", payload__event="round_revealed").count() == 1


def test_pages_and_api_say_phases_and_counts(monkeypatch: pytest.MonkeyPatch, client: Client) -> None:
    row = make_round(make_dataset(name="Corpus X"), description="Be *fair*.")
    at(monkeypatch, CLOSES - timedelta(days=3))
    listed = client.get("/rounds/").content.decode()
    assert "Closes in 3 days" in listed
    page = one_line(client.get("/rounds/autumn/").content.decode())
    for words in (
        "1 Oct 2026, 12:00 UTC",
        "Corpus X",
        "<dd>5. A run that is withdrawn",
        "<em>fair</em>",
        "aria-current",
    ):
        assert words in page
    for address in (row.dataset.get_absolute_url(), "/"):  # type: ignore[union-attr]
        assert "/rounds/autumn/" in client.get(address).content.decode()
    answer = client.get("/api/v1/rounds/autumn/").json()
    assert (answer["phase"], answer["runs"], answer["next"]) == ("open", 0, "closes in 3 days")
    assert client.get("/api/v1/rounds/").json()["rounds"] == [answer]
    assert client.get("/rounds/none/").status_code == client.get("/api/v1/rounds/none/").status_code == 404


@pytest.fixture
def revealed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Round, list[User]]:
    """A round of a hidden dataset with five teams of one run each, one of which is late; revealed."""
    dataset = make_collection(tmp_path, "secret", hidden=True)
    row = make_round(dataset)
    people = [make_user(name) for name in ("Ann", "Ben", "Cleo", "Dan", "Eli")]
    for number, person in enumerate(people):
        at(monkeypatch, CLOSES + SECOND if number == 3 else OPENS + timedelta(hours=number))
        sent = Api(person).submit(
            run_text(depth=10 + number, skip=number % 4), dataset="secret", system=f"System {person.name}",
            run_type="automatic", tag=f"tag{number}",
        )  # fmt: skip
        assert sent.status == 201, sent.body
        work()
    pool = Pool.objects.create(
        dataset=dataset, version=dataset.current_version, state=Pool.State.READY,
        created_at=OPENS - timedelta(days=9),
    )  # fmt: skip
    Pool.objects.update(created_at=dataset.current_qrels.created_at - timedelta(days=1))  # type: ignore[union-attr]
    pool.runs.add(Run.objects.get(tag="tag1"))
    at(monkeypatch, REVEALS)
    with acting(None, "over"):
        reveal(row)
    create_requested_jobs()
    work()
    return Round.objects.get(), people


def test_each_team_gets_its_own_topics_beside_best_median_and_worst(
    revealed: tuple[Round, list[User]],
) -> None:
    row, (_ann, ben, _cleo, dan, _eli) = revealed
    summary = row.summaries.get()
    assert summary.runs == 4  # the late one is not summed up
    assert len(summary.queries) == 10
    client = Client()
    client.force_login(ben)
    page = client.get("/rounds/autumn/topics/secret/?measure=RR@10")
    assert page.status_code == 200
    assert "System Ben" in page.content.decode()
    assert "System Ann" not in page.content.decode()
    lines = list(csv.DictReader(io.StringIO(
        client.get("/rounds/autumn/topics/secret.csv?measure=RR@10").content.decode())))  # fmt: skip
    assert len(lines) == 10
    # d1 and d3 are relevant: first at ranks 1, 2, 1 and 1 when 0, 1, 2 and 0 documents are left out.
    assert {(line["own"], line["best"], line["median"], line["worst"]) for line in lines} == {
        ("0.5", "1.0", "1.0", "0.5")
    }
    figure = client.get("/rounds/autumn/topics/secret.json?measure=RR@10").json()
    assert len(figure["table"]["rows"]) == 10
    for person in (dan, make_user("Eve"), None):
        other = Client()
        if person is not None:
            other.force_login(person)
        for address in ("topics/secret/", "topics/secret.csv", "topics/secret.json"):
            assert other.get(f"/rounds/autumn/{address}").status_code in (302, 404)


def test_best_median_and_worst_give_away_no_other_teams_values(revealed: tuple[Round, list[User]]) -> None:
    row, (ann, ben, cleo, _dan, eli) = revealed
    first = row.summaries.select_related("dataset", "qrels").get()

    def again() -> RoundSummary:
        row.summaries.all().delete()
        return summarise_topics(row, first.dataset, first.qrels, first.queries)

    assert set(again().values) == set(first.values) == {"nDCG@10", "RR@10", "R@100"}
    of_cleo = Entry.objects.filter(system__team__members=cleo)
    # A private result is its own team's alone; and the three runs of the others would tell Ann who has what.
    of_cleo.update(visibility=Entry.Visibility.PRIVATE)
    assert (again().runs, again().values) == (3, {})
    of_cleo.update(visibility=Entry.Visibility.PUBLIC)
    # Whoever is in two of the teams knows of both, and so does whoever sent for one and left it.
    shared = Membership.objects.create(team=team_of(cleo), user=ann)
    assert (again().runs, again().values) == (4, {})
    client = Client()
    client.force_login(ben)
    page = client.get("/rounds/autumn/topics/secret/")
    assert "fewer than three other teams" in page.content.decode()
    assert client.get("/rounds/autumn/topics/secret.csv").content.decode().splitlines()[1].endswith(",,,")
    shared.delete()
    assert again().values
    of_cleo.update(submitter=eli)
    assert again().values == {}


def test_marks_stand_on_the_board_with_their_footnotes(revealed: tuple[Round, list[User]]) -> None:
    board = Client().get("/datasets/secret/").content.decode()
    assert "<dt>§</dt><dd>pooled: the run contributed to the judged pool" in board
    assert "Late: submitted after the round had closed." in board
    assert Entry.objects.get(pooled=True).evaluation.run.tag == "tag1"  # type: ignore[union-attr]
    rows = Client().get("/api/v1/datasets/secret/board/").json()["rows"]
    assert {row["system"]: (row["late"], row["pooled"]) for row in rows} == {
        "System Ann": (False, False), "System Ben": (False, True), "System Cleo": (False, False),
        "System Dan": (True, False), "System Eli": (False, False),
    }  # fmt: skip


def test_without_scores_by_topic_nothing_is_summed_up(tmp_path: Path) -> None:
    row = make_round(make_collection(tmp_path, "secret", hidden=True), per_topic_at_reveal=False)
    reveal(row, REVEALS)
    assert not WorkRequest.objects.filter(kind="reveal").exists()


def test_a_round_of_a_dataset_in_preparation_is_shown_nowhere(monkeypatch: pytest.MonkeyPatch, client: Client) -> None:
    at(monkeypatch, OPENS + timedelta(days=1))
    unseen = make_dataset(slug="unseen", name="Not To Be Named", state=Dataset.State.PREPARING)
    shown = make_dataset(name="Shown")
    make_round(unseen, slug="early", name="Early round")
    both = Benchmark.objects.create(slug="both", name="Both")
    for dataset in (unseen, shown):
        both.members.create(dataset=dataset)
    save_round(
        Round(slug="later", name="Later", benchmark=both, opens_at=CLOSES, closes_at=REVEALS, reveals_at=REVEALS)
    )
    person = make_user("Eve", is_staff=True)
    client.force_login(person)
    for address in ("/", "/rounds/", "/rounds/later/", "/api/v1/rounds/", "/api/v1/rounds/later/", "/datasets/",
                    "/benchmarks/both/", "/submit/", "/news/"):  # fmt: skip
        answer = client.get(address)
        assert answer.status_code == 200, address
        for word in ("Not To Be Named", "unseen", "Early round"):
            assert word not in answer.content.decode(), (address, word)
    for address in ("/rounds/early/", "/api/v1/rounds/early/", "/rounds/early/topics/unseen/"):
        assert client.get(address).status_code == 404
    assert [row["slug"] for row in client.get("/api/v1/rounds/").json()["rounds"]] == ["later"]
    assert client.get("/api/v1/rounds/later/").json()["datasets"] == [shown.slug]
    Dataset.objects.filter(pk=unseen.pk).update(state=Dataset.State.PUBLISHED)
    assert client.get("/rounds/early/").status_code == 200


@pytest.mark.parametrize("address", ["/rounds/", "/api/v1/rounds/"])
def test_many_rounds_take_no_more_queries_than_one(
    address: str, client: Client, django_assert_max_num_queries: Any
) -> None:
    dataset, benchmark = make_dataset(), Benchmark.objects.create(slug="both", name="Both")
    benchmark.members.create(dataset=make_dataset())
    for number in range(8):
        of = {"dataset": dataset} if number % 2 else {"dataset": None, "benchmark": benchmark}
        days = timedelta(days=60 * number)
        make_round(slug=f"r{number}", name=f"Round {number}", opens_at=OPENS + days, closes_at=CLOSES + days,
                   reveals_at=REVEALS + days, **of)  # fmt: skip
    with django_assert_max_num_queries(5):
        assert "r7" in client.get(address).content.decode()


def test_where_no_measure_of_a_run_is_shown_any_more_there_are_no_scores_by_topic(
    revealed: tuple[Round, list[User]],
) -> None:
    _, (ann, *_) = revealed
    client = Client()
    client.force_login(ann)
    assert "Your per-topic scores" in client.get("/rounds/autumn/").content.decode()
    Dataset.objects.update(measures=["P@7"])
    assert "Your per-topic scores" not in client.get("/rounds/autumn/").content.decode()
    assert client.get("/rounds/autumn/topics/secret/").status_code == 404


def test_a_round_that_quotas_do_not_let_be_used_up_is_warned_of(capsys: pytest.CaptureFixture[str]) -> None:
    dataset = make_dataset(slug="nuts", name="Nuts", hidden=True, daily_quota=2, monthly_quota=10)
    boss = make_user("Boss", is_staff=True, is_superuser=True)
    times = {"opens": "2026-09-01T08:00", "closes": "2026-09-02T12:00", "reveals": "2026-09-03T12:00"}
    said = {"dataset": dataset.slug, "by": boss.email, "why": "announced", **times}
    call_command("round", "create", "short", **said)
    warned = capsys.readouterr().err
    assert "accepts 5 runs per team, but quotas are lower: Nuts allows 4 per team while the round is open" in warned
    call_command("round", "change", "short", runs_per_team=4, by=boss.email, why="as many as there may be")
    assert "quota" not in capsys.readouterr().err
    page = Client().get("/rounds/short/").content.decode()
    assert "Nuts: 2 per day and 10 per month." in page


def test_without_rounds_a_visitor_is_offered_to_sign_in_and_a_user_the_preferences(client: Client) -> None:
    page = client.get("/rounds/").content.decode()
    assert '<a href="/account/login/?next=/inbox/preferences/">Sign in</a> to be notified' in page
    assert "notice preferences" not in page
    client.force_login(make_user())
    page = client.get("/rounds/").content.decode()
    assert '<a href="/inbox/preferences/">notice preferences</a>' in page
    assert "to be notified when" not in page
