"""Systems that people bring and the site's own: their only writer.

`leaderboard.importing.reported` writes those of papers.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from dataclasses import fields as dataclass_fields
from typing import Any

from django.db import IntegrityError, transaction
from django.db.models import Q

from leaderboard.core.text.slugs import name_slug
from leaderboard.models import Dataset, System, SystemRedirect, Team
from leaderboard.models.systems import DeclaredNumbers
from leaderboard.results.publishing.descriptions import lock_systems, system_changed
from leaderboard.systems.challenges import CLAIMS, settlement_of


@dataclass(frozen=True, slots=True)
class SystemFields(DeclaredNumbers):
    """What a system says of itself. `training_declared` with no datasets means: trained on none of them.

    `variant_of_id` is the key of another system; None in `open_weights` and `commercial_use` means: not said.
    """

    name: str
    architecture: str
    description: str = ""
    participant: str = ""
    parameters: dict[str, Any] = field(default_factory=dict)
    training_declared: bool = False
    training_datasets: list[str] = field(default_factory=list)
    backbone: str = ""
    paper_url: str = ""
    code_url: str = ""
    model_url: str = ""
    licence: str = ""
    bibtex: str = ""
    authors: str = ""
    year: int | None = None
    variant_of_id: int | None = None
    open_weights: bool | None = None
    commercial_use: bool | None = None
    closed_api: bool = False
    training_compute: str = ""
    adapted_to: list[str] = field(default_factory=list)


class NameTaken(Exception):
    """The team has a system of this name; `system` is it."""

    def __init__(self, system: System) -> None:
        self.system = system
        super().__init__(f"your team has a system named “{system.name}” already")


class ConcurrentSystemChange(Exception):
    """Somebody else changed the system since the form was made; `fields` are what they changed, in words."""

    def __init__(self, fields: list[str]) -> None:
        self.fields = fields
        super().__init__(f"{', '.join(fields)} changed while you were editing")


class ClaimsSettled(Exception):
    """A challenge that was upheld settled what the system says of its training: only a curator changes it."""


def create_system(team: Team, fields: SystemFields) -> System:
    """A new system of the team, under a free slug. Raises NameTaken."""
    taken = System.objects.filter(team=team, name=fields.name).first()
    if taken is not None:
        raise NameTaken(taken)
    for _ in range(5):
        try:
            with transaction.atomic():
                return System.objects.create(team=team, slug=free_slug(fields.name), **asdict(fields))
        except IntegrityError:  # someone took the slug, or a teammate the name, since we looked
            taken = System.objects.filter(team=team, name=fields.name).first()
            if taken is not None:
                raise NameTaken(taken) from None
    raise RuntimeError("no free slug found")


def house_system(
    *,
    slug: str,
    name: str,
    architecture: str,
    description: str,
    parameters: dict[str, Any],
    training_declared: bool = True,
    adapted_to: Iterable[str] = (),
) -> System:
    """The site's own system of this name, made where it is missing; its slug, if nobody has that, else another.

    `adapted_to`: slugs of datasets whose corpus it is made of.
    """
    with transaction.atomic():
        system, _ = System.objects.get_or_create(
            team=None,
            source=None,
            name=name,
            defaults={
                "slug": free_slug(slug),
                "architecture": architecture,
                "description": description,
                "parameters": parameters,
                "training_declared": training_declared,
                "adapted_to": list(adapted_to),
            },
        )
        if set(adapted_to).difference(system.adapted_to):
            (system,) = lock_systems(system)
            new = [slug for slug in adapted_to if slug not in system.adapted_to]
            system.adapted_to = [*system.adapted_to, *new]
            system.save(update_fields=["adapted_to"])
            system_changed(system)
    return system


@transaction.atomic
def update_system(system: System, fields: SystemFields, *, seen: int | None = None) -> System:
    """Change what the system says of itself, on its boards too; its address and team stay.

    `seen` is the state (`history_version`) that the fields were made from. Raises NameTaken; ConcurrentSystemChange
    where the system says something else by now; ClaimsSettled where the fields undo the decision on a challenge.
    """
    (row,) = lock_systems(system)
    if seen is not None and (changed := _changed_since(row, seen)):
        raise ConcurrentSystemChange(changed)
    taken = System.objects.filter(team=row.team_id, name=fields.name).exclude(pk=row.pk).first()
    if taken is not None:
        raise NameTaken(taken)
    values = asdict(fields)
    if any(getattr(row, name) != values[name] for name in CLAIMS) and settlement_of(row) is not None:
        raise ClaimsSettled
    for name, value in values.items():
        setattr(row, name, value)
    row.save(update_fields=list(values))
    system_changed(row)
    return row


def history_version(system: System) -> int:
    """Which state of the system this is: the newest row of its history, 0 where it has none."""
    history: Any = System.history
    newest = history.filter(id=system.pk).order_by("-history_id").values_list("history_id", flat=True)
    return newest.first() or 0


def _changed_since(system: System, seen: int) -> list[str]:
    """What the system says otherwise than it did in that state, in words."""
    if seen == history_version(system):
        return []
    history: Any = System.history
    then = history.filter(id=system.pk, history_id=seen).first()
    if then is None:
        return ["The system"]
    names = [each.name for each in dataclass_fields(SystemFields)]
    changed = [name for name in names if getattr(then, name) != getattr(system, name)]
    return [name.removesuffix("_id").replace("_", " ").capitalize() for name in changed]


def free_slug(name: str) -> str:
    """An address for a system of this name that no other system has, or had before it was merged."""
    base = name_slug(name)[:100] or "system"
    systems, redirects = (
        rows.filter(slug__startswith=base).order_by().values_list("slug", flat=True)
        for rows in (System.objects, SystemRedirect.objects)
    )
    taken = set(systems.union(redirects))
    slug, number = base, 1
    while slug in taken:
        number += 1
        slug = f"{base}-{number}"
    return slug


def find_system(teams: Iterable[Team], reference: str) -> System | None:
    """The teams' system with this slug or, where there is none, this name."""
    found = System.objects.filter(Q(slug=reference) | Q(name=reference), team__in=teams)
    return min(found, key=lambda system: (system.slug != reference, system.pk), default=None)


def canonical_datasets(names: Iterable[str]) -> list[str]:
    """Names of training datasets, each given by the slug of the dataset known here where one matches.

    One in preparation is not known yet: its name stays what it is.
    """
    given = [name.strip() for name in names if name.strip()]
    if not given:
        return []
    known: dict[str, str] = {}
    for slug, name in Dataset.objects.listed().values_list("slug", "name"):
        known[name.casefold()] = known[slug.casefold()] = slug
    return list(dict.fromkeys(known.get(name.casefold(), name) for name in given))
