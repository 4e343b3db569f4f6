"""Comparison tables of a rescore: one measure at a time for pages, and all measures as CSV."""

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from evaluation.statistics.comparison import kendall_tau
from leaderboard.core.http.choices import UnknownChoice
from leaderboard.core.measures import better
from leaderboard.core.text import numbers
from leaderboard.core.text.plain import safe_cell
from leaderboard.results.values import HIDDEN_DECIMALS, HOLE, published_value

OPEN_DECIMALS = 4
#: Sortable columns and their headings.
COLUMNS = {
    "system": "System",
    "rank_before": "Rank before",
    "rank_after": "Rank after",
    "before": "Before",
    "after": "After",
    "delta": "Δ",
    "hole_before": "Hole@10 before",
    "hole_after": "Hole@10 after",
}


#: Fields that a line copies from the comparison's row.
_COPIED = ("system", "slug", "configuration", "visibility", "is_baseline", "seeds")


@dataclass(frozen=True, slots=True)
class ComparisonLine:
    """One result before and after, as values and as text."""

    system: str
    slug: str
    configuration: str
    visibility: str
    is_baseline: bool
    seeds: int
    before: float | None
    after: float | None
    delta: float | None
    rank_before: int | None
    rank_after: int | None
    hole_before: float | None
    hole_after: float | None
    decimals: int
    direction: str

    @property
    def text(self) -> dict[str, str]:
        """Formatted scores, difference, and Hole@10 values, by field."""
        return {
            "before": numbers.format_value(self.before, self.decimals),
            "after": numbers.format_value(self.after, self.decimals),
            "delta": numbers.signed(self.delta, self.decimals),
            "hole_before": numbers.format_value(self.hole_before, self.decimals),
            "hole_after": numbers.format_value(self.hole_after, self.decimals),
        }

    @property
    def climbed(self) -> int | None:
        """Number of ranks gained, negative if lost; None without ranks before and after."""
        if self.rank_before is None or self.rank_after is None:
            return None
        return self.rank_before - self.rank_after

    @property
    def lost(self) -> int:
        """Number of ranks lost, or 0."""
        return max(0, -(self.climbed or 0))


@dataclass(frozen=True, slots=True)
class ComparisonTable:
    """Sorted lines of a comparison, and the available measures and sort orders."""

    measure: str
    measures: Sequence[str]
    sort: str
    headings: Sequence[Mapping[str, str]]
    lines: Sequence[ComparisonLine]
    has_holes: bool
    #: Numbers of results significantly better and worse than the baseline, before and after; empty if unknown.
    marks: Mapping[str, Sequence[int]]

    @property
    def tau(self) -> float | None:
        """Kendall's τ between the scores before and after, for results with ranks on both sides."""
        ranked_lines = [line for line in self.lines if line.climbed is not None]
        return kendall_tau([line.before or 0 for line in ranked_lines], [line.after or 0 for line in ranked_lines])

    @property
    def moved(self) -> int:
        """Number of results with another rank."""
        return sum(bool(line.climbed) for line in self.lines)


def comparison_table(
    comparison: Mapping[str, Any], *, measure: str = "", sort: str = "", hidden: bool, public: bool = False
) -> ComparisonTable:
    """Return the comparison by one measure. By default, this is the primary measure, and rows are sorted by new rank.

    `sort` is a key of COLUMNS, descending with a leading "-". `hidden` is whether the judgments are hidden now, so that
    values are rounded even if they were stored in full. `public` restricts the table to public results, and omits
    Hole@10 if the judgments are or were hidden. Raises UnknownChoice.
    """
    measures = [name for name in comparison["measures"] if name != HOLE] or comparison["measures"]
    if measure and measure not in measures:
        raise UnknownChoice("measure", measure, measures)
    selected_measure = measure or comparison["primary"]
    key, is_descending = sort.removeprefix("-") or "rank_after", sort.startswith("-")
    if key not in COLUMNS:
        raise UnknownChoice("sort", sort, [*COLUMNS, *(f"-{name}" for name in COLUMNS)])
    rows = [row for row in comparison["rows"] if not public or row["visibility"] == "public"]
    hide_holes = public and (hidden or comparison["hidden"])
    lines = [build_line(row, selected_measure, hidden=hidden, holes=not hide_holes) for row in rows]
    lines.sort(key=lambda line: (line.system.casefold(), line.configuration))
    sortable_lines = [line for line in lines if getattr(line, key) is not None]
    sortable_lines.sort(
        key=lambda line: line.system.casefold() if key == "system" else getattr(line, key), reverse=is_descending
    )
    lines = [*sortable_lines, *(line for line in lines if getattr(line, key) is None)]
    has_holes = any(line.hole_before is not None or line.hole_after is not None for line in lines)
    headings = []
    for name, words in COLUMNS.items():
        # The link of the current sort column reverses the order. Other numeric columns start with the highest value.
        link_descends = not is_descending if name == key else name not in ("system", "rank_before", "rank_after")
        order = ("descending" if is_descending else "ascending") if name == key else ""
        headings.append({"key": name, "words": words, "link": f"-{name}" if link_descends else name, "sorted": order})
    return ComparisonTable(
        selected_measure,
        measures,
        f"-{key}" if is_descending else key,
        headings,
        lines,
        has_holes,
        {} if hidden or selected_measure != comparison["primary"] else comparison.get("marks", {}),
    )


def build_line(row: Mapping[str, Any], measure: str, *, hidden: bool, holes: bool = False) -> ComparisonLine:
    """Return the line of a comparison row for one measure, with values rounded if judgments are `hidden`.

    `holes` includes the values of Hole@10.
    """

    def value(number: float | None) -> float | None:
        return None if number is None else published_value(number, hidden=hidden)

    before, after = value(row["before"].get(measure)), value(row["after"].get(measure))
    delta = numbers.difference(after, before)
    return ComparisonLine(
        **{name: row[name] for name in _COPIED},
        before=before,
        after=after,
        delta=delta,
        rank_before=row["rank_before"].get(measure),
        rank_after=row["rank_after"].get(measure),
        hole_before=value(row["hole_before"]) if holes else None,
        hole_after=value(row["hole_after"]) if holes else None,
        decimals=HIDDEN_DECIMALS if hidden else OPEN_DECIMALS,
        direction=numbers.direction(delta, measure),
    )


def as_csv(comparison: Mapping[str, Any], *, hidden: bool, public: bool = False) -> str:
    """Return all measures as CSV, with one line per result and measure, then the unmoved results with reasons.

    `public` restricts it to public results.
    """
    buffer = io.StringIO()
    writer = csv.writer(buffer)
    writer.writerow(
        ["system", "configuration", "visibility", "baseline", "measure", "before", "after", "delta", "better",
         "rank_before", "rank_after", "hole_10_before", "hole_10_after", "not_rescored"]
    )  # fmt: skip
    for measure in comparison_table(comparison, hidden=hidden).measures:
        for line in comparison_table(comparison, measure=measure, hidden=hidden, public=public).lines:
            writer.writerow(
                [safe_cell(line.system), safe_cell(line.configuration), line.visibility, int(line.is_baseline), measure,
                 line.before, line.after, line.delta, better(measure), line.rank_before, line.rank_after,
                 line.hole_before, line.hole_after, ""]
            )  # fmt: skip
    for stay in unmoved_results(comparison, public=public):
        writer.writerow(
            [safe_cell(stay["system"]), safe_cell(stay["configuration"]), stay["visibility"], int(stay["is_baseline"]),
             *[""] * 9, stay["why"]]
        )  # fmt: skip
    return buffer.getvalue()


def unmoved_results(comparison: Mapping[str, Any], *, public: bool = False) -> list[Mapping[str, Any]]:
    return [stay for stay in comparison["stays"] if not public or stay["visibility"] == "public"]
