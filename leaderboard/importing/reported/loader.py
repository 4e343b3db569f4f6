"""Results of publications, from the versioned tables or entered by curators.

Loading the tables again changes nothing. Curators' functions must be called within `leaderboard.core.audit.acting`.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from django.db import transaction
from django.db.models import QuerySet
from django.utils.text import slugify
from django.utils.translation import gettext as _

from leaderboard.core.audit import record
from leaderboard.core.text.numbers import DECIMALS, format_quantity, format_value
from leaderboard.core.text.slugs import first_unused, name_slug
from leaderboard.importing.reported import tables
from leaderboard.importing.reported.model_meta import system_fields
from leaderboard.models import Benchmark, BenchmarkMember, Dataset, Entry, Source, System, short_citation
from leaderboard.results.board_rows.revisions import benchmark_changed, lock_boards
from leaderboard.results.publishing.descriptions import system_changed
from leaderboard.results.publishing.visibility import CannotModerate, publish_reported, restore, withdraw_reported
from leaderboard.results.reported_facts import board_unit, board_value, is_url, make_figure
from leaderboard.results.values import training_exposure
from leaderboard.systems.challenges import CLAIMS, latest_settlement
from leaderboard.systems.records import free_slug

#: Default baseline of a publication.
BASELINE = "BM25"
#: Fields that the tables add to an imported dataset if they are empty.
ADDED_FIELDS = ("ir_datasets_id", "beir_name", "licence", "description", "citation")


@transaction.atomic
def load_reported() -> dict[str, int]:
    """Update sources, datasets, systems, entries, and benchmarks from the versioned tables.

    Values that curators entered for other measures remain. Returns the numbers of rows by kind, and of changed entries.
    """
    publications = tables.sources()
    sources = {key: _update_source(key, fields) for key, fields in publications.items()}
    texts = tables.dataset_texts()
    datasets = {row.slug: _update_dataset(row, texts.get(row.slug, {})) for row in tables.datasets()}
    rows = {(row.source, row.name): row for row in tables.systems()}
    figures: defaultdict[tuple[str, str], list[tables.ReportedFigure]] = defaultdict(list)
    figures_by_place: defaultdict[tables.ReportedPlace, list[tables.ReportedFigure]] = defaultdict(list)
    for figure in (*tables.scores(), *tables.figures()):
        figures[figure.place.source, figure.place.system].append(figure)
        figures_by_place[figure.place].append(figure)
    systems = {
        key: _set_system(rows[key], sources[key[0]], row) if key in rows else _add_model(sources[key[0]], key[1])
        for key, row in figures.items()
    }
    existing_entries = {
        (entry.dataset_id, entry.system_id, entry.configuration): entry
        for entry in Entry.objects.filter(provenance=Entry.Provenance.REPORTED)
    }
    entries = []
    for place, place_figures in figures_by_place.items():
        dataset, system = datasets[place.dataset], systems[place.source, place.system]
        old_entry = existing_entries.get((dataset.pk, system.pk, place.configuration), Entry(scores={}, figures=[]))
        if any(is_url(figure["locator"]) for figure in old_entry.figures):
            continue  # Results of a newer commit of MTEB's repository were imported.
        printed_names = {figure.name for figure in place_figures}
        entries.append(
            Entry(
                dataset=dataset,
                system=system,
                configuration=place.configuration,
                # Keep values of other measures that curators entered.
                scores=old_entry.scores | {figure.name: figure.value for figure in place_figures if figure.is_score},
                figures=[
                    # Scores not printed as shares are also stored as figures.
                    *(figure_fields(row) for row in place_figures if not row.is_score or row.scale != "share"),
                    *(figure for figure in old_entry.figures if figure["name"] not in printed_names),
                ],
                comparison_group=place.comparison_group,
                is_baseline=_is_baseline(place, publications[place.source]),
                training=training_exposure(system, dataset),
                locator=", ".join(dict.fromkeys(figure.locator for figure in place_figures)),
            )
        )
    change_count = publish_reported(entries)
    for position, (slug, fields) in enumerate(tables.benchmarks().items()):
        _update_benchmark(slug, fields, position, sources, datasets)
    return {
        "sources": len(sources),
        "datasets": len(datasets),
        "systems": len(systems),
        "entries": len(entries),
        "changed": change_count,
    }


def _is_baseline(place: tables.ReportedPlace, publication: Mapping[str, Any]) -> bool:
    configuration = publication.get("baseline_configuration", place.configuration)
    return (place.system, place.configuration) == (publication.get("baseline", BASELINE), configuration)


def _update_source(key: str, fields: Mapping[str, Any]) -> Source:
    values = {name: fields[name] for name in ("title", "authors", "year", "venue", "url")}
    values["bibtex"] = make_bibtex(key, fields)
    return Source.objects.update_or_create(key=key, defaults=values)[0]


def figure_fields(row: tables.ReportedFigure) -> dict[str, Any]:
    """Return the figure in the format of `Entry.figures`; it is doubtful if a doubt is stated."""
    names = ("name", "value", "unit", "scale", "hardware", "as_printed", "doubt", "locator")
    return {**{name: getattr(row, name) for name in names}, "doubtful": bool(row.doubt)}


def make_bibtex(key: str, fields: Mapping[str, Any]) -> str:
    """Return the BibTeX of a publication from the fields of `Source`, and optionally its `type` and `doi`.

    The default type is `inproceedings` with a venue, otherwise `misc`.
    """
    kind = fields.get("type", "inproceedings" if fields["venue"] else "misc")
    venue_field = {"inproceedings": "booktitle", "article": "journal"}.get(kind, "howpublished")
    url = f"https://doi.org/{fields['doi']}" if "doi" in fields else fields.get("url", "")
    lines = [
        f"@{kind}{{{key},",
        f"  title = {{{{{fields['title']}}}}},",
        f"  author = {{{fields['authors']}}},",
        *([f"  {venue_field} = {{{fields['venue']}}},"] if fields["venue"] else []),
        f"  year = {{{fields['year']}}},",
        *([f"  url = {{{url}}},"] if url else []),
        "}",
    ]
    return "\n".join(lines)


def _update_dataset(row: tables.ReportedDataset, text: Mapping[str, Any]) -> Dataset:
    """Create or update the dataset's row, and return it.

    An imported dataset keeps its settings: only empty ADDED_FIELDS are filled, and the reported statistics are updated.
    """
    defaults = {
        **asdict(row),
        "description": text.get("description", ""),
        "citation": make_bibtex(text["key"], text) if "title" in text else "",
        "hidden": False,
        "primary_measure": row.measures[0],
    }
    dataset, created = Dataset.objects.get_or_create(
        slug=row.slug, defaults={**defaults, "state": Dataset.State.REPORTED}
    )
    if not created:
        is_reported_only = dataset.state == Dataset.State.REPORTED and dataset.current_version_id is None
        added_values = {name: defaults[name] for name in ADDED_FIELDS if not getattr(dataset, name)}
        changes = defaults if is_reported_only else {"reported_statistics": row.reported_statistics, **added_values}
        if any(getattr(dataset, name) != value for name, value in changes.items()):
            Dataset.objects.filter(pk=dataset.pk).update(**changes)
            dataset.refresh_from_db()
    return dataset


def _set_system(row: tables.ReportedSystem, source: Source, figures: Sequence[tables.ReportedFigure]) -> System:
    """Create or update the system's row, and return it; metadata that no source states stays empty."""
    dimensions = [int(figure.value) for figure in figures if figure.name == "dimension"]
    datasets = dict.fromkeys(figure.place.dataset for figure in figures)
    names = ("slug", "architecture", "training_declared", "training_datasets", "paper_url")
    printed_values = {
        **{name: getattr(row, name) for name in names},
        "adapted_to": [name for name in datasets if row.adapted and name not in row.training_datasets],
        "dimension": dimensions[0] if dimensions else None,
    }
    if row.year is not None:
        printed_values["year"] = row.year
    return _store_system(source, row.name, {}, printed_values)


def _add_model(source: Source, name: str) -> System:
    """Create the system of a model in MTEB's repository, and return it.

    An existing one is not changed, because a newer description may have been imported with newer results.
    """
    initial = {"slug": name_slug(f"{name} {source.key}"), **system_fields(name, tables.models()[name])}
    return _store_system(source, name, initial, {})


def _store_system(source: Source, name: str, initial: Mapping[str, Any], values: Mapping[str, Any]) -> System:
    """Create or update the publication's system with this name, and return it.

    A new system also gets the fields `initial`. Claims that a challenge settled are not changed.
    """
    system, is_new = System.objects.get_or_create(source=source, name=name, defaults={**initial, **values})
    if is_new or not values:
        return system
    settled_claims = CLAIMS if latest_settlement(system) is not None else ()
    changes = {
        field: value
        for field, value in values.items()
        if field not in settled_claims and getattr(system, field) != value
    }
    if changes:
        for field, value in changes.items():
            setattr(system, field, value)
        system.save()
        system_changed(system)
    return system


def _update_benchmark(
    slug: str, fields: dict[str, Any], position: int, sources: dict[str, Source], datasets: dict[str, Dataset]
) -> None:
    """Create or update a benchmark and its members, and record its version if it changed."""
    source = sources.get(fields.get("source", ""))
    benchmark, _created = Benchmark.objects.update_or_create(
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


@dataclass(frozen=True, slots=True, kw_only=True)
class CuratedFigure:
    """A score as printed in a publication, with the costs that the publication reports for the same result.

    `costs` are in the format of `Entry.figures`, and `details` are metadata of the system, as fields of `System`.

    `architecture` is used for new systems only. `address` is the URL of the file that contained the score, if any.
    Figures of one publication are comparable within a `group`; without one, the configuration determines it
    (`ReportedPlace`). `baseline` makes the system the baseline of its group.
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
    costs: Sequence[Mapping[str, Any]] = ()
    details: Mapping[str, Any] = field(default_factory=dict)

    @property
    def share(self) -> float:
        """Value as a share between 0 and 1."""
        return round(float(self.value) / tables.SCALES[self.scale], 8)


@transaction.atomic
def enter_figures(source: Source, figures: Sequence[CuratedFigure]) -> None:
    """Publish figures of a new or existing publication, replacing existing values, and record each in the audit log.

    An unsaved publication is saved. Unpublished entries of the figures are restored.
    """
    details: defaultdict[str, dict[str, Any]] = defaultdict(dict)
    for figure in figures:
        details[figure.system] |= figure.details
    described_entries = Entry.objects.filter(system__source=source.pk, system__name__in=details) if source.pk else ()
    lock_boards({figure.dataset.pk for figure in figures} | {figure.dataset_id for figure in described_entries})
    if source.pk is None:
        if not source.key:  # Such as `thakur-et-al-2021` or `thakur-et-al-2021-2`.
            base = slugify(short_citation(source.authors, source.year))[:70] or "publication"
            used_keys = Source.objects.filter(key__startswith=base).values_list("key", flat=True)
            source.key = first_unused(base, set(used_keys))
        source.bibtex = make_bibtex(source.key, vars(source))
        source.save()
        record("added", f"publication {source}")
    systems: dict[str, System] = {}
    places: defaultdict[tuple[Dataset, System, str], list[CuratedFigure]] = defaultdict(list)
    for figure in figures:
        if (system := systems.get(figure.system)) is None:
            initial = {"slug": free_slug(f"{figure.system} {source.key}"), "architecture": figure.architecture}
            system = systems[figure.system] = _store_system(source, figure.system, initial, details[figure.system])
        places[figure.dataset, system, figure.configuration].append(figure)
        audit_values = {"value": figure.value, "publication": str(source), "locator": figure.locator}
        audit_values |= {cost["name"]: f"{cost['as_printed']} {cost['unit']}" for cost in figure.costs}
        if figure.address:
            audit_values["address"] = figure.address
        record("reported figure entered", f"{figure.measure} of {system}", dataset=figure.dataset, after=audit_values)
    publish_reported([_build_entry(*place, rows) for place, rows in places.items()])
    for dataset, system, configuration in places:
        for entry in _find_entries(dataset, system, configuration).filter(visibility=Entry.Visibility.UNPUBLISHED):
            restore(entry)


def preview_figures(source: Source, figures: Sequence[CuratedFigure]) -> tuple[list[dict[str, Any]], list[str]]:
    """Return the changes that `enter_figures` would make, as rows with `name` and `changes`, and warnings.

    `source` may be a new publication. All values are stored and rolled back, so that the preview is exact.
    """
    pk, key = source.pk, source.key
    names = set(System.objects.filter(source=pk).values_list("name", flat=True)) if pk else set()
    with transaction.atomic():
        before = _board_values(source) if pk else {}
        enter_figures(source, figures)
        after = _board_values(source)
        transaction.set_rollback(True)
    source.pk, source.key, source._state.adding = pk, key, pk is None
    rows = []
    for (system, name), values in after.items():
        old = before.get((system, name), {})
        changes = [
            {"field": field, "old": old.get(field, ""), "new": new}
            for field, new in values.items()
            if old.get(field) != new
        ]
        if changes:
            rows.append({"name": name if system in names else f"{name} ({_('new system')})", "changes": changes})
    warnings = [
        _("%(system)s: %(value)s percent is a share of %(share)g. Did you mean the scale share?")
        % {"system": figure.system, "value": figure.value, "share": figure.share}
        for figure in figures
        if figure.scale == "percent" and figure.share <= 0.01
    ]
    return rows, warnings


def _board_values(source: Source) -> dict[tuple[str, str], dict[str, str]]:
    """Return the values of the publication's results as shown on boards, by system and description of the result."""
    rows, entries = {}, Entry.objects.filter(provenance=Entry.Provenance.REPORTED, source=source)
    for entry in entries.select_related("system", "dataset"):
        values = {name: format_value(score, DECIMALS) for name, score in entry.scores.items()}
        for figure in entry.figures:
            if figure["name"] not in entry.scores:
                name = ", ".join(filter(None, (figure["name"], figure["hardware"])))
                values[name] = f"{board_value(figure)[1]} {board_unit(figure)[0]}"
        values[_("architecture")] = entry.system.get_architecture_display()
        if entry.system.parameter_count is not None:
            values[_("parameters")] = f"{format_quantity(entry.system.parameter_count / 1e6)} M"
        values[_("page or table")] = entry.locator
        rows[entry.system.name, f"{entry}{f', {entry.configuration}' if entry.configuration else ''}"] = values
    return rows


def withdraw_figure(entry: Entry, measure: str, reason: str) -> None:
    """Withdraw a score or a cost, such as `index size`, or the whole entry if `measure` is empty.

    Raises CannotModerate for a scored entry, an unknown name, or a figure that the site's tables would restore.
    """
    if entry.provenance != Entry.Provenance.REPORTED or entry.source is None:
        raise CannotModerate(f"{entry} was scored by Runboard. Quarantine or unpublish it instead")
    names = dict.fromkeys([*entry.scores, *(figure["name"] for figure in entry.figures)])
    if measure and measure not in names:
        raise CannotModerate(f"{entry} has no {measure}. Choose one of: {', '.join(names)}")
    place = tables.ReportedPlace(entry.source.key, entry.dataset.slug, entry.system.name, entry.configuration)
    if measure and any((row.place, row.name) == (place, measure) for row in (*tables.scores(), *tables.figures())):
        raise CannotModerate(f"{measure} comes from the site's tables, which would restore it. Withdraw all of {entry}")
    withdraw_reported(entry, measure, reason)


def _find_entries(dataset: Dataset, system: System, configuration: str) -> QuerySet[Entry]:
    reported_entries = Entry.objects.filter(provenance=Entry.Provenance.REPORTED)
    return reported_entries.filter(dataset=dataset, system=system, configuration=configuration)


def _build_entry(dataset: Dataset, system: System, configuration: str, rows: Sequence[CuratedFigure]) -> Entry:
    """Return the entry with these figures, unsaved, and with existing values of other measures.

    It becomes the baseline of its comparison group if it is new there, marked as baseline or named BM25, and no other
    is.
    """
    assert system.source is not None
    place = tables.ReportedPlace(system.source.key, dataset.slug, system.name, configuration)
    group = f"reported:{place.source}:{rows[0].group}" if rows[0].group else place.comparison_group
    old_entry = _find_entries(dataset, system, configuration).first() or Entry(scores={}, figures=[])
    is_baseline = old_entry.is_baseline
    if old_entry.comparison_group != group:
        may_be_baseline = rows[0].baseline or (system.name == BASELINE and not configuration)
        other_baselines = Entry.objects.filter(dataset=dataset, comparison_group=group, is_baseline=True)
        is_baseline = may_be_baseline and not other_baselines.exists()
    figures_by_measure = {row.measure: row for row in rows}
    printed_figures = [
        make_figure(name, figure.value, "", figure.address or figure.locator)
        | {"value": figure.share, "scale": figure.scale}
        for name, figure in figures_by_measure.items()
        if figure.address or figure.scale != "share"
    ]
    costs = {(cost["name"], cost["hardware"]): cost for row in rows for cost in row.costs}
    # Reading a file again replaces its location, while several tables of a paper are all listed.
    existing_locators = [] if rows[0].address else old_entry.locator.split(", ")
    locators = dict.fromkeys([*existing_locators, *(row.locator for row in rows)])
    return Entry(
        dataset=dataset,
        system=system,
        configuration=configuration,
        scores={**old_entry.scores, **{name: figure.share for name, figure in figures_by_measure.items()}},
        figures=[
            *(
                figure
                for figure in old_entry.figures
                if figure["name"] not in figures_by_measure and (figure["name"], figure["hardware"]) not in costs
            ),
            *printed_figures,
            *costs.values(),
        ],
        comparison_group=group,
        is_baseline=is_baseline,
        training=training_exposure(system, dataset),
        locator=", ".join(filter(None, locators))[:80],
    )
