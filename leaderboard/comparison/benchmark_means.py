"""The means of compared systems where a benchmark says what they are over: the values of its board, not others."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from leaderboard.boards import pages
from leaderboard.boards.benchmark.columns import MEAN
from leaderboard.boards.model import Row
from leaderboard.boards.state import BoardState
from leaderboard.core.http.choices import UnknownChoice
from leaderboard.models import Benchmark, Dataset
from leaderboard.results.kinds import REPORTED, UNRANKED


@dataclass(frozen=True, slots=True)
class Scope:
    """A benchmark that compared datasets belong to: the slugs of those that count, of all, and of all with parts."""

    slug: str
    name: str
    counted: frozenset[str]
    members: frozenset[str]
    known: frozenset[str]


class BoardMeans(NamedTuple):
    """Each system's mean as the benchmark's board has it, over how many datasets, and with how many decimals."""

    values: list[float]
    datasets: int
    measure: str
    decimals: int


def scopes_of(datasets: Collection[str], wanted: str) -> list[Scope]:
    """The `wanted` benchmark, else those that all of the datasets belong to, the smallest first. Two queries.

    Raises UnknownChoice for a benchmark that there is not.
    """
    parts: dict[str, list[str]] = {}
    for whole, part in Dataset.objects.exclude(part_of=None).values_list("part_of__slug", "slug"):
        parts.setdefault(whole, []).append(part)
    members: dict[tuple[str, str], dict[str, bool]] = {}
    rows = Benchmark.objects.order_by("position", "pk").values_list(
        "slug", "name", "members__dataset__slug", "members__counted"
    )
    for slug, name, dataset, counted in rows:
        members.setdefault((slug, name), {}).update({dataset: counted} if dataset else {})
    scopes = [_scope(slug, name, found, parts) for (slug, name), found in members.items()]
    if wanted:
        chosen = [scope for scope in scopes if scope.slug == wanted]
        if not chosen:
            raise UnknownChoice("benchmark", wanted, [scope.slug for scope in scopes])
        return chosen
    fitting = [scope for scope in scopes if len(scope.members) > 1 and scope.known.issuperset(datasets)]
    return sorted(fitting, key=lambda scope: len(scope.members))


def _scope(slug: str, name: str, members: dict[str, bool], parts: dict[str, list[str]]) -> Scope:
    return Scope(
        slug,
        name,
        frozenset(dataset for dataset, counted in members.items() if counted),
        frozenset(members),
        frozenset(members).union(*(parts.get(dataset, ()) for dataset in members)),
    )


def board_means(scope: Scope, slugs: Sequence[str], measure: str) -> BoardMeans | None:
    """The systems' means on the benchmark's board, all scored or all reported; None where one of them has none.

    Of several results of a system that with the best mean is taken. `measure` is empty for the benchmark's own.
    """
    try:
        page = pages.benchmark_page(scope.slug, BoardState(measure=measure, all_rows=True))
    except UnknownChoice:
        return None
    mean = page.board.column(MEAN) if page else None
    if page is None or mean is None:
        return None
    lower = mean.better == "lower"
    for reported in (False, True):
        rows = [row for row in page.board.rows if _is_kind(row, reported)]
        found = [_best((row for row in rows if row.entry.slug == slug), lower) for slug in slugs]
        values = [value for _, value in filter(None, found)]
        if len(values) == len(slugs):
            decimals = min(row.decimals for row, _ in filter(None, found))
            datasets = sum(member.counted for member in page.members)
            return BoardMeans(values, datasets, page.board.measure, decimals)
    return None


def _is_kind(row: Row, reported: bool) -> bool:
    return row.ranked_in not in UNRANKED and (row.ranked_in == REPORTED) == reported


def _best(rows: Iterable[Row], lower: bool) -> tuple[Row, float] | None:
    found = [(row, float(value)) for row in rows if isinstance(value := row.value(MEAN), (int, float))]
    return min(found, key=lambda one: one[1] if lower else -one[1], default=None)
