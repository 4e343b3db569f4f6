"""What a board's differences are taken to, in words: BM25, or the run that a curator named as the baseline."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from leaderboard.boards.model import DIFFERENCE
from leaderboard.core.text.baselines import baseline_label
from leaderboard.results.board_rows.entry_rows import EntryRow
from leaderboard.systems.baselines import BM25, describe_bm25

if TYPE_CHECKING:
    from leaderboard.boards.model import BenchmarkFacts

#: The head of differences that are taken to several baselines of different names.
SEVERAL = "Δ vs baseline"


class BaselineColumns(NamedTuple):
    """A dataset's baseline: how it is called, and whether it is the BM25 that the site made itself.

    The name is empty where scored results are compared with nothing; `any` says whether anything is, reported figures
    with their publication's BM25 too.
    """

    name: str
    ours: bool
    any: bool

    @classmethod
    def of(cls, entries: Iterable[EntryRow], current: str, dataset: str) -> BaselineColumns:
        """The baseline of the present comparison group of the dataset of this name."""
        public = [entry for entry in entries if entry.is_baseline and entry.visibility == "public"]
        present = [entry for entry in public if entry.comparison_group == current]
        if not present:
            return cls("", ours=False, any=bool(public))
        last = present[-1]
        return cls(baseline_label(last.system, dataset), ours=last.slug == BM25.slug, any=True)

    @property
    def shown(self) -> str:
        """How it is called in heads and notes."""
        return self.name or BM25.name

    def notes(self, language: str) -> list[str]:
        """What a reader has to know of it."""
        if not self.any:
            return []
        taken = (
            f"Δ compares with {BM25.name} on the same dataset version and judgements, from the same source;"
        )
        if self.shown != BM25.name:
            taken = (
                f"Δ compares with {self.name}, the baseline here, on the same dataset version and judgements;"
            )
        return [
            f"{taken} — if unavailable.",
            *([describe_bm25(language)] if self.ours else []),
        ]


def difference_to(names: Iterable[str]) -> str:
    """The head of differences to baselines of these names."""
    different = set(names) or {BM25.name}
    if different == {BM25.name}:
        return DIFFERENCE
    return f"Δ vs {different.pop()}" if len(different) == 1 else SEVERAL


def notes_on_baselines(facts: BenchmarkFacts, baselines: Mapping[int, tuple[str, bool]]) -> list[str]:
    """How a benchmark's baselines were made, and on which datasets they are no BM25.

    `baselines` has, by place of a dataset, the name of what scored results are compared with, and whether it is the
    BM25 that the site made itself.
    """
    other: dict[str, list[str]] = {}
    ours: dict[str, list[str]] = {}
    for place, (name, is_ours) in sorted(baselines.items()):
        member = facts.members[place].facts
        if is_ours:
            ours.setdefault(describe_bm25(member.language), []).append(member.name)
        elif name != BM25.name:
            other.setdefault(name, []).append(member.name)
    named = [f"On {', '.join(datasets)}, Δ compares with {name}." for name, datasets in other.items()]
    if len(ours) < 2:
        return [*named, *ours]
    return named + [f"{', '.join(datasets)}: {text}" for text, datasets in ours.items()]
