"""Who judged: which judge gave the grades that stand, and how far judges agree on what several of them graded."""

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any, NamedTuple

from evaluation.judgements.merge import Grades
from evaluation.statistics.agreement import cohen_kappa

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
