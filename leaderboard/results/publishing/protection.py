"""Changes of the protection of hidden judgments; the only writer of `Dataset.protection`.

A scorer job draws parts and computes the means over them (`request_change`, `compute_part_means`). Then one transaction
changes the policy and all published values (`switch_protection`), so that no board mixes the two. At the end of a
competition or round, `reveal_private` publishes the values of the private part, and optionally held results.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from django.db import transaction
from django.db.models import Count, Q, QuerySet

from leaderboard.core.audit import actor, record
from leaderboard.core.work_requests import request_work
from leaderboard.models import Dataset, Entry, Evaluation, Protection, Qrels, Round, WorkRequest
from leaderboard.results.board_rows.revisions import Kind, board_changed, lock_board
from leaderboard.results.protection import Part, draw_parts, evaluate_parts, get_policy
from leaderboard.results.publishing.publication import fill_scores, update_shown
from leaderboard.results.records import entry_evaluations
from leaderboard.results.significance.hidden import keep_least_difference
from leaderboard.results.values import present_group_prefix, published_private_scores

Visibility = Entry.Visibility


class CannotProtect(ValueError):
    """The protection cannot be changed; the message gives the reason and what to do instead."""


class CannotReveal(ValueError):
    """There is nothing to reveal; the message gives the reason."""


@dataclass(frozen=True, slots=True)
class RevealResult:
    """Number of results with newly revealed private values, and of held results that were released."""

    results: int
    held: int


def count_unprotected(dataset: Dataset) -> int:
    """Return the number of submitted results with published means over all judged queries of the current qrels.

    In a competition, their private part can be computed from both values, and systems may already be tuned on it. The
    result is 0 if the dataset is already in a competition.
    """
    if dataset.protection == Protection.COMPETITION:
        return 0
    entries = Entry.objects.filter(dataset=dataset).exclude(submission_reference="")
    qrels = dataset.current_qrels_id
    return entries.filter(Q(evaluation__qrels=qrels) | Q(seeds__evaluation__qrels=qrels)).distinct().count()


@transaction.atomic
def request_change(
    dataset: Dataset,
    *,
    competition: bool,
    share: float | None = None,
    although_told: bool = False,
    although_reveals: bool = False,
) -> WorkRequest:
    """Request a scorer job that changes the policy. Call this within `audit.acting`.

    `share` is the share of queries in the public part; None keeps the current one. `although_told` confirms a
    competition although results were published in full, and `although_reveals` confirms the standard policy although
    it reveals private parts.

    Raises:
        CannotProtect: For open judgments, an unchanged policy, parts drawn with another share, or a missing
            confirmation.
    """
    locked_dataset = lock_board(dataset.pk)
    protection = Protection.COMPETITION if competition else Protection.STANDARD
    if not locked_dataset.hidden:
        raise CannotProtect(f"the judgments of {locked_dataset} are open, so they cannot be protected")
    if locked_dataset.protection == protection:
        raise CannotProtect(f"{locked_dataset} is already under the {protection.label} policy")
    if competition:
        _check_competition(locked_dataset, share, although_told)
        if share is not None:
            Dataset.objects.filter(pk=locked_dataset.pk).update(public_share=share)
    elif (unrevealed_count := count_not_revealed(locked_dataset)) and not although_reveals:
        raise CannotProtect(
            f"this would reveal the private part of {unrevealed_count} result{'s' if unrevealed_count > 1 else ''} on "
            f"{locked_dataset}: it follows from the means over all judged queries and those over the public part. "
            "Reveal the private part first, or tick “Proceed even though the private part becomes public” "
            "(--although-reveals)"
        )
    record(
        "protection asked for",
        locked_dataset,
        dataset=locked_dataset,
        before={"protection": locked_dataset.protection},
        after={"protection": protection.value, **({"public_share": share} if share is not None else {})},
    )
    acting_user = actor()
    person_id = acting_user.person.pk if acting_user.person is not None else None
    return request_work(
        WorkRequest.Kind.PROTECT,
        locked_dataset,
        {"protection": protection.value, "by": person_id, "why": acting_user.reason},
    )


def _check_competition(dataset: Dataset, share: float | None, although_told: bool) -> None:
    """Check that a competition with this public share can start; None keeps the current share.

    Raises CannotProtect for a share that is not between 0 and 1 or differs from that of stored parts, and for results
    that were published in full unless `although_told`.
    """
    if share is not None and not 0 < share < 1:
        raise CannotProtect(f"the public share must be between 0 and 1, not {share}")
    qrels_with_parts = Qrels.objects.filter(version__dataset=dataset).exclude(parts_sha256="")
    if share is not None and share != dataset.public_share and qrels_with_parts.exists():
        raise CannotProtect(
            f"the parts of {dataset} were drawn with a public share of {dataset.public_share:.4g}, which cannot "
            "change: private queries would become public, or public ones private"
        )
    disclosed_count = count_unprotected(dataset)
    if disclosed_count and not although_told:
        raise CannotProtect(
            f"{disclosed_count} result{'s' if disclosed_count > 1 else ''} on {dataset} disclosed the mean over all "
            "judged queries: together with the public part's it reveals the private part, on which systems may already "
            "be tuned. Start a competition before the first result, or on new judgments, or tick “Proceed even though "
            "results were published in full” (--although-told)"
        )


def count_not_revealed(dataset: Dataset) -> int:
    """Return the number of results whose unrevealed private part the standard policy would disclose.

    Readers could subtract the public part's mean, which permalinks still show, from the mean over all queries.
    """
    entries = Entry.objects.filter(dataset=dataset, private_scores={}).exclude(scores={})
    return entries.exclude(provenance=Entry.Provenance.REPORTED).count()


def compute_part_means(dataset: Dataset, progress: Callable[[float], None]) -> int:
    """Compute missing means over parts for the dataset's evaluations, and return how many evaluations lacked them.

    Missing parts are drawn, also for the current qrels. Evaluations with older qrels come first, so that queries keep
    their part. Runs in the scorer. `progress` may raise to stop the work.
    """
    evaluation_ids = list(_evaluations_without_parts(dataset).order_by("qrels_id", "pk").values_list("pk", flat=True))
    for number, evaluation_id in enumerate(evaluation_ids):
        progress(number / len(evaluation_ids))
        evaluate_parts(Evaluation.objects.select_related("qrels", "run").get(pk=evaluation_id))
    if dataset.current_qrels is not None:
        draw_parts(dataset.current_qrels)
    return len(evaluation_ids)


def _evaluations_without_parts(dataset: Dataset) -> QuerySet[Evaluation]:
    return (
        Evaluation.objects.filter(run__version__dataset=dataset).alias(total=Count("parts")).filter(total__lt=len(Part))
    )


@transaction.atomic
def switch_protection(dataset: Dataset, protection: Protection) -> bool:
    """Change the policy and all published values. Return False, without changes, if a competition's parts are missing.

    Held results stay held and cannot be revealed afterwards. Leaving a competition is recorded as a reveal of the
    remaining private parts. Call this within `audit.acting`.
    """
    locked_dataset = lock_board(dataset.pk)
    if protection == Protection.COMPETITION and _evaluations_without_parts(locked_dataset).exists():
        return False
    old_protection = locked_dataset.protection
    if old_protection == Protection.COMPETITION and (results := count_not_revealed(locked_dataset)):
        record_reveal(locked_dataset, str(locked_dataset), results=results, released=0)
    locked_dataset.protection = protection
    locked_dataset.save(update_fields=["protection"])
    fill_scores(locked_dataset, list(Entry.objects.filter(dataset=locked_dataset)))
    keep_least_difference(locked_dataset, scorer=True)
    update_shown(locked_dataset)
    record(
        "protection changed",
        locked_dataset,
        dataset=locked_dataset,
        before={"protection": old_protection},
        after={"protection": protection.value, "public_share": locked_dataset.public_share},
    )
    board_changed(locked_dataset, Kind.PROTECTED)
    dataset.refresh_from_db()
    return True


@transaction.atomic
def reveal_private(dataset: Dataset, round: Round | None = None, *, show_held: bool = False) -> RevealResult:
    """Publish the private part of every shown result. Call this within `audit.acting`.

    For a round, this covers its own results, the site's, and those of no round or of a revealed one; other open rounds
    are revealed separately. Held results of the round stay held, unless `show_held` releases them with their private
    part. Repeated calls reveal only newer results.

    Raises:
        CannotReveal: For a dataset outside of competitions, or a round that does not belong to it.
    """
    locked_dataset = lock_board(dataset.pk)
    if not get_policy(locked_dataset).competition:
        raise CannotReveal(f"{locked_dataset} is not in a competition, so it has no private part")
    entries = Entry.objects.filter(dataset=locked_dataset).exclude(provenance=Entry.Provenance.REPORTED)
    round_entries = entries
    if round is not None:
        is_benchmark_round = (
            round.benchmark is not None and round.benchmark.members.filter(dataset=locked_dataset).exists()
        )
        if round.dataset_id != locked_dataset.pk and not is_benchmark_round:
            raise CannotReveal(f"{round} is not a round of {locked_dataset}")
        round_entries = entries.filter(round=round)
        entries = entries.filter(Q(round=None) | Q(round=round) | Q(round__revealed_at__isnull=False))
    released_count = release_held(locked_dataset, round_entries) if show_held else 0
    results = _set_private_scores(locked_dataset, entries)
    subject = f"{locked_dataset}{f', {round}' if round is not None else ''}"
    unrevealed_entries = Entry.objects.filter(dataset=locked_dataset, visibility=Visibility.PUBLIC, private_scores={})
    unrevealed_entries = unrevealed_entries.exclude(provenance=Entry.Provenance.REPORTED).order_by("system__name")
    record_reveal(
        locked_dataset,
        subject,
        results=results,
        released=released_count,
        unrevealed=list(unrevealed_entries.values_list("system__name", flat=True)),
    )
    if results or released_count:
        board_changed(locked_dataset, Kind.REVEALED)
    dataset.refresh_from_db()
    return RevealResult(results, released_count)


def record_reveal(
    dataset: Dataset, subject: str, *, results: int, released: int, unrevealed: Sequence[str] = ()
) -> None:
    """Add an audit record of disclosed private parts, by a reveal or by leaving the competition."""
    after = {"results": results, "held results shown": released, "shown without": list(unrevealed)}
    record("private part revealed", subject, dataset=dataset, after=after)


def _set_private_scores(dataset: Dataset, entries: QuerySet[Entry]) -> int:
    """Set the private values of public and superseded results on the current qrels that have none.

    Returns the number of results that have values now.
    """
    shown_entries = entries.filter(
        visibility__in=(Visibility.PUBLIC, Visibility.SUPERSEDED),
        private_scores={},
        comparison_group__startswith=present_group_prefix(dataset),
    )
    rows = shown_entries.select_related("evaluation").defer("evaluation__values")
    unrevealed_entries = list(rows.prefetch_related("evaluation__parts", "seeds__evaluation__parts"))
    for entry in unrevealed_entries:
        entry.private_scores = published_private_scores(entry_evaluations(entry), dataset)
    Entry.objects.bulk_update(unrevealed_entries, ["private_scores"], batch_size=200)
    return sum(bool(entry.private_scores) for entry in unrevealed_entries)


def release_held(dataset: Dataset, entries: QuerySet[Entry]) -> int:
    """Make held results public, or private if their team chose so, set their scores, and return their number.

    Call this with the board locked; the caller records the change.
    """
    held_entries = list(entries.filter(visibility=Visibility.HELD))
    for entry in held_entries:
        entry.visibility = Visibility.PUBLIC if entry.public_wanted else Visibility.PRIVATE
        entry.due_at = None
    Entry.objects.bulk_update(held_entries, ["visibility", "due_at"], batch_size=200)
    fill_scores(dataset, held_entries)
    update_shown(dataset)
    return len(held_entries)
