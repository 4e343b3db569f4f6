"""How figures are read: what their axes say, whether texts can be told from their grounds, what captions claim."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from leaderboard.figures.axes import linear_axis, linear_ticks, log_axis
from leaderboard.figures.labels import NARROW, NARROW_LETTERS, labelled
from leaderboard.figures.palette import INK, SCALE
from leaderboard.models import Benchmark, BenchmarkMember
from leaderboard.reported.loader import load_reported
from tests.leaderboard.entries import cost, make_system, score, scored_dataset
from tests.leaderboard.figure_checks import column, drawn, trace
from tests.leaderboard.palettes import between, contrast, tokens

#: What WCAG asks of small text.
ENOUGH = 4.5
AXES = ("xaxis", "yaxis")


def axes(layout: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The axes of a layout, and those of a phone's."""
    for one in (layout, layout.get("meta", {}).get("narrow", {})):
        yield from (one[name] for name in AXES if name in one)


def told(text: str) -> float:
    """The number that a tick says."""
    number = text.replace("−", "-")
    return float(number.removesuffix("%")) / (100 if "%" in text else 1)


def assert_readable(axis: dict[str, Any]) -> None:
    """Its ticks are different, within its range, and say where they stand."""
    texts, (low, high) = axis["ticktext"], axis["range"]
    assert 2 <= len(texts) <= 7, texts
    assert len(set(texts)) == len(texts), texts
    for place, text in zip(axis["tickvals"], texts, strict=True):
        assert low - 1e-9 <= place <= high + 1e-9
        assert told(text) == pytest.approx(place, abs=1e-12)


@pytest.mark.parametrize("spread", [0.9, 0.5, 0.12, 0.03, 0.005, 0.0011, 0.00004, 0.0])
@pytest.mark.parametrize("least", [0.0, 0.35, -0.017])
def test_ticks_have_as_many_decimals_as_tell_them_apart(least: float, spread: float) -> None:
    assert_readable(linear_axis("nDCG@10", [least, least + spread]))
    assert_readable(linear_axis("Δ nDCG@10", [least, least + spread], signed=True))
    if spread > 0.0001:
        assert_readable({"range": [0, spread], **linear_ticks(0, spread, percent=True)})


def test_ticks_are_round_and_signed_where_they_are_of_differences() -> None:
    assert linear_ticks(-0.012, 0.009, signed=True)["ticktext"] == ["−0.010", "−0.005", "0", "+0.005"]
    assert linear_ticks(0.0, 0.6)["ticktext"] == ["0", "0.1", "0.2", "0.3", "0.4", "0.5", "0.6"]
    assert linear_ticks(0.344, 0.362, most=4)["ticktext"] == ["0.345", "0.350", "0.355", "0.360"]


@pytest.mark.parametrize("values", [[30.0, 40.0], [33.0], [20.0, 6100.0], [0.004, 0.005], [15_000, 15_400]])
def test_a_logarithmic_axis_has_ticks_however_near_its_values_are(values: list[float]) -> None:
    axis = log_axis("Latency (ms)", values)
    assert len(axis["ticktext"]) >= 2
    assert len(set(axis["ticktext"])) == len(axis["ticktext"])


@pytest.mark.django_db
def test_scores_that_are_close_can_be_read_off_every_figure() -> None:
    first, second = scored_dataset(name="First", task="a"), scored_dataset(name="Second", task="b")
    benchmark = Benchmark.objects.create(slug="all", name="All")
    bm25, close, seen = make_system("BM25"), make_system("close"), make_system("seen")
    seen.training_datasets = [first.slug]
    seen.save()
    for position, dataset in enumerate((first, second)):
        BenchmarkMember.objects.create(benchmark=benchmark, dataset=dataset, position=position)
        for number, system in enumerate((bm25, close, seen)):
            entry = score(dataset, system, baseline=system is bm25, ndcg=0.351 + 0.0012 * number)
            cost(entry, 30.0 + number)
    for query in ("benchmark=all", f"dataset={first.slug}"):
        slugs = ["pareto", "deltas", "progress"]
        slugs += ["means-by-task", "in-domain"] if query == "benchmark=all" else []
        for slug in slugs:
            plot = drawn(slug, query)
            assert plot.data, (slug, plot.caption)
            linear = [axis for axis in axes(plot.layout) if "ticktext" in axis and axis.get("type") != "log"]
            assert linear, slug
            for axis in linear:
                assert_readable(axis)


@pytest.mark.django_db
def test_wins_say_on_how_many_datasets_and_systems_with_all_of_them_come_first() -> None:
    datasets = [scored_dataset(name=name, domain=name) for name in ("First", "Second", "Third")]
    benchmark = Benchmark.objects.create(slug="all", name="All")
    bm25, worse, part = make_system("BM25"), make_system("worse"), make_system("part")
    for position, dataset in enumerate(datasets):
        BenchmarkMember.objects.create(benchmark=benchmark, dataset=dataset, position=position)
        score(dataset, bm25, baseline=True, ndcg=0.3)
        score(dataset, worse, ndcg=0.1)
    score(datasets[0], part, ndcg=0.9)
    plot = drawn("wins", "benchmark=all")
    assert [tuple(row) for row in plot.table.rows] == [("worse", 0, 0, 3, "3/3"), ("part", 1, 0, 0, "1/3")]
    assert trace(plot, "Wins")["y"] == ["worse", "part (1/3)"]
    assert any("1 of these 2 systems cannot be compared on all 3 datasets" in note for note in plot.notes)
    plot = drawn("wins", "benchmark=all&domain=First&domain=Second")
    assert column(plot, "Datasets compared") == ["2/2", "1/2"]
    assert "of the 2 that count" in plot.caption


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
def test_numbers_in_heat_maps_can_be_told_from_every_colour_of_the_scale(scheme: int) -> None:
    colors = {name: both[scheme] for name, both in tokens().items()}
    scale = [colors[color] for _, color in SCALE]
    weakest = min(contrast(colors[INK], between(scale, step / 100)) for step in range(101))
    assert weakest >= ENOUGH
    assert contrast(scale[0], scale[-1]) >= 2.5, "little and much look alike"


@pytest.mark.django_db
def test_texts_on_coloured_ground_have_a_colour_that_can_be_told_from_it() -> None:
    load_reported()
    cells = drawn("head-to-head", "benchmark=beir").data[0]
    assert (cells["textfont"]["color"], cells["colorscale"]) == (INK, SCALE)
    known = tokens()
    for bars in drawn("wins", "benchmark=beir").data:
        text, ground = bars["insidetextfont"]["color"], bars["marker"]["color"]
        for scheme in (0, 1):
            assert contrast(known[text][scheme], known[ground][scheme]) >= ENOUGH, (bars["name"], scheme)


@pytest.mark.parametrize("name", ["BM25+CE", "QUITE-LONG-NAME, k1=0.9", "splade-cocondenser-ensembledistil"])
def test_on_a_phone_no_name_reaches_over_the_edge_of_the_picture(name: str) -> None:
    points = [(20.0, 0.42), (6100.0, 0.47), (125.0, 0.41)]
    label = labelled(["BM25", name, "TAS-B"], points, first=[1], log_x=True)[1]["narrow"]
    width, place = NARROW_LETTERS * 8.7 * len(name), 0.94 * NARROW
    share = {"left": 1.0, "center": 0.5, "right": 0.0}[label["textposition"].split()[1]]
    assert place + (1 - share) * width <= NARROW + 8 or not label["text"]
    assert label["text"] == name or len(name) > 30
