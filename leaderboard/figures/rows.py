"""What figures take from boards: the rows that are present, how they are called, and their values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from leaderboard.boards.facts import Member
from leaderboard.boards.model import Board, Row
from leaderboard.boards.pages import BenchmarkPage
from leaderboard.core.measures import better
from leaderboard.core.text.numbers import DECIMALS
from leaderboard.figures.drawing import cut
from leaderboard.figures.model import FigureRequest
from leaderboard.results.kinds import REPORTED, STALE

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
