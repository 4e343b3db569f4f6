"""Shared parts of figures: axes, hues, bars, rows and points of boards, and labels.

Hues are distinguishable with every kind of color vision (after Okabe and Ito), and each has a symbol. A color is a
custom property of static/css/figures.css with one value for the light and one for the dark scheme, so that a figure's
data is the same for both; the browser inserts the value. Plotly is imported when the first figure is drawn: pages that
only have frames never import it.

Architectures have a symbol and a hue each. `labels` places names next to points.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np
from django.urls import reverse
from django.utils.functional import SimpleLazyObject
from numpy.typing import NDArray

from leaderboard.boards.benchmark.columns import COVERAGE
from leaderboard.boards.model import Board, Member, Row
from leaderboard.boards.pages import BenchmarkPage
from leaderboard.core.measures import better
from leaderboard.core.text.numbers import DECIMALS, MINUS
from leaderboard.figures.labels import NARROW, USUAL_MARK, far_labels, label_points
from leaderboard.figures.model import Cell, FigureRequest, Table
from leaderboard.models import Architecture, architecture_choices
from leaderboard.results.board_rows.entry_rows import REPORTED, STALE

#: Maximum number of ticks on a linear axis, on a wide screen and on a phone.
MAX_TICKS, MAX_NARROW_TICKS = 6, 4
#: Margin beyond the outermost points, as a share of their range; label placement uses the same.
MARGIN = 0.06 / 0.88


def lowercase_first(text: str) -> str:
    """Return the text as it appears within a sentence."""
    return text[:1].lower() + text[1:]


def capitalize_first(text: str) -> str:
    """Return the text as it begins a sentence or head; a measure's name (nDCG@10) keeps its letters."""
    return text[:1].upper() + text[1:] if text.split(" ")[0].isalpha() and text[1:2].islower() else text


def better_arrow(measure: str) -> str:
    return "← better" if better(measure) == "lower" else "better →"


def linear_axis(title: str, values: Sequence[float]) -> dict[str, Any]:
    """Return a linear axis with a margin around these values; a single value is centered."""
    low, high = min(values), max(values)
    room = MARGIN * (high - low) or max(0.1 * abs(high), 0.01)
    bounds = low - room, high + room
    return {"title": {"text": title}, "range": list(bounds), **linear_ticks(*bounds)}


def linear_ticks(
    low: float, high: float, *, signed: bool = False, percent: bool = False, max_ticks: int = MAX_TICKS
) -> dict[str, Any]:
    """Return up to `max_ticks` round ticks between two bounds, with as many decimals as distinguish them."""
    min_step = (high - low) / max_ticks
    power = 10.0 ** math.floor(math.log10(min_step))
    # The smallest of 1, 2, and 5 times a power of ten that is no smaller than that.
    step = power * next(factor for factor in (1, 2, 5, 10) if factor * power >= min_step * (1 - 1e-9))
    first_tick, last_tick = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    decimals = max(0, -math.floor(math.log10(step) + 1e-9))
    number_format = f".{max(decimals - 2, 0)}%" if percent else f"{'+' if signed else ''}.{decimals}f"
    values = [round(number * step, decimals) for number in range(first_tick, last_tick + 1)]
    return {
        "tickvals": values,
        "ticktext": [format(value, number_format).replace("-", MINUS) if value else "0" for value in values],
    }


def log_axis(title: str, values: Sequence[float]) -> dict[str, Any]:
    """Return a logarithmic axis with ticks at powers of ten.

    Axes of at most 3.2 decades also have ticks between powers of ten; those of at most 0.8 have linear ticks.
    """
    low, high = math.log10(min(values)), math.log10(max(values))
    room = 0.06 * max(high - low, 0.5)
    low, high = low - room, high + room
    factors = (1,) if high - low > 3.2 else (1, 2, 5) if high - low > 1.3 else (1, 2, 3, 5, 7)
    ticks = _log_ticks(low, high, factors) if high - low > 0.8 else linear_ticks(10**low, 10**high)["tickvals"]
    return {
        "type": "log",
        "title": {"text": title},
        "range": [low, high],
        "tickvals": ticks,
        "ticktext": [_format_quantity(tick) for tick in ticks],
    }


def _log_ticks(low: float, high: float, factors: Sequence[int]) -> list[float]:
    powers = range(math.floor(low), math.ceil(high) + 1)
    ticks = [factor * 10.0**power for power in powers for factor in factors]
    return [tick for tick in ticks if low <= math.log10(tick) <= high]


def _format_quantity(number: float) -> str:
    for factor, letter in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if number >= factor:
            return f"{number / (1e3 if letter == 'k' else factor):g}{letter}"
    return f"{number:g}"


INK = "var(--ink)"
MUTED_INK = "var(--ink-soft)"
PAPER = "var(--paper)"
#: Significantly better and worse after correction, in the hues of the boards; always combined with a sign.
BETTER, WORSE = "var(--figure-better)", "var(--figure-worse)"
#: The best system and those not separable from it, in the hues of the plot on a board's first screen.
BEST, TIED = "var(--link)", "var(--tied)"

BLUE = "var(--figure-blue)"
ORANGE = "var(--figure-orange)"
GREEN = "var(--figure-green)"
SKY = "var(--figure-sky)"
VERMILLION = "var(--figure-vermillion)"
PURPLE = "var(--figure-purple)"
OLIVE = "var(--figure-olive)"
GREY = "var(--figure-grey)"
#: Hues in the order in which categories use them.
HUES = (BLUE, ORANGE, GREEN, PURPLE, VERMILLION, SKY, OLIVE, GREY)
SYMBOLS = ("circle", "diamond", "square", "triangle-up", "cross", "triangle-down", "star", "x")

#: Color scale of heat maps, from low to high. INK is readable on all of it, but texts must ask for it:
#: Plotly's automatic choice, dark gray or white, is too weak on the middle of any scale.
SCALE = [[step / 4, f"var(--figure-scale-{step})"] for step in range(5)]
#: Wider scale of heat maps without texts, whose lowest cells differ more from the background.
FULL_SCALE = [[step / 5, f"var(--figure-scale-{step or 'low'})"] for step in range(6)]


class Mark(NamedTuple):
    """Color and symbol of a category."""

    color: str
    symbol: str


def mark(number: int) -> Mark:
    """Return the mark of the n-th category; after eight, hues repeat with other symbols."""
    return Mark(HUES[number % len(HUES)], SYMBOLS[(number + number // len(HUES)) % len(SYMBOLS)])


#: Marks by architecture. BM25 and other lexical systems are gray, as references.
ARCHITECTURE: dict[str, Mark] = {
    Architecture.LEXICAL.value: Mark(GREY, "circle"),
    Architecture.LEARNED_SPARSE.value: Mark(GREEN, "square"),
    Architecture.DENSE.value: Mark(BLUE, "diamond"),
    Architecture.LATE_INTERACTION.value: Mark(PURPLE, "triangle-up"),
    Architecture.RE_RANKING.value: Mark(VERMILLION, "cross"),
    Architecture.DOCUMENT_EXPANSION.value: Mark(ORANGE, "triangle-down"),
    Architecture.QUERY_AUGMENTATION.value: Mark(OLIVE, "star"),
    Architecture.GENERATIVE.value: Mark(SKY, "hexagon"),
    Architecture.FUSION.value: Mark(ORANGE, "pentagon"),
    Architecture.OTHER.value: Mark(GREY, "x"),
}


T = TypeVar("T")

#: Maximum number of bars in a picture.
MAX_BARS = 40
#: Height of a bar with its gap, and of the space above and below all bars, in pixels.
BAR, BAR_MARGIN = 24, 96
#: Maximum characters of a name, on a usual screen, on a phone, and of a query in a wider plot; longer names leave no
#: room for the plot.
MAX_NAME, MAX_NARROW_NAME, MAX_WIDE_NAME = 30, 18, 60


def row_name(row: Row) -> str:
    """Return the name of a row by itself; `distinct_names` tells several rows apart."""
    return row.entry.system + (f", {row.entry.configuration}" if row.entry.configuration else "")


def shorten(name: str, length: int = MAX_NAME) -> str:
    """Return at most `length` characters: of a model without its organization, and of names with both ends.

    Names of several words keep only their beginning, except on phones, where many of them begin in the same way.
    """
    name = name if len(name) <= length or " " in name else name.rpartition("/")[2] or name
    end = 0 if " " in name and length > MAX_NARROW_NAME else length // 2
    return name if len(name) <= length else name[: length - 1 - end].rstrip(" ,-") + "…" + name[len(name) - end :]


def limit_bars(rows: Sequence[T], order: str, kind: str, limit: int = MAX_BARS) -> tuple[list[T], list[str]]:
    """Return the first `limit` rows, and a note if there are more.

    In the note, `order` describes which come first, and `kind` which systems have a row.
    """
    if len(rows) <= limit:
        return list(rows), []
    note = f"The {limit} with the {order}, of the {len(rows)} systems {kind}. Use the board's filters to see others."
    return list(rows[:limit]), [note]


def bar_layout(
    names: Sequence[str], bar_height: int = BAR, /, *, narrow: Mapping[str, Any] | None = None, **options: Any
) -> go.Layout:
    """Return a layout for named horizontal bars or rows, the first on top; `options` are further layout options.

    `narrow` has options for phones, where names are shorter if it is given.
    """
    axis = {"range": [len(names) - 0.5, -0.5], "showgrid": False, "ticks": "", "type": "category", "dtick": 1}
    axis |= {"categoryorder": "array", "categoryarray": list(names)}
    narrow_axis = {**axis, "tickvals": list(names), "ticktext": [shorten(name, MAX_NARROW_NAME) for name in names]}
    defaults = {"height": max(len(names), 2) * bar_height + BAR_MARGIN, "bargap": 0.25, "legend_traceorder": "normal"}
    meta = {"narrow": {**narrow, "yaxis": narrow_axis}} if narrow else {}
    return go.Layout({**defaults, "yaxis": axis, "meta": meta}, **options)


#: Options of bars with unscaled texts in their middle.
INSIDE_TEXT = {"textposition": "inside", "insidetextanchor": "middle", "textangle": 0, "constraintext": "none"}


class Matrix(NamedTuple):
    """A matrix with row and column names. Empty `columns` means that the columns have the same names as the rows.

    Values, texts, and links are indexed by row, then column. The value of an empty cell is None.
    """

    names: Sequence[str]
    values: Sequence[Sequence[float | None]]
    texts: Sequence[Sequence[str]]
    columns: Sequence[str] = ()
    links: Sequence[Sequence[str]] = ()


def heatmap(matrix: Matrix, max_value: float, title: str, hover: str, gap: float = 2) -> go.Bar:
    """Return a heat map with texts that are readable on every hue of the scale.

    It consists of bars of width one, because Plotly's smallest bundle has no heat maps. `hover` gets row, column, and
    text as `%{customdata[0]}` to `[2]`. `gap` is the space between cells in pixels.
    """
    columns = matrix.columns or matrix.names
    positions = product(range(len(matrix.names)), range(len(columns)))
    cells = [(row, column) for row, column in positions if matrix.values[row][column] is not None]
    texts = [matrix.texts[row][column] for row, column in cells]
    links = {"links": [matrix.links[row][column] for row, column in cells]} if matrix.links else {}
    marker = {
        "color": [matrix.values[row][column] for row, column in cells],
        "colorscale": SCALE if any(texts) else FULL_SCALE,
        "cmin": 0,
        "cmax": max_value,
        "line": {"color": PAPER, "width": gap},
    }
    font = {"size": 12, "color": MUTED_INK}
    head = {"text": title, "side": "right", "font": font}
    bar = {"thickness": 10, "outlinewidth": 0, "title": head, "tickfont": font}
    return go.Bar(
        orientation="h",
        y=[row for row, _ in cells],
        base=[column - 0.5 for _, column in cells],
        x=[1] * len(cells),
        text=texts,
        insidetextfont_color=INK,
        **INSIDE_TEXT,
        customdata=[
            [matrix.names[row], columns[column], text] for (row, column), text in zip(cells, texts, strict=True)
        ],
        hovertemplate=f"{hover}<extra></extra>",
        marker={**marker, "colorbar": bar},
        meta={"narrow": {"marker": marker}, **links},
    )


def name_axes(
    names: Sequence[str], max_names: int | None = None, ids: Sequence[str] = (), **options: Any
) -> list[dict[str, Any]]:
    """Return the axes for screens, phones, and plots wider than 1000 px.

    They have all names or `max_names` evenly spaced ones, including the first and the last. Names that are equal when
    shortened are followed by their `ids`.
    """
    positions = spread_positions(len(names), max_names or len(names)).tolist()
    style = {"range": [-0.5, len(names) - 0.5], "showgrid": False, "zeroline": False, "ticks": "", **options}

    def distinct_texts(length: int) -> list[str]:
        texts = [shorten(names[position], length) for position in positions]
        suffixes = [f" ({shorten(name, length // 2)})" for name in ids]
        return [
            shorten(names[position], length - len(suffixes[position])) + suffixes[position]
            if ids and texts.count(text) > 1
            else text
            for position, text in zip(positions, texts, strict=True)
        ]

    lengths = (MAX_NAME, MAX_NARROW_NAME, MAX_WIDE_NAME)
    return [{"tickvals": positions, "ticktext": distinct_texts(length), **style} for length in lengths]


def spread_positions(total: int, max_positions: int) -> NDArray[np.intp]:
    """Return up to `max_positions` evenly spaced positions, including the first and the last."""
    return np.unique(np.linspace(0, total - 1, min(total, max_positions)).round().astype(int))


def heatmap_layout(height: int, names: Sequence[str], x_options: dict[str, Any], **options: Any) -> go.Layout:
    """Return the layout of a heat map; `x_options` has further options of its horizontal axis."""
    low, high = -0.5, len(names) - 0.5
    axis = {"tickvals": list(range(len(names))), "ticktext": list(names), "showgrid": False, "ticks": ""}
    axis["zeroline"] = False
    xaxis, yaxis = {**axis, "range": [low, high], **x_options}, {**axis, "range": [high, low]}
    return go.Layout(height=height, bargap=0, showlegend=False, xaxis=xaxis, yaxis=yaxis, **options)


if TYPE_CHECKING:
    import plotly.graph_objects as go
else:

    def _graph_objects() -> Any:
        import pandas  # noqa: F401  plotly uses it even while another thread is still importing it.
        import plotly.graph_objects

        return plotly.graph_objects

    go = SimpleLazyObject(_graph_objects)


#: Minimum number of systems of a figure that compares systems with each other.
MIN_SYSTEMS = 3


def comparable_rows(board: Board) -> list[Row]:
    """Return the board's distinct rows except stale ones, which were scored on earlier judgments.

    Reported rows are those of the ranking with most rows.
    """
    other_rankings = {STALE, *board.rankings[1:]}
    rows_by_id: dict[int, Row] = {id(row): row for row in board.rows if row.ranking not in other_rankings}
    return list(rows_by_id.values())


def majority_kind(rows: Sequence[Row]) -> tuple[list[Row], str]:
    """Return the rows of the most frequent kind, by `ranked_in`, and that kind. Reported results lose ties."""
    counts = Counter(row.ranked_in for row in rows)
    kind = max(counts, key=lambda kind: (counts[kind], kind != REPORTED), default="")
    return [row for row in rows if row.ranked_in == kind], kind


def describe_kind(kind: str) -> str:
    return "reported figures" if kind == REPORTED else "results scored by Runboard"


def distinct_names(rows: Sequence[Row]) -> list[str]:
    """Return distinct, shortened names of the rows, with the configuration or a number if a system has several rows.

    If there are reported and scored rows, (r) marks the reported ones.
    """
    has_both_kinds = len({row.ranked_in for row in rows}) > 1
    row_counts = Counter(row.entry.system for row in rows)
    names: list[str] = []
    for row in rows:
        entry, name = row.entry, shorten(row.entry.system)
        if row_counts[entry.system] > 1 and entry.configuration:
            name = shorten(f"{entry.system}, {entry.configuration}")
        name += " (r)" if has_both_kinds and row.ranked_in == REPORTED else ""
        number = 2
        while name in names:
            name, number = f"{name.removesuffix(f' [{number - 1}]')} [{number}]", number + 1
        names.append(name)
    return names


def rows_across_datasets(board: Board) -> list[Row]:
    """Return the comparable rows that have several of the datasets that a benchmark counts."""
    return [row for row in comparable_rows(board) if (value(row, COVERAGE) or 0.0) > 1]


def compares_datasets(board: Board) -> bool:
    """Return whether enough systems of one kind, reported or scored, have several of a benchmark's datasets."""
    return len(majority_kind(rows_across_datasets(board))[0]) >= MIN_SYSTEMS


def inline_title(board: Board) -> str:
    """Return the board's title as it appears within a sentence."""
    return f"“{board.title}”" if set(board.title) & set(":,;") else board.title


def visible_datasets(page: BenchmarkPage, *, counted_only: bool = True) -> list[Member]:
    """Return the benchmark's datasets in this view, all of them or only those that count."""
    columns = {column.key for column in page.board.columns}
    return [member for member in page.members if member.slug in columns and (member.counted or not counted_only)]


def counted_datasets(members: Iterable[Member]) -> list[int]:
    """Return the ids of the datasets that count in a benchmark, and of their parts."""
    counted_members = [member for member in members if member.counted]
    parts = [part.dataset_id for member in counted_members for part in member.parts]
    return [member.dataset_id for member in counted_members] + parts


def value(row: Row, column: str) -> float | None:
    """Return the row's number in a column, rounded as on the board, or None if it has no number."""
    number = row.value(column)
    return round(float(number), row.decimals) if isinstance(number, (int, float)) else None


def mean(row: Row, datasets: Sequence[Member]) -> float | None:
    """Return the row's mean over datasets, or None if it lacks any of them."""
    values = [row.value(dataset.slug) for dataset in datasets]
    numbers = [number for number in values if isinstance(number, (int, float))]
    is_complete = numbers and len(numbers) == len(values)
    return round(sum(numbers) / len(numbers), row.decimals) if is_complete else None


def score_format(rows: Sequence[Row], sign: str = "") -> str:
    return f"{sign}.{min(DECIMALS, max((row.decimals for row in rows), default=DECIMALS))}f"


def select_rows(rows: Sequence[Row], slugs: Sequence[str], max_rows: int) -> list[Row]:
    """Return up to `max_rows` rows: those of the given systems, then others in board order."""
    selected_rows = [row for slug in slugs for row in rows if row.entry.slug == slug]
    other_rows = [row for row in rows if row.entry.slug not in slugs]
    return [*selected_rows, *other_rows][:max_rows]


def omission_note(rows: Sequence[Row], reason: str, max_names: int = 12) -> list[str]:
    """Return a note that names the systems omitted from a picture, or no notes."""
    names = list(dict.fromkeys(row.entry.system for row in rows))
    return [f"Not shown ({reason}): {list_names(names, max_names)}."] if names else []


def list_names(names: Sequence[str], max_names: int = 12) -> str:
    """Return the first `max_names` names separated by commas, with the number of those that are omitted."""
    remainder = f" and {len(names) - max_names} more" if len(names) > max_names else ""
    return f"{', '.join(names[:max_names])}{remainder}"


def count_systems(number: int) -> str:
    return "1 system" if number == 1 else f"{number} systems"


def lower_is_better(board: Board) -> bool:
    return better(board.measure) == "lower"


def running_best(scores: Sequence[float], *, lower: bool) -> list[int]:
    """Return the positions of the scores that are better than all before them."""
    sign = -1 if lower else 1
    positions: list[int] = []
    for position, score in enumerate(scores):
        if not positions or sign * score > sign * scores[positions[-1]]:
            positions.append(position)
    return positions


def effectiveness_column(request: FigureRequest, board: Board) -> tuple[str, str]:
    """Return key and title of the board's effectiveness column.

    It is a dataset's measure, a benchmark's mean, or without means the benchmark's first visible dataset.
    """
    keys = [column.key for column in board.columns]
    if request.dataset:
        return board.measure, board.measure
    if "mean" in keys:
        counted_slugs = [member.slug for member in request.benchmark_page.members if member.counted]
        return "mean", f"mean {board.measure} over {len(set(counted_slugs) & set(keys))} datasets"
    visible_dataset = next(member for member in request.benchmark_page.members if member.slug in keys)
    return visible_dataset.slug, visible_dataset.measure(board.measure)


class ChartPoint(NamedTuple):
    """A system's point in a chart.

    `lines` are shown below the name on hover, `ends` is the interval of its score. `x` is a number or a date. `size` is
    the diameter of the mark in pixels; on phones, marks larger than that of a usual point are smaller. `variant` is a
    suffix of Plotly's symbols, such as `-open` for a hollow mark.
    """

    row: Row
    name: str
    x: Any
    y: float
    lines: Sequence[str]
    ends: tuple[float, float] | None = None
    size: float = USUAL_MARK
    variant: str = ""


def traces_by_architecture(
    points: Sequence[ChartPoint],
    label_order: Sequence[int] | None = None,
    *,
    line: Sequence[int] = (),
    log_x: bool = False,
) -> tuple[list[go.Scatter], dict[str, Any]]:
    """Return one trace of points per architecture, and the layout options of their labels.

    Baselines have a ring, and are larger among points of the usual size. All points have names, or those at the
    positions in `label_order`. `line` has the positions of the points that a stepped line connects.
    """
    names, coordinates = [point.name for point in points], [(point.x, point.y) for point in points]
    ends = [point.ends or (point.y, point.y) for point in points] if any(point.ends for point in points) else ()
    shown, mark_sizes = range(len(points)) if label_order is None else label_order, [point.size for point in points]
    lines = [(line, line[-1])] if len(line) > 1 else []
    labels = label_points(names, coordinates, shown, lines=lines, log_x=log_x, ends=ends, sizes=mark_sizes)
    traces = []
    for architecture, name in architecture_choices():
        mark = ARCHITECTURE.get(architecture, ARCHITECTURE["other"])
        positions = [position for position, point in enumerate(points) if point.row.entry.architecture == architecture]
        positions.sort(key=lambda number: -points[number].size)  # Small marks are drawn above large ones.
        members = [points[number] for number in positions]
        baselines = [point.row.entry.is_baseline for point in members]
        if members:
            sizes = [
                15.0 if ring and point.size == USUAL_MARK else point.size
                for point, ring in zip(members, baselines, strict=True)
            ]
            marker = {
                "color": mark.color,
                "symbol": [mark.symbol + point.variant for point in members],
                "opacity": 0.85,
                "size": sizes,
                "line": {
                    "color": [INK if is_baseline else PAPER for is_baseline in baselines],
                    "width": [2 if is_baseline else 1 for is_baseline in baselines],
                },
            }
            bars = error_bars([point.y for point in members], [point.ends for point in members], mark.color)
            trace_labels = [labels[number] for number in positions]
            narrow_marker = {**marker, "size": [NARROW.mark_size(size) for size in sizes]}
            trace = point_trace(name, members, trace_labels, marker, narrow={"marker": narrow_marker}, error_y=bars)
            traces.append(trace)
    return traces, far_labels(names, coordinates, labels, log_x=log_x)


def points_table(
    points: Sequence[ChartPoint], x: tuple[str, str], y: tuple[str, str], *extra_columns: tuple[str, Sequence[Cell]]
) -> Table:
    """Return the table of points. `x` and `y` are the heads and formats of their columns."""
    return Table.from_columns(
        ("System", [point.name for point in points]),
        (x[0], [point.x for point in points], x[1]),
        (y[0], [point.y for point in points], y[1]),
        *extra_columns,
    )


def system_url(row: Row) -> str:
    return reverse("system", args=[row.entry.slug])


def error_bars(numbers: Sequence[float], ends: Sequence[tuple[float, float] | None], color: str) -> dict[str, Any]:
    """Return the options of a trace's error bars from interval ends; a missing interval has length zero."""
    pairs = [(number, *(pair or (number, number))) for number, pair in zip(numbers, ends, strict=True)]
    bars = {
        "array": [round(high - number, 6) for number, _, high in pairs],
        "arrayminus": [round(number - low, 6) for number, low, _ in pairs],
    }
    return {"type": "data", "symmetric": False, **bars, "color": color, "thickness": 1.3, "width": 0}


def point_trace(
    name: str,
    points: Sequence[ChartPoint],
    labels: Sequence[Mapping[str, Any]],
    marker: Mapping[str, Any],
    *,
    narrow: Mapping[str, Any] | None = None,
    **options: Any,
) -> go.Scatter:
    """Return a trace of points with labels and links. The hover text has the name and lines of a point as plain text.

    `narrow` has further options for phones.
    """
    lines = [[point.name, *point.lines] for point in points]
    template = "<br>".join(f"%{{customdata[{number}]}}" for number in range(len(lines[0])))
    links = [system_url(point.row) for point in points]
    return go.Scatter(
        mode="markers+text",
        name=name,
        x=[point.x for point in points],
        y=[point.y for point in points],
        **_label_texts(labels),
        meta={"narrow": _label_texts([label["narrow"] for label in labels]) | dict(narrow or {}), "links": links},
        customdata=lines,
        hovertemplate=f"{template}<extra></extra>",
        cliponaxis=False,
        marker=marker,
        **options,
    )


def _label_texts(labels: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    return {key: [label[key] for label in labels] for key in ("text", "textposition")}


def line_trace(name: str, x: Sequence[Any], y: Sequence[Any], line: Mapping[str, Any], **options: Any) -> go.Scatter:
    """Return a line without hover text, unless `options` has a template."""
    hover = {} if "hovertemplate" in options else {"hoverinfo": "skip"}
    return go.Scatter(mode="lines", name=name, x=x, y=y, line=line, **hover, **options)


def area_trace(
    name: str, outline: Sequence[tuple[Any, Any]], color: str, opacity: float, *, line_width: int = 0, **options: Any
) -> go.Scatter:
    """Return a filled area within a closed outline."""
    x, y = [x for x, _ in outline], [y for _, y in outline]
    style = {"width": line_width, "color": color}
    return line_trace(name, x, y, style, fill="toself", fillcolor=color, opacity=opacity, **options)
