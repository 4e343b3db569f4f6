"""Figures of publications that a curator enters, beside those of the committed tables.

Call within `leaderboard.core.audit.acting`.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.db import transaction
from django.db.models import QuerySet

from leaderboard.core.audit import record
from leaderboard.importing.reported import tables
from leaderboard.importing.reported.loader import BASELINE, figure_fields, make_bibtex
from leaderboard.models import Dataset, Entry, Source, System
from leaderboard.results.board_rows.revisions import lock_boards
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
            said = described.get(each.system, {})
            system = systems[each.system] = _keep_system(source, each.system, each.architecture, said)
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


def _keep_system(source: Source, name: str, architecture: str, said: Mapping[str, Any]) -> System:
    """Return the publication's system of this name, with what it says of it. What a challenge settled stays."""
    fresh = {"slug": free_slug(f"{name} {source.key}"), "architecture": architecture, **said}
    system, is_new = System.objects.get_or_create(source=source, name=name, defaults=fresh)
    settled = CLAIMS if said and not is_new and settlement_of(system) is not None else ()
    changes = {
        field: value
        for field, value in said.items()
        if field not in settled and getattr(system, field) != value
    }
    if changes and not is_new:
        for field, value in changes.items():
            setattr(system, field, value)
        system.save()
        system_changed(system)
    return system


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
