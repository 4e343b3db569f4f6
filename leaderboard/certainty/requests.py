"""Ask for what is missing: for boards of an earlier release, and where it is computed otherwise by now."""

from __future__ import annotations

from django.db.models import Exists, OuterRef

from leaderboard.certainty.found import METHOD
from leaderboard.models import Certainty, Dataset, Entry, WorkRequest
from leaderboard.work import request_certainty


def request_missing_certainty() -> int:
    """Ask for the boards that have nothing found by the present method, each once; how many these were. One query.

    Every later change of a board asks by itself, in its own transaction. A job that failed is not asked for again
    until its board changes.
    """
    of_dataset = {"dataset": OuterRef("pk")}
    scored = Entry.objects.public().exclude(provenance=Entry.Provenance.REPORTED)
    asked = WorkRequest.objects.filter(kind=WorkRequest.Kind.CERTAINTY, payload__method=METHOD)
    found = Certainty.objects.filter(key__startswith=f"{METHOD}:")
    missing = Dataset.objects.filter(
        ~Exists(found.filter(**of_dataset)),
        ~Exists(asked.filter(**of_dataset)),
        Exists(scored.filter(**of_dataset)),
        hidden=False,
        current_qrels__isnull=False,
    )
    datasets = list(missing.order_by("pk").values_list("pk", flat=True))
    for dataset in datasets:
        request_certainty(dataset, METHOD)
    return len(datasets)
