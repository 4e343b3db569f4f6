"""Load the tables as sources, datasets, systems, entries and benchmarks. Loading again changes nothing."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from django.db import transaction

from leaderboard.importing.reported import tables
from leaderboard.models import Benchmark, BenchmarkMember, Dataset, Entry, Source, System
from leaderboard.results.board_rows.revisions import benchmark_changed
from leaderboard.results.publishing.visibility import publish_reported
from leaderboard.results.values import training_exposure
from leaderboard.systems.challenges import CLAIMS, settlement_of

#: What other systems of a publication are compared with, where it names none.
BASELINE = "BM25"
#: What a dataset that was imported gets from here where it says nothing itself.
GAINED = ("ir_datasets_id", "beir_name", "licence", "description", "citation")


@dataclass(frozen=True, slots=True)
class LoadSummary:
    """What the boards hold now, and how many entries changed."""

    sources: int
    datasets: int
    systems: int
    entries: int
    changed: int


@transaction.atomic
def load_reported() -> LoadSummary:
    """Bring every reported board up to date with the committed tables."""
    publications = tables.sources()
    sources = {key: _source(key, fields) for key, fields in publications.items()}
    texts = tables.dataset_texts()
    datasets = {row.slug: _dataset(row, texts.get(row.slug, {})) for row in tables.datasets()}
    rows = {(row.source, row.name): row for row in tables.systems()}
    numbers = _numbers()
    systems = {key: _system(row, sources[row.source], numbers) for key, row in rows.items()}
    known = {
        (entry.dataset_id, entry.system_id, entry.configuration): entry
        for entry in Entry.objects.filter(provenance=Entry.Provenance.REPORTED)
    }
    entries = []
    for place, printed in numbers.items():
        dataset, system = datasets[place.dataset], systems[place.source, place.system]
        entered = known.get((dataset.pk, system.pk, place.configuration), Entry(scores={}, figures=[]))
        named = {each["name"] for each in printed.figures} | set(printed.scores)
        entries.append(
            Entry(
                dataset=dataset,
                system=system,
                configuration=place.configuration,
                # Beside the tables' own, what curators entered of other measures stays.
                scores={**entered.scores, **printed.scores},
                figures=[*printed.figures, *(each for each in entered.figures if each["name"] not in named)],
                comparison_group=place.comparison_group,
                is_baseline=place.system == publications[place.source].get("baseline", BASELINE),
                training=training_exposure(system, dataset),
                locator=", ".join(printed.locators),
            )
        )
    changed = publish_reported(entries)
    for position, (slug, fields) in enumerate(tables.benchmarks().items()):
        _benchmark(slug, fields, position, sources, datasets)
    return LoadSummary(len(sources), len(datasets), len(systems), len(entries), changed)


@dataclass(slots=True)
class _Numbers:
    """What is reported in one place."""

    scores: dict[str, float] = field(default_factory=dict)
    figures: list[dict[str, Any]] = field(default_factory=list)
    #: In the order in which they are first named.
    locators: dict[str, None] = field(default_factory=dict)


def _numbers() -> dict[tables.ReportedPlace, _Numbers]:
    numbers: defaultdict[tables.ReportedPlace, _Numbers] = defaultdict(_Numbers)
    scores = tables.scores()
    for score in scores:
        numbers[score.place].scores[score.name] = score.value
        numbers[score.place].locators[score.locator] = None
    for row in (*(score for score in scores if score.scale != "share"), *tables.figures()):
        numbers[row.place].figures.append(figure_fields(row))
        numbers[row.place].locators[row.locator] = None
    return dict(numbers)


def figure_fields(row: tables.ReportedFigure) -> dict[str, Any]:
    """Return the figure as `Entry.figures` holds it. A doubtful one is shown as printed and kept out of plots."""
    names = ("name", "value", "unit", "scale", "hardware", "as_printed", "doubt", "locator")
    return {**{name: getattr(row, name) for name in names}, "doubtful": bool(row.doubt)}


def _source(key: str, fields: dict[str, Any]) -> Source:
    values = {name: fields[name] for name in ("title", "authors", "year", "venue", "url")}
    source, _ = Source.objects.update_or_create(
        key=key, defaults={**values, "bibtex": make_bibtex(key, fields)}
    )
    return source


def make_bibtex(key: str, fields: Mapping[str, Any]) -> str:
    """Return the publication as BibTeX, from the fields of `Source` and, where known, its `type` and `doi`."""
    kind = fields.get("type", "inproceedings" if fields["venue"] else "misc")
    place = {"inproceedings": "booktitle", "article": "journal"}.get(kind, "howpublished")
    url = f"https://doi.org/{fields['doi']}" if "doi" in fields else fields.get("url", "")
    lines = [
        f"@{kind}{{{key},",
        f"  title = {{{{{fields['title']}}}}},",
        f"  author = {{{fields['authors']}}},",
        *([f"  {place} = {{{fields['venue']}}},"] if fields["venue"] else []),
        f"  year = {{{fields['year']}}},",
        *([f"  url = {{{url}}},"] if url else []),
        "}",
    ]
    return "\n".join(lines)


def _dataset(row: tables.ReportedDataset, text: Mapping[str, Any]) -> Dataset:
    """Return the dataset's row. One that was imported keeps its own settings and gains what it has not said."""
    fresh = {
        "name": row.name,
        "task": row.task,
        "domain": row.domain,
        "licence": row.licence,
        "description": text.get("description", ""),
        "citation": make_bibtex(text["key"], text) if "title" in text else "",
        "homepage": row.homepage,
        "hidden": False,
        "primary_measure": row.measures[0],
        "measures": row.measures,
        "drop_self_matches": row.drop_self_matches,
        "reported_statistics": row.statistics,
        "ir_datasets_id": row.ir_datasets_id,
        "beir_name": row.beir_name,
    }
    dataset, created = Dataset.objects.get_or_create(
        slug=row.slug, defaults={**fresh, "state": Dataset.State.REPORTED}
    )
    if not created:
        untouched = dataset.state == Dataset.State.REPORTED and dataset.current_version_id is None
        gained = {name: fresh[name] for name in GAINED if not getattr(dataset, name)}
        changes = fresh if untouched else {"reported_statistics": row.statistics, **gained}
        if any(getattr(dataset, name) != value for name, value in changes.items()):
            Dataset.objects.filter(pk=dataset.pk).update(**changes)
            dataset.refresh_from_db()
    return dataset


def _system(
    row: tables.ReportedSystem, source: Source, numbers: Mapping[tables.ReportedPlace, _Numbers]
) -> System:
    """Return the system's row. What it is beyond that is left open where no source states it."""
    mine = [place for place in numbers if (place.source, place.system) == (row.source, row.name)]
    figures = [figure for place in mine for figure in numbers[place].figures]
    dimensions = [int(figure["value"]) for figure in figures if figure["name"] == "dimension"]
    datasets = dict.fromkeys(place.dataset for place in mine)
    printed = {
        "slug": row.slug,
        "architecture": row.architecture,
        "training_declared": row.training_declared,
        "training_datasets": row.training_datasets,
        "paper_url": row.paper_url,
        "adapted_to": [name for name in datasets if row.adapted and name not in row.training_datasets],
        "dimension": dimensions[0] if dimensions else None,
    }
    known = System.objects.filter(source=source, name=row.name).first()
    if known is not None and settlement_of(known) is not None:
        printed = {name: value for name, value in printed.items() if name not in CLAIMS}
    system, _ = System.objects.update_or_create(source=source, name=row.name, defaults=printed)
    return system


def _benchmark(
    slug: str,
    fields: dict[str, Any],
    position: int,
    sources: dict[str, Source],
    datasets: dict[str, Dataset],
) -> None:
    source = sources.get(fields.get("source", ""))
    benchmark, _ = Benchmark.objects.update_or_create(
        slug=slug,
        defaults={
            "name": fields["name"],
            "description": fields["description"].strip(),
            "citation": source.bibtex if source else "",
            "measure": fields["measure"],
            "source": source,
            "position": position,
        },
    )
    for place, member in enumerate(fields["members"]):
        BenchmarkMember.objects.update_or_create(
            benchmark=benchmark,
            dataset=datasets[member],
            defaults={
                "position": place,
                "counted": member not in fields.get("shown", []),
                "stand_ins": fields.get("stand_ins", {}).get(member, {}),
            },
        )
    benchmark_changed(benchmark)
