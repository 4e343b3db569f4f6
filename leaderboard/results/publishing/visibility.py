"""Changes of existing entries by teams and curators: visibility, withdrawal, baselines, and moderation.

Curators quarantine, unpublish, and restore results within `leaderboard.core.audit.acting`, which records the person;
the reasons here are shown to readers. Reported numbers are also published and withdrawn here.
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
#: Maximum length of a moderation reason, in characters.
LONGEST_REASON = 300


class CannotModerate(ValueError):
    """A result cannot be moderated as requested; the message says what to do instead."""


@transaction.atomic
def set_visibility(submission_reference: str, *, public: bool) -> None:
    """Show or hide a submission's entries, and record a change of each board with a changed entry.

    Withdrawn entries do not change. For entries that a curator removed, the choice takes effect when they are restored.
    """
    visibility = Visibility.PUBLIC if public else Visibility.PRIVATE
    submission_entries = Entry.objects.filter(submission_reference=submission_reference)
    lock_boards(submission_entries.values_list("dataset_id", flat=True))
    submission_entries.update(public_wanted=public)
    # Superseded entries are already as public as they can be.
    unchanged_states = [Visibility.WITHDRAWN, *Entry.CURATED, visibility, *([Visibility.SUPERSEDED] if public else [])]
    entries = submission_entries.exclude(visibility__in=unchanged_states)
    was_public = Exists(EntryVersion.objects.filter(entry=OuterRef("pk")))
    changed_entries = list(entries.annotate(seen_before=was_public).select_related("dataset", "system").order_by("pk"))
    entries.update(visibility=visibility)
    moved_ids = _update_shown_results(changed_entries)
    if not public:
        moved_ids = _replace_baseline(changed_entries, moved_ids)
    for entry in changed_entries:
        # An entry that was public before is not news.
        is_new = public and not entry.seen_before
        kind = Kind.PUBLISHED if is_new else Kind.VISIBILITY
        board_changed(entry.dataset, kind, entry, moved_ids)


@transaction.atomic
def withdraw_entries(submission_reference: str, reason: str) -> None:
    """Withdraw a submission's entries from all boards; entries that were public leave a tombstone.

    A quarantined entry keeps the curator's reason, and stays private if it is restored.
    """
    entries = Entry.objects.filter(submission_reference=submission_reference)
    lock_boards(entries.values_list("dataset_id", flat=True))
    visible_entries = entries.filter(visibility__in=[Visibility.PUBLIC, Visibility.SUPERSEDED])
    changed_entries = list(visible_entries.select_related("dataset", "system").order_by("pk"))
    entries.update(withdrawal_reason=reason[:300], public_wanted=False, due_at=None)
    visible_entries.update(visibility=Visibility.WITHDRAWN)
    moved_ids = _update_shown_results(changed_entries)
    moved_ids = _replace_baseline(changed_entries, moved_ids)
    for entry in changed_entries:
        board_changed(entry.dataset, Kind.WITHDRAWN, entry, moved_ids)


def _update_shown_results(entries: Sequence[Entry]) -> set[int]:
    """Update which results competitions show on the entries' boards.

    Returns the ids of these entries and of all whose visibility changed.
    """
    moved_ids = {entry.pk for entry in entries}
    return moved_ids.union(*(update_shown(entry.dataset) for entry in entries if entry.system.team_id is not None))


def _replace_baseline(removed_entries: Sequence[Entry], moved_ids: set[int]) -> set[int]:
    """Replace each removed baseline by the site's own first shown result of its group, if there is one.

    Returns `moved_ids` with the ids of the former and new baselines.
    """
    for entry in removed_entries:
        if entry.is_baseline:
            group = Entry.objects.filter(dataset=entry.dataset_id, comparison_group=entry.comparison_group)
            shown_states = (Visibility.PUBLIC, Visibility.SUPERSEDED)
            site_entries = group.filter(visibility__in=shown_states, system__team=None)
            first_entry = site_entries.exclude(pk=entry.pk).order_by("published_at", "pk").first()
            moved_ids = moved_ids.union(group.filter(is_baseline=True).values_list("pk", flat=True))
            group.filter(is_baseline=True).update(is_baseline=False)
            if first_entry is not None:
                moved_ids.add(first_entry.pk)
                group.filter(pk=first_entry.pk).update(is_baseline=True, visibility=Visibility.PUBLIC)
                board_changed(entry.dataset, Kind.BASELINE, first_entry, moved_ids)
    return moved_ids


@transaction.atomic
def name_baseline(entry: Entry) -> None:
    """Make the entry the baseline of its comparison group, and record a change of the board.

    If it belongs to a team, the site's own result of the same run is superseded, because it would be a duplicate row.
    """
    lock_boards([entry.dataset_id])
    baselines = Entry.objects.filter(dataset=entry.dataset, comparison_group=entry.comparison_group, is_baseline=True)
    changed_ids = {entry.pk, *baselines.values_list("pk", flat=True)}
    if entry.system.team_id is not None:
        duplicates = set(_site_results_of_run(entry).values_list("pk", flat=True))
        Entry.objects.filter(pk__in=duplicates).update(visibility=Visibility.SUPERSEDED)
        changed_ids |= duplicates
    baselines.update(is_baseline=False)
    Entry.objects.filter(pk=entry.pk).update(is_baseline=True)
    keep_least_difference(entry.dataset)  # Existing results are compared with it, too.
    board_changed(entry.dataset, Kind.BASELINE, entry, changed_ids)


def take_over_baseline(entry: Entry) -> None:
    """Make a team's new result the baseline if its run was imported as the baseline.

    Unless the sender is a curator of datasets, the run must be unavailable to other teams. If others can download or
    retrieve it, the sender could put their name on another team's run, so a curator has to select the baseline.
    """
    evaluation = entry.evaluation
    if evaluation is None or entry.system.team_id is None:
        return
    if not _site_results_of_run(entry).filter(is_baseline=True).exists():
        return
    retrieved_runs = Run.objects.filter(sha256=evaluation.run.sha256, origin=Run.Origin.RETRIEVED)
    is_exclusive = entry.dataset.runs_visibility == datasets.Visibility.CURATORS and not retrieved_runs.exists()
    sender = entry.submitter
    if is_exclusive or (sender is not None and has_right(sender, "leaderboard.change_dataset")):
        name_baseline(entry)
        entry.refresh_from_db(fields=["is_baseline"])


def _site_results_of_run(entry: Entry) -> QuerySet[Entry]:
    """Return the site's own public results of a single result's run, in the same comparison group."""
    if entry.evaluation is None:
        return Entry.objects.none()
    return Entry.objects.filter(
        dataset=entry.dataset_id, comparison_group=entry.comparison_group, system__team=None, system__source=None,
        visibility=Visibility.PUBLIC, evaluation__run__sha256=entry.evaluation.run.sha256,
    )  # fmt: skip


@transaction.atomic
def mark_published(dataset: Dataset) -> None:
    """Set the state of a dataset with judgments to published, and record the change if it had another state."""
    lock_boards([dataset.pk])
    unpublished_datasets = Dataset.objects.filter(pk=dataset.pk, current_qrels__isnull=False).exclude(
        state=Dataset.State.PUBLISHED
    )
    if unpublished_datasets.update(state=Dataset.State.PUBLISHED):
        board_changed(dataset, Kind.IMPORTED)


def quarantine(entry: Entry, reason: str) -> Entry:
    """Quarantine a result: it remains on the board without rank and scores, with a public reason.

    Raises:
        CannotModerate: For an entry that is not on the board, a baseline, or a missing reason.
    """
    return _remove_from_board(entry, reason, Visibility.QUARANTINED, Kind.QUARANTINED, (Visibility.PUBLIC,))


def unpublish(entry: Entry, reason: str) -> Entry:
    """Remove a result from the board completely; only its team sees the reason.

    Raises:
        CannotModerate: For a withdrawn, held, or unpublished entry, a public baseline, or a missing or too long reason.
    """
    allowed_states = (Visibility.PUBLIC, Visibility.PRIVATE, Visibility.SUPERSEDED, Visibility.QUARANTINED)
    return _remove_from_board(entry, reason, Visibility.UNPUBLISHED, Kind.UNPUBLISHED, allowed_states)


@transaction.atomic
def restore(entry: Entry) -> Entry:
    """Restore a moderated result: publicly, or privately if its team hid or withdrew it in the meantime.

    Raises:
        CannotModerate: For an entry that is not moderated.
    """
    lock_boards([entry.dataset_id])
    entry.refresh_from_db()
    if entry.visibility not in (Visibility.QUARANTINED, Visibility.UNPUBLISHED):
        raise CannotModerate(
            f"{_entry_title(entry)} is {entry.get_visibility_display()}. Only quarantined and unpublished results "
            "can be restored."
        )
    old_visibility = Visibility(entry.visibility)
    entry.visibility = Visibility.PUBLIC if entry.public_wanted else Visibility.PRIVATE
    entry.moderation_reason = ""
    entry.save(update_fields=["visibility", "moderation_reason"])
    _record_change(entry, old_visibility, Kind.RESTORED)
    return entry


@transaction.atomic
def _remove_from_board(
    entry: Entry,
    reason: str,
    visibility: Entry.Visibility,
    kind: Kind,
    allowed_states: tuple[Entry.Visibility, ...],
) -> Entry:
    """Set the visibility and the public reason of a moderated entry, and record the change.

    A private entry stays private if it is restored. Raises CannotModerate for an empty or too long reason, an entry
    whose visibility is not in `allowed_states`, or a public baseline.
    """
    lock_boards([entry.dataset_id])
    entry.refresh_from_db()
    reason = reason.strip()
    if not reason:
        raise CannotModerate("Enter a reason. It is shown to the team and, for quarantined results, to all readers.")
    if len(reason) > LONGEST_REASON:
        raise CannotModerate(
            f"The reason has {len(reason)} characters. Shorten it to at most {LONGEST_REASON} characters."
        )
    if entry.visibility not in allowed_states:
        states = " or ".join(state.label for state in allowed_states)
        raise CannotModerate(
            f"{_entry_title(entry)} is {entry.get_visibility_display()}. This is possible only if it is {states}."
        )
    if entry.is_baseline and entry.visibility == Visibility.PUBLIC:
        raise CannotModerate(f"{_entry_title(entry)} is the baseline of other results. Name another baseline first.")
    old_visibility = Visibility(entry.visibility)
    if old_visibility == Visibility.PRIVATE:
        entry.public_wanted = False
    entry.visibility, entry.moderation_reason = visibility, reason
    entry.save(update_fields=["visibility", "moderation_reason", "public_wanted"])
    _record_change(entry, old_visibility, kind)
    return entry


def _record_change(entry: Entry, old_visibility: Entry.Visibility, kind: Kind) -> None:
    """Record a board change if the board shows or showed the result; otherwise write only an audit record.

    In a competition, other results of the team may become visible or hidden, and are included in the board change.
    """
    moved_ids = {entry.pk}
    if entry.system.team_id is not None:
        moved_ids |= update_shown(entry.dataset)
        entry.refresh_from_db()
    if old_visibility in Entry.SEEN or entry.visibility in Entry.SEEN:
        board_changed(entry.dataset, kind, entry, moved_ids)
        return
    record(
        kind, _entry_title(entry), dataset=entry.dataset_id, entry=entry,
        before={"visibility": old_visibility}, after={"visibility": entry.visibility},
    )  # fmt: skip


def _entry_title(entry: Entry) -> str:
    configuration = f" ({entry.configuration})" if entry.configuration else ""
    return f"{entry.system}{configuration} on {entry.dataset}"


#: Fields of a reported entry that a corrected table may change.
CORRECTABLE_FIELDS = ("scores", "figures", "comparison_group", "is_baseline", "training", "locator")


@transaction.atomic
def publish_reported(reported_entries: Sequence[Entry]) -> int:
    """Publish reported results and return the number of new or changed entries. Unchanged ones are skipped.

    Entries with the same dataset, system, and configuration are corrected. The given entries are unsaved and have a
    dataset, a system with a source, a configuration, and CORRECTABLE_FIELDS.
    """
    lock_boards({row.dataset_id for row in reported_entries})
    systems = {row.system_id for row in reported_entries}
    stored_entries = {
        (entry.dataset_id, entry.system_id, entry.configuration): entry
        for entry in Entry.objects.filter(provenance=Entry.Provenance.REPORTED, system__in=systems)
    }
    new_entries: list[Entry] = []
    changed_entries: list[Entry] = []
    for row in reported_entries:
        entry = stored_entries.get((row.dataset_id, row.system_id, row.configuration))
        if entry is None:
            row.provenance, row.source_id = Entry.Provenance.REPORTED, row.system.source_id
            row.published_at = timezone.now()
            new_entries.append(row)
        elif any(getattr(entry, name) != getattr(row, name) for name in CORRECTABLE_FIELDS):
            for name in CORRECTABLE_FIELDS:
                setattr(entry, name, getattr(row, name))
            changed_entries.append(entry)
    Entry.objects.bulk_create(new_entries)
    Entry.objects.bulk_update(changed_entries, CORRECTABLE_FIELDS)
    dataset_ids = {entry.dataset_id for entry in (*new_entries, *changed_entries)}
    boards_changed(dataset_ids, Kind.REPORTED)
    return len(new_entries) + len(changed_entries)


@transaction.atomic
def withdraw_reported(entry: Entry, measure: str, reason: str) -> None:
    """Remove one measure from a reported entry, or unpublish the entry if it has no other measure or none is given.

    Raises:
        CannotModerate: If the entry cannot be unpublished: the baseline of its publication, or a missing reason.
    """
    lock_boards([entry.dataset_id])
    entry.refresh_from_db()
    remaining_scores = {name: value for name, value in entry.scores.items() if name != measure}
    if not measure or not remaining_scores:
        unpublish(entry, reason)
        return
    entry.scores = remaining_scores
    entry.figures = [figure for figure in entry.figures if figure["name"] != measure]
    entry.save(update_fields=["scores", "figures"])
    board_changed(entry.dataset, Kind.REPORTED, entry, {entry.pk})
