"""The small collections behind the generated board: made-up queries, judgements and rankings, as files to import.

They are there so that every page of a generated board has what a page of a real one has. The results on the board are
drawn apart from them: nobody could tell a thousand systems from each other by fifty short rankings.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np

QUERIES = 50
#: Documents of a query by grade, and those that nobody judged: all are in every ranking of it.
GRADED = {2: 2, 1: 4, 0: 6}
UNJUDGED = 8
#: Different rankings of a collection, so that what systems find first is neither the same nor all different.
RANKINGS = 4
ASPECTS = (
    "history",
    "causes",
    "cost",
    "measurement",
    "safety",
    "future",
    "critics",
    "origins",
    "use",
    "size",
)


def write_collection(folder: Path, number: int, subjects: tuple[str, ...]) -> None:
    """Queries and judgements of the collection with this number, in BEIR's layout; there are no documents."""
    with (folder / "queries.jsonl").open("w") as file:
        for row in range(QUERIES):
            aspect, subject = ASPECTS[row % len(ASPECTS)], subjects[row // len(ASPECTS) % len(subjects)]
            text = f"{aspect} of {subject} in collection {number + 1}"
            file.write(json.dumps({"_id": query_id(row), "text": text}) + "\n")
    (folder / "qrels").mkdir()
    with (folder / "qrels" / "test.tsv").open("w") as file:
        file.write("query-id\tcorpus-id\tscore\n")
        for row in range(QUERIES):
            for document, grade in _judged(number, row):
                file.write(f"{query_id(row)}\t{document}\t{grade}\n")


def write_rankings(folder: Path, number: int, random: np.random.Generator) -> list[tuple[Path, int]]:
    """`RANKINGS` run files for the collection, and how many lines each has. Relevant documents tend to come early."""
    written = []
    for ranking in range(RANKINGS):
        path, lines = folder / f"ranking-{ranking}.trec", []
        for row in range(QUERIES):
            documents = [*_judged(number, row), *((name, 0) for name in _names(number, row, UNJUDGED, "u"))]
            scores = random.normal(0.0, 1.0, len(documents)) + [grade for _, grade in documents]
            for rank, place in enumerate(np.argsort(-scores), 1):
                name = documents[place][0]
                lines.append(f"{query_id(row)} Q0 {name} {rank} {scores[place]:.4f} generated-{ranking}\n")
        path.write_text("".join(lines))
        written.append((path, len(lines)))
    return written


def query_id(row: int) -> str:
    """The id of the query whose values are in this row: ids sort as rows do."""
    return f"q{row + 1:02}"


def _judged(number: int, row: int) -> Iterator[tuple[str, int]]:
    """(document, grade) of what was judged for a query."""
    grades = [grade for grade, count in GRADED.items() for _ in range(count)]
    return zip(_names(number, row, len(grades), "d"), grades, strict=True)


def _names(number: int, row: int, count: int, letter: str) -> list[str]:
    return [f"{letter}{number + 1}-{row + 1:02}-{place:02}" for place in range(count)]
