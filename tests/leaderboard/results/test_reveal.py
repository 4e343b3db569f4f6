"""The reveal of a competition's private part: of which rows, by whom, and what stays held."""

from __future__ import annotations

from datetime import timedelta

from django.test import Client
from django.utils import timezone

from leaderboard.core.audit import acting
from leaderboard.models import AuditRecord, BoardChange, Dataset, Entry, Round
from leaderboard.results.publishing.protection import reveal_private
from leaderboard.results.publishing.publication import refresh_scores
from leaderboard.results.publishing.scored import publish_entry
from tests.factories import make_user
from tests.leaderboard.results.test_protection import baseline, evaluation, publish, values
from tests.leaderboard.results.test_protection import contest as contest
from tests.leaderboard.results.test_protection import hidden as hidden


def test_the_reveal_adds_the_private_part_and_the_difference(contest: Dataset, client: Client) -> None:
    baseline(contest, 0.3, 0.31)
    publish(contest, "Fitted", 0.6, 0.4004)
    with acting(make_user("Curator"), "the end"):
        found = reveal_private(contest)
    assert (found.results, found.held) == (2, 0)
    row = values(client, "Fitted")
    assert (row["private"], row["private_difference"]) == (0.4, -0.2)
    assert values(client, "BM25")["private_difference"] == 0.01
    assert "Private part" in client.get("/datasets/secret/").content.decode()
    page = client.get("/datasets/secret/?columns=effectiveness").content.decode()
    assert "−0.200" in page
    exported = client.get("/datasets/secret/board.csv").content.decode()
    assert "private,private_difference" in exported
    assert "-0.2" in exported
    assert BoardChange.objects.latest("pk").kind == "revealed"
    assert AuditRecord.objects.filter(action="private part revealed", reason="the end").exists()
    assert "rivate part" in client.get("/news/").content.decode()


def test_a_rounds_reveal_covers_every_row_but_those_of_a_round_that_goes_on(contest: Dataset, client: Client) -> None:
    now = timezone.now()
    first = Round.objects.create(
        slug="first", name="First", dataset=contest, opens_at=now - timedelta(days=2),
        closes_at=now - timedelta(days=1), reveals_at=now,
    )  # fmt: skip
    baseline(contest, 0.3, 0.31)
    inside = publish(contest, "Inside", 0.6, 0.4)
    Entry.objects.filter(pk=inside.pk).update(round=first)
    publish(contest, "Before", 0.5, 0.4)
    second = Round.objects.create(
        slug="second", name="Second", dataset=contest, opens_at=now, closes_at=now + timedelta(days=1),
        reveals_at=now + timedelta(days=2),
    )  # fmt: skip
    going_on = publish(contest, "Going on", 0.5, 0.4)
    Entry.objects.filter(pk=going_on.pk).update(round=second)
    with acting(None, "round"):
        assert reveal_private(contest, first).results == 3
    assert values(client, "Inside")["private"] == values(client, "Before")["private"] == 0.4
    assert values(client, "BM25")["private"] == 0.31
    assert values(client, "Going on")["private"] is None
    assert "in a round that is not revealed yet" in client.get("/datasets/secret/").content.decode()
    told = AuditRecord.objects.get(action="private part revealed").after
    assert told["shown without"] == ["Going on"]


def test_held_results_stay_held_unless_the_curator_says_so(contest: Dataset, client: Client) -> None:
    baseline(contest, 0.3, 0.3)
    one = publish(contest, "One", 0.6, 0.4)
    system = one.system
    for number, wanted in ((1, True), (2, False)):
        entry = publish_entry(
            Entry(
                provenance=Entry.Provenance.SCORED,
                public_wanted=wanted,
                submission_reference=f"held{number}",
            ),
            evaluation(contest, system, 0.5, 0.45, number),
        )
        assert entry.visibility == "held"
    with acting(None, "round"):
        reveal_private(contest)
    assert Entry.objects.filter(visibility="held", scores={}, private_scores={}).count() == 2
    refresh_scores(contest)
    assert Entry.objects.filter(visibility="held", scores={}).count() == 2
    with acting(None, "all of it"):
        assert reveal_private(contest, show_held=True).held == 2
    assert Entry.objects.get(submission_reference="held1").visibility == "superseded"
    assert Entry.objects.get(submission_reference="held1").scores["nDCG@10"] == 0.5
    assert Entry.objects.get(submission_reference="held2").visibility == "private"
