"""Judgements merged into those that are there: what is new, what disagrees, and the file that comes of it."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

Grades = Mapping[bytes, Mapping[bytes, int]]

_HEADER = b"query-id\tcorpus-id\tscore\n"


class MergePolicy(StrEnum):
    """Which grade counts where a pair was judged before, differently."""

    KEEP = "keep"
    REPLACE = "replace"
    HIGHEST = "highest"

    def choose(self, old: int, new: int) -> int:
        """Return the grade that counts."""
        return {"keep": old, "replace": new, "highest": max(old, new)}[self.value]


class Conflict(NamedTuple):
    """A pair with two grades."""

    query: str
    document: str
    old: int
    new: int


@dataclass(frozen=True, slots=True)
class JudgementComparison:
    """New judgements held against the present ones. `new` pairs were unjudged, `same` ones have that grade already.

    `new_queries` of the `queries` had no judgement at all. `conflicts` are in order of their ids' bytes.
    """

    new: int
    same: int
    queries: int
    new_queries: int
    conflicts: tuple[Conflict, ...]

    def changes(self, policy: MergePolicy) -> int:
        """How many judgements a merge would add or change."""
        return self.new + sum(policy.choose(each.old, each.new) != each.old for each in self.conflicts)

    def counts(self) -> dict[str, int]:
        """Its numbers, with those of conflicts by direction."""
        return {
            "new": self.new,
            "same": self.same,
            "conflicts": len(self.conflicts),
            "raised": sum(each.new > each.old for each in self.conflicts),
            "lowered": sum(each.new < each.old for each in self.conflicts),
            "queries": self.queries,
            "new_queries": self.new_queries,
        }


def compare(old: Grades, new: Grades) -> JudgementComparison:
    """Compare `new` grades, which are ≥ 0, with `old` ones, of which negative ones mean unjudged."""
    added = same = 0
    conflicts = []
    for query in sorted(new):
        before = old.get(query, {})
        for document, grade in sorted(new[query].items()):
            known = before.get(document, -1)
            if known < 0:
                added += 1
            elif known == grade:
                same += 1
            else:
                conflicts.append(Conflict(query.decode(), document.decode(), known, grade))
    return JudgementComparison(
        new=added,
        same=same,
        queries=len(new),
        new_queries=sum(query not in old for query in new),
        conflicts=tuple(conflicts),
    )


def merge(old: Grades, new: Grades, policy: MergePolicy) -> dict[bytes, dict[bytes, int]]:
    """All judgements of both; where both judge a pair, `policy` decides. Neither argument is changed.

    Negative grades of `old` stay unless `new` judges the pair: a query that has nothing else counts in every mean.
    """
    merged = {query: dict(graded) for query, graded in old.items()}
    for query, graded in new.items():
        into = merged.setdefault(query, {})
        for document, grade in graded.items():
            known = into.get(document, -1)
            into[document] = grade if known < 0 else policy.choose(known, grade)
    return merged


def write_judgements(grades: Grades, target: Path) -> None:
    """Write them in BEIR's form, in order of the ids' bytes: equal judgements give equal files."""
    with target.open("wb") as out:
        out.write(_HEADER)
        for query in sorted(grades):
            out.writelines(
                b"%b\t%b\t%d\n" % (query, document, grade)
                for document, grade in sorted(grades[query].items())
            )
