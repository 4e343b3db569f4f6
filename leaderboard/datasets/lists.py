"""Lists of datasets, benchmarks, and results as plain rows."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple

import orjson
from django.db.models import Count, Q, QuerySet, TextField
from django.db.models.functions import Cast

from leaderboard.core.text import numbers
from leaderboard.core.text.baselines import baseline_label
from leaderboard.models import Benchmark, Dataset, DatasetQuerySet, Entry


class DatasetStatistics(NamedTuple):
    """Statistics of a collection as in Table 1 of the BEIR paper; None for unknown values."""

    queries: int | None
    documents: int | None
    relevant_per_query: float | None
    words_per_query: float | None
    words_per_document: float | None
    relevance_levels: int | None
    judgements: int | None
    reported: bool


def get_statistics(dataset: Mapping[str, Any]) -> DatasetStatistics:
    """Return the statistics of the dataset's current version and qrels, or the reported ones if there are none."""
    current_statistics = {
        **(dataset["current_version__statistics"] or {}),
        **(dataset["current_qrels__statistics"] or {}),
    }
    values = current_statistics or dataset["reported_statistics"] or {}
    names = [name for name in DatasetStatistics._fields if name != "reported"]
    return DatasetStatistics(**{name: values.get(name) for name in names}, reported=not current_statistics)


def count_topics(datasets: Collection[int]) -> int | None:
    """Return the number of topics of all datasets, or None if any is unknown, in one query."""
    columns = ("current_version__statistics", "current_qrels__statistics", "reported_statistics")
    numbers = [get_statistics(row).queries for row in Dataset.objects.filter(pk__in=datasets).values(*columns)]
    return None if None in numbers else sum(number or 0 for number in numbers)


def datasets() -> list[dict[str, Any]]:
    """Return all datasets that have a page, those that accept runs first, in one query.

    Besides its columns, each row has `statistics`, the `number` of public entries, and whether it `takes_runs`.
    """
    rows = (
        DatasetQuerySet(Dataset)
        .listed()
        .annotate(number=Count("entries", filter=Q(entries__visibility="public")))
        .order_by("name")
        .values(
            "pk", "slug", "name", "task", "domain", "language", "state", "hidden", "runs_only", "documents_visibility",
            "primary_measure", "licence", "description", "number", "reported_statistics",
            "current_version__corpus_sha256", "current_version__statistics", "current_qrels_id",
            "current_qrels__statistics",
        )
    )  # fmt: skip
    result = [
        {**row, "statistics": get_statistics(row), "takes_runs": row["state"] in Dataset.TAKES_RUNS} for row in rows
    ]
    return sorted(result, key=lambda row: not row["takes_runs"])


def benchmarks() -> list[dict[str, Any]]:
    """Return all benchmarks in site order with their numbers of datasets, in total and counted, in one query.

    `source` contains the authors of the publication.
    """
    rows = Benchmark.objects.annotate(
        datasets_shown=Count("members"),
        datasets_counted=Count("members", filter=Q(members__counted=True)),
    )
    columns = (
        "slug",
        "name",
        "description",
        "measure",
        "source__authors",
        "datasets_shown",
        "datasets_counted",
    )
    return [
        {"source" if name == "source__authors" else name: value for name, value in row.items()}
        for row in rows.order_by("position", "name").values(*columns)
    ]


def benchmarks_with(dataset_id: int) -> list[dict[str, Any]]:
    rows = Benchmark.objects.filter(members__dataset_id=dataset_id).values("slug", "name")
    return [dict(row) for row in rows]


def recent_results(entries: QuerySet[Entry], limit: int) -> list[dict[str, Any]]:
    """Return the newest entries with their primary score and its difference from the baseline, in two queries.

    Numbers are formatted for pages. `limit` is the maximum number of entries.
    """
    rows = list(
        entries.order_by("-published_at", "-pk").values(
            "system__name", "system__slug", "configuration", "dataset_id", "dataset__name", "dataset__slug",
            "dataset__primary_measure", "scores", "comparison_group", "provenance", "is_baseline",
            published=Cast("published_at", TextField()),
        )[:limit]
    )  # fmt: skip
    baselines = find_baselines((row["dataset_id"], row["comparison_group"]) for row in rows)
    results = []
    for row in rows:
        measure = row["dataset__primary_measure"]
        baseline = baselines.get((row["dataset_id"], row["comparison_group"]), NONE)
        value = row["scores"].get(measure)
        baseline_value = None if row["is_baseline"] else baseline.scores.get(measure)
        delta = numbers.difference(value, baseline_value)
        results.append(
            {
                "system": row["system__name"],
                "slug": row["system__slug"],
                "dataset": row["dataset__name"],
                "dataset_slug": row["dataset__slug"],
                "measure": measure,
                "value": numbers.format_value(value, numbers.DECIMALS),
                "delta": numbers.signed(delta, numbers.DECIMALS),
                "relative": numbers.signed(numbers.relative_difference(value, baseline_value), 1, percent=True),
                "baseline": baseline.name,
                "published": row["published"][:10],
                **{name: row[name] for name in ("configuration", "provenance", "is_baseline")},
            }
        )
    return results


class Baseline(NamedTuple):
    """Display name of a baseline, and its scores by measure."""

    name: str
    scores: Mapping[str, float]


NONE = Baseline("", {})


def find_baselines(groups: Iterable[tuple[int, str]]) -> dict[tuple[int, str], Baseline]:
    """Return the public baselines by dataset and comparison group, in one query.

    Groups without a baseline are omitted.
    """
    keys = set(groups)
    rows = Entry.objects.filter(
        is_baseline=True,
        visibility=Entry.Visibility.PUBLIC,
        dataset_id__in={dataset for dataset, _ in keys},
        comparison_group__in={group for _, group in keys},
    ).values_list("dataset_id", "comparison_group", "system__name", "dataset__name", Cast("scores", TextField()))
    return {
        (dataset, group): Baseline(baseline_label(system, name), orjson.loads(text))
        for dataset, group, system, name, text in rows
    }
