"""How figures are read: what their axes say, whether texts can be told from their grounds, what captions claim."""

from __future__ import annotations

import csv
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from django.conf import settings

from leaderboard.comparison.queries.collection import Difficulty
from leaderboard.figures.drawing import (
    BEST,
    BETTER,
    FULL_SCALE,
    GREY,
    INK,
    MUTED_INK,
    PAPER,
    SCALE,
    TIED,
    WORSE,
    linear_axis,
    linear_ticks,
    log_axis,
    name_axes,
)
from leaderboard.figures.labels import NARROW, label_points
from leaderboard.figures.queries import _difficulty_traces
from leaderboard.models import Benchmark, BenchmarkMember, Entry, System
from tests.leaderboard.entries import (
    cost,
    date_results,
    make_source,
    make_system,
    record_boards,
    report,
    score,
    scored_dataset,
)
from tests.leaderboard.figure_checks import column, drawn, trace
from tests.leaderboard.figures.palettes import between, contrast, tokens
from tests.reported_boards import load_reported

#: What WCAG asks of small text.
ENOUGH = 4.5
AXES = ("xaxis", "yaxis")


def axes(layout: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The axes of numbers of a layout, and those of a phone's."""
    for one in (layout, layout.get("meta", {}).get("narrow", {})):
        yield from (one[name] for name in AXES if name in one and one[name].get("type") != "category")


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
    bounds = linear_axis("Δ nDCG@10", [least, least + spread])["range"]
    assert_readable({"range": bounds, **linear_ticks(*bounds, signed=True)})
    if spread > 0.0001:
        assert_readable({"range": [0, spread], **linear_ticks(0, spread, percent=True)})


def test_ticks_are_round_and_signed_where_they_are_of_differences() -> None:
    assert linear_ticks(-0.012, 0.009, signed=True)["ticktext"] == ["−0.010", "−0.005", "0", "+0.005"]
    assert linear_ticks(0.0, 0.6)["ticktext"] == ["0", "0.1", "0.2", "0.3", "0.4", "0.5", "0.6"]
    assert linear_ticks(0.344, 0.362, max_ticks=4)["ticktext"] == ["0.345", "0.350", "0.355", "0.360"]


@pytest.mark.parametrize(
    "values", [[30.0, 40.0], [33.0], [20.0, 6100.0], [0.004, 0.005], [15_000, 15_400], [3.0, 21.0]]
)
def test_a_logarithmic_axis_has_ticks_however_near_its_values_are(values: list[float]) -> None:
    axis = log_axis("Latency (ms)", values)
    assert 3 <= len(axis["ticktext"]) <= 8
    assert len(set(axis["ticktext"])) == len(axis["ticktext"])


def test_a_short_logarithmic_axis_has_ticks_near_its_highest_value() -> None:
    assert log_axis("Index size (MB)", [1.07, 3.46])["ticktext"] == ["1", "1.5", "2", "2.5", "3", "3.5"]


@pytest.mark.django_db
def test_scores_that_are_close_can_be_read_off_every_figure() -> None:
    first, second, third = (scored_dataset(name=name, task=name) for name in ("First", "Second", "Third"))
    benchmark = Benchmark.objects.create(slug="all", name="All")
    bm25, close = make_system("BM25"), make_system("close")
    seen = [make_system(f"seen {number}", training_datasets=[first.slug]) for number in range(3)]
    for position, dataset in enumerate((first, second, third)):
        BenchmarkMember.objects.create(benchmark=benchmark, dataset=dataset, position=position)
        for number, system in enumerate((bm25, close, *seen)):
            entry = score(dataset, system, baseline=system is bm25, ndcg=0.351 + 0.0012 * number)
            cost(entry, 30.0 + number)
    date_results("2024-01-05", "2024-02-05", "2024-03-05", "2024-04-05", "2024-05-05")
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
    for dataset in datasets[:2]:
        score(dataset, part, ndcg=0.9)
    plot = drawn("wins", "benchmark=all")
    assert [tuple(row) for row in plot.table.rows] == [("worse", 0, 0, 3, "3/3"), ("part", 2, 0, 0, "2/3")]
    assert trace(plot, "Wins")["y"] == ["worse", "part (2/3)"]
    assert any("Systems that cannot be compared on all 3 datasets (1 of 2)" in note for note in plot.notes)
    plot = drawn("wins", "benchmark=all&domain=First&domain=Second")
    assert column(plot, "Datasets compared") == ["2/2", "2/2"]
    assert "of the 2 that count" in plot.caption


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
def test_numbers_in_heat_maps_can_be_told_from_every_colour_of_the_scale(scheme: int) -> None:
    colors = {name: both[scheme] for name, both in tokens().items()}
    scale = [colors[color] for _, color in SCALE]
    weakest = min(contrast(colors[INK], between(scale, step / 100)) for step in range(101))
    assert weakest >= ENOUGH
    assert contrast(scale[0], scale[-1]) >= 2.5, "little and much look alike"


@pytest.mark.parametrize(("scheme", "least"), [(0, 1.25), (1, 1.6)], ids=["light", "dark"])
def test_the_lowest_cells_of_heat_maps_differ_from_the_background_and_from_higher_ones(
    scheme: int, least: float
) -> None:
    colors = {name: both[scheme] for name, both in tokens().items()}
    from_paper = [contrast(colors[color], colors[PAPER]) for _, color in FULL_SCALE]
    assert from_paper[0] >= least
    assert from_paper == sorted(from_paper)
    assert contrast(colors[FULL_SCALE[0][1]], colors[FULL_SCALE[1][1]]) >= 1.05


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
def test_marks_differ_from_the_background(scheme: int) -> None:
    colors = {name: both[scheme] for name, both in tokens().items()}
    for color in (BEST, TIED, BETTER, WORSE, GREY, MUTED_INK):
        assert contrast(colors[color], colors[PAPER]) >= 4.5, color


def test_shortened_names_that_are_equal_have_ids() -> None:
    names = ["which masks protect nurses best", "which masks worn by nurses best", "short"]
    wide, narrow, widest = (axis["ticktext"] for axis in name_axes(names, None, ["q1", "q2", "q3"]))
    assert narrow == ["which…s best (q1)", "which…s best (q2)", "short"]
    assert (len(set(wide)), widest) == (3, names)
    assert name_axes(names)[1]["ticktext"] == ["which ma…rses best"] * 2 + ["short"]
    ids = ["topic-of-the-first-year-0001", "topic-of-the-first-year-0002", "q3"]
    for axis, length in zip(name_axes(names[:1] * 2 + names[2:], None, ids), (30, 18, 60), strict=True):
        labels = axis["ticktext"]
        assert max(map(len, labels)) <= length
        assert len(set(labels)) == 3


@pytest.mark.django_db
def test_texts_on_coloured_ground_have_a_colour_that_can_be_told_from_it() -> None:
    load_reported()
    cells = drawn("head-to-head", "benchmark=beir").data[0]
    assert (cells["insidetextfont"]["color"], cells["marker"]["colorscale"]) == (INK, SCALE)
    known = tokens()
    plot = drawn("wins", "benchmark=beir")
    assert not {BETTER, WORSE} & {bars["marker"]["color"] for bars in plot.data}, "single datasets are not tested"
    for bars in plot.data:
        text, ground = bars["insidetextfont"]["color"], bars["marker"]["color"]
        for scheme in (0, 1):
            assert contrast(known[text][scheme], known[ground][scheme]) >= ENOUGH, (bars["name"], scheme)


@pytest.mark.parametrize("name", ["BM25+CE", "QUITE-LONG-NAME, k1=0.9", "splade-cocondenser-ensembledistil"])
def test_on_a_phone_no_name_reaches_over_the_edge_of_the_picture(name: str) -> None:
    points = [(20.0, 0.42), (6100.0, 0.47), (125.0, 0.41)]
    label = label_points(["BM25", name, "TAS-B"], points, [1], log_x=True)[1]["narrow"]
    width, place = NARROW.letters * 8.7 * len(name), 0.94 * NARROW.width
    share = {"left": 1.0, "center": 0.5, "right": 0.0}[label["textposition"].split()[1]]
    assert place + (1 - share) * width <= NARROW.width + 8 or not label["text"]
    assert label["text"] == name or len(name) > 30


@pytest.mark.django_db
def test_systems_drawn_on_one_machine_are_not_listed_as_omitted_for_another() -> None:
    load_reported()
    plot = drawn("pareto", "benchmark=msmarco-cost")
    assert "BT-SPLADE-L" in str(plot.data)
    assert not [note for note in plot.notes if note.startswith("Not shown")]


@pytest.mark.django_db
def test_facets_never_change_the_machine_that_costs_are_from() -> None:
    load_reported()
    for facets in ("", "&architecture=dense", "&architecture=lexical&architecture=dense"):
        plot = drawn("pareto", f"benchmark=beir{facets}")
        assert "Reported by Thakur et al. 2021 on CPU, DBPedia." in plot.caption
        assert "Also available: Thakur et al. 2021 on GPU, DBPedia." in plot.notes
    only_elsewhere = drawn("pareto", "benchmark=beir&architecture=late-interaction")
    assert not only_elsewhere.data
    assert "on CPU, DBPedia. Also available: Thakur et al. 2021 on GPU, DBPedia." in only_elsewhere.caption
    chosen = drawn("pareto", "benchmark=beir&architecture=lexical&device=gpu")
    assert not chosen.data
    assert "reported by Thakur et al. 2021 on GPU, DBPedia." in chosen.caption


@pytest.mark.django_db
def test_facets_never_lead_from_what_was_measured_here_to_what_others_state() -> None:
    dataset, paper = scored_dataset(), make_source("paper")
    cost(score(dataset, "ours", ndcg=0.5), 4.0)
    stated = {"name": "latency", "value": 7.0, "unit": "ms", "hardware": "their CPU"}
    report(dataset, paper, "theirs", ndcg=0.4, figures=[stated])
    assert column(drawn("pareto", f"dataset={dataset.slug}"), "System") == ["ours"]
    plot = drawn("pareto", f"dataset={dataset.slug}&provenance=reported")
    assert not plot.data
    assert "measured by Runboard" in plot.caption
    assert "Also available: " in plot.caption
    assert "their CPU" in plot.caption
    assert column(drawn("pareto", f"dataset={dataset.slug}&device=cpu"), "System") == ["theirs"]


@pytest.mark.django_db
@pytest.mark.parametrize("what", ["task", "domain"])
def test_means_by_task_and_domain_of_beir_are_those_of_the_printed_scores(what: str) -> None:
    load_reported()
    folder = Path(settings.BASE_DIR) / "leaderboard" / "importing" / "reported" / "data"
    with (folder / "datasets.csv").open() as file:
        groups = {row["slug"]: row[what] for row in csv.DictReader(file)}
    counted = list(tomllib.loads((folder / "benchmarks.toml").read_text())["beir"]["members"])
    counted.remove("msmarco")
    printed: dict[str, dict[str, dict[str, float]]] = {}
    with (folder / "scores.csv").open() as file:
        for row in csv.DictReader(file):
            if row["source"] == "beir-2021" and row["dataset"] in counted and row["measure"] == "nDCG@10":
                of_system = printed.setdefault(row["system"], {})
                of_system.setdefault(groups[row["dataset"]], {})[row["dataset"]] = float(row["value"])
    plot = drawn(f"means-by-{what}", "benchmark=beir")
    sizes = Counter(groups[slug] for slug in counted)
    assert dict(zip(column(plot, what.capitalize()), column(plot, "Datasets"), strict=True)) == sizes
    assert len(plot.table.heads) == 10
    for group, _, *means in plot.table.rows:
        for system, mean in zip(plot.table.heads[2:], means, strict=True):
            found = printed[system][str(group)]
            assert len(found) == sizes[str(group)]
            assert mean == pytest.approx(sum(found.values()) / len(found), abs=0.00051), (system, group)
    assert "reported figures only" in plot.caption


@pytest.mark.django_db
def test_captions_claim_no_more_than_is_known() -> None:
    datasets = [scored_dataset(name=name) for name in ("First", "Second", "Third")]
    benchmark = Benchmark.objects.create(slug="all", name="All")
    paper = make_source("paper")
    for position, dataset in enumerate(datasets):
        BenchmarkMember.objects.create(benchmark=benchmark, dataset=dataset, position=position)
        seen = Entry.Training.ZERO_SHOT if position else Entry.Training.IN_DOMAIN
        report(dataset, paper, "trained", ndcg=0.5, training=seen)
        report(dataset, paper, "silent", ndcg=0.4, training=Entry.Training.UNDECLARED)
        report(dataset, paper, "untrained", ndcg=0.3)
        for name in ("first", "second"):
            report(dataset, paper, name, ndcg=0.2)
    System.objects.filter(name="first").update(year=2018)
    System.objects.filter(name="second").update(year=2019)
    record_boards()
    plot = drawn("in-domain", "benchmark=all")
    trained = dict(zip(column(plot, "System"), column(plot, "Trained on First"), strict=True))
    untrained = dict.fromkeys(("untrained", "first", "second"), "no")
    assert trained == {"trained": "yes", "silent": "not declared", **untrained}
    assert "Training data not declared: silent." in plot.notes
    assert "on which 1 of these 5 systems were trained" in plot.caption
    assert "Reported figures only." in plot.caption
    load_reported()
    assert "Adapted to some of these corpora, without labels: GenQ." in drawn("in-domain", "benchmark=beir").notes
    plot = drawn("progress", "benchmark=all&sort=mean:asc")
    assert "or else of the publication that reports it" in plot.caption
    assert "scored by Runboard" not in plot.caption, "there is no such line"
    assert column(plot, "Best at that date") == ["yes", "no", "yes", "no", "no"], "of one year the best comes first"


def test_no_name_covers_a_stepped_line() -> None:
    names, points = ["a system with a long name", "second", "third"], [(0.0, 0.1), (0.2, 0.9), (1.0, 0.5)]
    assert label_points(names, points, [0])[0]["textposition"] == "top right"
    crossed = label_points(names, points, [0], lines=[([0, 1], 2)])[0]
    assert (crossed["text"], crossed["textposition"]) == (names[0], "bottom right"), "the line rises right of its point"
    assert [label["text"] for label in label_points(names, points, [1])] == ["", "second", ""]


def test_names_right_of_the_end_of_a_line_keep_their_positions() -> None:
    names, points = ["first", "second", "third", "fourth"], [(0.0, 0.9), (0.2, 0.5), (0.9, 0.86), (1.0, 0.0)]
    positions = [label_points(names, points, [2], lines=[([0], end)])[2]["textposition"] for end in (1, 3)]
    assert positions == ["top center", "middle right"]


@pytest.mark.django_db
def test_kinds_of_results_with_one_point_have_no_line_that_names_avoid(monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = scored_dataset()
    lines: list[tuple[list[int], int]] = []
    for name, value in (("one", 0.5), ("two", 0.6), ("three", 0.55)):
        score(dataset, name, ndcg=value)
    date_results("2024-01-01", "2024-02-01", "2024-03-01")
    report(dataset, make_source("paper"), "printed", ndcg=0.4)

    def record(*arguments: Any, **options: Any) -> list[dict[str, Any]]:
        lines.extend(options["lines"])
        return label_points(*arguments, **options)

    monkeypatch.setattr("leaderboard.figures.scores.label_points", record)
    drawn("progress", f"dataset={dataset.slug}")
    [(best, end)] = lines
    assert (len(best), end) == (2, max(best) + 1), "the line of scored systems ends at the last of them"


def test_on_a_phone_names_are_shortened_rather_than_omitted() -> None:
    names = ["Fusion of RM3 and two fields", "BM25 (no stemming)", "BM25"]
    points, ends = [(3.4, 0.378), (3.5, 0.356), (3.4, 0.344)], [(0.33, 0.42), (0.31, 0.4), (0.3, 0.39)]
    labels = [label["narrow"] for label in label_points(names, points, [0], log_x=True, ends=ends)]
    assert labels[0]["text"] == names[0]
    crowded = label_points(["x" * 60, *names[1:]], points, [0], log_x=True, ends=ends)[0]["narrow"]
    assert crowded["text"] == "x" * 13 + "…", "shortened, because the picture is narrower than the name"


def test_the_difficulty_of_a_binary_measure_is_the_share_of_systems_with_one() -> None:
    def lines(*systems: tuple[float, ...]) -> list[dict[str, Any]]:
        values = np.array(systems)
        statistics = [values.mean(0), values.std(0, ddof=1), values.min(0), values.max(0)]
        quantiles = np.quantile(values, (0.1, 0.5, 0.9), axis=0)
        traces = _difficulty_traces(Difficulty(len(systems), *statistics, quantiles, None), np.arange(3), 1, "BM25")
        return [one.to_plotly_json() for one in traces]

    (share,) = lines((0, 1, 1), (0, 0, 1), (0, 0, 1))
    assert (share["name"], share["line"]["shape"]) == ("share of systems with 1", "hvh")
    assert share["y"] == pytest.approx([0, 1 / 3, 1], abs=1e-6)
    assert [one["name"] for one in lines((0, 0.5, 1), (0, 0, 1))] == ["10% to 90% of systems", "median"]
