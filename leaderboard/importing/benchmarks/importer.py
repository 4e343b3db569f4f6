"""`import_benchmark`: every dataset of a benchmark that can be fetched, one after the other."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from enum import StrEnum

from django.db import transaction
from django.db.models import Max

from evaluation.core.problems import InvalidContent
from leaderboard.importing.benchmarks.catalogue import CataloguedDataset, benchmarks, datasets_of
from leaderboard.importing.collections.fetching import fetched
from leaderboard.importing.collections.importer import DiskSpaceError, import_dataset
from leaderboard.importing.collections.source import ImportOptions, Progress
from leaderboard.importing.reported.loader import make_bibtex
from leaderboard.models import Benchmark, BenchmarkMember, Dataset
from leaderboard.results.board_rows.revisions import Kind, benchmark_changed, boards_changed, lock_boards


class Outcome(StrEnum):
    """What became of a dataset."""

    IMPORTED = "imported"
    HERE = "here already"
    FAILED = "failed"
    WHOLE = "consists of its parts"
    UNAVAILABLE = "not available"


@dataclass(frozen=True, slots=True)
class MemberOutcome:
    """What became of one dataset, and in a line what was imported, or why nothing was."""

    dataset: CataloguedDataset
    outcome: Outcome
    detail: str


class UnknownBenchmark(Exception):
    """The catalogue has no such benchmark, or a benchmark has no such dataset; the message names those there are."""


def import_benchmark(benchmark: str, only: Collection[str], progress: Progress) -> Iterator[MemberOutcome]:
    """Fetch and import the datasets that are not here, of `only` these slugs if there are any, and make them members.

    A dataset that cannot be fetched does not keep the others from being imported. Within `audit.acting`. Raises
    UnknownBenchmark.
    """
    rows = datasets_of(benchmark)
    if not rows:
        raise UnknownBenchmark(f"{benchmark} is not in the catalogue: it has {', '.join(benchmarks())}.")
    if unknown := sorted(set(only).difference(row.slug for row in rows)):
        known = ", ".join(row.slug for row in rows)
        raise UnknownBenchmark(f"{benchmark} has no {', '.join(unknown)}: it has {known}.")
    for row in rows:
        if not only or row.slug in only:
            found = _import(row, progress)
            _join(row)
            yield found


def _import(row: CataloguedDataset, progress: Progress) -> MemberOutcome:
    dataset = Dataset.objects.filter(slug=row.slug).select_related("current_version").first()
    if dataset is not None and dataset.current_version is not None:
        return MemberOutcome(row, Outcome.HERE, str(dataset.current_version))
    if not row.source:
        whole = any(each.part_of == row.slug for each in datasets_of(row.benchmark))
        return MemberOutcome(row, Outcome.WHOLE if whole else Outcome.UNAVAILABLE, row.note)
    options = ImportOptions(
        slug=row.slug,
        language=row.language,
        split=row.split,
        hidden=False,
        drop_self_matches=row.drop_self_matches,
    )
    if dataset is None:  # one that is known from reported figures keeps its own words and measures
        licence = benchmarks()[row.benchmark].get("licence")
        options = replace(options, name=row.name, primary=row.primary, licence=licence)
    try:
        with fetched(row.source, options, progress) as (folder, described):
            imported = import_dataset(folder, described, progress)
    except InvalidContent as error:
        problems = error.report.problems
        more = f" (and {len(problems) - 1} more problems)" if len(problems) > 1 else ""
        return MemberOutcome(row, Outcome.FAILED, f"{problems[0].message}{more}. {problems[0].hint}")
    except DiskSpaceError as error:
        return MemberOutcome(row, Outcome.FAILED, str(error))
    counted = imported.version.statistics
    detail = f"{counted['documents']:,} documents, {counted['queries']:,} queries"
    return MemberOutcome(row, Outcome.IMPORTED, ". ".join([detail, *imported.remarks]))


@transaction.atomic
def _join(row: CataloguedDataset) -> None:
    """Make the dataset a member of its benchmark, or a part of its whole, if it is on this site and is none yet."""
    dataset = Dataset.objects.filter(slug=row.slug).first()
    if row.part_of and dataset is not None and dataset.part_of is None:
        whole = next(each for each in datasets_of(row.benchmark) if each.slug == row.part_of)
        state = {"name": whole.name, "state": Dataset.State.REPORTED, "hidden": False}
        dataset.part_of, _ = Dataset.objects.get_or_create(slug=whole.slug, defaults=state)
        changed = {dataset.pk, dataset.part_of.pk}
        lock_boards(changed)
        dataset.save(update_fields=["part_of"])
        boards_changed(changed, Kind.DESCRIPTION)
        _join(whole)
    if row.part_of or dataset is None:
        return
    entry = benchmarks()[row.benchmark]
    publication = entry.get("publication")
    latest = Benchmark.objects.aggregate(latest=Max("position"))["latest"] or 0
    fresh = {
        "name": entry["name"],
        "description": entry.get("description", "").strip(),
        "citation": make_bibtex(publication["key"], publication) if publication else "",
        "measure": row.primary,
        "position": latest + 1,
    }
    # One that is there stays as it is.
    benchmark, _ = Benchmark.objects.get_or_create(slug=row.benchmark, defaults=fresh)
    place = [each.slug for each in datasets_of(row.benchmark)].index(row.slug)
    values = {"position": place, "counted": row.counted}
    _, is_new = BenchmarkMember.objects.get_or_create(benchmark=benchmark, dataset=dataset, defaults=values)
    if is_new:
        benchmark_changed(benchmark)
        boards_changed({dataset.pk}, Kind.DESCRIPTION)
