"""What is said of a board's differences: what is found, and when."""

from __future__ import annotations

import numpy as np
import orjson
import pytest
from django.test import Client
from django.utils import timezone

from evaluation.statistics.comparison import compare_paired
from evaluation.statistics.randomisation import holm
from leaderboard.boards.columns.significance import COLUMN_NAMES
from leaderboard.models import BoardChange, Certainty, Dataset, Entry, WorkRequest
from leaderboard.results.board_rows.revisions import Kind, board_changed
from leaderboard.results.board_rows.rows import board_cache
from leaderboard.results.publishing.descriptions import system_changed
from leaderboard.results.publishing.visibility import name_baseline, withdraw_entries
from leaderboard.results.significance.computing import (
    BoardAnalysis,
    analyse_board,
    request_missing_certainty,
    store_certainty,
)
from leaderboard.results.significance.statements import read_certainty
from leaderboard.results.significance.types import get_verdict
from tests.leaderboard.certainty import compute_certainty
from tests.leaderboard.entries import renew_judgements, score_seeds, scored_dataset
from tests.leaderboard.entries_by_query import (
    QUERIES,
    cells,
    certainty_at,
    found_of,
    make_board,
    page_text,
    score_queries,
    shown,
    spread,
)

pytestmark = [pytest.mark.django_db, pytest.mark.sampled_on_postgresql]


@pytest.fixture
def board() -> Dataset:
    """A board of four: the best two cannot be told apart, the third is BM25, the last is far behind."""
    return make_board()


# --- What is found -------------------------------------------------------------------------------


def test_it_says_what_the_tests_of_the_single_pairs_say(board: Dataset) -> None:
    kept = compute_certainty(board)
    assert kept is not None
    measure = found_of(board).for_measure("nDCG@10")
    assert measure is not None
    entries = {entry.system.name: entry for entry in Entry.objects.select_related("system")}
    others = [name for name in entries if name != "BM25"]
    singly = {
        name: compare_paired(spread(mean, seed), spread(0.4, 1))
        for name, mean, seed in (("First", 0.601, 2), ("Second", 0.6, 3), ("Last", 0.2, 4))
    }
    corrected = dict(zip(others, holm([singly[name].p for name in others]), strict=True))
    for name in others:
        found = measure.entries[entries[name].pk]
        assert found.p_baseline == pytest.approx(singly[name].p, abs=1e-6)
        assert found.p_baseline_corrected == pytest.approx(corrected[name], abs=1e-6)
        assert found.delta == pytest.approx(singly[name].difference, abs=1e-6)
        assert (found.delta_low, found.delta_high) == pytest.approx((singly[name].low, singly[name].high), abs=1e-6)
        assert (found.wins, found.ties, found.losses) == (
            singly[name].wins,
            singly[name].ties,
            singly[name].losses,
        )
        assert found.low < entries[name].scores["nDCG@10"] < found.high
    ranks = {name: measure.entries[entry.pk][-2:] for name, entry in entries.items()}
    assert ranks == {"First": (1, 2), "Second": (1, 2), "BM25": (3, 3), "Last": (4, 4)}
    assert measure.best == entries["First"].pk
    assert measure.queries == QUERIES
    assert measure.entries[entries["BM25"].pk].p_baseline is None


def test_a_measure_of_which_less_is_better_is_read_the_other_way() -> None:
    dataset = scored_dataset(measures=["Hole@10"], primary_measure="Hole@10")
    score_queries(dataset, "BM25", spread(0.4, 1), baseline=True, measure="Hole@10")
    fewer = score_queries(dataset, "Fewer", spread(0.2, 2), measure="Hole@10")
    more = score_queries(dataset, "More", spread(0.7, 3), measure="Hole@10")
    compute_certainty(dataset)
    measure = found_of(dataset).for_measure("Hole@10")
    assert measure is not None
    assert measure.best == fewer.pk
    assert (measure.entries[fewer.pk].wins, measure.entries[fewer.pk].losses) == (QUERIES, 0)
    assert (measure.entries[more.pk].wins, measure.entries[more.pk].rank_low) == (0, 3)
    verdict = get_verdict(found_of(dataset), "Hole@10")
    assert verdict is not None
    assert (verdict.better, verdict.worse) == ({fewer.pk}, {more.pk})


def test_systems_behind_a_closed_interface_are_tested_and_ranked_with_nobody(board: Dataset) -> None:
    closed = score_queries(board, "Closed", spread(0.9, 5))
    closed.system.closed_api = True
    closed.system.save()
    system_changed(closed.system)
    compute_certainty(board)
    measure = found_of(board).for_measure("nDCG@10")
    assert measure is not None
    first = Entry.objects.get(system__name="First")
    assert measure.best == first.pk
    found = measure.entries[closed.pk]
    assert (found.rank_low, found.rank_high) == (None, None)
    assert measure.entries[first.pk][-2:] == (1, 2)
    assert found.wins == QUERIES
    assert found.p_best is not None
    assert found.p_best < 0.001
    verdict = get_verdict(found_of(board), "nDCG@10")
    assert verdict is not None
    assert verdict.compared == 3
    assert closed.pk not in verdict.ties | verdict.better
    closed.system.closed_api = False
    closed.system.save()
    system_changed(closed.system)
    assert not found_of(board).current
    compute_certainty(board)
    assert found_of(board).for_measure("nDCG@10").best == closed.pk  # type: ignore[union-attr]


def test_a_seed_set_is_tested_by_each_querys_mean_over_its_seeds() -> None:
    dataset = scored_dataset(measures=["nDCG@10"])
    entry = score_seeds(dataset, "Seeds", {"ndcg": 0.3}, {"ndcg": 0.5})
    compute_certainty(dataset)
    measure = found_of(dataset).for_measure("nDCG@10")
    assert measure is not None
    assert measure.entries[entry.pk][:2] == pytest.approx((0.4, 0.4))


def test_entries_that_lack_a_measure_have_no_part_in_it() -> None:
    dataset = scored_dataset(measures=["nDCG@10", "AP"])
    score_queries(dataset, "One", spread(0.4))
    other = score_queries(dataset, "Other", spread(0.3), measure="AP")
    compute_certainty(dataset)
    measure = found_of(dataset).for_measure("AP")
    assert measure is not None
    assert list(measure.entries) == [other.pk]
    assert set(found_of(dataset).measures) == {"nDCG@10", "AP"}


# --- When ----------------------------------------------------------------------------------------


def requests_of(dataset: Dataset) -> int:
    return WorkRequest.objects.filter(kind="certainty", dataset=dataset, taken_at=None).count()


def take(dataset: Dataset) -> int:
    """Forget the requests, and say how many there were."""
    count = requests_of(dataset)
    WorkRequest.objects.all().delete()
    return count


def test_a_change_of_the_results_asks_once_and_what_is_found_asks_for_nothing(board: Dataset) -> None:
    assert take(board) == 1
    compute_certainty(board)
    assert take(board) == 0
    for kind, asks in (("price", 0), ("team", 0), ("system", 1), ("measured", 0), ("baseline", 1)):
        board_changed(board, Kind(kind))
        assert take(board) == asks, kind


def test_what_is_found_is_a_change_of_the_board_with_a_date(board: Dataset) -> None:
    kept = compute_certainty(board)
    assert kept is not None
    change = BoardChange.objects.get(dataset=board, kind=Kind.CERTAINTY)
    assert change.revision == kept.from_revision == Dataset.objects.get(pk=board.pk).board_revision


def test_nothing_is_found_twice(board: Dataset) -> None:
    assert compute_certainty(board) is not None
    assert compute_certainty(board) is None
    assert analyse_board(board) is None
    assert Certainty.objects.count() == 1


def test_what_was_found_of_an_earlier_board_is_not_kept(board: Dataset) -> None:
    finding = analyse_board(board)
    assert isinstance(finding, BoardAnalysis)
    score_queries(board, "Newcomer", spread(0.5))
    assert store_certainty(finding) is None
    assert not Certainty.objects.exists()
    assert requests_of(board) == 1


@pytest.mark.parametrize("change", ["publish", "withdraw", "baseline"])
def test_after_a_change_a_rows_own_facts_remain_until_the_rest_is_found_anew(
    client: Client, board: Dataset, change: str
) -> None:
    compute_certainty(board)
    before = cells(shown(board), "First")
    assert set(before) == set(COLUMN_NAMES)
    first = Entry.objects.get(system__name="First")
    if change == "publish":
        score_queries(board, "Newcomer", spread(0.5))
    elif change == "withdraw":
        withdraw_entries(Entry.objects.get(system__name="Last").submission_reference, "A mistake.")
    else:
        name_baseline(Entry.objects.get(system__name="Last"))
    own = {"interval"} if change == "baseline" else {"interval", "delta-interval", "p-baseline", "wins"}
    assert not found_of(board).current
    assert cells(shown(board), "First") == {key: before[key] for key in own}
    assert get_verdict(found_of(board), "nDCG@10") is None
    assert "being recomputed" in page_text(client, board)
    compute_certainty(board)
    assert found_of(board).current
    assert cells(shown(board), "First")["ranks"] == "1–2"
    assert first.pk == found_of(board).for_measure("nDCG@10").best  # type: ignore[union-attr]


def test_nobody_elses_submission_moves_a_rows_own_facts(board: Dataset) -> None:
    noisy = score_queries(board, "Noisy", list(np.random.default_rng(8).normal(0.45, 0.1, QUERIES)))
    own = ("low", "high", "delta", "delta_low", "delta_high", "p_baseline", "wins", "ties", "losses")

    def kept() -> tuple[dict[int, bytes], dict[int, float]]:
        found = compute_certainty(board)
        assert found is not None
        content = found.content["nDCG@10"]
        facts = zip(content["entries"], *(content[name] for name in own), strict=True)
        corrected = zip(content["entries"], content["p_baseline_corrected"], strict=True)
        return {entry: orjson.dumps(rest) for entry, *rest in facts}, dict(corrected)

    facts, corrected = kept()
    text = cells(shown(board), "Noisy")
    for number in range(12):
        score_queries(board, f"Other {number}", spread(0.4005, 20 + number))
    later, corrected_later = kept()
    assert {entry: later[entry] for entry in facts} == facts
    again = cells(shown(board), "Noisy")
    for key in ("interval", "delta-interval", "p-baseline", "wins"):
        assert again[key] == text[key], key
    # What says something of the whole board does move.
    assert corrected_later[noisy.pk] > corrected[noisy.pk]
    assert again["ranks"] != text["ranks"]


def test_results_kept_back_have_no_part(board: Dataset) -> None:
    compute_certainty(board)
    score_queries(board, "Mine alone", spread(0.9), public=False)
    assert found_of(board).current
    assert compute_certainty(board) is None


def test_results_of_earlier_judgements_have_no_part(board: Dataset) -> None:
    renew_judgements(board)
    later = score_queries(board, "Later", spread(0.3))
    compute_certainty(board)
    measure = found_of(board).for_measure("nDCG@10")
    assert measure is not None
    assert list(measure.entries) == [later.pk]


def test_boards_of_an_earlier_release_are_asked_for_once(board: Dataset) -> None:
    WorkRequest.objects.all().delete()
    hidden = scored_dataset(measures=["nDCG@10"], hidden=True)
    score_queries(hidden, "Secret", spread(0.5))
    scored_dataset(measures=["nDCG@10"])
    assert request_missing_certainty() == 1
    assert requests_of(board) == 1
    WorkRequest.objects.all().update(taken_at=board.created_at)
    assert request_missing_certainty() == 0


def test_what_an_earlier_method_kept_is_read_and_asked_for_again(client: Client, board: Dataset) -> None:
    kept = compute_certainty(board)
    assert kept is not None
    entries = kept.content["nDCG@10"]["entries"]
    first = Entry.objects.get(system__name="First").pk
    kept.content = {
        "nDCG@10": {
            "queries": QUERIES,
            "baseline": entries[0],
            "anchors": {"a": first, "b": entries[0]},
            "entries": entries,
            "low": [0.39, 0.59, 0.59, 0.19],
            "high": [0.41, 0.61, 0.61, 0.21],
            "p_baseline": [None, 0.03, 0.04, 0.05],
            "p_best": [0.03, None, 0.9, 0.03],
            "raw_p_baseline": [None, 0.01, 0.02, 0.03],
            "raw_p_best": [0.01, None, 0.9, 0.01],
            "wins": [0, 40, 40, 0],
            "ties": [40, 0, 0, 0],
            "losses": [0, 0, 0, 40],
            "group": ["b", "a", "a", "c"],
        }
    }
    kept.key = "1:" + kept.key.partition(":")[2]
    kept.save()
    board_cache.clear()
    WorkRequest.objects.all().delete()
    assert not found_of(board).current
    assert cells(shown(board), "First") == {
        "interval": "0.590–0.610",
        "p-baseline": "0.010",
        "wins": "40/0/0",
    }
    permalink = f"/datasets/{board.slug}/at/{timezone.now():%Y-%m-%dT%H:%M:%SZ}/"
    assert client.get(f"{permalink}?sort=group").status_code == 200
    then = client.get(f"{permalink}board.json?sort=group").json()
    told = next(row["certainty"] for row in then["rows"] if row["system"] == "First")
    assert (told["p_baseline"], told["p_baseline_corrected"], told["rank_low"]) == (0.01, 0.03, None)
    assert then["verdict"] is None
    assert request_missing_certainty() == 1
    assert compute_certainty(board) is not None
    assert cells(shown(board), "First")["ranks"] == "1–2"


# --- Hidden --------------------------------------------------------------------------------------


def test_nothing_is_found_asked_for_or_kept_of_hidden_judgements(client: Client) -> None:
    dataset = scored_dataset(measures=["nDCG@10"], hidden=True)
    score_queries(dataset, "BM25", spread(0.4), baseline=True)
    score_queries(dataset, "Dense", spread(0.6))
    assert requests_of(dataset) == 0
    assert compute_certainty(dataset) is None
    assert not Certainty.objects.exists()
    assert read_certainty([dataset.pk]) == {}
    page = page_text(client, dataset)
    assert "Confidence intervals and per-query results are not published" in page
    assert "95% interval" not in page


def test_a_board_that_becomes_hidden_shows_none_of_it_any_more(client: Client, board: Dataset) -> None:
    compute_certainty(board)
    board.hidden = True
    board.save()
    board_changed(board, Kind.MEASURES)
    assert read_certainty([board.pk]) == {}
    board.refresh_from_db()
    assert certainty_at(board, board.board_revision) is None
    page = page_text(client, board)
    assert "whisker" not in page.replace("whiskers.css", "")
    assert "are not published, to protect the hidden judgments" in page
