"""The site under attack: the synthetic collection as a hidden dataset, and submissions through the real API."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from leaderboard.importing.collections.importer import import_dataset
from leaderboard.importing.collections.source import ImportOptions
from leaderboard.models import Dataset, User
from submissions.queue.queue import create_requested_jobs
from tests.attack.prober import DEPTH, QUERIES, Collection, honest
from tests.attack.tasks import Systems
from tests.submissions.clients import Api
from tests.submissions.workers import work

SLUG = "sealed"
#: The candidate answers of every query.
CANDIDATES = ("first", "second")


def document(query: int, number: int) -> str:
    """The name of a query's pooled document; it tells nothing."""
    return f"q{query}-{number * 37 % 101:03}"


def bring(collection: Collection, folder: Path, **options: Any) -> Dataset:
    """The collection as a hidden, runs-only dataset without quota, scored by nDCG@10 alone."""
    judged = [(query, number) for query in range(QUERIES) for number in collection.relevant[query].nonzero()[0]]
    baseline = run_text({query: ranking[::-1] for query, ranking in honest().items()})
    return _import(folder, judged, baseline, "nDCG@10", runs_only=True, **options)


def import_answers(systems: Systems, folder: Path) -> Dataset:
    """Import the systems' collection as a hidden dataset without quota, with correct answers and scored by EM alone."""
    source = folder / SLUG
    source.mkdir()
    correct = np.select([systems.plain > 0, systems.other > 0], CANDIDATES, "third")
    judged = [(query, number) for query in range(QUERIES) for number in range(systems.totals[query])]
    files = {
        "answers.jsonl": [{"_id": f"q{query}", "answers": [str(answer)]} for query, answer in enumerate(correct)],
        "corpus.jsonl": [{"_id": document(*pair), "title": "", "text": "words"} for pair in judged],
    }
    for name, rows in files.items():
        (source / name).write_text("".join(json.dumps(row) + "\n" for row in rows))
    return _import(folder, judged, answer_text(np.where(systems.baseline > 0, correct, "unknown")), "EM")


def _import(folder: Path, judged: Sequence[tuple[int, int]], baseline: str, measure: str, **options: Any) -> Dataset:
    source = folder / SLUG
    (source / "qrels").mkdir(parents=True)
    (source / "queries.jsonl").write_text(
        "".join(json.dumps({"_id": f"q{query}", "text": "a question"}) + "\n" for query in range(QUERIES))
    )
    lines = [f"q{query}\t{document(query, number)}\t1\n" for query, number in judged]
    (source / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\n" + "".join(lines))
    path = folder / "baseline.txt"
    path.write_text(baseline)
    named = {"slug": SLUG, "hidden": True, "baseline": path, "primary": measure, "measures": (measure,)}
    import_dataset(source, ImportOptions(**{**named, **options}))
    Dataset.objects.filter(slug=SLUG).update(daily_quota=None, monthly_quota=None)
    for _ in range(2):
        create_requested_jobs()
        work()
    return Dataset.objects.get(slug=SLUG)


def run_text(rankings: Mapping[int, Sequence[int]]) -> str:
    """The rankings as a TREC run."""
    return "".join(
        f"q{query} Q0 {document(query, number)} {rank} {DEPTH + 1 - rank} prober\n"
        for query, ranking in rankings.items()
        for rank, number in enumerate(ranking, 1)
    )


def answer_text(answers: Iterable[str]) -> str:
    """Return an answer run with these answers, without citations."""
    lines = ({"query_id": f"q{query}", "answer": str(answer), "citations": []} for query, answer in enumerate(answers))
    return "".join(json.dumps(line) + "\n" for line in lines)


def candidates_text(choice: NDArray[np.bool_]) -> str:
    """Return the answer run that takes the other candidate where `choice` (QUERIES,) says so."""
    return answer_text(np.where(choice, *CANDIDATES[::-1]))


class Account:
    """Somebody who submits through the API, and believes what it answers."""

    def __init__(self, person: User) -> None:
        self.api = Api(person)
        self.submissions: list[str] = []
        self.best: float | None = None

    def submit(self, run: str) -> float | None:
        """The score that the site tells, None where it is told to be no other than before."""
        sent = self.api.submit(
            run,
            dataset=SLUG,
            configuration=str(len(self.submissions)),
            **({"system": "prober"} if self.submissions else {"system": "Prober"}),
        )
        assert sent.status == 201, sent.body
        work()
        self.submissions.append(sent.body["id"])
        (job,) = self.api.get(f"submissions/{sent.body['id']}/").body["jobs"]
        assert job["state"] == "done", job
        score = next(iter(job["scores"].values()), None)
        if "no significant change" in job["meaning"].lower():
            return None
        return None if score is None else float(score)
