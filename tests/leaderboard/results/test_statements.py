"""What may be said of a result's certainty, over open judgements and over hidden ones."""

from __future__ import annotations

import pytest
from django.test import Client

from leaderboard.models import Dataset, Entry, Protection
from leaderboard.results.board_rows.revisions import Kind, board_changed
from leaderboard.results.publishing.publication import refresh_scores
from leaderboard.results.significance.hidden import MIN_DIFFERENCE, known_difference
from leaderboard.results.significance.statements import UNKNOWN, BoardStatements, Statement, statements
from tests.leaderboard.certainty import compute_certainty
from tests.leaderboard.entries import scored_dataset
from tests.leaderboard.entries_by_query import make_board, score_queries, spread

pytestmark = pytest.mark.django_db
MEASURE = "nDCG@10"


def said_of(dataset: Dataset, name: str) -> Statement:
    entry = Entry.objects.get(dataset=dataset, system__name=name)
    return board_of(dataset).for_entry(entry.pk, MEASURE)


def board_of(dataset: Dataset) -> BoardStatements:
    return statements([dataset.pk])[dataset.pk]


def names(entries: frozenset[int]) -> set[str]:
    return set(Entry.objects.filter(pk__in=entries).values_list("system__name", flat=True))


@pytest.fixture
def hidden(db: None) -> Dataset:
    """Forty queries whose BM25 has values between .29 and .51: the least significant difference is .030."""
    dataset = scored_dataset(measures=[MEASURE, "R@100"], hidden=True)
    score_queries(dataset, "BM25", spread(0.4, 1), baseline=True)
    score_queries(dataset, "First", spread(0.601, 2))
    score_queries(dataset, "Second", spread(0.59, 3))
    score_queries(dataset, "Little", spread(0.405, 4))
    score_queries(dataset, "Last", spread(0.2, 5))
    dataset.refresh_from_db()
    return dataset


def test_an_open_board_says_what_its_tests_found(db: None) -> None:
    dataset = make_board()
    assert said_of(dataset, "First") == UNKNOWN, "nothing is computed yet"
    compute_certainty(dataset)
    first, last, bm25 = (said_of(dataset, name) for name in ("First", "Last", "BM25"))
    assert (first.better, first.worse, first.tied_with_best) == (True, False, True)
    assert first.p is not None
    assert first.p < 0.05
    assert first.interval is not None
    assert 0.15 < first.interval[0] < 0.201 < first.interval[1] < 0.25
    assert (last.better, last.worse, last.tied_with_best) == (False, True, False)
    assert (bm25.better, bm25.worse, bm25.p, bm25.interval) == (None, None, None, None)
    assert names(board_of(dataset).tied_with_best(MEASURE)) == {"First", "Second"}


def test_a_hidden_board_says_what_follows_from_published_values(hidden: Dataset) -> None:
    assert board_of(hidden).least_difference(MEASURE) == pytest.approx(0.03)
    assert said_of(hidden, "First") == Statement(better=True, tied_with_best=True)
    assert said_of(hidden, "Second") == Statement(better=True, tied_with_best=True)
    assert said_of(hidden, "Little") == Statement(better=False, tied_with_best=False)
    assert said_of(hidden, "Last") == Statement(better=False, tied_with_best=False)
    assert said_of(hidden, "BM25") == Statement(better=None, tied_with_best=False)
    assert names(board_of(hidden).tied_with_best(MEASURE)) == {"First", "Second"}


def test_nothing_is_said_of_other_measures_nor_of_what_is_held(hidden: Dataset) -> None:
    board, entry = board_of(hidden), Entry.objects.get(dataset=hidden, system__name="First")
    assert board.for_entry(entry.pk, "R@100") == UNKNOWN
    assert board.tied_with_best("R@100") == frozenset()
    assert board.least_difference("R@100") is None
    Entry.objects.filter(pk=entry.pk).update(visibility=Entry.Visibility.HELD)
    assert board_of(hidden).for_entry(entry.pk, MEASURE) == UNKNOWN
    assert names(board_of(hidden).tied_with_best(MEASURE)) == {"Second"}


def test_a_team_reads_it_of_a_private_result_which_moves_no_tie(hidden: Dataset) -> None:
    kept = score_queries(hidden, "Mine", spread(0.9, 6), public=False)
    assert board_of(hidden).for_entry(kept.pk, MEASURE) == Statement(better=True, tied_with_best=None)
    assert names(board_of(hidden).tied_with_best(MEASURE)) == {"First", "Second"}


def test_the_least_difference_is_found_once_for_judgements(hidden: Dataset) -> None:
    assert hidden.current_qrels is not None
    Entry.objects.filter(dataset=hidden).update(is_baseline=False)
    score_queries(hidden, "Wild baseline", [0.0, 1.0] * 20, baseline=True)
    hidden.current_qrels.refresh_from_db()
    assert hidden.current_qrels.statistics[MIN_DIFFERENCE] == {MEASURE: {"all": 0.03}}
    assert said_of(hidden, "First").better is True, "0.601 against 0.5, by the same least difference"
    assert known_difference(Dataset.objects.get(pk=hidden.pk)) == 0.03


def test_where_it_is_not_known_yet_nothing_is_said_until_something_is_published(hidden: Dataset) -> None:
    assert hidden.current_qrels is not None
    hidden.current_qrels.statistics = {}
    hidden.current_qrels.save()
    assert said_of(hidden, "First") == UNKNOWN
    assert board_of(hidden).tied_with_best(MEASURE) == frozenset()
    refresh_scores(Dataset.objects.get(pk=hidden.pk))
    assert said_of(hidden, "First").better is True


def test_of_a_competition_the_scorer_alone_finds_it(hidden: Dataset) -> None:
    hidden.protection = Protection.COMPETITION
    hidden.save()
    refresh_scores(hidden)
    assert known_difference(Dataset.objects.get(pk=hidden.pk)) is None, "only the scorer knows the parts"


def test_a_board_that_becomes_hidden_or_open_says_the_other_thing(hidden: Dataset) -> None:
    hidden.hidden = False
    hidden.save()
    board_changed(hidden, Kind.MEASURES)
    assert said_of(hidden, "First") == UNKNOWN
    compute_certainty(hidden)
    assert said_of(hidden, "First").p is not None
    hidden.hidden = True
    hidden.save()
    board_changed(hidden, Kind.MEASURES)
    assert said_of(hidden, "First") == Statement(better=True, tied_with_best=True)


def test_board_and_system_answer_it(client: Client, hidden: Dataset) -> None:
    board = client.get(f"/api/v1/datasets/{hidden.slug}/board/").json()
    assert board["least_difference"] == pytest.approx(0.03)
    told = {row["system"]: (row["better_than_baseline"], row["tied_with_best"]) for row in board["rows"]}
    assert told == {
        "BM25": (None, False),
        "First": (True, True),
        "Second": (True, True),
        "Little": (False, False),
        "Last": (False, False),
    }
    past = client.get(f"/datasets/{hidden.slug}/at/{board['as_of']}/board.json").json()
    assert {key: past[key] for key in ("rows", "summary", "least_difference")} == {
        key: board[key] for key in ("rows", "summary", "least_difference")
    }
    slug = Entry.objects.get(dataset=hidden, system__name="First").system.slug
    (result,) = client.get(f"/api/v1/systems/{slug}/").json()["results"]
    assert (result["better_than_baseline"], result["tied_with_best"]) == (True, True)
    assert result["certainty"] is None
