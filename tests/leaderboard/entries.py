"""Entries for tests of boards, made through the site's own writers."""

from __future__ import annotations

from datetime import datetime
from itertools import count
from typing import Any

import numpy as np

from evaluation.efficiency import PROTOCOL, Hardware
from leaderboard.models import Dataset, Entry, Evaluation, Measurement, Qrels, Source, System, Team
from leaderboard.results.board_rows.revisions import Kind, boards_changed
from leaderboard.results.efficiency import record_measurement
from leaderboard.results.publishing.scored import publish_entry
from leaderboard.results.publishing.visibility import publish_reported
from leaderboard.results.records import record_evaluation, record_run
from tests.factories import make_dataset, make_version

_numbers = count(1)


def scored_dataset(**fields: Any) -> Dataset:
    """A published, open dataset with a version and judgements."""
    dataset = make_dataset(**{"hidden": False, "measures": ["nDCG@10", "R@100"], **fields})
    renew_judgements(dataset)
    return dataset


def renew_judgements(dataset: Dataset) -> None:
    """Another version and other judgements: what was scored before is stale."""
    dataset.current_version = make_version(dataset)
    dataset.current_qrels = Qrels.objects.create(version=dataset.current_version, sha256=f"{next(_numbers):064x}")
    dataset.save()


def make_system(name: str, **fields: Any) -> System:
    """A system of a team."""
    number = next(_numbers)
    team = fields.pop("team", None) or Team.objects.create(slug=f"team-{number}", name=f"Team {number}")
    return System.objects.create(slug=f"system-{number}", name=name, team=team, **{"architecture": "dense", **fields})


def score(
    dataset: Dataset, system: System | str, *, baseline: bool = False, public: bool = True, **scores: float
) -> Entry:
    """A scored entry; `ndcg` stands for nDCG@10 and `recall` for R@100."""
    system = make_system(system) if isinstance(system, str) else system
    return publish_entry(
        Entry(
            provenance=Entry.Provenance.SCORED,
            public_wanted=public,
            submission_reference=f"reference{next(_numbers)}",
        ),
        evaluate(dataset, system, **scores),
        is_baseline=baseline,
    )


def record_boards() -> None:
    """Store what all boards are made of, after a test changed tables without the site's writers."""
    boards_changed(Dataset.objects.values_list("pk", flat=True), Kind.RECORDED)


def date_results(*days: str) -> None:
    """Have the results so far come on these days, taken in turns: in tests all come today."""
    for number, entry in enumerate(Entry.objects.order_by("pk")):
        entry.published_at = datetime.fromisoformat(f"{days[number % len(days)]}T12:00:00+00:00")
        entry.save(update_fields=["published_at"])
    record_boards()


def score_seeds(
    dataset: Dataset,
    system: System | str,
    *seeds: dict[str, float],
    public: bool = True,
    configuration: str = "",
) -> Entry:
    """A scored seed set, one dictionary of scores for each seed: they are labelled 1, 2, …"""
    system = make_system(system) if isinstance(system, str) else system
    return publish_entry(
        Entry(
            provenance=Entry.Provenance.SCORED,
            public_wanted=public,
            configuration=configuration,
            submission_reference=f"reference{next(_numbers)}",
        ),
        {str(number): evaluate(dataset, system, **scores) for number, scores in enumerate(seeds, 1)},
    )


def evaluate(dataset: Dataset, system: System, **scores: float) -> Evaluation:
    """The evaluation of a new run of the system, the same for each of two queries."""
    version, qrels = dataset.current_version, dataset.current_qrels
    assert version is not None
    assert qrels is not None
    names = {"ndcg": "nDCG@10", "recall": "R@100"}
    means = {names.get(name, name): value for name, value in scores.items()}
    run = record_run(
        version=version, system=system, sha256=f"{next(_numbers):064x}", origin="uploaded", size=1, lines=1
    )  # type: ignore[arg-type]
    return record_evaluation(
        run=run,
        qrels=qrels,
        specification="1",
        measures=list(means),
        means=means,
        per_query=np.array([list(means.values())] * 2),
        missing_queries=0,
    )


def make_source(key: str) -> Source:
    """A publication."""
    return Source.objects.create(key=key, title=f"On {key}", authors="Ada Lovelace and Grace Hopper", year=2020)


def report(
    dataset: Dataset,
    source: Source,
    name: str,
    *,
    baseline: bool = False,
    figures: list[dict[str, Any]] | None = None,
    training: Entry.Training = Entry.Training.ZERO_SHOT,
    **scores: float,
) -> None:
    """A reported entry; `ndcg` stands for nDCG@10 and `recall` for R@100."""
    names = {"ndcg": "nDCG@10", "recall": "R@100"}
    system, _ = System.objects.get_or_create(
        source=source,
        name=name,
        defaults={"slug": f"{name}-{source.key}".lower().replace(" ", "-"), "architecture": "lexical"},
    )
    publish_reported(
        [
            Entry(
                dataset=dataset,
                system=system,
                configuration="",
                scores={names.get(name, name): value for name, value in scores.items()},
                figures=figures or [],
                comparison_group=f"reported:{source.key}",
                is_baseline=baseline,
                training=training,
                locator="Table 1",
            )
        ]
    )


def figures(mean: float, **changes: Any) -> dict[str, Any]:
    """What a measurement of a mean latency of `mean` ms says; other figures may be given by name."""
    return {
        "protocol": PROTOCOL,
        "depth": 100,
        "threads": 2,
        "device": "cpu",
        "searches": 200,
        "queries": 50,
        "documents": 1000,
        "rounds": 4,
        "spread_ms": mean * 0.01,
        "unsettled": 0,
        "latency_ms": {"mean": mean, "p50": mean * 0.9, "p95": mean * 2, "p99": mean * 3},
        "parts_ms": {"query_encoding": mean / 2, "search": mean / 4},
        "queries_per_second": 1500 / mean,
        "documents_per_second": 1234.5,
        "build_seconds": 42.0,
        "index_bytes": 12_345_678,
        "peak_memory_bytes": 987_654_321,
        "peak_gpu_memory_bytes": None,
        "parameters": 22_713_216,
        "energy_joules_per_query": None,
        "energy_source": "",
        **changes,
    }


def machine(cpu: str = "AMD EPYC", cores: int = 2, gpu: str | None = None) -> dict[str, Any]:
    """A hardware class as a worker describes it."""
    details = {"cpu": cpu, "cores": cores, "gpu": gpu, "python": "3.11.7", "libraries": {"numpy": "2.4.6"}}
    return Hardware.from_details(details).as_data()


def cost(entry: Entry, mean: float, *, bm25: float = 1.0, **options: Any) -> Measurement:
    """Record that the entry's system takes `mean` ms a search, and BM25 beside it `bm25` ms."""
    hardware = options.pop("hardware", None) or machine()
    baseline = figures(bm25, parameters=None, documents=options.get("documents", 1000))
    return record_measurement(entry, hardware, figures(mean, **options), baseline)
