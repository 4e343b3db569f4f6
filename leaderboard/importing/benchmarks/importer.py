"""Import of all available datasets of a benchmark (`import_benchmark`)."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from enum import StrEnum

from django.db import transaction
from django.db.models import Max

from evaluation.core.problems import InvalidContent, format_count
from leaderboard.importing.benchmarks.catalogue import CataloguedDataset, benchmarks, catalogued_datasets
from leaderboard.importing.collections.fetching import fetch_collection
from leaderboard.importing.collections.importer import DiskSpaceError, import_dataset
from leaderboard.importing.collections.source import ImportOptions, Progress
from leaderboard.importing.reported.loader import make_bibtex
from leaderboard.models import Benchmark, BenchmarkMember, Dataset
from leaderboard.results.board_rows.revisions import Kind, benchmark_changed, boards_changed, lock_boards


class Outcome(StrEnum):
    """Outcome of the import of a dataset."""

    IMPORTED = "imported"
    HERE = "already imported"
    FAILED = "failed"
    WHOLE = "consists of its parts"
    UNAVAILABLE = "not available"


@dataclass(frozen=True, slots=True)
class MemberOutcome:
    """Outcome for one dataset, with a summary of the import or the reason why there is none."""

    dataset: CataloguedDataset
    outcome: Outcome
    detail: str


class UnknownBenchmark(Exception):
    """Unknown benchmark or dataset; the message lists the known ones."""


def import_benchmark(benchmark: str, only_slugs: Collection[str], progress: Progress) -> Iterator[MemberOutcome]:
    """Fetch and import missing datasets of a benchmark, make them its members, and yield the outcome of each.

    `only_slugs` restricts this to these slugs if it is not empty. A dataset that cannot be fetched does not affect the
    others. Call this within `audit.acting`. Raises UnknownBenchmark for an unknown benchmark or slug.
    """
    rows = catalogued_datasets(benchmark)
    if not rows:
        raise UnknownBenchmark(f"{benchmark} is not in the catalog. Choose one of: {', '.join(benchmarks())}.")
    if unknown_slugs := sorted(set(only_slugs).difference(row.slug for row in rows)):
        known_slugs = ", ".join(row.slug for row in rows)
        raise UnknownBenchmark(f"{benchmark} has no dataset {', '.join(unknown_slugs)}. Choose from: {known_slugs}.")
    for row in rows:
        if not only_slugs or row.slug in only_slugs:
            outcome = _import_member(row, progress)
            _add_to_benchmark(row)
            yield outcome


def _import_member(row: CataloguedDataset, progress: Progress) -> MemberOutcome:
    """Fetch and import a dataset unless it has documents already, and return the outcome.

    An existing dataset without documents keeps its name, licence, and measures. Failures are outcomes, not exceptions.
    """
    dataset = Dataset.objects.filter(slug=row.slug).select_related("current_version").first()
    if dataset is not None and dataset.current_version is not None:
        return MemberOutcome(row, Outcome.HERE, str(dataset.current_version))
    if not row.source:
        has_parts = any(candidate.part_of == row.slug for candidate in catalogued_datasets(row.benchmark))
        return MemberOutcome(row, Outcome.WHOLE if has_parts else Outcome.UNAVAILABLE, row.note)
    options = ImportOptions(
        slug=row.slug,
        language=row.language,
        split=row.split,
        hidden=False,
        drop_self_matches=row.drop_self_matches,
    )
    if dataset is None:  # a reported dataset keeps its name, licence, and measures
        licence = benchmarks()[row.benchmark].get("licence")
        options = replace(options, name=row.name, primary=row.primary, licence=licence)
    try:
        with fetch_collection(row.source, options, progress) as (folder, completed_options):
            result = import_dataset(folder, completed_options, progress)
    except InvalidContent as error:
        problems = error.report.problems
        suffix = f" (and {format_count(len(problems) - 1, 'more problem')})" if len(problems) > 1 else ""
        return MemberOutcome(row, Outcome.FAILED, f"{problems[0].message}{suffix}. {problems[0].hint}")
    except DiskSpaceError as error:
        return MemberOutcome(row, Outcome.FAILED, str(error))
    statistics = result.version.statistics
    detail = f"{statistics['documents']:,} documents, {statistics['queries']:,} queries"
    return MemberOutcome(row, Outcome.IMPORTED, ". ".join([detail, *result.remarks]))


@transaction.atomic
def _add_to_benchmark(row: CataloguedDataset) -> None:
    """Make the dataset a member of its benchmark, or a part of another dataset, unless it already is.

    A missing parent dataset or benchmark is created. A dataset that was not imported is skipped.
    """
    dataset = Dataset.objects.filter(slug=row.slug).first()
    if row.part_of and dataset is not None and dataset.part_of is None:
        parent = next(candidate for candidate in catalogued_datasets(row.benchmark) if candidate.slug == row.part_of)
        state = {"name": parent.name, "state": Dataset.State.REPORTED, "hidden": False}
        dataset.part_of, _ = Dataset.objects.get_or_create(slug=parent.slug, defaults=state)
        changed_ids = {dataset.pk, dataset.part_of.pk}
        lock_boards(changed_ids)
        dataset.save(update_fields=["part_of"])
        boards_changed(changed_ids, Kind.DESCRIPTION)
        _add_to_benchmark(parent)
    if row.part_of or dataset is None:
        return
    entry = benchmarks()[row.benchmark]
    publication = entry.get("publication")
    last_position = Benchmark.objects.aggregate(latest=Max("position"))["latest"] or 0
    defaults = {
        "name": entry["name"],
        "description": entry.get("description", "").strip(),
        "citation": make_bibtex(publication["key"], publication) if publication else "",
        "measure": row.primary,
        "position": last_position + 1,
    }
    # An existing benchmark is not changed.
    benchmark, _ = Benchmark.objects.get_or_create(slug=row.benchmark, defaults=defaults)
    place = [candidate.slug for candidate in catalogued_datasets(row.benchmark)].index(row.slug)
    values = {"position": place, "counted": row.counted}
    _, is_new = BenchmarkMember.objects.get_or_create(benchmark=benchmark, dataset=dataset, defaults=values)
    if is_new:
        benchmark_changed(benchmark)
        boards_changed({dataset.pk}, Kind.DESCRIPTION)
