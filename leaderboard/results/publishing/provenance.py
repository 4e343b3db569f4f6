"""What a board says beside a result of how its run came: its round, late, by hand, and whether it fed a pool."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from django.db.models import Q, QuerySet

from leaderboard.models import Dataset, Entry, Evaluation, JudgementImport, Pool, Qrels


@dataclass(frozen=True, slots=True)
class EntryMarks:
    """What the submission said of its run; nothing, where it came in no round."""

    round_id: int | None = None
    late: bool = False
    run_type: str = ""

    def columns(self, evaluations: Collection[Evaluation]) -> dict[str, Any]:
        """The entry's columns; whether its runs fed a pool is known from the judgements that scored them."""
        return {
            "round_id": self.round_id,
            "late": self.late,
            "run_type": self.run_type,
            "pooled": _are_pooled(evaluations),
        }


NO_MARKS = EntryMarks()


def _are_pooled(evaluations: Collection[Evaluation]) -> bool:
    """Whether the run of any fed a pool of its judgements. One query where none fed any, as of new runs."""
    pools = Pool.objects.filter(state=Pool.State.READY)
    if not pools.filter(runs__in=[each.run_id for each in evaluations]).exists():
        return False
    return any(fed_pools(each.qrels).filter(runs=each.run_id).exists() for each in evaluations)


def fed_pools(qrels: Qrels) -> QuerySet[Pool]:
    """The pools whose judgements these are, or are part of them.

    Of judgements that were merged here that is known; of those that came with an import of the collection every pool
    counts that was there before.
    """
    merged: list[int] = []
    one: Qrels | None = qrels
    while one is not None:
        merged.append(one.pk)
        one = one.made_from
    imports = JudgementImport.objects.filter(qrels__in=merged, state=JudgementImport.State.MERGED)
    known = Q(imports__in=imports)
    if not imports.exists():
        known = Q(version=qrels.version_id, created_at__lt=qrels.created_at)
    return Pool.objects.filter(known, state=Pool.State.READY).distinct()


def mark_pooled(dataset: Dataset) -> int:
    """Mark the results whose runs fed a pool of the present judgements, and those alone; returns how many changed.

    For whoever moves a board to other judgements, in that transaction, before it counts the change.
    """
    qrels = Dataset.objects.select_related("current_qrels").get(pk=dataset.pk).current_qrels
    if qrels is None:
        return 0
    runs = fed_pools(qrels).values("runs")
    fed = Q(evaluation__run__in=runs) | Q(seeds__evaluation__run__in=runs)
    entries = Entry.objects.filter(dataset=dataset)
    pooled = set(entries.filter(fed).values_list("pk", flat=True))
    changed = entries.filter(pk__in=pooled, pooled=False).update(pooled=True)
    return changed + entries.filter(pooled=True).exclude(pk__in=pooled).update(pooled=False)
