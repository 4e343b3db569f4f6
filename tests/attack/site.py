"""The site under attack: the synthetic collection as a hidden dataset, and submissions through the real API."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from leaderboard.importing.collections.importer import import_dataset
from leaderboard.importing.collections.source import ImportOptions
from leaderboard.models import Dataset, User
from submissions.queue.queue import create_requested_jobs
from tests.attack.prober import DEPTH, QUERIES, Collection, Rankings, honest
from tests.submissions.clients import Api
from tests.submissions.workers import work

SLUG = "sealed"


def document(query: int, number: int) -> str:
    """The name of a query's pooled document; it tells nothing."""
    return f"q{query}-{number * 37 % 101:03}"


def bring(collection: Collection, folder: Path, **options: Any) -> Dataset:
    """The collection as a hidden, runs-only dataset without quota, scored by nDCG@10 alone."""
    source = folder / SLUG
    (source / "qrels").mkdir(parents=True)
    (source / "queries.jsonl").write_text(
        "".join(json.dumps({"_id": f"q{query}", "text": "a question"}) + "\n" for query in range(QUERIES))
    )
    lines = [
        f"q{query}\t{document(query, number)}\t1\n"
        for query in range(QUERIES)
        for number in collection.relevant[query].nonzero()[0]
    ]
    (source / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\n" + "".join(lines))
    baseline = folder / "baseline.txt"
    baseline.write_text(run_text({query: ranking[::-1] for query, ranking in honest().items()}))
    import_dataset(
        source,
        ImportOptions(
            slug=SLUG,
            hidden=True,
            runs_only=True,
            baseline=baseline,
            primary="nDCG@10",
            measures=("nDCG@10",),
            **options,
        ),
    )
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


class Account:
    """Somebody who submits through the API, and believes what it answers."""

    def __init__(self, person: User) -> None:
        self.api = Api(person)
        self.submissions: list[str] = []
        self.best: float | None = None

    def submit(self, rankings: Rankings) -> float | None:
        """The score that the site tells, None where it is told to be no other than before."""
        sent = self.api.submit(
            run_text(rankings),
            dataset=SLUG,
            configuration=str(len(self.submissions)),
            **({"system": "prober"} if self.submissions else {"system": "Prober"}),
        )
        assert sent.status == 201, sent.body
        work()
        self.submissions.append(sent.body["id"])
        (job,) = self.api.get(f"submissions/{sent.body['id']}/").body["jobs"]
        assert job["state"] == "done", job
        score = job["scores"].get("nDCG@10")
        if "no significant change" in job["meaning"].lower():
            return None
        return None if score is None else float(score)
