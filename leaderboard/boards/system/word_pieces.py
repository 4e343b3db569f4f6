"""What learned query augmentation improves on: BM25 over the same word pieces, which its job gives as a variant."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

#: The label of that variant: first in its entry's configuration, before the submission's own.
LABEL = "bm25-wordpiece"


def is_word_pieces(configuration: str) -> bool:
    """Whether an entry of this configuration is that variant."""
    return configuration.split(" · ")[0] == LABEL


def scores_by_job(rows: Iterable[Mapping[str, Any]]) -> dict[tuple[Any, ...], Mapping[str, float]]:
    """The scores of each such variant among the entries of a system, by what `job_of` says of the entries beside it."""
    return {job_of(row): row["scores"] for row in rows if is_word_pieces(row["configuration"])}


def job_of(row: Mapping[str, Any]) -> tuple[Any, ...]:
    """What entries of one job share, and entries that may be compared."""
    return row["submission_reference"], row["dataset_id"], row["comparison_group"]
