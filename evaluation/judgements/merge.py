"""Judgements merged into the present ones, who made them, and how far judges agree on what several of them graded."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

from evaluation.statistics.comparison import cohen_kappa

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


#: So many digits of a prompt's checksum tell prompts apart in words.
_DIGITS = 8


class Judge(NamedTuple):
    """People by their name, or a model by its name and version and the SHA-256 of its prompt."""

    kind: str
    name: str
    version: str = ""
    prompt: str = ""

    def __str__(self) -> str:
        if self.kind != "model":
            return self.name
        return f"{self.name} {self.version} (model, prompt {self.prompt[:_DIGITS]})"


#: Who gave the grades that came with the collection.
NOT_NAMED = Judge("", "judges not named")

Judged = Sequence[tuple[Judge, Grades]]


def agreement_sentence(found: Mapping[str, Any]) -> str:
    """One of `agreements` in words."""
    one, other = found["judges"]
    said = [
        "not defined" if kappa is None else f"{kappa:.2f}".replace("-", "−")
        for kappa in (found["kappa"], found["kappa_relevant"])
    ]
    return f"{one} and {other} both judged {found['pairs']:,} pairs: Cohen’s κ {said[0]}, of relevant or not {said[1]}."


def by_judge(brought: Judged) -> dict[Judge, dict[bytes, dict[bytes, int]]]:
    """Return the grades of each judge, in order of coming; a later file changes nothing that an earlier one said."""
    found: dict[Judge, dict[bytes, dict[bytes, int]]] = {}
    for judge, grades in brought:
        own = found.setdefault(judge, {})
        for query, graded in grades.items():
            own[query] = {**graded, **own.get(query, {})}
    return found


def count_standing(brought: Judged, merged: Grades) -> dict[Judge, int]:
    """How many of the merged judgements each judge made: a pair is that one's who first gave the grade that stands."""
    judges = by_judge(brought)
    counts = dict.fromkeys(judges, 0)
    for query, graded in merged.items():
        for document, grade in graded.items():
            for judge, grades in judges.items() if grade >= 0 else ():
                if grades.get(query, {}).get(document) == grade:
                    counts[judge] += 1
                    break
    return {judge: count for judge, count in counts.items() if count}


def agreements(brought: Judged, level: int) -> list[dict[str, Any]]:
    """For any two judges who graded the same pairs: `pairs`, how many; `kappa` of the grades, and of relevant or not.

    Relevant is what has grade `level` or more. A κ is None where it is not defined.
    """
    found = []
    for (one, first), (other, second) in combinations(by_judge(brought).items(), 2):
        pairs = [
            (grade, second[query][document])
            for query, graded in first.items() if query in second
            for document, grade in graded.items() if document in second[query]
            if min(grade, second[query][document]) >= 0
        ]  # fmt: skip
        if pairs:
            binary = [(int(grade >= level), int(again >= level)) for grade, again in pairs]
            kappas = {"kappa": cohen_kappa(pairs), "kappa_relevant": cohen_kappa(binary)}
            found.append({"judges": [str(one), str(other)], "pairs": len(pairs), **kappas})
    return found
