"""A system's public results as other formats take them, and as Hugging Face's `.eval_results/*.yaml`."""

from __future__ import annotations

import datetime
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import yaml

from leaderboard.models import Entry
from leaderboard.models.results import EntryQuerySet
from leaderboard.results.mteb import SPLITS


class ExchangedResult(NamedTuple):
    """One result with what it was made on. `scores` are the published values."""

    dataset: str
    dataset_slug: str
    beir_name: str
    language: str
    split: str
    measure: str
    scores: dict[str, float]
    configuration: str
    provenance: str
    training: str
    published_at: datetime.datetime

    @property
    def value(self) -> float | None:
        """The score of the dataset's primary measure."""
        return self.scores.get(self.measure)


def results_of(system_id: int) -> list[ExchangedResult]:
    """The system's public results by dataset; of several under one configuration the newest. One query."""
    rows = (
        EntryQuerySet(Entry)
        .public()
        .filter(system_id=system_id)
        .order_by("dataset__name", "published_at", "pk")
        .values(
            "dataset__name",
            "dataset__slug",
            "dataset__beir_name",
            "dataset__language",
            "dataset__primary_measure",
            "dataset__current_qrels__split",
            "evaluation__qrels__split",
            "scores",
            "configuration",
            "provenance",
            "training",
            "published_at",
        )
    )
    newest = {(row["dataset__slug"], row["configuration"], row["provenance"]): row for row in rows}
    return [_exchanged_result(row) for row in newest.values()]


def _exchanged_result(row: Mapping[str, Any]) -> ExchangedResult:
    reported = row["provenance"] == Entry.Provenance.REPORTED
    prefix = "evaluation__" if row["evaluation__qrels__split"] else "dataset__current_"
    return ExchangedResult(
        dataset=row["dataset__name"],
        dataset_slug=row["dataset__slug"],
        beir_name=row["dataset__beir_name"],
        language=row["dataset__language"],
        split=SPLITS.get(row["dataset__slug"], "test")
        if reported
        else row[f"{prefix}qrels__split"] or "test",
        measure=row["dataset__primary_measure"],
        scores=row["scores"],
        configuration=row["configuration"],
        provenance=row["provenance"],
        training=row["training"],
        published_at=row["published_at"],
    )


def to_yaml(results: Sequence[ExchangedResult], site: str, url: str, user: str) -> str:
    """The results of primary measures; `url` is the system's page on the `site`, `user` its team."""
    entries = [_entry(result, site, url, user) for result in results if result.value is not None]
    text: str = yaml.safe_dump(entries, sort_keys=False, allow_unicode=True, width=math.inf)
    return text


def _entry(result: ExchangedResult, site: str, url: str, user: str) -> dict[str, Any]:
    dataset = {"id": f"BeIR/{result.beir_name}" if result.beir_name else result.dataset_slug}
    dataset["task_id"] = result.split
    source = {"url": url, "name": site}
    if user:
        source["user"] = user
    notes = [result.measure, result.provenance, result.configuration, result.training]
    return {
        "dataset": dataset,
        "value": result.value,
        "date": result.published_at.date().isoformat(),
        "source": source,
        "notes": ", ".join(note for note in notes if note),
    }
