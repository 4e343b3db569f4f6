"""Ask for what is missing: for boards of an earlier release, and where it is computed otherwise by now."""

from __future__ import annotations

from django.db import transaction
from django.db.models import Exists, OuterRef

from leaderboard.core.work_requests import request_certainty
from leaderboard.models import Certainty, Dataset, Entry, WorkRequest
from leaderboard.results.history.revisions import lock_boards
from leaderboard.results.significance.board import compared_boards, is_known
from leaderboard.results.significance.types import METHOD


def request_missing_certainty() -> int:
    """Ask for the boards that have nothing found by the present method, each once; how many these were. One query.

    Every later change of a board asks by itself, in its own transaction.
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


@transaction.atomic
def request_if_changed(dataset_id: int) -> bool:
    """Ask once more where what was found last is not of the board as it is now; whether it was asked.

    For the end of each finding: a change that was not committed when its request was taken up has been looked for in
    vain. It holds the board's row, so with that locked it is either seen here or still to ask.
    """
    lock_boards([dataset_id])
    board = compared_boards([dataset_id]).get(dataset_id)
    if board is None or is_known(board):
        return False
    request_certainty(dataset_id)
    return True
