"""Two systems that are one: the results of the duplicate go to the other, and so do links to it.

A system that was submitted is merged by `submissions.intake.merge_systems`, which moves the submissions as well.
"""

from __future__ import annotations

from collections.abc import Iterator

from django.db import transaction
from django.db.models import Q

from leaderboard.core.audit import record
from leaderboard.core.http.redirects import follow_redirects
from leaderboard.models import Challenge, Entry, Run, System, SystemRedirect
from leaderboard.results.publishing.descriptions import lock_systems, system_changed
from leaderboard.systems.challenges import CLAIMS, settlement_of


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
