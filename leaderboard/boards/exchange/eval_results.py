"""A system's results as Hugging Face's `.eval_results/*.yaml`, to be put beside its model card."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import yaml

from leaderboard.boards.exchange.results import Exchanged


def to_yaml(results: Sequence[Exchanged], site: str, url: str, user: str) -> str:
    """The results of primary measures; `url` is the system's page on the `site`, `user` its team."""
    entries = [_entry(result, site, url, user) for result in results if result.value is not None]
    text: str = yaml.safe_dump(entries, sort_keys=False, allow_unicode=True, width=math.inf)
    return text


def _entry(result: Exchanged, site: str, url: str, user: str) -> dict[str, Any]:
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
