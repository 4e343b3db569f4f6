"""How much of what a run shows was judged: published beside the scores wherever the judgements are open.

Both follow from a stored evaluation; nobody reads judgements for them. Over hidden judgements they are never published:
they would tell which documents are judged.
"""

from __future__ import annotations

from django.db.models import Q

from leaderboard.models import Dataset, Entry, Evaluation

JUDGED, HOLE = "Judged@10", "Hole@10"
#: In the order of boards.
JUDGED_MEASURES = (JUDGED, HOLE)


def judged_shares(evaluation: Evaluation) -> dict[str, float]:
    """`Judged@10` and `Hole@10` of an evaluation, empty where it has neither.

    Of a query with results the two make one, by their definitions (evaluation.measures.formulas); of one that the run
    misses both are 0. So where an evaluation has no `Judged@10`, it is the share of queries that the run has, less
    `Hole@10`.
    """
    means = evaluation.means
    if HOLE not in means:
        return {}
    if JUDGED in means:
        return {name: means[name] for name in JUDGED_MEASURES}
    judged = evaluation.judged_queries
    answered = (judged - evaluation.missing_queries) / judged if judged else 0.0
    return {JUDGED: max(0.0, answered - means[HOLE]), HOLE: means[HOLE]}


def shares_beside(evaluation: Evaluation, dataset: Dataset) -> dict[str, float]:
    """What is published of them beside a result's scores: nothing where judgements are hidden."""
    return {} if dataset.hidden else judged_shares(evaluation)


def without_shares() -> list[Dataset]:
    """Datasets with open judgements, some of whose results were published before these measures were."""
    stored = Q(evaluation__means__has_key=HOLE) | Q(seeds__evaluation__means__has_key=HOLE)
    entries = Entry.objects.filter(stored, dataset__hidden=False).exclude(scores__has_key=JUDGED)
    return list(Dataset.objects.filter(pk__in=entries.values("dataset")))
