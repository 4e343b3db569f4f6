"""The judgements of one split, and their row."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from django.db.models import Max

from evaluation.judgements.qrels import Qrels as JudgedQueries
from leaderboard.models import DatasetVersion, Qrels


@dataclass(frozen=True, slots=True)
class Judgements:
    """The judgements of one split: as arrays, and as a plain file."""

    qrels: JudgedQueries
    path: Path
    sha256: str

    def statistics(self, relevance_level: int) -> dict[str, Any]:
        """Counts for the dataset's page; `relevant` means graded `relevance_level` or higher."""
        grades, counts = np.unique(self.qrels.grades, return_counts=True)
        relevant = np.bincount(
            self.qrels.rows[self.qrels.grades >= relevance_level], minlength=len(self.qrels.query_ids)
        )
        return {
            "judged_queries": len(self.qrels.query_ids),
            "judgements": self.qrels.number_of_judgements,
            "relevant": int(relevant.sum()),
            "relevant_per_query": float(relevant.mean()) if len(relevant) else 0.0,
            "queries_without_relevant": int((relevant == 0).sum()),
            "grades": {str(grade): int(count) for grade, count in zip(grades, counts, strict=True)},
            "relevance_levels": len({0, *grades.tolist()}),
            "negative_grades": self.qrels.negative_count,
        }


def current_or_next_qrels(
    version: DatasetVersion,
    split: str,
    judged: Judgements,
    relevance_level: int,
    *,
    made_from: Qrels | None = None,
    note: str = "",
) -> Qrels:
    """The row of these judgements, made where they are new; `note` says what was added to those `made_from`."""
    row = version.qrels.filter(split=split, sha256=judged.sha256).first()
    if row is not None:
        return row
    latest = version.qrels.filter(split=split).aggregate(latest=Max("number"))["latest"] or 0
    return Qrels.objects.create(
        version=version,
        split=split,
        number=latest + 1,
        sha256=judged.sha256,
        statistics=judged.statistics(relevance_level),
        made_from=made_from,
        note=note,
    )
