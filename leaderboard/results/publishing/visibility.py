"""What a team or a curator does to entries that are there: show, keep back, withdraw, name the baseline."""

from __future__ import annotations

from collections.abc import Sequence

from django.db import transaction
from django.db.models import Exists, OuterRef, QuerySet

from leaderboard.core.permissions import has_right
from leaderboard.models import Entry, EntryVersion, Run
from leaderboard.models.datasets import Visibility
from leaderboard.results.history.revisions import Kind, board_changed, lock_boards
from leaderboard.results.publishing.ladder_places import settle_places


@transaction.atomic
def set_visibility(submission_reference: str, *, public: bool) -> None:
    """Show or keep back every entry of a submission that is not withdrawn; boards change where it was not so before.

    What a curator took off stays off: for it the wish is noted, until a curator restores it.
    """
    wanted = Entry.Visibility.PUBLIC if public else Entry.Visibility.PRIVATE
    of_submission = Entry.objects.filter(submission_reference=submission_reference)
    lock_boards(of_submission.values_list("dataset_id", flat=True))
    of_submission.update(public_wanted=public)
    # What gave way to a better result is shown already, as far as that goes.
    there = [
        Entry.Visibility.WITHDRAWN,
        *Entry.CURATED,
        wanted,
        *([Entry.Visibility.SUPERSEDED] if public else []),
    ]
    entries = of_submission.exclude(visibility__in=there)
    seen_before = Exists(EntryVersion.objects.filter(entry=OuterRef("pk")))
    touched = list(
        entries.annotate(seen_before=seen_before).select_related("dataset", "system").order_by("pk")
    )
    entries.update(visibility=wanted)
    moved = _settle(touched)
    if not public:
        moved = _hand_on_baseline(touched, moved)
    for entry in touched:
        # What comes back is no news: everyone has seen it.
        first_seen = public and not entry.seen_before
        kind = Kind.PUBLISHED if first_seen else Kind.VISIBILITY
        board_changed(entry.dataset, kind, entry, Entry.objects.filter(pk__in=moved))


@transaction.atomic
def withdraw_entries(submission_reference: str, reason: str) -> None:
    """Take a submission's entries off every board. A tombstone stays where they were seen, and nowhere else.

    One that a curator quarantined keeps the curator's reason, and is no longer shown when it is restored.
    """
    entries = Entry.objects.filter(submission_reference=submission_reference)
    lock_boards(entries.values_list("dataset_id", flat=True))
    seen = entries.filter(visibility__in=[Entry.Visibility.PUBLIC, Entry.Visibility.SUPERSEDED])
    touched = list(seen.select_related("dataset", "system").order_by("pk"))
    entries.update(withdrawal_reason=reason[:300], public_wanted=False, due_at=None)
    seen.update(visibility=Entry.Visibility.WITHDRAWN)
    moved = _settle(touched)
    moved = _hand_on_baseline(touched, moved)
    for entry in touched:
        board_changed(entry.dataset, Kind.WITHDRAWN, entry, Entry.objects.filter(pk__in=moved))


def _settle(touched: Sequence[Entry]) -> set[int]:
    """In competitions another result of the team may take a place on the board, or lose it: the ids of all."""
    moved = {entry.pk for entry in touched}
    return moved.union(
        *(settle_places(entry.dataset) for entry in touched if entry.system.team_id is not None)
    )


def _hand_on_baseline(gone: Sequence[Entry], moved: set[int]) -> set[int]:
    """Where a team takes away what a board's deltas are taken against, the site's own first result is it again.

    Returns the ids of all that have `moved` by then.
    """
    for entry in gone:
        if entry.is_baseline:
            group = Entry.objects.filter(dataset=entry.dataset_id, comparison_group=entry.comparison_group)
            shown = (Entry.Visibility.PUBLIC, Entry.Visibility.SUPERSEDED)
            own = group.filter(visibility__in=shown, system__team=None)
            first = own.exclude(pk=entry.pk).order_by("published_at", "pk").first()
            moved = moved.union(group.filter(is_baseline=True).values_list("pk", flat=True))
            group.filter(is_baseline=True).update(is_baseline=False)
            if first is not None:
                moved.add(first.pk)
                group.filter(pk=first.pk).update(is_baseline=True, visibility=Entry.Visibility.PUBLIC)
                board_changed(entry.dataset, Kind.BASELINE, first, Entry.objects.filter(pk__in=moved))
    return moved


@transaction.atomic
def name_baseline(entry: Entry) -> None:
    """Make the entry the one that its comparison group's deltas are taken against.

    The site's own result of the very run that a team has here leaves the board: two rows would say the same.
    """
    lock_boards([entry.dataset_id])
    baselines = Entry.objects.filter(
        dataset=entry.dataset, comparison_group=entry.comparison_group, is_baseline=True
    )
    touched = {entry.pk, *baselines.values_list("pk", flat=True)}
    if entry.system.team_id is not None:
        ours = set(_same_run_of_ours(entry).values_list("pk", flat=True))
        Entry.objects.filter(pk__in=ours).update(visibility=Entry.Visibility.SUPERSEDED)
        touched |= ours
    baselines.update(is_baseline=False)
    Entry.objects.filter(pk=entry.pk).update(is_baseline=True)
    board_changed(entry.dataset, Kind.BASELINE, entry, Entry.objects.filter(pk__in=touched))


def join_baseline(entry: Entry) -> None:
    """Where the team's new result is of the run that was imported as the baseline, the baseline is that one.

    Not where the sender is no curator of datasets and others may have the run, who download it or retrieve the same
    one: the row would have their name. A curator may name that result the baseline all the same.
    """
    dataset, sender, evaluation = entry.dataset, entry.submitter, entry.evaluation
    theirs_alone = (
        dataset.runs_visibility == Visibility.CURATORS
        and evaluation is not None
        and not Run.objects.filter(sha256=evaluation.run.sha256, origin=Run.Origin.RETRIEVED).exists()
    )
    may = theirs_alone or (sender is not None and has_right(sender, "leaderboard.change_dataset"))
    if (
        may
        and entry.system.team_id is not None
        and _same_run_of_ours(entry).filter(is_baseline=True).exists()
    ):
        name_baseline(entry)
        entry.refresh_from_db(fields=["is_baseline"])


def _same_run_of_ours(entry: Entry) -> QuerySet[Entry]:
    """The site's own public results of the run that a single result is of, in its comparison group."""
    if entry.evaluation is None:
        return Entry.objects.none()
    return Entry.objects.filter(
        dataset=entry.dataset_id, comparison_group=entry.comparison_group, system__team=None, system__source=None,
        visibility=Entry.Visibility.PUBLIC, evaluation__run__sha256=entry.evaluation.run.sha256,
    )  # fmt: skip
