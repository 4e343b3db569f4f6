"""A system's public results as other formats take them, and as Hugging Face's `.eval_results/*.yaml`."""

from __future__ import annotations

import datetime
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import yaml

from leaderboard.models import Entry
from leaderboard.models.results import EntryQuerySet
from leaderboard.results.mteb import SPLITS

#: Columns of an entry that its result has unchanged.
_OF_ENTRY = ("scores", "configuration", "provenance", "training", "published_at")


class ExchangedResult(NamedTuple):
    """One result with what it was made on. `scores` are the published values."""

    dataset: str
    dataset_slug: str
    beir_name: str
    language: str
    measure: str
    present_split: str | None
    own_split: str | None
    scores: dict[str, float]
    configuration: str
    provenance: str
    training: str
    published_at: datetime.datetime

    @property
    def value(self) -> float | None:
        """The score of the dataset's primary measure."""
        return self.scores.get(self.measure)

    @property
    def split(self) -> str:
        """The split of its judgements, or the one that publications report."""
        if self.provenance == Entry.Provenance.REPORTED:
            return SPLITS.get(self.dataset_slug, "test")
        return self.own_split or self.present_split or "test"


def results_of(system_id: int) -> list[ExchangedResult]:
    """The system's public results by dataset; of several under one configuration the newest. One query."""
    of_dataset = ("name", "slug", "beir_name", "language", "primary_measure", "current_qrels__split")
    columns = [*(f"dataset__{name}" for name in of_dataset), "evaluation__qrels__split", *_OF_ENTRY]
    rows = EntryQuerySet(Entry).public().filter(system_id=system_id)
    ordered = rows.order_by("dataset__name", "published_at", "pk")
    results = [ExchangedResult(*row) for row in ordered.values_list(*columns)]
    return list({(each.dataset_slug, each.configuration, each.provenance): each for each in results}.values())


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
