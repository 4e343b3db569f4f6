"""Parts of pictures that several figures share: axes, hues, bars, rows and points of boards, and labels.

Hues can be told apart whichever way people see color (after Okabe and Ito); each has a symbol. A color is a custom
property of static/css/figures.css, which has a value for the light and one for the dark scheme; the browser puts it
in. So a figure's data is the same for both. Plotly is imported when the first figure is drawn: a page with frames draws
none.

No label covers another one. A name without room beside its point is further off, with a line to it; if points are many,
some names are only in the table. Architectures have a symbol and a hue each.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from django.urls import reverse
from django.utils.functional import SimpleLazyObject

from leaderboard.boards.model import Board, Member, Row
from leaderboard.boards.pages import BenchmarkPage
from leaderboard.boards.system.depth import LabelBox
from leaderboard.core.measures import better
from leaderboard.core.text.numbers import DECIMALS, MINUS
from leaderboard.figures.model import Cell, FigureRequest, Table
from leaderboard.models import Architecture, architecture_choices
from leaderboard.results.board_rows.entry_rows import REPORTED, STALE

#: So many ticks at most on a linear axis, and on one of a phone's width.
MOST_TICKS, MOST_NARROW_TICKS = 6, 4
#: What is free beyond the outermost points, as a share of what they span; labels are placed with the same.
ROOM = 0.06 / 0.88


def uncapitalised(text: str) -> str:
    """The text as it stands within a sentence; what it has of units keeps its letters."""
    return text[:1].lower() + text[1:]


def sentence(text: str) -> str:
    """The text as a sentence or a head begins; a measure's name (nDCG@10) keeps its letters."""
    return text[:1].upper() + text[1:] if text.split(" ")[0].isalpha() and text[1:2].islower() else text


def linear_axis(title: str, values: Sequence[float]) -> dict[str, Any]:
    """A linear axis with room around these values; equal ones stand in its middle."""
    low, high = min(values), max(values)
    room = ROOM * (high - low) or max(0.1 * abs(high), 0.01)
    bounds = low - room, high + room
    return {"title": {"text": title}, "range": list(bounds), **linear_ticks(*bounds)}


def linear_ticks(
    low: float, high: float, *, signed: bool = False, percent: bool = False, most: int = MOST_TICKS
) -> dict[str, Any]:
    """Ticks between two bounds, so many at most, at round numbers: with as many decimals as tell them apart."""
    least = (high - low) / most
    power = 10.0 ** math.floor(math.log10(least))
    # The smallest of 1, 2 and 5 times a power of ten that is no less.
    step = power * next(factor for factor in (1, 2, 5, 10) if factor * power >= least * (1 - 1e-9))
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    decimals = max(0, -math.floor(math.log10(step) + 1e-9))
    form = f".{max(decimals - 2, 0)}%" if percent else f"{'+' if signed else ''}.{decimals}f"
    values = [round(number * step, decimals) for number in range(first, last + 1)]
    return {
        "tickvals": values,
        "ticktext": [format(value, form).replace("-", MINUS) if value else "0" for value in values],
    }


def log_axis(title: str, values: Sequence[float], *, sparse: bool = False) -> dict[str, Any]:
    """A logarithmic axis for these values, ticked at powers of ten; unless `sparse`, few get more between."""
    low, high = math.log10(min(values)), math.log10(max(values))
    room = 0.06 * max(high - low, 0.5)
    low, high = low - room, high + room
    ticks = _log_ticks(low, high, (1, 2, 5) if high - low < 3.2 and not sparse else (1,))
    if len(ticks) < 2:
        ticks = _log_ticks(low, high, (1, 2, 5))
    if len(ticks) < 2:
        ticks = linear_ticks(10**low, 10**high)["tickvals"]
    return {
        "type": "log",
        "title": {"text": title},
        "range": [low, high],
        "tickvals": ticks,
        "ticktext": [_quantity(tick) for tick in ticks],
    }


def _log_ticks(low: float, high: float, factors: Sequence[int]) -> list[float]:
    """These multiples of powers of ten between two logarithms."""
    powers = range(math.floor(low), math.ceil(high) + 1)
    ticks = [factor * 10.0**power for power in powers for factor in factors]
    return [tick for tick in ticks if low <= math.log10(tick) <= high]


def _quantity(number: float) -> str:
    """A tick in few characters: 0.5, 20, 5k, 2M."""
    for factor, letter in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if number >= factor:
            return f"{number / (1e3 if letter == 'k' else factor):g}{letter}"
    return f"{number:g}"


INK = "var(--ink)"
SOFT = "var(--ink-soft)"
PAPER = "var(--paper)"
#: Better and worse, as on the boards; always with a sign.
BETTER, WORSE = "var(--up)", "var(--down)"

BLUE = "var(--figure-blue)"
ORANGE = "var(--figure-orange)"
GREEN = "var(--figure-green)"
SKY = "var(--figure-sky)"
VERMILLION = "var(--figure-vermillion)"
PURPLE = "var(--figure-purple)"
OLIVE = "var(--figure-olive)"
GREY = "var(--figure-grey)"
#: In the order in which several kinds of things get them.
HUES = (BLUE, ORANGE, GREEN, PURPLE, VERMILLION, SKY, OLIVE, GREY)
SYMBOLS = ("circle", "diamond", "square", "triangle-up", "cross", "triangle-down", "star", "x")

#: A scale from nothing to much, on paper; for heat maps. All of it is a ground for INK, which texts have to ask for:
#: Plotly's own choice, dark grey or white, is too weak on the middle of any scale.
SCALE = [[step / 4, f"var(--figure-scale-{step})"] for step in range(5)]


class Mark(NamedTuple):
    """How a kind of thing is drawn."""

    color: str
    symbol: str


def mark(number: int) -> Mark:
    """The mark of the n-th kind; after eight they repeat, with other symbols."""
    return Mark(HUES[number % len(HUES)], SYMBOLS[(number + number // len(HUES)) % len(SYMBOLS)])


#: By architecture, always the same. BM25 and other lexical ones are grey: what is compared with.
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

#: More bars than that are no picture any more.
MOST_BARS = 40
#: The height of a bar with its gap, and of what is above and below all bars, in pixels.
BAR, AROUND = 24, 96
#: Names are cut to so many characters, on a phone to fewer: longer ones leave no room for what they name.
LONGEST_NAME, LONGEST_NARROW_NAME = 30, 18


def row_name(row: Row) -> str:
    """How one row is called, whichever others there are; `rows.names_of` tells several apart."""
    return row.entry.system + (f", {row.entry.configuration}" if row.entry.configuration else "")


def cut(name: str, length: int = LONGEST_NAME) -> str:
    """The name, cut where it is longer."""
    return name if len(name) <= length else name[: length - 1].rstrip(" ,-") + "…"


def rows_of_bars(rows: Sequence[T], first: str) -> tuple[list[T], list[str]]:
    """As many rows as make a picture, and a note that says which where there are more; `first` names the order."""
    if len(rows) <= MOST_BARS:
        return list(rows), []
    note = f"The {MOST_BARS} of {len(rows)} systems with the {first}; the board's filters choose others."
    return list(rows[:MOST_BARS]), [note]


def bar_layout(number: int, each: int = BAR, /, **more: Any) -> go.Layout:
    """A layout for so many horizontal bars or rows, the first on top; `more` is what else it says."""
    axis = {"autorange": "reversed", "showgrid": False, "ticks": "", "type": "category"}
    usual = {"height": max(number, 2) * each + AROUND, "bargap": 0.25, "legend_traceorder": "normal"}
    return go.Layout({**usual, "yaxis": axis}, **more)


class NameSquare(NamedTuple):
    """Names against themselves: values by row and column, None for an empty cell, with their texts."""

    names: Sequence[str]
    values: Sequence[Sequence[float | None]]
    texts: Sequence[Sequence[str]]


def heatmap(square: NameSquare, most: float, title: str, hover: str) -> go.Bar:
    """A square of names against themselves, with texts that can be read on every hue of the scale.

    It is made of bars one wide, which plotly's smallest bundle has: `hover` gets row, column and text as
    `%{customdata[0]}` to `[2]`.
    """
    numbers = range(len(square.names))
    places = [
        (row, column) for row in numbers for column in numbers if square.values[row][column] is not None
    ]
    texts = [square.texts[row][column] for row, column in places]
    marker = {
        "color": [square.values[row][column] for row, column in places],
        "colorscale": SCALE,
        "cmin": 0,
        "cmax": most,
        "line": {"color": PAPER, "width": 2},
    }
    bar = {"thickness": 10, "outlinewidth": 0, "title": {"text": title, "side": "right"}}
    return go.Bar(
        orientation="h",
        y=[row for row, _ in places],
        base=[column - 0.5 for _, column in places],
        x=[1] * len(places),
        text=texts,
        textposition="inside",
        insidetextanchor="middle",
        insidetextfont_color=INK,
        textangle=0,
        constraintext="none",
        customdata=[
            [square.names[row], square.names[column], text]
            for (row, column), text in zip(places, texts, strict=True)
        ],
        hovertemplate=f"{hover}<extra></extra>",
        marker={**marker, "colorbar": bar},
        meta={"narrow": {"marker": marker}},
    )


def heatmap_layout(height: int, names: Sequence[str], across: dict[str, Any], **more: Any) -> go.Layout:
    """The layout of a square of names; `across` is what its horizontal axis says beside the names."""
    low, high = -0.5, len(names) - 0.5
    axis = {"tickvals": list(range(len(names))), "ticktext": list(names), "showgrid": False, "ticks": ""}
    axis["zeroline"] = False
    xaxis, yaxis = {**axis, "range": [low, high], **across}, {**axis, "range": [high, low]}
    return go.Layout(height=height, bargap=0, showlegend=False, xaxis=xaxis, yaxis=yaxis, **more)


if TYPE_CHECKING:
    import plotly.graph_objects as go
else:

    def _graph_objects() -> Any:
        import plotly.graph_objects

        return plotly.graph_objects

    go = SimpleLazyObject(_graph_objects)


#: The column of wins, ties and losses over datasets.
WINS = "wins"


def present(board: Board) -> list[Row]:
    """The rows that are ranked: what was scored on earlier judgements is compared with nothing."""
    seen: dict[int, Row] = {id(row): row for row in board.rows if row.ranked_in != STALE}
    return list(seen.values())


def rows_of_kind(rows: Sequence[Row]) -> tuple[list[Row], str]:
    """The rows of one kind, reported or scored: of that which has more (scored, where both have as many), and which."""
    counts = Counter(row.ranked_in for row in rows)
    kind = max(counts, key=lambda kind: (counts[kind], kind != REPORTED), default="")
    return [row for row in rows if row.ranked_in == kind], kind


def describe_kind(kind: str) -> str:
    """What rows of one kind are, as captions say it."""
    return "reported figures" if kind == REPORTED else "results scored here"


def names_of(rows: Sequence[Row]) -> list[str]:
    """How the rows are called, each differently: by configuration or number where a system has several.

    (r) marks what is reported where the rows are of both kinds.
    """
    mixed = len({row.ranked_in for row in rows}) > 1
    several = Counter(row.entry.system for row in rows)
    names: list[str] = []
    for row in rows:
        entry, name = row.entry, cut(row.entry.system)
        if several[entry.system] > 1 and entry.configuration:
            name = cut(f"{entry.system}, {entry.configuration}")
        name += " (r)" if mixed and row.ranked_in == REPORTED else ""
        number = 2
        while name in names:
            name, number = f"{name.removesuffix(f' [{number - 1}]')} [{number}]", number + 1
        names.append(name)
    return names


def counts_several(board: Board) -> bool:
    """Whether a benchmark has several counted datasets; its board has their wins then, with a BM25 or without."""
    return board.column(WINS) is not None


def titled(board: Board) -> str:
    """The board's title as it stands within a sentence."""
    return f"“{board.title}”" if set(board.title) & set(":,;") else board.title


def datasets_of(page: BenchmarkPage, *, counted: bool = True) -> list[Member]:
    """The benchmark's datasets in this view, only those that count or all."""
    columns = {column.key for column in page.board.columns}
    return [member for member in page.members if member.slug in columns and (member.counted or not counted)]


def counted_datasets(members: Iterable[Member]) -> list[int]:
    """The ids of the datasets that count in a benchmark, and of their parts."""
    counted = [member for member in members if member.counted]
    parts = [part.dataset_id for member in counted for part in member.parts]
    return [member.dataset_id for member in counted] + parts


def value(row: Row, column: str) -> float | None:
    """A number of the row as the board writes it, None where it has none."""
    number = row.value(column)
    return round(float(number), row.decimals) if isinstance(number, (int, float)) else None


def mean(row: Row, places: Sequence[Member]) -> float | None:
    """The row's mean over datasets, None unless it has all of them."""
    values = [row.value(place.slug) for place in places]
    numbers = [number for number in values if isinstance(number, (int, float))]
    complete = numbers and len(numbers) == len(values)
    return round(sum(numbers) / len(numbers), row.decimals) if complete else None


def score_format(rows: Sequence[Row], sign: str = "") -> str:
    """The format of scores of these rows: as many decimals as the board shows."""
    return f"{sign}.{min(DECIMALS, max((row.decimals for row in rows), default=DECIMALS))}f"


def chosen_first(rows: Sequence[Row], slugs: Sequence[str], most: int) -> list[Row]:
    """The rows of the systems named, then others in the order of the board, so many at most."""
    named = [row for slug in slugs for row in rows if row.entry.slug == slug]
    others = [row for row in rows if row.entry.slug not in slugs]
    return [*named, *others][:most]


def left_out_note(rows: Sequence[Row], why: str, most: int = 12) -> list[str]:
    """A note that names the systems that a picture leaves out, nothing where there are none."""
    names = list(dict.fromkeys(row.entry.system for row in rows))
    return [f"Left out, {why}: {list_names(names, most)}."] if names else []


def list_names(names: Sequence[str], most: int = 12) -> str:
    """The names in one line, and how many more there are."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return f"{', '.join(names[:most])}{more}"


def lower_is_better(board: Board) -> bool:
    """Whether the board's measure is better where it is lower."""
    return better(board.measure) == "lower"


def running_best(scores: Sequence[float], *, lower: bool) -> list[int]:
    """The places of the scores that are better than all before them."""
    sign = -1 if lower else 1
    best: list[int] = []
    for place, score in enumerate(scores):
        if not best or sign * score > sign * scores[best[-1]]:
            best.append(place)
    return best


def effectiveness(request: FigureRequest, board: Board) -> tuple[str, str]:
    """The column that says how good systems are, and what it has: a dataset's measure, or a mean over datasets."""
    keys = [column.key for column in board.columns]
    if request.dataset:
        return board.measure, board.measure
    if "mean" in keys:
        counted = [member.slug for member in request.benchmark_page.members if member.counted]
        return "mean", f"mean {board.measure} over {len(set(counted) & set(keys))} datasets"
    shown = next(member for member in request.benchmark_page.members if member.slug in keys)
    return shown.slug, shown.measure(board.measure)


#: Pixels: the assumed height of a picture, a line of text, the gap beside a point, and the widths of a small letter and
#: of others in a wide typeface.
HEIGHT, LINE, GAP, SMALL, LARGE = 330.0, 15.0, 7.0, 7.0, 8.7


class PictureWidth(NamedTuple):
    """Width inside the axes in pixels, how far names may reach beyond the right edge, and the size of letters."""

    width: float
    beyond: float
    letters: float


WIDE, NARROW = PictureWidth(660.0, 12.0, 1.0), PictureWidth(250.0, 4.0, 0.9)
#: Distance of a label's upper left corner from its point: shares of its width and height, and pixels.
Offset = tuple[float, float, float, float]
#: Plotly's words for the places beside a point, by preference.
POSITIONS: dict[str, Offset] = {
    "middle right": (0.0, -0.5, GAP, 0.0),
    "top center": (-0.5, -1.0, 0.0, -GAP),
    "bottom center": (-0.5, 0.0, 0.0, GAP),
    "middle left": (-1.0, -0.5, -GAP, 0.0),
    "top right": (0.0, -1.0, 0.7 * GAP, -0.3 * GAP),
    "bottom right": (0.0, 0.0, 0.7 * GAP, 0.3 * GAP),
    "top left": (-1.0, -1.0, -0.7 * GAP, -0.3 * GAP),
    "bottom left": (-1.0, 0.0, -0.7 * GAP, 0.3 * GAP),
}
#: Places further off, from the nearest on: where a text begins right of the point or ends left of it, and pixels below.
FAR = [(side, row * 16) for row in (-1, 1, -2, 2, -3, 3, -4, 4, -5, 5, -6, 6, -7, 7) for side in (26, -26)]
#: Among so many points every name is looked a place for further off, among more only those that choose first.
MOST_FAR = 25
#: For points on a line, whose right is taken by it.
ABOVE_FIRST = sorted(POSITIONS, key=lambda position: not position.startswith("top"))


def label_points(
    names: Sequence[str],
    points: Sequence[tuple[float, float]],
    *,
    first: Sequence[int] = (),
    log_x: bool = False,
    ends: Sequence[tuple[float, float]] = (),
    far: bool = True,
) -> list[dict[str, Any]]:
    """Return what a trace says of each label: `text` and `textposition`, the same for phones, or how `far` it is.

    The names at the places `first` choose first. A label without room has no text. `ends` has those of every point's
    interval, or is empty. With `far` the layout needs `far_labels`.
    """
    across = _shares([math.log10(x) if log_x else x for x, _ in points])
    up = _shares([*(y for _, y in points), *(end for pair in ends for end in pair)])

    def place(picture: PictureWidth) -> list[dict[str, Any]]:
        tops = [(1 - share) * HEIGHT for share in up]
        spots = [(share * picture.width, top) for share, top in zip(across, tops, strict=False)]
        taken = [LabelBox(x - GAP + 1, y - GAP + 1, x + GAP - 1, y + GAP - 1) for x, y in spots]
        intervals = zip(tops[len(points) :: 2], tops[len(points) + 1 :: 2], strict=True)
        taken += [
            LabelBox(x - 2, min(pair), x + 2, max(pair))
            for (x, _), pair in zip(spots, intervals, strict=False)
        ]
        labels: list[dict[str, Any]] = [{"text": "", "textposition": "middle right"} for _ in names]
        for number in dict.fromkeys([*first, *range(len(names))]):
            leads = number in first
            others = [box for place, box in enumerate(taken) if place != number]
            for offset, label in _candidates(
                names[number], leads=leads, far=far and (leads or len(names) <= MOST_FAR)
            ):
                box = _box(offset, picture.letters * width_of(names[number]), spots[number])
                inside = box.left >= 0 and box.right <= picture.width + picture.beyond
                inside = inside and box.top >= -10 and box.bottom <= HEIGHT + 5
                if inside and not any(map(box.meets, others)):
                    labels[number] |= label
                    taken.append(box)
                    break
        return labels

    return [{**label, "narrow": small} for label, small in zip(place(WIDE), place(NARROW), strict=True)]


def _candidates(name: str, *, leads: bool, far: bool) -> Iterator[tuple[Offset, dict[str, Any]]]:
    """Yield the places that a label may have, by preference, with what its trace says there."""
    for position in ABOVE_FIRST if leads else POSITIONS:
        yield POSITIONS[position], {"text": name, "textposition": position}
    for right, below in FAR if far else ():
        yield (-1.0 if right < 0 else 0.0, -0.5, right, below), {"far": (right, below)}


def width_of(name: str) -> float:
    """How wide a name is at most on a wide screen, in pixels."""
    return sum(SMALL if sign.islower() or sign in " .,-()[]" else LARGE for sign in name)


def _box(offset: Offset, width: float, point: tuple[float, float]) -> LabelBox:
    across, down, right, below = offset
    left, top = point[0] + across * width + right, point[1] + down * LINE + below
    return LabelBox(left, top, left + width, top + LINE)


def far_labels(
    names: Sequence[str],
    points: Sequence[tuple[Any, float]],
    labels: Sequence[Mapping[str, Any]],
    *,
    log_x: bool = False,
) -> dict[str, Any]:
    """What a layout says of the labels that stand further off: `annotations`, and those of a phone."""

    def annotations(of_width: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        return [
            {
                "x": math.log10(x) if log_x else x,
                "y": y,
                "text": name,
                "ax": label["far"][0],
                "ay": label["far"][1],
                "xanchor": "left" if label["far"][0] > 0 else "right",
                "arrowhead": 0,
                "arrowwidth": 1,
                "arrowcolor": SOFT,
                "standoff": 6,
            }
            for name, (x, y), label in zip(names, points, of_width, strict=True)
            if "far" in label
        ]

    narrow = {"annotations": annotations([label["narrow"] for label in labels])}
    return {"annotations": annotations(labels), "meta": {"narrow": narrow}}


def _shares(numbers: Sequence[float]) -> list[float]:
    """Return the place of each number between the least and the greatest, on axes with a margin of a twentieth."""
    low, high = min(numbers), max(numbers)
    return [0.5 if low == high else 0.06 + 0.88 * (number - low) / (high - low) for number in numbers]


class ChartPoint(NamedTuple):
    """A system at its place; `lines` are what hovering shows below the name, `ends` those of its score's interval.

    `x` is a number, or a day.
    """

    row: Row
    name: str
    x: Any
    y: float
    lines: Sequence[str]
    ends: tuple[float, float] | None = None


def traces_by_architecture(
    points: Sequence[ChartPoint], *, first: Sequence[int] = (), log_x: bool = False
) -> tuple[list[go.Scatter], dict[str, Any]]:
    """The points by architecture, baselines larger and ringed, and what the layout says of their names.

    The names at `first` find a place before the others.
    """
    names, places = [point.name for point in points], [(point.x, point.y) for point in points]
    ends = [point.ends or (point.y, point.y) for point in points] if any(one.ends for one in points) else ()
    labels = label_points(names, places, first=first, log_x=log_x, ends=ends)
    traces = []
    for architecture, name in architecture_choices():
        mark = ARCHITECTURE.get(architecture, ARCHITECTURE["other"])
        places_of = [n for n, point in enumerate(points) if point.row.entry.architecture == architecture]
        mine = [points[number] for number in places_of]
        baselines = [point.row.entry.is_baseline for point in mine]
        if mine:
            marker = {
                "color": mark.color,
                "symbol": mark.symbol,
                "size": [15 if is_baseline else 11 for is_baseline in baselines],
                "line": {
                    "color": [INK if is_baseline else PAPER for is_baseline in baselines],
                    "width": [2 if is_baseline else 1 for is_baseline in baselines],
                },
            }
            bars = whiskers([point.y for point in mine], [point.ends for point in mine], mark.color)
            of_trace = [labels[number] for number in places_of]
            traces.append(point_trace(name, mine, of_trace, marker, error_y=bars))
    return traces, far_labels(names, places, labels, log_x=log_x)


def points_table(
    points: Sequence[ChartPoint], x: tuple[str, str], y: tuple[str, str], *more: tuple[str, Sequence[Cell]]
) -> Table:
    """Return the table of points. `x` and `y` are the heads and formats of their columns."""
    return Table.of(
        ("System", [point.name for point in points]),
        (x[0], [point.x for point in points], x[1]),
        (y[0], [point.y for point in points], y[1]),
        *more,
    )


def system_url(row: Row) -> str:
    """The page of the row's system: where its point leads."""
    return reverse("system", args=[row.entry.slug])


def whiskers(
    numbers: Sequence[float], ends: Sequence[tuple[float, float] | None], color: str
) -> dict[str, Any]:
    """Intervals as the error bars of a trace, of no length where there is none."""
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
    **more: Any,
) -> go.Scatter:
    """Return points with their labels and links; hovering shows the name and lines of each as plain text."""
    lines = [[point.name, *point.lines] for point in points]
    template = "<br>".join(f"%{{customdata[{place}]}}" for place in range(len(lines[0])))
    links = [system_url(point.row) for point in points]
    return go.Scatter(
        mode="markers+text",
        name=name,
        x=[point.x for point in points],
        y=[point.y for point in points],
        **_texts(labels),
        meta={"narrow": _texts([label["narrow"] for label in labels]), "links": links},
        customdata=lines,
        hovertemplate=f"{template}<extra></extra>",
        cliponaxis=False,
        marker=marker,
        **more,
    )


def _texts(labels: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    return {key: [label[key] for label in labels] for key in ("text", "textposition")}


def line_trace(
    name: str, x: Sequence[Any], y: Sequence[Any], line: Mapping[str, Any], **more: Any
) -> go.Scatter:
    """A line; hovering says nothing of it unless `more` has a template."""
    hover = {} if "hovertemplate" in more else {"hoverinfo": "skip"}
    return go.Scatter(mode="lines", name=name, x=x, y=y, line=line, **hover, **more)


def area_trace(
    name: str, outline: Sequence[tuple[Any, Any]], color: str, opacity: float, *, line: int = 0, **more: Any
) -> go.Scatter:
    """A filled area within a closed outline."""
    x, y = [x for x, _ in outline], [y for _, y in outline]
    style = {"width": line, "color": color}
    return line_trace(name, x, y, style, fill="toself", fillcolor=color, opacity=opacity, **more)
