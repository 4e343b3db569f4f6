"""A large board of made-up numbers, for measuring what boards cost and for looking at long ones. Never for a real site.

Each dataset is imported as any other: its queries, judgements and runs are small real files in the store, so all pages
that read them can. Only the numbers are made up, and written in bulk, past the writers of single results: thousands of
publications one by one would take minutes and measure something else.
"""

from __future__ import annotations

import tempfile
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from django.db import transaction
from django.db.models import PROTECT, ManyToOneRel
from django.utils import timezone
from numpy.typing import NDArray

from evaluation.efficiency import PROTOCOL, Hardware
from evaluation.measures.registry import SPEC_VERSION
from leaderboard.core.storage.runs import StoredRun, store_run
from leaderboard.core.storage.store import Area, remove
from leaderboard.datasets.derived_files import prepare_files
from leaderboard.importing.collections.importer import import_dataset
from leaderboard.importing.collections.source import ImportOptions
from leaderboard.models import (
    Architecture,
    Benchmark,
    BenchmarkMember,
    Dataset,
    DatasetFile,
    Entry,
    Evaluation,
    HardwareClass,
    Measurement,
    Qrels,
    Run,
    System,
    Team,
)
from leaderboard.results.board_rows.revisions import Kind, benchmark_changed, boards_changed
from leaderboard.systems.records import free_slug
from tests.generated.collection import QUERIES, write_collection, write_rankings

SLUG = "generated"
MEASURES = ["nDCG@10", "AP", "RR@10", "R@100", "P@10"]
TEAMS = 40
#: So many of a hundred systems have no result on a dataset, beside those that have all.
MISSING_PER_HUNDRED = 4
FIRST = ("amber", "basalt", "cedar", "delta", "ember", "fjord", "garnet", "heron", "indigo", "juniper")
SECOND = ("finder", "index", "matcher", "ranker", "reader", "searcher", "sifter", "tracker")
LICENCES = (("Apache-2.0", True), ("MIT", True), ("CC-BY-NC-4.0", False), ("", None))
DOMAINS = ("science", "finance", "health", "web", "news")

Matrix = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Generated:
    """What was made."""

    benchmark: Benchmark
    systems: int
    datasets: int
    entries: int


class _Ranking(NamedTuple):
    """A stored run that several systems name, and how many lines it has."""

    stored: StoredRun
    lines: int


@transaction.atomic
def generate_board(systems: int, datasets: int, seed: int = 1) -> Generated:
    """A benchmark of so many datasets, with a scored entry of nearly every system on each, and costs on the first.

    The first system is the baseline. The same `seed` makes the same numbers. Raises ValueError where there is one.
    """
    if Benchmark.objects.filter(slug=SLUG).exists():
        raise ValueError("there is a generated board already; remove it first")
    random = np.random.default_rng(seed)
    made = _systems(systems, random)
    skill = random.normal(0.0, 0.06, systems)
    benchmark = Benchmark.objects.create(
        slug=SLUG, name="Generated", description="Made-up numbers, for measuring.", position=99
    )
    entries = 0
    rows = [_dataset(number, random) for number in range(datasets)]
    for number, (dataset, rankings) in enumerate(rows):
        BenchmarkMember.objects.create(benchmark=benchmark, dataset=dataset, position=number)
        values = _values(skill, 0.35 + 0.3 * random.random(), random)
        present = random.integers(0, 100, systems) >= (MISSING_PER_HUNDRED if number else 0)
        present[0] = True
        published = _publish(dataset, [made[n] for n in np.flatnonzero(present)], values[present], rankings)
        entries += len(published)
        if number == 0:
            _measure(published, random)
            benchmark.efficiency_from = dataset
            benchmark.save()
    benchmark_changed(benchmark)
    boards_changed([dataset.pk for dataset, _ in rows], Kind.PUBLISHED)
    return Generated(benchmark, systems, datasets, entries)


@transaction.atomic
def remove_generated_board() -> int:
    """Remove what `generate_board` made, its files too, and return how many datasets that were."""
    datasets = Dataset.objects.filter(benchmarks__slug=SLUG)
    keys, number = list(datasets.values_list("pk", flat=True)), datasets.count()
    files = _files(keys)
    systems = set(Entry.objects.filter(dataset__in=keys).values_list("system_id", flat=True))
    runs = list(Run.objects.filter(version__dataset__in=keys).values_list("pk", flat=True))
    Entry.objects.filter(dataset__in=keys).delete()
    Evaluation.objects.filter(run__in=runs).delete()
    Run.objects.filter(pk__in=runs).delete()
    Benchmark.objects.filter(slug=SLUG).delete()
    Dataset.objects.filter(pk__in=keys).update(current_version=None, current_qrels=None)
    _forget_work(keys)
    Dataset.objects.filter(pk__in=keys).delete()
    System.objects.filter(pk__in=systems).delete()
    Team.objects.filter(slug__startswith=f"{SLUG}-team-").delete()
    HardwareClass.objects.filter(slug=_hardware().slug).delete()
    transaction.on_commit(lambda: _remove_files(files))
    return number


def _files(datasets: Sequence[int]) -> dict[Area, set[str]]:
    """The checksums of what the datasets have in the store."""
    of_version = {"version__dataset__in": datasets}
    runs = set(Run.objects.filter(**of_version).values_list("sha256", flat=True))
    return {
        Area.FILES: set(DatasetFile.objects.filter(**of_version).values_list("sha256", flat=True)),
        Area.QRELS: set(Qrels.objects.filter(**of_version).values_list("sha256", flat=True)),
        Area.RUNS: runs,
        Area.TOP_DOCUMENTS: runs,
    }


def _remove_files(files: Mapping[Area, Iterable[str]]) -> None:
    """Remove files that no dataset has any more.

    The sweep would leave them: it takes so many files at once that no row names for another site's.
    """
    for area, checksums in files.items():
        table = {Area.FILES: DatasetFile, Area.QRELS: Qrels}.get(area, Run)
        named = set(table._base_manager.filter(sha256__in=checksums).values_list("sha256", flat=True))
        for sha256 in set(checksums) - named:
            remove(area, sha256)


def _forget_work(datasets: Sequence[int]) -> None:
    """Remove what was done for the datasets and keeps them: jobs, whose table nothing here may import."""
    for relation in Dataset._meta.related_objects:
        if isinstance(relation, ManyToOneRel) and relation.on_delete is PROTECT:
            name = f"{relation.field.name}__in"
            relation.related_model._base_manager.filter(**{name: datasets}).delete()


def _systems(number: int, random: np.random.Generator) -> list[System]:
    teams = Team.objects.bulk_create(
        Team(slug=f"{SLUG}-team-{n}", name=f"Generated team {n + 1}") for n in range(TEAMS)
    )
    architectures = [value for value in Architecture.values if value != Architecture.OTHER]
    names = [f"{first} {second}" for second in SECOND for first in FIRST]
    rows = []
    for n in range(number):
        licence, commercial = LICENCES[n % len(LICENCES)]
        name = f"{names[n % len(names)]} {n // len(names) + 1}".capitalize()
        rows.append(
            System(
                slug=free_slug(f"{SLUG}-{n}"),
                name=name,
                team=teams[n % TEAMS],
                architecture=architectures[n % len(architectures)],
                year=2018 + n % 9,
                licence=licence,
                commercial_use=commercial,
                open_weights=(True, True, False, None)[n % 4],
                parameter_count=int(random.integers(5, 8000)) * 10**6,
                maximum_length=(256, 512, 8192)[n % 3],
                training_declared=bool(n % 5),
            )
        )
    return System.objects.bulk_create(rows)


def _dataset(number: int, random: np.random.Generator) -> tuple[Dataset, list[_Ranking]]:
    """A dataset with its files, and the runs that its systems share."""
    options = ImportOptions(
        slug=f"{SLUG}-{number + 1}",
        name=f"Generated {number + 1}",
        task=("question answering", "fact checking", "citation prediction")[number % 3],
        domain=DOMAINS[number % len(DOMAINS)],
        hidden=False,
        runs_only=True,
        measures=tuple(MEASURES),
    )
    with tempfile.TemporaryDirectory(prefix="runboard-generated-") as name:
        folder = Path(name)
        write_collection(folder, number, DOMAINS)
        dataset = import_dataset(folder, options).dataset
        written = write_rankings(folder, number, random)
        rankings = [_Ranking(store_run(path), lines) for path, lines in written]
    prepare_files(dataset, [ranking.stored.sha256 for ranking in rankings])
    return dataset, rankings


def _values(skill: Matrix, level: float, random: np.random.Generator) -> Matrix:
    """Scores of systems × queries × measures, between 0 and 1."""
    difficulty = random.normal(0.0, 0.2, (1, QUERIES, 1))
    offset = np.array([0.0, -0.1, 0.05, 0.15, -0.15])
    noise = random.normal(0.0, 0.1, (len(skill), QUERIES, len(MEASURES)))
    found: Matrix = np.clip(level + skill[:, None, None] + difficulty + offset + noise, 0.0, 1.0)
    return found


def _publish(dataset: Dataset, systems: Sequence[System], values: Matrix, rankings: Sequence[_Ranking]) -> list[Entry]:
    version, qrels, now = dataset.current_version, dataset.current_qrels, timezone.now()
    if version is None or qrels is None:
        raise RuntimeError(f"{dataset} has no version")
    shared = [rankings[number % len(rankings)] for number in range(len(systems))]
    runs = Run.objects.bulk_create(
        Run(version=version, system=system, origin=Run.Origin.UPLOADED, lines=lines, **stored._asdict())
        for system, (stored, lines) in zip(systems, shared, strict=True)
    )
    means = [dict(zip(MEASURES, row, strict=True)) for row in values.mean(axis=1).tolist()]
    evaluations = Evaluation.objects.bulk_create(
        Evaluation(
            run=run,
            qrels=qrels,
            specification=SPEC_VERSION,
            measures=MEASURES,
            means=of_run,
            values=zlib.compress(np.ascontiguousarray(per_query, dtype="<f8").tobytes(), 1),
            judged_queries=QUERIES,
        )
        for run, of_run, per_query in zip(runs, means, values, strict=True)
    )
    return Entry.objects.bulk_create(
        Entry(
            dataset=dataset,
            system=system,
            evaluation=evaluation,
            provenance=Entry.Provenance.SCORED,
            scores=of_run,
            comparison_group=f"scored:{version.pk}:{qrels.pk}:{SPEC_VERSION}",
            is_baseline=number == 0,
            training=Entry.Training.ZERO_SHOT if number % 5 else Entry.Training.UNDECLARED,
            submission_reference=f"{SLUG}{number:04}",
            published_at=now,
        )
        for number, (system, evaluation, of_run) in enumerate(zip(systems, evaluations, means, strict=True))
    )


def _hardware() -> Hardware:
    return Hardware.from_details({"cpu": "Generated", "cores": 2, "gpu": None, "python": "", "libraries": {}})


def _measure(entries: Sequence[Entry], random: np.random.Generator) -> None:
    hardware, _ = HardwareClass.objects.get_or_create(
        slug=_hardware().slug, defaults={"name": _hardware().name, "details": dict(_hardware().details)}
    )
    baseline = _figures(1.0, 20_000_000)
    Measurement.objects.bulk_create(
        Measurement(
            entry=entry,
            hardware=hardware,
            protocol=PROTOCOL,
            figures=_figures(float(random.lognormal(2.0, 1.0)), int(random.lognormal(18.0, 1.0))),
            baseline=baseline,
            measured_at=timezone.now(),
        )
        for entry in entries
    )


def _figures(mean: float, index_bytes: int) -> dict[str, Any]:
    return {
        "protocol": PROTOCOL,
        "depth": 100,
        "threads": 2,
        "device": "cpu",
        "searches": 200,
        "queries": QUERIES,
        "documents": 50_000,
        "rounds": 10,
        "spread_ms": mean * 0.02,
        "unsettled": 0,
        "latency_ms": {"mean": mean, "p50": mean * 0.9, "p95": mean * 2, "p99": mean * 3},
        "parts_ms": {"search": mean},
        "queries_per_second": 1500 / mean,
        "documents_per_second": 900.0,
        "build_seconds": 42.0,
        "index_bytes": index_bytes,
        "peak_memory_bytes": index_bytes * 3,
        "peak_gpu_memory_bytes": None,
        "parameters": None,
        "energy_joules_per_query": None,
        "energy_source": "",
    }
