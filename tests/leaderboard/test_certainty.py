"""What is said of a board's differences: when it is found, what pages show of it, and when it is of the past."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from django.test import Client

from evaluation.certainty import holm, paired
from evaluation.qrels import read_qrels
from evaluation.scoring import Target, score_run
from leaderboard import certainty
from leaderboard.board_versions import Kind, board_changed
from leaderboard.boards.model import Board, Row
from leaderboard.boards.pages import dataset_page
from leaderboard.boards.state import BoardState, Sort
from leaderboard.certainty import (
    Finding,
    compute_certainty,
    find_certainty,
    keep_certainty,
    request_missing_certainty,
)
from leaderboard.certainty.found import BoardCertainty
from leaderboard.models import Benchmark, BenchmarkMember, BoardChange, Certainty, Dataset, Entry, WorkRequest
from leaderboard.publishing import name_baseline, system_changed, withdraw_entries
from tests.leaderboard.certain_entries import QUERIES, score_queries, spread
from tests.leaderboard.entries import renew_judgements, score_seeds, scored_dataset

pytestmark = [pytest.mark.django_db, pytest.mark.database]


@pytest.fixture
def board() -> Dataset:
    """A board of four: the best two cannot be told apart, the third is BM25, the last is far behind."""
    dataset = scored_dataset(measures=["nDCG@10"])
    score_queries(dataset, "BM25", spread(0.4, 1), baseline=True)
    score_queries(dataset, "First", spread(0.601, 2))
    score_queries(dataset, "Second", spread(0.6, 3))
    score_queries(dataset, "Last", spread(0.2, 4))
    return dataset


def found_of(dataset: Dataset) -> BoardCertainty:
    """What is known of the board."""
    return certainty.read([dataset.pk])[dataset.pk]


def shown(dataset: Dataset, **state: Any) -> Board:
    """The dataset's board in a view."""
    page = dataset_page(dataset.slug, BoardState(**state))
    assert page is not None
    return page.board


def row_of(board: Board, system: str) -> Row:
    return next(row for row in board.rows if row.entry.system == system)


def cells(board: Board, system: str) -> dict[str, Any]:
    """What a row says of certainty, as the page writes it."""
    row, keys = row_of(board, system), ("interval", "group", "p-best", "p-baseline", "wins")
    places = {key: place for place, column in enumerate(board.columns) if (key := column.key) in keys}
    return {key: row.shown.get(place, row.values[place]) for key, place in places.items()}


def page_text(client: Client, dataset: Dataset, query: str = "") -> str:
    return client.get(f"/datasets/{dataset.slug}/{query}").content.decode()


# --- What is found -------------------------------------------------------------------------------


def test_it_says_what_the_tests_of_the_single_pairs_say(board: Dataset) -> None:
    kept = compute_certainty(board)
    assert kept is not None
    measure = found_of(board).of("nDCG@10")
    assert measure is not None
    entries = {entry.system.name: entry for entry in Entry.objects.select_related("system")}
    others = [name for name in entries if name != "BM25"]
    singly = {
        name: paired(spread(mean, seed), spread(0.4, 1), seed=1)
        for name, mean, seed in (("First", 0.601, 2), ("Second", 0.6, 3), ("Last", 0.2, 4))
    }
    corrected = dict(zip(others, holm([singly[name].p for name in others]), strict=True))
    for name in others:
        found = measure.entries[entries[name].pk]
        assert found.raw_p_baseline == pytest.approx(singly[name].p, abs=1e-6)
        assert found.p_baseline == pytest.approx(corrected[name], abs=1e-6)
        assert (found.wins, found.ties, found.losses) == (
            singly[name].wins,
            singly[name].ties,
            singly[name].losses,
        )
        assert found.low < entries[name].scores["nDCG@10"] < found.high
    groups = {name: measure.entries[entry.pk].group for name, entry in entries.items()}
    assert groups == {"First": "a", "Second": "a", "BM25": "b", "Last": "c"}
    assert measure.best == entries["First"].pk
    assert measure.queries == QUERIES
    assert measure.entries[entries["BM25"].pk].p_baseline is None


def test_a_measure_of_which_less_is_better_is_read_the_other_way() -> None:
    dataset = scored_dataset(measures=["Hole@10"], primary_measure="Hole@10")
    score_queries(dataset, "BM25", spread(0.4, 1), baseline=True, measure="Hole@10")
    fewer = score_queries(dataset, "Fewer", spread(0.2, 2), measure="Hole@10")
    more = score_queries(dataset, "More", spread(0.7, 3), measure="Hole@10")
    compute_certainty(dataset)
    measure = found_of(dataset).of("Hole@10")
    assert measure is not None
    assert measure.best == fewer.pk
    assert (measure.entries[fewer.pk].wins, measure.entries[fewer.pk].losses) == (QUERIES, 0)
    assert (measure.entries[more.pk].wins, measure.entries[more.pk].group) == (0, "c")


def test_systems_behind_a_closed_interface_are_tested_and_in_no_group(board: Dataset) -> None:
    closed = score_queries(board, "Closed", spread(0.9, 5))
    closed.system.closed_api = True
    closed.system.save()
    system_changed(closed.system)
    compute_certainty(board)
    measure = found_of(board).of("nDCG@10")
    assert measure is not None
    first = Entry.objects.get(system__name="First")
    assert measure.best == first.pk
    found = measure.entries[closed.pk]
    assert found.group == ""
    assert found.wins == QUERIES
    assert found.p_best is not None
    assert found.p_best < 0.001
    closed.system.closed_api = False
    closed.system.save()
    system_changed(closed.system)
    assert not found_of(board).current
    compute_certainty(board)
    assert found_of(board).of("nDCG@10").best == closed.pk  # type: ignore[union-attr]


def test_a_seed_set_is_tested_by_each_querys_mean_over_its_seeds() -> None:
    dataset = scored_dataset(measures=["nDCG@10"])
    entry = score_seeds(dataset, "Seeds", {"ndcg": 0.3}, {"ndcg": 0.5})
    compute_certainty(dataset)
    measure = found_of(dataset).of("nDCG@10")
    assert measure is not None
    assert measure.entries[entry.pk][:2] == pytest.approx((0.4, 0.4))


def test_entries_that_lack_a_measure_have_no_part_in_it() -> None:
    dataset = scored_dataset(measures=["nDCG@10", "AP"])
    score_queries(dataset, "One", spread(0.4))
    other = score_queries(dataset, "Other", spread(0.3), measure="AP")
    compute_certainty(dataset)
    measure = found_of(dataset).of("AP")
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
    assert find_certainty(board) is None
    assert Certainty.objects.count() == 1


def test_what_was_found_of_an_earlier_board_is_not_kept(board: Dataset) -> None:
    finding = find_certainty(board)
    assert isinstance(finding, Finding)
    score_queries(board, "Newcomer", spread(0.5))
    assert keep_certainty(finding) is None
    assert not Certainty.objects.exists()
    assert requests_of(board) == 1


@pytest.mark.parametrize("change", ["publish", "withdraw", "baseline"])
def test_after_a_change_only_intervals_remain_until_it_is_found_anew(
    client: Client, board: Dataset, change: str
) -> None:
    compute_certainty(board)
    assert set(cells(shown(board), "First")) == {"interval", "group", "p-best", "p-baseline", "wins"}
    first = Entry.objects.get(system__name="First")
    if change == "publish":
        score_queries(board, "Newcomer", spread(0.5))
    elif change == "withdraw":
        withdraw_entries(Entry.objects.get(system__name="Last").submission_reference, "A mistake.")
    else:
        name_baseline(Entry.objects.get(system__name="Last"))
    assert not found_of(board).current
    assert set(cells(shown(board), "First")) == {"interval"}
    assert "computed anew" in page_text(client, board)
    compute_certainty(board)
    assert found_of(board).current
    assert cells(shown(board), "First")["group"] == "a"
    assert first.pk == found_of(board).of("nDCG@10").best  # type: ignore[union-attr]


def test_results_kept_back_have_no_part(board: Dataset) -> None:
    compute_certainty(board)
    score_queries(board, "Mine alone", spread(0.9), public=False)
    assert found_of(board).current
    assert compute_certainty(board) is None


def test_results_of_earlier_judgements_have_no_part(board: Dataset) -> None:
    renew_judgements(board)
    later = score_queries(board, "Later", spread(0.3))
    compute_certainty(board)
    measure = found_of(board).of("nDCG@10")
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


# --- Hidden --------------------------------------------------------------------------------------


def test_nothing_is_found_asked_for_or_kept_of_hidden_judgements(client: Client) -> None:
    dataset = scored_dataset(measures=["nDCG@10"], hidden=True)
    score_queries(dataset, "BM25", spread(0.4), baseline=True)
    score_queries(dataset, "Dense", spread(0.6))
    assert requests_of(dataset) == 0
    assert compute_certainty(dataset) is None
    assert not Certainty.objects.exists()
    assert certainty.read([dataset.pk]) == {}
    page = page_text(client, dataset)
    assert "Intervals, tests and wins by query are withheld" in page
    assert "95 % interval" not in page


def test_a_board_that_becomes_hidden_shows_none_of_it_any_more(client: Client, board: Dataset) -> None:
    compute_certainty(board)
    board.hidden = True
    board.save()
    board_changed(board, Kind.MEASURES)
    assert certainty.read([board.pk]) == {}
    assert certainty.read_at(board.pk, board.board_revision + 99, []) is None
    page = page_text(client, board)
    assert "whisker" not in page.replace("whiskers.css", "")
    assert "withheld" in page


# --- Pages ---------------------------------------------------------------------------------------


def test_no_filter_moves_a_group_or_a_p_value(board: Dataset) -> None:
    compute_certainty(board)
    whole = shown(board)
    filtered = shown(board, text="Last")
    assert [row.entry.system for row in filtered.rows] == ["Last"]
    assert cells(filtered, "Last") == cells(whole, "Last")


def test_the_page_says_what_was_done(client: Client, board: Dataset) -> None:
    assert "being computed" in page_text(client, board)
    compute_certainty(board)
    page = page_text(client, board)
    for said in (
        "percentile bootstrap, 10,000 resamples",
        "two-sided paired randomisation test by query, 10,000 permutations, seed 1",
        "Holm-corrected over this board’s 3 comparisons with BM25",
        "Group a: the best system",
        "Filters move none of this.",
    ):
        assert said in page
    assert page.count('class="whisker"') == 4
    assert 'title="95 % interval 0.' in page
    assert cells(shown(board), "First")["wins"] == "40/0/0"
    assert cells(shown(board), "Last")["p-best"] == "<0.001"


def test_a_board_is_ordered_by_group_interval_and_p(board: Dataset) -> None:
    compute_certainty(board)

    def order(key: str) -> list[str]:
        return [row.entry.system for row in shown(board, sorts=(Sort(key),)).rows]

    assert order("group") == ["First", "Second", "BM25", "Last"]
    assert order("interval")[-1] == "Last"
    assert order("p-best")[-1] == "First"  # the best itself has none: missing is last
    assert order("wins")[-1] == "BM25"


def test_an_address_that_orders_by_a_group_holds_while_groups_are_found_anew(
    client: Client, board: Dataset
) -> None:
    asked = "?sort=group&min-p-best=0"
    said = "computed: order by group, bounds of p (best)."

    def page() -> str:
        answer = client.get(f"/datasets/{board.slug}/{asked}")
        assert answer.status_code == 200
        return answer.content.decode()

    assert said in page()  # nothing is found yet
    compute_certainty(board)
    assert said not in page()
    assert "BM25" in page()
    score_queries(board, "Newcomer", spread(0.5))
    assert said in page()
    assert "Newcomer" in page()
    assert "p (best): not applied, being computed" in page(), "the bound can be taken back"
    assert '<input type="hidden" name="min-p-best" value="0">' in page(), (
        "another choice in the form keeps it"
    )
    told = client.get(f"/api/v1/datasets/{board.slug}/board/{asked}").json()
    assert any(said in note for note in told["notes"])


@pytest.mark.parametrize("asked", ["?sort=group", "?min-p-best=0", "?sort=wins"])
def test_who_asks_for_what_a_board_never_has_is_told(client: Client, board: Dataset, asked: str) -> None:
    assert client.get(f"/datasets/{board.slug}/?sort=groups").status_code == 400
    Dataset.objects.filter(pk=board.pk).update(hidden=True)
    assert client.get(f"/datasets/{board.slug}/{asked}").status_code == 400
    benchmark = Benchmark.objects.create(slug="of-one", name="Of one")
    BenchmarkMember.objects.create(benchmark=benchmark, dataset=board)
    assert client.get("/benchmarks/of-one/").status_code == 200
    assert client.get(f"/benchmarks/of-one/{asked}").status_code == 400


def test_reported_boards_say_nothing_of_it(client: Client) -> None:
    from leaderboard.reported.loader import load_reported

    load_reported()
    page = client.get("/datasets/nq/").content.decode()
    assert "interval" not in page
    assert "withheld" not in page


def test_reading_takes_four_queries_for_any_number_of_boards_and_one_where_they_are_known(
    board: Dataset, django_assert_num_queries: Any
) -> None:
    other = scored_dataset(measures=["nDCG@10"])
    score_queries(other, "Alone", spread(0.3))
    for dataset in (board, other):
        compute_certainty(dataset)
    with django_assert_num_queries(4):
        assert set(certainty.read([board.pk, other.pk])) == {board.pk, other.pk}
    with django_assert_num_queries(1):
        certainty.read([board.pk, other.pk])


def test_an_old_board_has_what_was_known_then(board: Dataset) -> None:
    first = compute_certainty(board)
    assert first is not None
    then = list(Entry.objects.values_list("pk", flat=True))
    score_queries(board, "Newcomer", spread(0.9))
    second = compute_certainty(board)
    assert second is not None
    old = certainty.read_at(board.pk, second.from_revision - 1, then)
    assert old is not None
    assert old.current
    assert old.from_revision == first.from_revision
    assert certainty.read_at(board.pk, first.from_revision - 1, then) is None
    between = certainty.read_at(board.pk, second.from_revision - 1, [*then, 10**9])
    assert between is not None
    assert not between.current


def test_kept_content_fits_a_page(board: Dataset) -> None:
    kept = compute_certainty(board)
    assert kept is not None
    measure = kept.content["nDCG@10"]
    assert len(gzip.compress(repr(measure).encode())) < 1000
    assert np.isfinite(measure["low"]).all()


def test_json_says_all_that_was_found(client: Client, board: Dataset) -> None:
    compute_certainty(board)
    data = client.get(f"/datasets/{board.slug}/board.json").json()
    assert data["certainty"]["test"] == "paired randomisation test"
    assert data["certainty"]["permutations"] == 10_000
    assert data["certainty"]["current"] is True
    first = next(row for row in data["rows"] if row["system"] == "First")["certainty"]
    assert first["group"] == "a"
    assert first["p_best"] is None
    assert first["raw_p_baseline"] < first["p_baseline"] < 0.01
    assert first["low"] < 0.601 < first["high"]


@pytest.mark.long_on_postgresql
def test_the_board_of_trec_covid_round_1_shows_its_groups(client: Client, shared_folder: Path) -> None:
    folder = shared_folder / "data" / "trec-covid-round1"
    qrels = read_qrels(folder / "qrels.txt")
    target = Target(qrels, qrels.query_ids, hidden=False)
    dataset = scored_dataset(measures=["nDCG@10"])
    for path in sorted((folder / "runs").glob("*.txt.gz")):
        name = path.name.removesuffix(".txt.gz")
        values = score_run(path, target, ["nDCG@10"]).per_query[:, 0]
        score_queries(dataset, name, values.tolist(), baseline=name == "PS-r1-bm25all")
    compute_certainty(dataset)
    board = shown(dataset)
    groups = {row.entry.system: cells(board, row.entry.system)["group"] for row in board.rows}
    assert list(groups)[:7] == [
        "run1", "OHSU_RUN2", "base.unipd.it", "UP-rrf5rnd1", "smith.rm3", "udel_fang_run1", "PS-r1-bm25all",
    ]  # fmt: skip
    assert list(groups.values()) == list("abbbb" + "c" * 7 + "ddd" + "ee" + "f")
    assert cells(board, "run1") == {
        "interval": "0.600–0.765",
        "group": "a",
        "p-best": None,
        "p-baseline": "0.001",
        "wins": "24/0/6",
    }
    assert "over the 30 judged queries" in page_text(client, dataset)


def test_a_board_without_a_baseline_speaks_of_no_comparison_with_one(client: Client) -> None:
    dataset = scored_dataset(measures=["nDCG@10"])
    for number, mean in enumerate((0.5, 0.4, 0.3)):
        score_queries(dataset, f"System {number}", spread(mean, number))
    compute_certainty(dataset)
    page = page_text(client, dataset)
    assert "Holm-corrected over this board’s 2 comparisons with the best." in page
    notes = " ".join(client.get(f"/datasets/{dataset.slug}/board.json").json()["notes"])
    assert not {"BM25", "W/T/L", "Δ"} & set(notes.replace(":", " ").split())


def test_a_named_baseline_is_called_by_its_name(client: Client) -> None:
    dataset = scored_dataset(measures=["nDCG@10"])
    score_queries(dataset, "smith.rm3", spread(0.4, 1), baseline=True)
    score_queries(dataset, "other", spread(0.6, 2))
    compute_certainty(dataset)
    page = page_text(client, dataset)
    assert "Δ to smith.rm3" in page
    assert "1 comparison with smith.rm3, and over its 1 comparison with the best." in page
    assert "W/T/L: queries won, tied and lost against smith.rm3." in page
    assert "Δ is taken to smith.rm3, the baseline here" in page
    assert "BM25" not in page[page.index("<thead") : page.index("</table>")]
    kept = client.get(f"/datasets/{dataset.slug}/?hide=delta").content.decode()
    assert "Δ to smith.rm3" not in kept[kept.index("<thead") : kept.index("</thead")]


def test_p_below_what_permutations_show_is_marked_as_a_bound(client: Client, board: Dataset) -> None:
    compute_certainty(board)
    assert "below 1/10,001 is Hoeffding’s bound" in page_text(client, board)
    rows = client.get(f"/datasets/{board.slug}/board.json").json()["rows"]
    told = {row["system"]: row["certainty"] for row in rows}
    for found in told.values():
        for whom in ("best", "baseline"):
            raw = found[f"raw_p_{whom}"]
            assert found[f"p_{whom}_is_bound"] == (raw is not None and raw < 1 / 10_001)
    assert told["Last"]["p_best_is_bound"]
