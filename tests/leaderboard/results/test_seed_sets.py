"""Seed sets: several runs of one system are one result, with a mean, a deviation and the seeds behind it."""

from __future__ import annotations

from datetime import timedelta

import numpy as np
import pytest
from django.test import Client
from django.utils import timezone
from numpy.testing import assert_allclose

from leaderboard.boards.pages import benchmark_page, dataset_page
from leaderboard.boards.state import BoardState
from leaderboard.models import Benchmark, BenchmarkMember, BenchmarkVersion, BoardChange, Dataset, Entry, Seed
from leaderboard.results.board_rows.revisions import benchmark_changed
from leaderboard.results.publishing.descriptions import system_changed
from leaderboard.results.publishing.publication import refresh_scores
from leaderboard.results.publishing.scored import publish_entry
from leaderboard.results.publishing.visibility import set_visibility, withdraw_entries
from leaderboard.results.records import per_query_means, record_evaluation
from leaderboard.results.significance.statements import read_certainty
from tests.leaderboard.certainty import compute_certainty
from tests.leaderboard.entries import evaluate, make_system, score, score_seeds, scored_dataset
from tests.pages import one_line

pytestmark = pytest.mark.django_db


def test_a_set_is_one_entry_with_mean_and_sample_deviation() -> None:
    dataset = scored_dataset()
    entry = score_seeds(dataset, "five", *({"ndcg": 0.1 * seed, "recall": 0.5} for seed in range(1, 6)))
    assert Entry.objects.filter(dataset=dataset).count() == 1
    assert entry.seed_count == 5
    assert entry.evaluation is None
    assert entry.scores["nDCG@10"] == pytest.approx(0.3)
    assert entry.deviations["nDCG@10"] == pytest.approx(np.std([0.1, 0.2, 0.3, 0.4, 0.5], ddof=1))
    assert entry.deviations["R@100"] == 0
    assert [seed.label for seed in entry.seeds.all()] == ["1", "2", "3", "4", "5"]


def test_over_hidden_judgements_everything_comes_from_rounded_values_and_is_rounded_again() -> None:
    dataset = scored_dataset(hidden=True)
    entry = score_seeds(dataset, "two", {"ndcg": 0.12344}, {"ndcg": 0.12451})
    assert [seed.scores for seed in entry.seeds.all()] == [{}, {}]
    assert entry.scores["nDCG@10"] == 0.124
    assert entry.deviations == {}
    assert entry.missing_queries is None


def test_over_hidden_judgements_pages_tell_of_a_set_its_mean_alone(client: Client) -> None:
    dataset = scored_dataset(hidden=True)
    entry = score_seeds(dataset, "two", {"ndcg": 0.12344}, {"ndcg": 0.14451})
    entry.seeds.update(scores={"nDCG@10": 0.123})  # as an earlier release left them
    address = f"/systems/{entry.system.slug}/"
    (result,) = client.get(f"/api/v1{address}").json()["results"]
    assert (result["seed_count"], result["seeds"]) == (2, [])
    assert (result["value"], result["deviations"]) == (0.134, {})
    page = client.get(address).content.decode()
    assert "0.134" in page
    assert "0.020" not in page
    assert "seed 1" not in page
    for path in (address, dataset.get_absolute_url(), f"{dataset.get_absolute_url()}board.csv"):
        shown = client.get(path)
        assert shown.status_code == 200
        assert "0.123" not in shown.content.decode()


def test_opened_judgements_tell_every_seed(client: Client) -> None:
    dataset = scored_dataset(hidden=True)
    entry = score_seeds(dataset, "two", {"ndcg": 0.12344}, {"ndcg": 0.14451})
    dataset.hidden = False
    dataset.save()
    refresh_scores(dataset)
    (result,) = client.get(f"/api/v1/systems/{entry.system.slug}/").json()["results"]
    assert [seed["scores"]["nDCG@10"] for seed in result["seeds"]] == [0.12344, 0.14451]


def test_only_measures_that_all_seeds_have_are_shown() -> None:
    entry = score_seeds(scored_dataset(), "two", {"ndcg": 0.1, "recall": 0.5}, {"ndcg": 0.3})
    assert list(entry.scores) == ["nDCG@10"]
    assert list(entry.deviations) == ["nDCG@10"]


def test_publishing_a_set_again_changes_nothing() -> None:
    dataset = scored_dataset()
    system = make_system("twice")
    seeds = {label: evaluate(dataset, system, ndcg=0.5) for label in ("a", "b")}

    def publish() -> Entry:
        return publish_entry(Entry(provenance=Entry.Provenance.SCORED), seeds)

    first, dataset_then = publish(), dataset.__class__.objects.get(pk=dataset.pk).board_revision
    assert publish() == first
    assert Seed.objects.count() == 2
    assert dataset.__class__.objects.get(pk=dataset.pk).board_revision == dataset_then


@pytest.mark.parametrize(("number", "systems"), [(1, 1), (6, 1), (2, 2)], ids=["one", "six", "of two systems"])
def test_what_is_no_set_is_not_published(number: int, systems: int) -> None:
    dataset = scored_dataset()
    made = [make_system(f"system {each}") for each in range(systems)]
    seeds = {str(each): evaluate(dataset, made[each % systems], ndcg=0.5) for each in range(number)}
    with pytest.raises(ValueError, match="seed set"):
        publish_entry(Entry(provenance=Entry.Provenance.SCORED), seeds)
    assert not Entry.objects.exists()


def test_values_by_query_are_means_over_the_seeds_for_measures_that_all_have() -> None:
    dataset = scored_dataset()
    entry = score_seeds(dataset, "two", {"recall": 0.5, "ndcg": 0.1}, {"ndcg": 0.3})
    second = entry.seeds.last()
    assert second is not None
    run, qrels = second.evaluation.run, second.evaluation.qrels
    again = record_evaluation(
        run=run,
        qrels=qrels,
        specification="2",
        measures=["AP", "nDCG@10"],
        means={},
        per_query=np.array([[0.0, 0.4], [0.0, 1.0]]),
        missing_queries=0,
    )
    Seed.objects.filter(pk=second.pk).update(evaluation=again)
    measures, values = per_query_means(Entry.objects.get(pk=entry.pk))
    assert measures == ["nDCG@10"]
    assert_allclose(values, [[0.25], [0.55]])


def test_values_by_query_of_a_single_run_are_its_own() -> None:
    measures, values = per_query_means(score(scored_dataset(), "single", ndcg=0.2, recall=0.7))
    assert measures == ["nDCG@10", "R@100"]
    assert_allclose(values, [[0.2, 0.7], [0.2, 0.7]])


def test_a_set_that_becomes_hidden_is_rounded_seed_by_seed_and_tells_none_of_them() -> None:
    dataset = scored_dataset()
    entry = score_seeds(dataset, "two", {"ndcg": 0.12344}, {"ndcg": 0.12451})
    dataset.hidden = True
    dataset.save()
    refresh_scores(dataset)
    entry.refresh_from_db()
    assert entry.scores == {"nDCG@10": 0.124}
    assert entry.deviations == {}
    assert [seed.scores for seed in entry.seeds.all()] == [{}, {}]


def test_a_set_is_shown_kept_back_and_withdrawn_as_a_whole() -> None:
    entry = score_seeds(scored_dataset(), "two", {"ndcg": 0.1}, {"ndcg": 0.3}, public=False)
    assert entry.visibility == Entry.Visibility.PRIVATE
    set_visibility(entry.submission_reference, public=True)
    entry.refresh_from_db()
    assert entry.visibility == Entry.Visibility.PUBLIC
    withdraw_entries(entry.submission_reference, "wrong index")
    entry.refresh_from_db()
    assert (entry.visibility, entry.withdrawal_reason) == (Entry.Visibility.WITHDRAWN, "wrong index")


def test_adapted_to_the_corpus_is_neither_in_domain_nor_zero_shot() -> None:
    dataset = scored_dataset()
    system = make_system("adapted", adapted_to=[dataset.slug], training_declared=True)
    single = score(dataset, system, ndcg=0.5)
    assert single.training == Entry.Training.ADAPTED
    seeds = score_seeds(dataset, system, {"ndcg": 0.1}, {"ndcg": 0.3})
    system.training_datasets = [dataset.name]
    system.save()
    system_changed(system)
    seeds.refresh_from_db()
    assert seeds.training == Entry.Training.IN_DOMAIN, "labels count before the corpus alone"


def test_a_datasets_board_shows_mean_deviation_and_number_and_the_delta_of_the_mean() -> None:
    dataset = scored_dataset()
    score(dataset, "BM25", ndcg=0.2, recall=0.5, baseline=True)
    score_seeds(dataset, "seeds", {"ndcg": 0.30, "recall": 0.6}, {"ndcg": 0.34, "recall": 0.6})
    page = dataset_page(dataset.slug, BoardState())
    assert page is not None
    board = page.board
    row = next(row for row in board.rows if row.entry.system == "seeds")
    assert row.value("nDCG@10") == pytest.approx(0.32)
    assert {key: cell.spread for key, cell in row.cells.items() if cell.spread} == {"nDCG@10": "± 0.0283 (2)"}
    assert row["R@100"].title == "mean of 2 seeds, ± 0.0000"
    assert row.value("delta") == pytest.approx(0.12)
    assert any(note.startswith("±: sample standard deviation (n − 1) over seeds") for note in board.notes)
    page_text = Client().get(f"/datasets/{dataset.slug}/").content.decode()
    assert "± 0.028 (2)" in page_text


def test_rows_beside_a_set_say_nothing_of_a_deviation_even_without_a_style_sheet(client: Client) -> None:
    dataset = scored_dataset()
    score(dataset, "BM25", baseline=True, ndcg=0.25)
    score_seeds(dataset, "set", {"ndcg": 0.3}, {"ndcg": 0.5})
    page = client.get(f"/datasets/{dataset.slug}/?exact=1").content.decode()
    rows = {system: next(row for row in page.split("<tr")[1:] if f">{system}</a>" in row) for system in ("BM25", "set")}
    assert '0.4000 <small class="spread s12">± 0.1414 (2)</small></td>' in rows["set"].replace("</b>", "")
    score_cell = rows["BM25"].partition("0.2500")[2].partition("</td>")[0]
    assert score_cell.replace("</u>", "").replace("</b>", "").startswith(' <small class="spread s12"></small>')
    assert "± " not in rows["BM25"]
    assert page.count('<small class="spread s12"></small>') > 1, "the head keeps the room, too"


def test_a_benchmarks_board_says_which_values_are_means_of_seeds() -> None:
    first, second = scored_dataset(), scored_dataset()
    system = make_system("both")
    score_seeds(first, system, {"ndcg": 0.30}, {"ndcg": 0.34})
    score(second, system, ndcg=0.5)
    benchmark = Benchmark.objects.create(slug="both", name="Both", measure="nDCG@10")
    for position, dataset in enumerate((first, second)):
        BenchmarkMember.objects.create(benchmark=benchmark, dataset=dataset, position=position)
    page = benchmark_page("both", BoardState())
    assert page is not None
    (row,) = page.board.rows
    assert row.value("mean") == pytest.approx(0.41)
    titles = {key: cell.title for key, cell in row.cells.items() if cell.title}
    assert titles == {first.slug: "mean of 2 seeds, ± 0.0283"}


def test_a_systems_page_has_its_single_seeds_below_the_set() -> None:
    dataset = scored_dataset()
    entry = score_seeds(dataset, "seeds", {"ndcg": 0.30, "recall": 0.6}, {"ndcg": 0.34, "recall": 0.7})
    page = one_line(Client().get(f"/systems/{entry.system.slug}/").content.decode())
    assert "± 0.028 (2)" in page
    assert page.count('class="is-seed"') == 2
    assert '<td class="n" data-label="R@100">0.700</td>' in page.partition("seed 2</th>")[2].partition("</tr>")[0]
    assert '<td class="n" data-label="R@100">0.071</td>' in page.partition("± over seeds</th>")[2].partition("</tr>")[0]
    (result,) = Client().get(f"/api/v1/systems/{entry.system.slug}/").json()["results"]
    assert result["deviations"]["nDCG@10"] == pytest.approx(0.0283, abs=1e-4)
    assert result["seeds"][1] == {"label": "2", "scores": {"nDCG@10": 0.34, "R@100": 0.7}}


def test_an_old_board_keeps_a_sets_deviation_and_number() -> None:
    dataset = scored_dataset()
    entry = score_seeds(dataset, "seeds", {"ndcg": 0.30}, {"ndcg": 0.34})
    benchmark = Benchmark.objects.create(slug="one", name="One", measure="nDCG@10")
    BenchmarkMember.objects.create(benchmark=benchmark, dataset=dataset, position=0)
    benchmark_changed(benchmark)
    for kept in (BoardChange, BenchmarkVersion):
        kept.objects.update(at=timezone.now() - timedelta(hours=1))
    then = timezone.now() - timedelta(minutes=1)
    withdraw_entries(entry.submission_reference, "wrong seeds")
    past = dataset_page(dataset.slug, BoardState(), at=then)
    assert past is not None
    (row,) = past.board.rows
    assert [cell.spread for cell in row.cells.values() if cell.spread] == ["± 0.0283 (2)"]
    past = benchmark_page("one", BoardState(), at=then)
    assert past is not None
    assert "mean of 2 seeds, ± 0.0283" in [cell.title for cell in past.board.rows[0].cells.values()]


def test_intervals_and_tests_use_each_querys_mean_over_the_seeds() -> None:
    dataset = scored_dataset()
    entry = score_seeds(dataset, "seeds", {"ndcg": 0.30}, {"ndcg": 0.34})
    score(dataset, "BM25", ndcg=0.2, baseline=True)
    assert compute_certainty(Dataset.objects.get(pk=dataset.pk)) is not None
    found = read_certainty([dataset.pk])[dataset.pk].for_measure("nDCG@10")
    assert found is not None
    of_set = found.entries.get(entry.pk)
    assert of_set is not None
    assert (of_set.low, of_set.high) == (pytest.approx(0.32), pytest.approx(0.32))
    assert (of_set.wins, of_set.losses) == (2, 0)
