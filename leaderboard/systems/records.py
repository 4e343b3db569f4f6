"""Systems that people bring and the site's own, and merging two systems into one: the only writer of both.

`leaderboard.importing.reported` writes those of papers. A system that was submitted is merged by
`submissions.intake.merge_systems`, which moves the submissions as well.
"""

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from dataclasses import fields as dataclass_fields
from typing import Any

from django.db import IntegrityError, transaction
from django.db.models import Q

from leaderboard.core.audit import record
from leaderboard.core.http.redirects import follow_redirects
from leaderboard.core.text.slugs import name_slug
from leaderboard.models import Challenge, Dataset, DeclaredNumbers, Entry, Run, System, SystemRedirect, Team
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


class CannotMerge(ValueError):
    """Systems that cannot become one; `conflicts` says everything that stands against it."""

    def __init__(self, conflicts: list[str]) -> None:
        self.conflicts = conflicts
        super().__init__(" ".join(conflicts))


def conflicts_of(duplicate: System, into: System) -> list[str]:
    """What stands against merging, each with what would be right; empty where nothing does."""
    if duplicate.pk == into.pk:
        return ["A system is not merged into itself: choose two."]
    found = []
    if duplicate.source_id is not None:
        found.append(
            f"{duplicate} comes with the reported tables and would come back with them: it stays what it is."
        )
    elif duplicate.team_id is None:
        found.append(f"{duplicate} is made by the site itself and would be made again: it stays what it is.")
    elif duplicate.team_id != into.team_id:
        found.append(
            f"{duplicate} is a system of {duplicate.team} and {into} of {into.team or 'no team'}: results, submissions "
            f"and places would change hands. Have its team withdraw them and send them again for {into}, or leave both "
            "and name one the variant of the other."
        )
    if (duplicate.anonymous_until is None) != (into.anonymous_until is None):
        found.append(
            "One of them is anonymous and the other says whose it is: end the anonymity first, or wait."
        )
    if settlement_of(duplicate) is not None and any(
        getattr(duplicate, name) != getattr(into, name) for name in CLAIMS
    ):
        found.append(
            f"A challenge settled what {duplicate} says of its training, and {into} says otherwise. Correct that first."
        )
    return [*found, *_same_runs(duplicate, into), *_same_entries(duplicate, into)]


def _same_runs(duplicate: System, into: System) -> Iterator[str]:
    columns = ("version_id", "sha256", "configuration")
    known = set(Run.objects.filter(system=into).values_list(*columns))
    for run in Run.objects.filter(system=duplicate).select_related("version__dataset").order_by("pk"):
        if (run.version_id, run.sha256, run.configuration) in known:
            named = f" as “{run.configuration}”" if run.configuration else ""
            yield (
                f"Both have the same run on {run.version}{named}. Un-publish or withdraw one of the results and give "
                "its run another system or label."
            )


def _same_entries(duplicate: System, into: System) -> Iterator[str]:
    """Two results that stand on a board under one name, or may come to, with nothing to tell them apart.

    What is kept back, held, superseded or taken off may come back; what its team withdrew does not.
    """
    columns = ("dataset_id", "configuration", "comparison_group")
    there = Q(visibility__in=[Entry.Visibility.PUBLIC, Entry.Visibility.QUARANTINED])
    may_come = ~Q(visibility=Entry.Visibility.WITHDRAWN) & Q(withdrawal_reason="")
    known = set(Entry.objects.filter(there | may_come, system=into).values_list(*columns))
    mine = Entry.objects.filter(there | may_come, system=duplicate).select_related("dataset")
    for entry in mine.order_by("dataset__name", "pk"):
        if (entry.dataset_id, entry.configuration, entry.comparison_group) in known:
            label = f"“{entry.configuration}”" if entry.configuration else "without a label"
            yield (
                f"Both have a result on {entry.dataset} {label}; entry {entry.pk} is the duplicate's "
                f"({entry.get_visibility_display()}). Withdraw the submission of the one that is not to stand."
            )


@transaction.atomic
def merge_systems(duplicate: System, into: System) -> System:
    """Move everything of the duplicate to the other system; its address leads there from now on.

    Both are of one team, so that its places on boards and what it may manage stay as they are. Raises CannotMerge with
    all conflicts, and nothing is changed. Call within `leaderboard.core.audit.acting`.
    """
    lock_systems(duplicate, into)
    conflicts = conflicts_of(duplicate, into)
    if conflicts:
        raise CannotMerge(conflicts)
    moved = {
        "runs": Run.objects.filter(system=duplicate).update(system=into),
        "entries": Entry.objects.filter(system=duplicate).update(system=into),
        "challenges": Challenge.objects.filter(system=duplicate).update(system=into),
    }
    if into.variant_of_id == duplicate.pk:
        into.variant_of_id = duplicate.variant_of_id if duplicate.variant_of_id != into.pk else None
        into.save(update_fields=["variant_of"])
    System.objects.filter(variant_of=duplicate).exclude(pk=into.pk).update(variant_of=into)
    SystemRedirect.objects.filter(system=duplicate).update(system=into)
    SystemRedirect.objects.create(slug=duplicate.slug, system=into)
    record(
        "merged", f"{duplicate} into {into}",
        before={"system": duplicate.slug, "team": str(duplicate.team or "")},
        after={"system": into.slug, "team": str(into.team or ""), **moved},
    )  # fmt: skip
    duplicate.delete()
    system_changed(into)
    return into


#: The view of a system by `slug`; where there is none, the same address of the one that it was merged into.
follow_merged = follow_redirects(SystemRedirect, "system", "systems")
