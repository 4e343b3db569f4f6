"""Merging of new judgments with current ones, their judges, and agreement between judges."""

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
    """Rule for the grade of a pair that is already judged differently."""

    KEEP = "keep"
    REPLACE = "replace"
    HIGHEST = "highest"

    def choose(self, old: int, new: int) -> int:
        return {"keep": old, "replace": new, "highest": max(old, new)}[self.value]


class Conflict(NamedTuple):
    """A pair with two different grades."""

    query: str
    document: str
    old: int
    new: int


@dataclass(frozen=True, slots=True)
class JudgementComparison:
    """New judgments compared with the current ones.

    Attributes:
        new: Number of pairs that were unjudged.
        same: Number of pairs that already have the grade.
        queries: Number of queries in the new judgments.
        new_queries: Number of queries that had no judgments.
        conflicts: Pairs with a different grade, in order of their ids' bytes.
    """

    new: int
    same: int
    queries: int
    new_queries: int
    conflicts: tuple[Conflict, ...]

    def changes(self, policy: MergePolicy) -> int:
        """Return the number of judgments that a merge would add or change."""
        return self.new + sum(policy.choose(conflict.old, conflict.new) != conflict.old for conflict in self.conflicts)

    def counts(self) -> dict[str, int]:
        """Return the numbers, with conflicts counted by direction."""
        return {name: getattr(self, name) for name in ("new", "same", "queries", "new_queries")} | {
            "conflicts": len(self.conflicts),
            "raised": sum(conflict.new > conflict.old for conflict in self.conflicts),
            "lowered": sum(conflict.new < conflict.old for conflict in self.conflicts),
        }


def compare(old: Grades, new: Grades) -> JudgementComparison:
    """Compare `new` grades, all ≥ 0, with `old` ones. Negative old grades mean unjudged."""
    new_pairs = same = 0
    conflicts = []
    for query in sorted(new):
        old_grades = old.get(query, {})
        for document, grade in sorted(new[query].items()):
            old_grade = old_grades.get(document, -1)
            if old_grade < 0:
                new_pairs += 1
            elif old_grade == grade:
                same += 1
            else:
                conflicts.append(Conflict(query.decode(), document.decode(), old_grade, grade))
    return JudgementComparison(new_pairs, same, len(new), sum(query not in old for query in new), tuple(conflicts))


def merge(old: Grades, new: Grades, policy: MergePolicy) -> dict[bytes, dict[bytes, int]]:
    """Return all judgments of both; `policy` decides pairs that both judge. Neither argument is changed.

    Negative grades of `old` remain unless `new` judges the pair, because a query with only negative grades is included
    in every mean.
    """
    merged = {query: dict(graded) for query, graded in old.items()}
    for query, graded in new.items():
        merged_grades = merged.setdefault(query, {})
        for document, grade in graded.items():
            old_grade = merged_grades.get(document, -1)
            merged_grades[document] = grade if old_grade < 0 else policy.choose(old_grade, grade)
    return merged


def write_judgements(grades: Grades, target: Path) -> None:
    """Write judgments in BEIR's format, sorted by the ids' bytes, so that equal judgments produce equal files."""
    with target.open("wb") as output:
        output.write(_HEADER)
        for query in sorted(grades):
            output.writelines(
                b"%b\t%b\t%d\n" % (query, document, grade) for document, grade in sorted(grades[query].items())
            )


#: Number of digits of a prompt's checksum in the name of a judge.
_PROMPT_DIGITS = 8


class Judge(NamedTuple):
    """The name of a group of people, or a model's name, version, and the SHA-256 of its prompt."""

    kind: str
    name: str
    version: str = ""
    prompt: str = ""

    def __str__(self) -> str:
        if self.kind != "model":
            return self.name
        return f"{self.name} {self.version} (model, prompt {self.prompt[:_PROMPT_DIGITS]})"


#: Judge of the grades that were distributed with the collection.
UNNAMED_JUDGES = Judge("", "judges not named")

JudgeGrades = Sequence[tuple[Judge, Grades]]


def agreement_sentence(agreement: Mapping[str, Any]) -> str:
    """Describe an entry of `agreements`, or of the `agreement` of `labels.summarize_judges`, in a sentence."""
    first, second = agreement["judges"]
    kappas = [
        "not defined" if kappa is None else f"{kappa:.2f}".replace("-", "−")
        for kappa in (agreement["kappa"], agreement.get("kappa_relevant"))
    ]
    if "answers" in agreement:
        return f"{first} and {second} both labeled {agreement['answers']:,} answers: Cohen’s κ {kappas[0]}."
    return (
        f"{first} and {second} both judged {agreement['pairs']:,} pairs: Cohen’s κ {kappas[0]}, "
        f"of relevant or not {kappas[1]}."
    )


def group_by_judge(judge_grades: JudgeGrades) -> dict[Judge, dict[bytes, dict[bytes, int]]]:
    """Return the grades of each judge in order of the files. The first grade of a pair is used."""
    grades_by_judge: dict[Judge, dict[bytes, dict[bytes, int]]] = {}
    for judge, grades in judge_grades:
        grades_of_judge = grades_by_judge.setdefault(judge, {})
        for query, graded in grades.items():
            grades_of_judge[query] = {**graded, **grades_of_judge.get(query, {})}
    return grades_by_judge


def count_merged_by_judge(judge_grades: JudgeGrades, merged: Grades) -> dict[Judge, int]:
    """Count the merged judgments by judge. A pair counts for the first judge who gave its current grade."""
    judges = group_by_judge(judge_grades)
    counts = dict.fromkeys(judges, 0)
    for query, graded in merged.items():
        for document, grade in graded.items():
            for judge, grades in judges.items() if grade >= 0 else ():
                if grades.get(query, {}).get(document) == grade:
                    counts[judge] += 1
                    break
    return {judge: count for judge, count in counts.items() if count}


def agreements(judge_grades: JudgeGrades, level: int) -> list[dict[str, Any]]:
    """Return the agreement of any two judges who judged the same pairs.

    Each entry has the names of the two `judges`, the number of `pairs`, the `kappa` of the grades, and `kappa_relevant`
    of relevant (grade ≥ `level`) or not. A κ is None if it is not defined.
    """
    pairwise_agreements = []
    for (first_judge, first), (second_judge, second) in combinations(group_by_judge(judge_grades).items(), 2):
        pairs = [
            (grade, second[query][document])
            for query, graded in first.items()
            if query in second
            for document, grade in graded.items()
            if document in second[query]
            if min(grade, second[query][document]) >= 0
        ]
        if pairs:
            binary = [(int(grade >= level), int(second_grade >= level)) for grade, second_grade in pairs]
            kappas = {"kappa": cohen_kappa(pairs), "kappa_relevant": cohen_kappa(binary)}
            pairwise_agreements.append({"judges": [str(first_judge), str(second_judge)], "pairs": len(pairs), **kappas})
    return pairwise_agreements
