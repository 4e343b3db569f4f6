"""Rows of boards in figures: which are present, names, values, and points with labels.

No label covers another one. A name that has no place beside its point stands further off, with a line to it; where
points are many, one that has none there either is left to the table. Architectures have a symbol and a hue each.
"""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from django.urls import reverse

from leaderboard.boards.facts import Member
from leaderboard.boards.model import Board, Row
from leaderboard.boards.pages import BenchmarkPage
from leaderboard.boards.system.depth import LabelBox
from leaderboard.core.measures import better
from leaderboard.core.text.numbers import DECIMALS
from leaderboard.figures.drawing import ARCHITECTURE, INK, PAPER, SOFT, cut, go
from leaderboard.figures.model import Cell, FigureRequest, Table
from leaderboard.models import architecture_choices
from leaderboard.results.board_rows.entry_rows import REPORTED, STALE

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
