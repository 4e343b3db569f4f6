"""Which measures a dataset's board shows, changed by a curator; what is shown is published anew from what is stored."""

from __future__ import annotations

from collections.abc import Sequence

from django.db import transaction

from evaluation.core.problems import Problem
from leaderboard.core.audit import record
from leaderboard.models import Dataset
from leaderboard.results.history.revisions import lock_boards
from leaderboard.results.measure_choice import check_measures, shown_measures
from leaderboard.results.publishing import refresh_scores


class RefusedMeasures(ValueError):
    """Measures that a board cannot show; `problems` say all that is wrong."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = list(problems)
        super().__init__(" ".join(each.sentences() for each in self.problems))


@transaction.atomic
def set_measures(dataset: Dataset, primary: str, others: Sequence[str]) -> list[str]:
    """Show these measures, the primary one first; they are returned in ir_measures' spelling.

    Where judgements are hidden at most three, and none that tells which documents are judged. Raises RefusedMeasures,
    and nothing is changed. A stored result has what was computed when it was scored; what it lacks is missing.
    """
    lock_boards([dataset.pk])
    dataset.refresh_from_db()
    problems = list(check_measures(primary, others, hidden=dataset.hidden))
    if problems:
        raise RefusedMeasures(problems)
    # Of an empty list the defaults would be taken: here it means the primary measure alone.
    wanted = shown_measures(primary, list(others) or [primary], hidden=dataset.hidden)
    before = {"measures": list(dataset.measures), "primary_measure": dataset.primary_measure}
    after = {"measures": wanted, "primary_measure": wanted[0]}
    if before == after:
        return wanted
    dataset.measures, dataset.primary_measure = wanted, wanted[0]
    dataset.save(update_fields=["measures", "primary_measure"])
    refresh_scores(dataset)
    record("measures", dataset, dataset=dataset, before=before, after=after)
    return wanted
