"""A competition's parts: drawn once for judgements, and the means of evaluations over each. The scorer's alone.

The only writer of `EvaluationPart`. What is here reads private storage, but `part_means`, which reads rows.
"""

from __future__ import annotations

import numpy as np
from django.db import transaction
from numpy.typing import NDArray

from evaluation.judgements import splits as judged_parts
from leaderboard.datasets.qrels import load_parts, load_qrels, store_parts
from leaderboard.models import Evaluation, EvaluationPart, Qrels
from leaderboard.results.records import per_query_values

Part = EvaluationPart.Part


@transaction.atomic
def draw_parts(qrels: Qrels) -> Qrels:
    """Draw the parts of these judgements, unless that was done; the row as it is then.

    Queries that have a part in earlier judgements of the dataset keep it: those that these were made from, or else the
    last ones that were parted. Raises ValueError for too few queries.
    """
    row = Qrels.objects.select_for_update(of=("self",)).select_related("version__dataset").get(pk=qrels.pk)
    if row.parts_sha256:
        return row
    dataset = row.version.dataset
    relevant = judged_parts.relevant_counts(load_qrels(row), dataset.relevance_level)
    before = _earlier(row)
    earlier = load_parts(before) if before is not None else None
    store_parts(row, judged_parts.draw_parts(relevant, dataset.public_share, earlier))
    return row


def _earlier(row: Qrels) -> Qrels | None:
    if row.made_from is not None and row.made_from.parts_sha256:
        return row.made_from
    parted = Qrels.objects.filter(version__dataset=row.version.dataset_id).exclude(parts_sha256="")
    return parted.order_by("-pk").first()


def public_queries(qrels: Qrels) -> NDArray[np.bool_]:
    """Which of the judged queries are public, shape (queries,), in the judgements' order."""
    return load_parts(draw_parts(qrels)).mask(load_qrels(qrels).query_ids)


def evaluate_parts(evaluation: Evaluation) -> None:
    """Keep the evaluation's means over both parts, unrounded. Again, nothing changes."""
    if EvaluationPart.objects.filter(evaluation=evaluation).count() == len(Part):
        return
    public = public_queries(evaluation.qrels)
    first, second = judged_parts.part_means(per_query_values(evaluation), evaluation.measures, public)
    count = int(np.count_nonzero(public))
    EvaluationPart.objects.bulk_create(
        [
            EvaluationPart(evaluation=evaluation, part=Part.PUBLIC, means=first, judged_queries=count),
            EvaluationPart(
                evaluation=evaluation, part=Part.PRIVATE, means=second, judged_queries=len(public) - count
            ),
        ],
        ignore_conflicts=True,
    )


def part_means(evaluation: Evaluation, part: EvaluationPart.Part) -> dict[str, float]:
    """The unrounded means over one part; empty where they were not computed. Of many, prefetch `parts`."""
    means: dict[str, float] = next((each.means for each in evaluation.parts.all() if each.part == part), {})
    return means
