"""The end of a competition, or of one of its rounds: the private part's values, and, where a curator wishes, what was
held."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from django.db import transaction
from django.db.models import Q, QuerySet

from leaderboard.core.audit import record
from leaderboard.models import Dataset, Entry, Round
from leaderboard.results.history.revisions import Kind, board_changed, lock_boards
from leaderboard.results.protection import policy_of
from leaderboard.results.publishing.ladder_places import settle_places
from leaderboard.results.publishing.republish import fill_scores, private_scores_of
from leaderboard.results.values import present_group

Visibility = Entry.Visibility


class CannotReveal(ValueError):
    """There is nothing to reveal; the message says why."""


@dataclass(frozen=True, slots=True)
class Revealed:
    """How many results have their private part on the board now, and how many were held and are told."""

    results: int
    held: int


@transaction.atomic
def reveal_private(dataset: Dataset, round: Round | None = None, *, show_held: bool = False) -> Revealed:
    """Publish the values over the private part of every result that is shown; within `audit.acting`.

    With a round its own, the site's and those of no round or an earlier one; what runs in another round that is not
    revealed waits for that. What the Ladder held of the round stays held, unless `show_held`: then it is shown, or kept
    with its team where that wishes, and has its private part too. Again, only what came since is revealed.
    Raises CannotReveal where the dataset is in no competition, or the round is not its.
    """
    lock_boards([dataset.pk])
    present = Dataset.objects.get(pk=dataset.pk)
    if not policy_of(present).competition:
        raise CannotReveal(f"{present} is in no competition: it has no private part")
    entries = Entry.objects.filter(dataset=present).exclude(provenance=Entry.Provenance.REPORTED)
    of_round = entries
    if round is not None:
        _require_of(round, present)
        of_round = entries.filter(round=round)
        entries = entries.filter(Q(round=None) | Q(round=round) | Q(round__revealed_at__isnull=False))
    held = release_held(present, of_round) if show_held else 0
    results = _reveal(present, entries)
    subject = f"{present}{f', {round}' if round is not None else ''}"
    record_reveal(present, subject, results=results, held=held, without=_without(present))
    if results or held:
        board_changed(present, Kind.REVEALED)
    dataset.refresh_from_db()
    return Revealed(results, held)


def record_reveal(
    dataset: Dataset, subject: str, *, results: int, held: int, without: Sequence[str] = ()
) -> None:
    """Keep in the audit record that private parts were told, in a reveal or by leaving the competition."""
    record(
        "private part revealed",
        subject,
        dataset=dataset,
        after={"results": results, "held results shown": held, "shown without": list(without)},
    )


def _require_of(round: Round, dataset: Dataset) -> None:
    of_benchmark = round.benchmark is not None and round.benchmark.members.filter(dataset=dataset).exists()
    if round.dataset_id != dataset.pk and not of_benchmark:
        raise CannotReveal(f"{round} is no round of {dataset}")


def _reveal(dataset: Dataset, entries: QuerySet[Entry]) -> int:
    """Give the results that are shown, or gave way to better ones, their private values; others have none."""
    shown = entries.filter(
        visibility__in=(Visibility.PUBLIC, Visibility.SUPERSEDED),
        private_scores={},
        comparison_group__startswith=present_group(dataset),
    )
    rows = shown.select_related("evaluation").defer("evaluation__values")
    found = list(rows.prefetch_related("evaluation__parts", "seeds__evaluation__parts"))
    for entry in found:
        entry.private_scores = private_scores_of(entry, dataset)
    Entry.objects.bulk_update(found, ["private_scores"], batch_size=200)
    return sum(bool(entry.private_scores) for entry in found)


def _without(dataset: Dataset) -> list[str]:
    """The results on the board that have no private part now, by their systems' names."""
    rows = Entry.objects.filter(dataset=dataset, visibility=Visibility.PUBLIC, private_scores={})
    rows = rows.exclude(provenance=Entry.Provenance.REPORTED).order_by("system__name")
    return list(rows.values_list("system__name", flat=True))


def release_held(dataset: Dataset, entries: QuerySet[Entry]) -> int:
    """Tell what the Ladder held: to everyone, or to its team alone where that wishes. Returns how many.

    With the board locked; the caller counts the change.
    """
    held = list(entries.filter(visibility=Visibility.HELD))
    for entry in held:
        entry.visibility = Visibility.PUBLIC if entry.public_wanted else Visibility.PRIVATE
        entry.due_at = None
    Entry.objects.bulk_update(held, ["visibility", "due_at"], batch_size=200)
    fill_scores(dataset, held)
    settle_places(dataset)
    return len(held)
