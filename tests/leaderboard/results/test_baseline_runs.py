"""A run that was imported as the baseline and a team has too is one row: the team's."""

from __future__ import annotations

import pytest

from leaderboard.models import Dataset, Entry, Team, User, Visibility
from leaderboard.results.publishing.scored import publish_entry
from leaderboard.results.publishing.visibility import name_baseline, withdraw_entries
from leaderboard.systems.records import house_system
from tests.leaderboard.entries import evaluate, make_system, score, scored_dataset

pytestmark = pytest.mark.django_db


def imported(dataset: Dataset) -> Entry:
    """The run that a curator imported as the baseline."""
    system = house_system(slug="run", name="Run (Dataset)", architecture="other", description="", parameters={})
    return score(dataset, system, ndcg=0.4, baseline=True)


def sent(dataset: Dataset, baseline: Entry, submitter: User | None = None) -> Entry:
    """The same run, sent by a team."""
    team = Team.objects.create(slug="ours", name="Our team")
    evaluation = evaluate(dataset, make_system("Ours", team=team), ndcg=0.4)
    assert baseline.evaluation is not None
    evaluation.run.sha256 = baseline.evaluation.run.sha256
    evaluation.run.save()
    return publish_entry(
        Entry(provenance=Entry.Provenance.SCORED, submission_reference="sent", submitter=submitter),
        evaluation,
    )


def rows(dataset: Dataset) -> list[tuple[str, bool]]:
    """What the board has: systems, and which one is the baseline."""
    return list(Entry.objects.public().filter(dataset=dataset).values_list("system__name", "is_baseline"))


def test_a_team_that_sends_the_baselines_run_has_its_row() -> None:
    dataset = scored_dataset()
    ours = sent(dataset, imported(dataset))
    assert ours.is_baseline
    assert rows(dataset) == [("Ours", True)]


def test_naming_the_teams_result_takes_the_imported_row_away_and_withdrawing_brings_it_back() -> None:
    dataset = scored_dataset(runs_visibility=Visibility.PUBLIC)
    ours = sent(dataset, imported(dataset))
    # anyone could have downloaded the run: a curator decides
    assert sorted(rows(dataset)) == [("Ours", False), ("Run (Dataset)", True)]
    name_baseline(ours)
    assert rows(dataset) == [("Ours", True)]
    withdraw_entries("sent", "a mistake")
    assert rows(dataset) == [("Run (Dataset)", True)]


def test_a_curator_of_datasets_needs_no_second_step() -> None:
    dataset = scored_dataset(runs_visibility=Visibility.PUBLIC)
    curator = User.objects.create_superuser("curator@example.org", "a long passphrase")
    assert sent(dataset, imported(dataset), curator).is_baseline
