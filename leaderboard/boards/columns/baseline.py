"""Names and descriptions of a board's baseline: BM25, or the run that a curator selected."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from leaderboard.boards.model import DIFFERENCE, BenchmarkFacts
from leaderboard.core.text.baselines import baseline_label
from leaderboard.results.board_rows.entry_rows import EntryRow
from leaderboard.systems.baselines import BM25, describe_bm25

#: Head of differences from several baselines with different names.
MIXED_HEAD = "Δ vs baseline"


class BaselineColumns(NamedTuple):
    """A dataset's baseline: its name, and whether it is the BM25 that Runboard created itself.

    The name is empty if scored results have no baseline; `has_any` is true if any results, including reported
    ones, have one.
    """

    name: str
    is_site_bm25: bool
    has_any: bool

    @classmethod
    def from_entries(cls, entries: Iterable[EntryRow], current_group: str, dataset: str) -> BaselineColumns:
        """Return the newest public baseline of the current comparison group; its name is empty if there is none.

        `dataset` is the name of the dataset.
        """
        public_entries = [entry for entry in entries if entry.is_baseline and entry.visibility == "public"]
        current_entries = [entry for entry in public_entries if entry.comparison_group == current_group]
        if not current_entries:
            return cls("", is_site_bm25=False, has_any=bool(public_entries))
        entry = current_entries[-1]
        return cls(baseline_label(entry.system, dataset), is_site_bm25=entry.slug == BM25.slug, has_any=True)

    @property
    def display_name(self) -> str:
        return self.name or BM25.name

    def notes(self, language: str) -> list[str]:
        """Return the notes on the baseline below a board, empty if no result has one.

        `language` is the dataset's, on which BM25's analysis depends.
        """
        if not self.has_any:
            return []
        note = f"Δ compares with {BM25.name} on the same dataset version and judgments, from the same source."
        if self.display_name != BM25.name:
            note = f"Δ compares with {self.name}, the baseline here, on the same dataset version and judgments."
        return [
            f"{note} A dash means that no baseline is available.",
            *([describe_bm25(language)] if self.is_site_bm25 else []),
        ]


def difference_head(names: Iterable[str]) -> str:
    """Return the head of differences from baselines of these names."""
    distinct_names = set(names) or {BM25.name}
    if distinct_names == {BM25.name}:
        return DIFFERENCE
    return f"Δ vs {distinct_names.pop()}" if len(distinct_names) == 1 else MIXED_HEAD


def notes_on_baselines(facts: BenchmarkFacts, baselines: Mapping[int, tuple[str, bool]]) -> list[str]:
    """Return notes on how a benchmark's baselines were created, and on datasets whose baseline is not BM25.

    `baselines` has, by position of a dataset, the name of the baseline of scored results, and whether it is the BM25
    that Runboard created itself.
    """
    datasets_by_name: dict[str, list[str]] = {}
    datasets_by_description: dict[str, list[str]] = {}
    for position, (name, is_site_bm25) in sorted(baselines.items()):
        member = facts.members[position].facts
        if is_site_bm25:
            datasets_by_description.setdefault(describe_bm25(member.language), []).append(member.name)
        elif name != BM25.name:
            datasets_by_name.setdefault(name, []).append(member.name)
    name_notes = [f"On {', '.join(datasets)}, Δ compares with {name}." for name, datasets in datasets_by_name.items()]
    if len(datasets_by_description) < 2:
        return [*name_notes, *datasets_by_description]
    return name_notes + [f"{', '.join(datasets)}: {text}" for text, datasets in datasets_by_description.items()]
