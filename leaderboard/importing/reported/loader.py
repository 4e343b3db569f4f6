"""Figures of publications: those of the committed tables, and those that a curator enters.

Loading the tables again changes nothing. Call what a curator does within `leaderboard.core.audit.acting`.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from django.db import transaction
from django.db.models import QuerySet

from leaderboard.core.audit import record
from leaderboard.importing.reported import tables
from leaderboard.models import Benchmark, BenchmarkMember, Dataset, Entry, Source, System
from leaderboard.results.board_rows.revisions import benchmark_changed, lock_boards
from leaderboard.results.publishing.descriptions import system_changed
from leaderboard.results.publishing.visibility import (
    CannotModerate,
    publish_reported,
    restore,
    withdraw_reported,
)
from leaderboard.results.values import training_exposure
from leaderboard.systems.challenges import CLAIMS, settlement_of
from leaderboard.systems.records import free_slug

#: What other systems of a publication are compared with, where it names none.
BASELINE = "BM25"
#: What a dataset that was imported gets from here where it says nothing itself.
GAINED = ("ir_datasets_id", "beir_name", "licence", "description", "citation")


@transaction.atomic
def load_reported() -> dict[str, int]:
    """Bring every reported board up to date with the committed tables; count what they hold and what changed."""
    publications = tables.sources()
    sources = {}
    for key, fields in publications.items():
        values = {name: fields[name] for name in ("title", "authors", "year", "venue", "url")}
        values["bibtex"] = make_bibtex(key, fields)
        sources[key], _ = Source.objects.update_or_create(key=key, defaults=values)
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
    return {
        "sources": len(sources),
        "datasets": len(datasets),
        "systems": len(systems),
        "entries": len(entries),
        "changed": changed,
    }


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
    return _keep_system(source, row.name, {}, printed)


def _keep_system(source: Source, name: str, fresh: Mapping[str, Any], said: Mapping[str, Any]) -> System:
    """Return the publication's system of this name, with what it says of it. What a challenge settled stays."""
    system, is_new = System.objects.get_or_create(source=source, name=name, defaults={**fresh, **said})
    if is_new or not said:
        return system
    settled = CLAIMS if settlement_of(system) is not None else ()
    changes = {
        field: value
        for field, value in said.items()
        if field not in settled and getattr(system, field) != value
    }
    if changes:
        for field, value in changes.items():
            setattr(system, field, value)
        system.save()
        system_changed(system)
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


#: How values are printed, and what 1 is then.
SCALES = {"share": 1.0, "percent": 100.0}


@dataclass(frozen=True, slots=True, kw_only=True)
class CuratedFigure:
    """A score as a publication prints it; `architecture` is asked for where the system is new.

    `address` is that of the file it was read from, where it was. Of one publication, figures of one `group` may be
    compared; without a group the configuration says which (`ReportedPlace`). `baseline`: others of the group are
    compared with this system.
    """

    dataset: Dataset
    system: str
    measure: str
    value: str
    scale: str
    locator: str
    architecture: str
    configuration: str
    address: str = ""
    group: str = ""
    baseline: bool = False

    @property
    def share(self) -> float:
        """The value as a share between 0 and 1."""
        return round(float(self.value) / SCALES[self.scale], 8)


@transaction.atomic
def enter_figures(
    source: Source, figures: Sequence[CuratedFigure], described: Mapping[str, Mapping[str, Any]] | None = None
) -> None:
    """Publish figures of one publication, which may be new. A figure that is here gets the new value.

    `described` has what the publication says of its systems, by name: fields of `System`.
    """
    described = described or {}
    theirs = Entry.objects.filter(system__source=source.pk, system__name__in=described) if source.pk else ()
    lock_boards({each.dataset.pk for each in figures} | {each.dataset_id for each in theirs})
    if source.pk is None:
        source.bibtex = make_bibtex(source.key, vars(source))
        source.save()
        record("added", f"publication {source.key}")
    systems: dict[str, System] = {}
    places: defaultdict[tuple[Dataset, System, str], list[CuratedFigure]] = defaultdict(list)
    for each in figures:
        if (system := systems.get(each.system)) is None:
            fresh = {"slug": free_slug(f"{each.system} {source.key}"), "architecture": each.architecture}
            said = described.get(each.system, {})
            system = systems[each.system] = _keep_system(source, each.system, fresh, said)
        places[each.dataset, system, each.configuration].append(each)
        after = {"value": each.value, "publication": source.key, "locator": each.locator}
        if each.address:
            after["address"] = each.address
        record("reported figure entered", f"{each.measure} of {system}", dataset=each.dataset, after=after)
    publish_reported([_entry(*place, rows) for place, rows in places.items()])
    for dataset, system, configuration in places:
        for entry in _entries(dataset, system, configuration).filter(visibility=Entry.Visibility.UNPUBLISHED):
            restore(entry)


def withdraw_figure(entry: Entry, measure: str, reason: str) -> None:
    """Take a figure off its board; without a measure all of the entry's. Raises CannotModerate."""
    if entry.provenance != Entry.Provenance.REPORTED or entry.source is None:
        raise CannotModerate(f"{entry} was scored here: quarantine or un-publish it")
    if measure and measure not in entry.scores:
        raise CannotModerate(f"{entry} has no {measure}; it has {', '.join(entry.scores)}")
    place = tables.ReportedPlace(entry.source.key, entry.dataset.slug, entry.system.name, entry.configuration)
    if measure and any((row.place, row.name) == (place, measure) for row in tables.scores()):
        raise CannotModerate(f"{measure} comes with the site and would return: withdraw the whole of {entry}")
    withdraw_reported(entry, measure, reason)


def _entries(dataset: Dataset, system: System, configuration: str) -> QuerySet[Entry]:
    reported = Entry.objects.filter(provenance=Entry.Provenance.REPORTED)
    return reported.filter(dataset=dataset, system=system, configuration=configuration)


def _entry(dataset: Dataset, system: System, configuration: str, rows: Sequence[CuratedFigure]) -> Entry:
    """Return the entry as it is to be, not saved: what it has of other measures stays."""
    assert system.source is not None
    place = tables.ReportedPlace(system.source.key, dataset.slug, system.name, configuration)
    group = f"reported:{place.source}:{rows[0].group}" if rows[0].group else place.comparison_group
    old = _entries(dataset, system, configuration).first() or Entry(scores={}, figures=[])
    is_baseline = old.is_baseline
    if old.comparison_group != group:
        wanted = rows[0].baseline or (system.name == BASELINE and not configuration)
        others = Entry.objects.filter(dataset=dataset, comparison_group=group, is_baseline=True)
        is_baseline = wanted and not others.exists()
    new = {each.measure: each for each in rows}
    printed = [
        tables.ReportedFigure(
            place, name, each.share, each.value, scale=each.scale, locator=each.address or each.locator
        )
        for name, each in new.items()
        if each.address or each.scale != "share"
    ]
    # A file that is read again replaces what was read from it; several tables of a paper are all named.
    earlier = [] if rows[0].address else old.locator.split(", ")
    locators = dict.fromkeys([*earlier, *(each.locator for each in rows)])
    return Entry(
        dataset=dataset,
        system=system,
        configuration=configuration,
        scores={**old.scores, **{name: each.share for name, each in new.items()}},
        figures=[*(each for each in old.figures if each["name"] not in new), *map(figure_fields, printed)],
        comparison_group=group,
        is_baseline=is_baseline,
        training=training_exposure(system, dataset),
        locator=", ".join(filter(None, locators))[:80],
    )
