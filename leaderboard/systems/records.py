"""Storage of submitted and house systems, and merging of systems; the only writer of both.

Systems of papers are written by `leaderboard.importing.reported`. Submitted systems are merged by
`submissions.intake.merge_systems`, which also moves the submissions.
"""

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from dataclasses import fields as dataclass_fields
from typing import Any

from django.db import IntegrityError, transaction
from django.db.models import Q

from leaderboard.core.audit import record
from leaderboard.core.http.redirects import follow_redirects
from leaderboard.core.text.slugs import first_unused, name_slug
from leaderboard.models import Challenge, Dataset, DeclaredNumbers, Entry, Run, System, SystemRedirect, Team
from leaderboard.results.publishing.descriptions import lock_systems, system_changed
from leaderboard.systems.challenges import CLAIMS, latest_settlement


@dataclass(frozen=True, slots=True)
class SystemFields(DeclaredNumbers):
    """Metadata of a system.

    `training_declared` without any datasets means that the system was not trained on any of them. `variant_of_id` is
    the key of another system. `open_weights` and `commercial_use` are None if unknown.
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
    """The team already has a system with this name, which is `system`."""

    def __init__(self, system: System) -> None:
        self.system = system
        super().__init__(f"your team already has a system named “{system.name}”")


class ConcurrentSystemChange(Exception):
    """The system was changed since the form was loaded; `fields` are the labels of the changed fields."""

    def __init__(self, fields: list[str]) -> None:
        self.fields = fields
        super().__init__(f"{', '.join(fields)} changed while you were editing")


class ClaimsSettled(Exception):
    """An upheld challenge settled the training claims, so only a curator can change them."""


def create_system(team: Team, fields: SystemFields) -> System:
    """Create a system of the team with a free slug. Raises NameTaken if the team has one with this name."""
    existing_system = System.objects.filter(team=team, name=fields.name).first()
    if existing_system is not None:
        raise NameTaken(existing_system)
    for _ in range(5):
        try:
            with transaction.atomic():
                return System.objects.create(team=team, slug=free_slug(fields.name), **asdict(fields))
        except IntegrityError:  # the slug or the name was taken concurrently
            existing_system = System.objects.filter(team=team, name=fields.name).first()
            if existing_system is not None:
                raise NameTaken(existing_system) from None
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
    """Return the site's own system with this name, creating it if necessary.

    A new system gets another slug if this one is taken. An existing one only gets missing `adapted_to`, which are slugs
    of the datasets whose corpora it was built from.
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
            missing_slugs = [slug for slug in adapted_to if slug not in system.adapted_to]
            system.adapted_to = [*system.adapted_to, *missing_slugs]
            system.save(update_fields=["adapted_to"])
            system_changed(system)
    return system


@transaction.atomic
def update_system(system: System, fields: SystemFields, *, seen_version: int | None = None) -> System:
    """Update a system's metadata and its boards, and return the system; slug and team do not change.

    `seen_version` is the state (`history_version`) that the form was based on; None skips this check.

    Raises:
        NameTaken: If the team has another system with this name.
        ConcurrentSystemChange: If the system has changed since `seen_version`.
        ClaimsSettled: If the fields change claims that an upheld challenge corrected.
    """
    (locked_system,) = lock_systems(system)
    if seen_version is not None and (changed_fields := _changed_since(locked_system, seen_version)):
        raise ConcurrentSystemChange(changed_fields)
    existing_system = (
        System.objects.filter(team=locked_system.team_id, name=fields.name).exclude(pk=locked_system.pk).first()
    )
    if existing_system is not None:
        raise NameTaken(existing_system)
    values = asdict(fields)
    if (
        any(getattr(locked_system, name) != values[name] for name in CLAIMS)
        and latest_settlement(locked_system) is not None
    ):
        raise ClaimsSettled
    for name, value in values.items():
        setattr(locked_system, name, value)
    locked_system.save(update_fields=list(values))
    system_changed(locked_system)
    return locked_system


def history_version(system: System) -> int:
    """Return the newest row id of the system's history, or 0 if it has none."""
    history: Any = System.history
    newest = history.filter(id=system.pk).order_by("-history_id").values_list("history_id", flat=True)
    return newest.first() or 0


def _changed_since(system: System, version: int) -> list[str]:
    """Return the labels of the fields that changed since the state `version` (see `history_version`).

    If that state is unknown, the only label is “The system”.
    """
    if version == history_version(system):
        return []
    history: Any = System.history
    old_system = history.filter(id=system.pk, history_id=version).first()
    if old_system is None:
        return ["The system"]
    names = [item.name for item in dataclass_fields(SystemFields)]
    changed_names = [name for name in names if getattr(old_system, name) != getattr(system, name)]
    names = [name.removesuffix("_id").replace("licence", "license") for name in changed_names]
    return [name.replace("_", " ").capitalize() for name in names]


def free_slug(name: str) -> str:
    """Return a slug for a new system that no current or merged system has used."""
    base = name_slug(name)[:100] or "system"
    systems, redirects = (
        rows.filter(slug__startswith=base).order_by().values_list("slug", flat=True)
        for rows in (System.objects, SystemRedirect.objects)
    )
    return first_unused(base, set(systems.union(redirects)))


def find_system(teams: Iterable[Team], reference: str) -> System | None:
    """Return the teams' system with this slug, or else with this name, or None."""
    reference = reference.replace("\0", "")  # PostgreSQL refuses queries with NUL.
    matches = System.objects.filter(Q(slug=reference) | Q(name=reference), team__in=teams)
    return min(matches, key=lambda system: (system.slug != reference, system.pk), default=None)


def canonical_datasets(names: Iterable[str]) -> list[str]:
    """Return names of training datasets, replaced by slugs of matching datasets on this site, without duplicates.

    Names and slugs match regardless of case. Datasets in preparation are not matched.
    """
    stripped_names = [name.strip() for name in names if name.strip()]
    if not stripped_names:
        return []
    slugs: dict[str, str] = {}
    for slug, name in Dataset.objects.listed().values_list("slug", "name"):
        slugs[name.casefold()] = slugs[slug.casefold()] = slug
    return list(dict.fromkeys(slugs.get(name.casefold(), name) for name in stripped_names))


class CannotMerge(ValueError):
    """The systems cannot be merged; `conflicts` lists all reasons."""

    def __init__(self, conflicts: list[str]) -> None:
        self.conflicts = conflicts
        super().__init__(" ".join(conflicts))


def merge_conflicts(duplicate: System, target: System) -> list[str]:
    """Return the reasons against merging, each with a suggestion; empty if the systems can be merged."""
    if duplicate.pk == target.pk:
        return ["A system cannot be merged into itself. Choose two different systems."]
    conflicts = []
    if duplicate.source_id is not None:
        conflicts.append(
            f"{duplicate} belongs to the reported tables, and their next import would create it again. Keep it."
        )
    elif duplicate.team_id is None:
        conflicts.append(f"{duplicate} belongs to the site, which would create it again. Keep it.")
    elif duplicate.team_id != target.team_id:
        conflicts.append(
            f"{duplicate} belongs to {duplicate.team} and {target} to {target.team or 'no team'}: results and "
            f"submissions would change their owner. Ask its team to withdraw them and submit them again for {target}, "
            "or keep both systems and declare one a variant of the other."
        )
    if (duplicate.anonymous_until is None) != (target.anonymous_until is None):
        conflicts.append("Only one of the systems is anonymous. End its anonymity first, or wait until it ends.")
    if latest_settlement(duplicate) is not None and any(
        getattr(duplicate, name) != getattr(target, name) for name in CLAIMS
    ):
        conflicts.append(
            f"A challenge settled the training claims of {duplicate}, and {target} has others. Correct them first."
        )
    columns = ("version_id", "sha256", "configuration")
    target_runs = set(Run.objects.filter(system=target).values_list(*columns))
    for run in Run.objects.filter(system=duplicate).select_related("version__dataset").order_by("pk"):
        if (run.version_id, run.sha256, run.configuration) in target_runs:
            label = f" as “{run.configuration}”" if run.configuration else ""
            conflicts.append(
                f"Both have the same run on {run.version}{label}. Unpublish or withdraw one of the results, and assign "
                "its run to another system or label."
            )
    return [*conflicts, *_list_entry_conflicts(duplicate, target)]


def _list_entry_conflicts(duplicate: System, target: System) -> Iterator[str]:
    """Yield a message for each result of the duplicate whose dataset, label, and comparison group the target also has.

    Results that may return to the board count: hidden, held, superseded, and moderated ones, but not withdrawn ones.
    """
    columns = ("dataset_id", "configuration", "comparison_group")
    on_board = Q(visibility__in=[Entry.Visibility.PUBLIC, Entry.Visibility.QUARANTINED])
    may_return = ~Q(visibility=Entry.Visibility.WITHDRAWN) & Q(withdrawal_reason="")
    target_entries = set(Entry.objects.filter(on_board | may_return, system=target).values_list(*columns))
    duplicate_entries = Entry.objects.filter(on_board | may_return, system=duplicate).select_related("dataset")
    for entry in duplicate_entries.order_by("dataset__name", "pk"):
        if (entry.dataset_id, entry.configuration, entry.comparison_group) in target_entries:
            label = f"“{entry.configuration}”" if entry.configuration else "without a label"
            yield (
                f"Both have a result on {entry.dataset} {label}; entry {entry.pk} is the duplicate's "
                f"({entry.get_visibility_display()}). Withdraw the submission of the result that should be removed."
            )


@transaction.atomic
def merge_systems(duplicate: System, target: System) -> System:
    """Move the duplicate's runs, results, and challenges to a system of the same team, and delete the duplicate.

    Its page redirects to the remaining system, which is returned. Call this within `leaderboard.core.audit.acting`.

    Raises:
        CannotMerge: With all conflicts, before anything is changed.
    """
    lock_systems(duplicate, target)
    if conflicts := merge_conflicts(duplicate, target):
        raise CannotMerge(conflicts)
    moved_counts = {
        "runs": Run.objects.filter(system=duplicate).update(system=target),
        "entries": Entry.objects.filter(system=duplicate).update(system=target),
        "challenges": Challenge.objects.filter(system=duplicate).update(system=target),
    }
    if target.variant_of_id == duplicate.pk:
        target.variant_of_id = duplicate.variant_of_id if duplicate.variant_of_id != target.pk else None
        target.save(update_fields=["variant_of"])
    System.objects.filter(variant_of=duplicate).exclude(pk=target.pk).update(variant_of=target)
    SystemRedirect.objects.filter(system=duplicate).update(system=target)
    SystemRedirect.objects.create(slug=duplicate.slug, system=target)
    record(
        "merged", f"{duplicate} into {target}",
        before={"system": duplicate.slug, "team": str(duplicate.team or "")},
        after={"system": target.slug, "team": str(target.team or ""), **moved_counts},
    )  # fmt: skip
    duplicate.delete()
    system_changed(target)
    return target


#: View decorator that redirects the `slug` of a merged system to the remaining one.
follow_merged = follow_redirects(SystemRedirect, "system", "systems")
