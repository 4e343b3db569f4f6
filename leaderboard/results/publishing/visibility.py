"""What a team or a curator does to entries that are there: show, keep back, withdraw, name the baseline, moderate.

A curator quarantines a result with a public reason, takes it off, and restores it, within
`leaderboard.core.audit.acting`, which names the person; the reasons here are what others read. Publications' reported
numbers are published and withdrawn here, too.
"""

from collections.abc import Sequence

from django.db import transaction
from django.db.models import Exists, OuterRef, QuerySet
from django.utils import timezone

from leaderboard.core.audit import record
from leaderboard.core.permissions import has_right
from leaderboard.models import Dataset, Entry, EntryVersion, Run, datasets
from leaderboard.results.board_rows.revisions import Kind, board_changed, boards_changed, lock_boards
from leaderboard.results.publishing.publication import update_shown
from leaderboard.results.significance.hidden import keep_least_difference

Visibility = Entry.Visibility
#: The longest reason that is kept.
LONGEST_REASON = 300


class CannotModerate(ValueError):
    """A result that a curator cannot take off or restore; the message says what would be right."""


@transaction.atomic
def set_visibility(submission_reference: str, *, public: bool) -> None:
    """Show or keep back every entry of a submission that is not withdrawn; boards change where it was not so before.

    What a curator took off stays off: for it the wish is noted, until a curator restores it.
    """
    wanted = Visibility.PUBLIC if public else Visibility.PRIVATE
    of_submission = Entry.objects.filter(submission_reference=submission_reference)
    lock_boards(of_submission.values_list("dataset_id", flat=True))
    of_submission.update(public_wanted=public)
    # What gave way to a better result is shown already, as far as that goes.
    there = [
        Visibility.WITHDRAWN,
        *Entry.CURATED,
        wanted,
        *([Visibility.SUPERSEDED] if public else []),
    ]
    entries = of_submission.exclude(visibility__in=there)
    seen_before = Exists(EntryVersion.objects.filter(entry=OuterRef("pk")))
    touched = list(
        entries.annotate(seen_before=seen_before).select_related("dataset", "system").order_by("pk")
    )
    entries.update(visibility=wanted)
    moved = _update_shown_results(touched)
    if not public:
        moved = _replace_baseline(touched, moved)
    for entry in touched:
        # What comes back is no news: everyone has seen it.
        first_seen = public and not entry.seen_before
        kind = Kind.PUBLISHED if first_seen else Kind.VISIBILITY
        board_changed(entry.dataset, kind, entry, moved)


@transaction.atomic
def withdraw_entries(submission_reference: str, reason: str) -> None:
    """Take a submission's entries off every board. A tombstone stays where they were seen, and nowhere else.

    One that a curator quarantined keeps the curator's reason, and is no longer shown when it is restored.
    """
    entries = Entry.objects.filter(submission_reference=submission_reference)
    lock_boards(entries.values_list("dataset_id", flat=True))
    seen = entries.filter(visibility__in=[Visibility.PUBLIC, Visibility.SUPERSEDED])
    touched = list(seen.select_related("dataset", "system").order_by("pk"))
    entries.update(withdrawal_reason=reason[:300], public_wanted=False, due_at=None)
    seen.update(visibility=Visibility.WITHDRAWN)
    moved = _update_shown_results(touched)
    moved = _replace_baseline(touched, moved)
    for entry in touched:
        board_changed(entry.dataset, Kind.WITHDRAWN, entry, moved)


def _update_shown_results(touched: Sequence[Entry]) -> set[int]:
    """In competitions another result of the team may take a place on the board, or lose it: the ids of all."""
    moved = {entry.pk for entry in touched}
    return moved.union(
        *(update_shown(entry.dataset) for entry in touched if entry.system.team_id is not None)
    )


def _replace_baseline(gone: Sequence[Entry], moved: set[int]) -> set[int]:
    """Where a team takes away what a board's deltas are taken against, the site's own first result is it again.

    Returns the ids of all that have `moved` by then.
    """
    for entry in gone:
        if entry.is_baseline:
            group = Entry.objects.filter(dataset=entry.dataset_id, comparison_group=entry.comparison_group)
            shown = (Visibility.PUBLIC, Visibility.SUPERSEDED)
            own = group.filter(visibility__in=shown, system__team=None)
            first = own.exclude(pk=entry.pk).order_by("published_at", "pk").first()
            moved = moved.union(group.filter(is_baseline=True).values_list("pk", flat=True))
            group.filter(is_baseline=True).update(is_baseline=False)
            if first is not None:
                moved.add(first.pk)
                group.filter(pk=first.pk).update(is_baseline=True, visibility=Visibility.PUBLIC)
                board_changed(entry.dataset, Kind.BASELINE, first, moved)
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
        ours = set(_site_results_of_run(entry).values_list("pk", flat=True))
        Entry.objects.filter(pk__in=ours).update(visibility=Visibility.SUPERSEDED)
        touched |= ours
    baselines.update(is_baseline=False)
    Entry.objects.filter(pk=entry.pk).update(is_baseline=True)
    keep_least_difference(entry.dataset)  # results that were there before are compared with it too
    board_changed(entry.dataset, Kind.BASELINE, entry, touched)


def take_over_baseline(entry: Entry) -> None:
    """Where the team's new result is of the run that was imported as the baseline, the baseline is that one.

    Not where the sender is no curator of datasets and others may have the run, who download it or retrieve the same
    one: the row would have their name. A curator may name that result the baseline all the same.
    """
    evaluation = entry.evaluation
    if evaluation is None or entry.system.team_id is None:
        return
    if not _site_results_of_run(entry).filter(is_baseline=True).exists():
        return
    retrieved = Run.objects.filter(sha256=evaluation.run.sha256, origin=Run.Origin.RETRIEVED)
    theirs_alone = entry.dataset.runs_visibility == datasets.Visibility.CURATORS and not retrieved.exists()
    sender = entry.submitter
    if theirs_alone or (sender is not None and has_right(sender, "leaderboard.change_dataset")):
        name_baseline(entry)
        entry.refresh_from_db(fields=["is_baseline"])


def _site_results_of_run(entry: Entry) -> QuerySet[Entry]:
    """The site's own public results of the run that a single result is of, in its comparison group."""
    if entry.evaluation is None:
        return Entry.objects.none()
    return Entry.objects.filter(
        dataset=entry.dataset_id, comparison_group=entry.comparison_group, system__team=None, system__source=None,
        visibility=Visibility.PUBLIC, evaluation__run__sha256=entry.evaluation.run.sha256,
    )  # fmt: skip


@transaction.atomic
def mark_published(dataset: Dataset) -> None:
    """Show the dataset: its baseline is there. One known from papers alone, or collecting runs, opens by this too."""
    lock_boards([dataset.pk])
    waiting = Dataset.objects.filter(pk=dataset.pk, current_qrels__isnull=False).exclude(
        state=Dataset.State.PUBLISHED
    )
    if waiting.update(state=Dataset.State.PUBLISHED):
        board_changed(dataset, Kind.IMPORTED)


def quarantine(entry: Entry, reason: str) -> Entry:
    """Leave the result its place on the board, unranked and without scores, with the reason for everyone to read.

    Raises CannotModerate for one that is not on the board, or that others are compared with, or without a reason.
    """
    return _remove_from_board(entry, reason, Visibility.QUARANTINED, Kind.QUARANTINED, (Visibility.PUBLIC,))


def unpublish(entry: Entry, reason: str) -> Entry:
    """Take the result off the board: nothing of it stays there. Its team sees that and the reason.

    Raises CannotModerate as `quarantine` does.
    """
    moved = (Visibility.PUBLIC, Visibility.PRIVATE, Visibility.SUPERSEDED, Visibility.QUARANTINED)
    return _remove_from_board(entry, reason, Visibility.UNPUBLISHED, Kind.UNPUBLISHED, moved)


@transaction.atomic
def restore(entry: Entry) -> Entry:
    """Show the result again, or give it back to its team where that keeps it back, or withdrew it meanwhile.

    Raises CannotModerate for one that no curator took off.
    """
    lock_boards([entry.dataset_id])
    entry.refresh_from_db()
    if entry.visibility not in (Visibility.QUARANTINED, Visibility.UNPUBLISHED):
        raise CannotModerate(
            f"{_title_of(entry)} is {entry.get_visibility_display()}: there is nothing to restore."
        )
    was = Visibility(entry.visibility)
    entry.visibility = Visibility.PUBLIC if entry.public_wanted else Visibility.PRIVATE
    entry.moderation_reason = ""
    entry.save(update_fields=["visibility", "moderation_reason"])
    _record_change(entry, was, Kind.RESTORED)
    return entry


@transaction.atomic
def _remove_from_board(
    entry: Entry, reason: str, to: Entry.Visibility, kind: Kind, moved: tuple[Entry.Visibility, ...]
) -> Entry:
    lock_boards([entry.dataset_id])
    entry.refresh_from_db()
    reason = reason.strip()
    if not reason:
        raise CannotModerate("Say why: the reason is what its team and readers are told.")
    if len(reason) > LONGEST_REASON:
        raise CannotModerate(f"The reason has {len(reason)} characters; {LONGEST_REASON} are kept.")
    if entry.visibility not in moved:
        states = " or ".join(state.label for state in moved)
        raise CannotModerate(
            f"{_title_of(entry)} is {entry.get_visibility_display()}; it would have to be {states}."
        )
    if entry.is_baseline and entry.visibility == Visibility.PUBLIC:
        raise CannotModerate(
            f"{_title_of(entry)} is the baseline that others are compared with. Name another baseline first."
        )
    was = Visibility(entry.visibility)
    if was == Visibility.PRIVATE:
        entry.public_wanted = False
    entry.visibility, entry.moderation_reason = to, reason
    entry.save(update_fields=["visibility", "moderation_reason", "public_wanted"])
    _record_change(entry, was, kind)
    return entry


def _record_change(entry: Entry, was: Entry.Visibility, kind: Kind) -> None:
    """Change the board where it showed the result or does now; what no board shows is written down alone.

    In a competition another result of its team may take its place, or lose it.
    """
    moved = {entry.pk}
    if entry.system.team_id is not None:
        moved |= update_shown(entry.dataset)
        entry.refresh_from_db()
    if was in Entry.SEEN or entry.visibility in Entry.SEEN:
        board_changed(entry.dataset, kind, entry, moved)
        return
    record(
        kind, _title_of(entry), dataset=entry.dataset_id, entry=entry,
        before={"visibility": was}, after={"visibility": entry.visibility},
    )  # fmt: skip


def _title_of(entry: Entry) -> str:
    configuration = f" ({entry.configuration})" if entry.configuration else ""
    return f"{entry.system}{configuration} on {entry.dataset}"


#: What may change when a table is corrected.
CORRECTED = ("scores", "figures", "comparison_group", "is_baseline", "training", "locator")


@transaction.atomic
def publish_reported(reported: Sequence[Entry]) -> int:
    """Show papers' numbers, and return how many entries are new or changed. Again, the same ones change nothing.

    The entries are not saved yet: they have a dataset, a system with its source, a configuration, and CORRECTED.
    """
    lock_boards({row.dataset_id for row in reported})
    systems = {row.system_id for row in reported}
    known = {
        (entry.dataset_id, entry.system_id, entry.configuration): entry
        for entry in Entry.objects.filter(provenance=Entry.Provenance.REPORTED, system__in=systems)
    }
    new: list[Entry] = []
    changed: list[Entry] = []
    for row in reported:
        entry = known.get((row.dataset_id, row.system_id, row.configuration))
        if entry is None:
            row.provenance, row.source_id = Entry.Provenance.REPORTED, row.system.source_id
            row.published_at = timezone.now()
            new.append(row)
        elif any(getattr(entry, name) != getattr(row, name) for name in CORRECTED):
            for name in CORRECTED:
                setattr(entry, name, getattr(row, name))
            changed.append(entry)
    Entry.objects.bulk_create(new)
    Entry.objects.bulk_update(changed, CORRECTED)
    touched = {entry.dataset_id for entry in (*new, *changed)}
    boards_changed(touched, Kind.REPORTED)
    return len(new) + len(changed)


@transaction.atomic
def withdraw_reported(entry: Entry, measure: str, reason: str) -> None:
    """Take one measure's figure off a reported entry; without a measure, or where no other is left, the entry itself.

    Raises CannotModerate for the baseline of its publication, and without a reason.
    """
    lock_boards([entry.dataset_id])
    entry.refresh_from_db()
    others = {name: value for name, value in entry.scores.items() if name != measure}
    if not measure or not others:
        unpublish(entry, reason)
        return
    entry.scores, entry.figures = others, [each for each in entry.figures if each["name"] != measure]
    entry.save(update_fields=["scores", "figures"])
    board_changed(entry.dataset, Kind.REPORTED, entry, {entry.pk})
