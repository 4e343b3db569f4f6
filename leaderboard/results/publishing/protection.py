"""Change how a dataset's hidden judgements are protected: the only writer of `Dataset.protection`.

Parts are drawn and means over them are found by the scorer, in a job (`request_change`, `find_parts`); then the policy
and all published values change in one transaction (`switch_protection`). No board ever mixes the two. At the end of a
competition, or of one of its rounds, `reveal_private` publishes the private part's values, and what was held if a
curator wishes.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from django.db import transaction
from django.db.models import Count, Q, QuerySet

from leaderboard.core.audit import actor, record
from leaderboard.core.work_requests import request_work
from leaderboard.models import Dataset, Entry, Evaluation, Protection, Qrels, Round, WorkRequest
from leaderboard.results.board_rows.revisions import Kind, board_changed, lock_board
from leaderboard.results.protection import Part, draw_parts, evaluate_parts, policy_of
from leaderboard.results.publishing.publication import fill_scores, update_shown
from leaderboard.results.records import entry_evaluations
from leaderboard.results.significance.hidden import keep_least_difference
from leaderboard.results.values import present_group, published_private_scores

Visibility = Entry.Visibility


class CannotProtect(ValueError):
    """The policy cannot be changed so; the message says why, and what would be right."""


class CannotReveal(ValueError):
    """There is nothing to reveal; the message says why."""


@dataclass(frozen=True, slots=True)
class RevealResult:
    """How many results have their private part on the board now, and how many were held and are told."""

    results: int
    held: int


def count_unprotected(dataset: Dataset) -> int:
    """How many results that people sent were told over all judged queries of the present judgements.

    In a competition their private part can be computed from both values, and what was learnt from them stays learnt.
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
    """Ask for a competition, or for the standard policy; a job of the scorer makes the change. Within `audit.acting`.

    `share` is the public part's; None leaves it. Raises CannotProtect where nothing is hidden, nothing would change,
    parts of another share were drawn, results were told in full and `although_told` does not say that this is known, or
    the standard policy would tell private parts and `although_reveals` does not.
    """
    present = lock_board(dataset.pk)
    wanted = Protection.COMPETITION if competition else Protection.STANDARD
    if not present.hidden:
        raise CannotProtect(f"the judgements of {present} are open: there is nothing to protect")
    if present.protection == wanted:
        raise CannotProtect(f"{present} is under the {wanted.label} policy already")
    if competition:
        _require_parts(present, share, although_told)
        if share is not None:
            Dataset.objects.filter(pk=present.pk).update(public_share=share)
    elif (found := count_not_revealed(present)) and not although_reveals:
        raise CannotProtect(
            f"this would tell the private part of {found} result{'s' if found > 1 else ''} on {present}: means over "
            "all judged queries, beside those over the public part, give it away. Reveal first what the board shows, "
            "or tick “Proceed even though the private part becomes public” (--although-reveals)"
        )
    record(
        "protection asked for",
        present,
        dataset=present,
        before={"protection": present.protection},
        after={"protection": wanted.value, **({"public_share": share} if share is not None else {})},
    )
    who = actor()
    by = who.person.pk if who.person is not None else None
    return request_work(
        WorkRequest.Kind.PROTECT, present, {"protection": wanted.value, "by": by, "why": who.reason}
    )


def _require_parts(dataset: Dataset, share: float | None, although_told: bool) -> None:
    if share is not None and not 0 < share < 1:
        raise CannotProtect(f"the public share is a part, between 0 and 1, not {share}")
    drawn = Qrels.objects.filter(version__dataset=dataset).exclude(parts_sha256="")
    if share is not None and share != dataset.public_share and drawn.exists():
        raise CannotProtect(
            f"the parts of {dataset} were drawn with a public share of {dataset.public_share:.4g}, and stay: with "
            "another one private queries would become public, or public ones private"
        )
    told = count_unprotected(dataset)
    if told and not although_told:
        raise CannotProtect(
            f"{told} result{'s' if told > 1 else ''} on {dataset} told their teams the mean over all judged queries: "
            "with the public part's beside it their private part is known, and what was tuned on it stays tuned. Start "
            "a competition before results come, or on new judgements, or tick “Proceed even though results were "
            "published in full” (--although-told)"
        )


def count_not_revealed(dataset: Dataset) -> int:
    """How many results of a competition would tell their private part under the standard policy, and have not yet.

    With the public part's mean, which boards and permalinks keep, the mean over all queries gives it by subtraction.
    """
    told = Entry.objects.filter(dataset=dataset, private_scores={}).exclude(scores={})
    return told.exclude(provenance=Entry.Provenance.REPORTED).count()


def find_parts(dataset: Dataset, progress: Callable[[float], None]) -> int:
    """Draw parts, and find the means over both of every evaluation that has none; returns how many. The scorer's.

    Older judgements first, so that queries keep the part they got there. `progress` may raise.
    """
    missing = list(_without_parts(dataset).order_by("qrels_id", "pk").values_list("pk", flat=True))
    for number, key in enumerate(missing):
        progress(number / len(missing))
        evaluate_parts(Evaluation.objects.select_related("qrels", "run").get(pk=key))
    if dataset.current_qrels is not None:
        draw_parts(dataset.current_qrels)
    return len(missing)


def _without_parts(dataset: Dataset) -> QuerySet[Evaluation]:
    return (
        Evaluation.objects.filter(run__version__dataset=dataset)
        .alias(found=Count("parts"))
        .filter(found__lt=len(Part))
    )


@transaction.atomic
def switch_protection(dataset: Dataset, protection: Protection) -> bool:
    """Change the policy and every published value at once; False, with nothing changed, while parts are missing.

    Results that the Ladder held stay held: reveal them first, or never. Leaving a competition is recorded as a reveal
    of what was not revealed. Within `audit.acting`.
    """
    present = lock_board(dataset.pk)
    if protection == Protection.COMPETITION and _without_parts(present).exists():
        return False
    before = present.protection
    if before == Protection.COMPETITION and (results := count_not_revealed(present)):
        record_reveal(present, str(present), results=results, held=0)
    present.protection = protection
    present.save(update_fields=["protection"])
    fill_scores(present, list(Entry.objects.filter(dataset=present)))
    keep_least_difference(present, scorer=True)
    update_shown(present)
    record(
        "protection changed",
        present,
        dataset=present,
        before={"protection": before},
        after={"protection": protection.value, "public_share": present.public_share},
    )
    board_changed(present, Kind.PROTECTED)
    dataset.refresh_from_db()
    return True


@transaction.atomic
def reveal_private(dataset: Dataset, round: Round | None = None, *, show_held: bool = False) -> RevealResult:
    """Publish the values over the private part of every result that is shown; within `audit.acting`.

    With a round its own, the site's and those of no round or an earlier one; what runs in another round that is not
    revealed waits for that. What the Ladder held of the round stays held, unless `show_held`: then it is shown, or kept
    with its team where that wishes, and has its private part too. Again, only what came since is revealed.
    Raises CannotReveal where the dataset is in no competition, or the round is not its.
    """
    present = lock_board(dataset.pk)
    if not policy_of(present).competition:
        raise CannotReveal(f"{present} is in no competition: it has no private part")
    entries = Entry.objects.filter(dataset=present).exclude(provenance=Entry.Provenance.REPORTED)
    of_round = entries
    if round is not None:
        of_benchmark = (
            round.benchmark is not None and round.benchmark.members.filter(dataset=present).exists()
        )
        if round.dataset_id != present.pk and not of_benchmark:
            raise CannotReveal(f"{round} is no round of {present}")
        of_round = entries.filter(round=round)
        entries = entries.filter(Q(round=None) | Q(round=round) | Q(round__revealed_at__isnull=False))
    held = release_held(present, of_round) if show_held else 0
    results = _reveal(present, entries)
    subject = f"{present}{f', {round}' if round is not None else ''}"
    rows = Entry.objects.filter(dataset=present, visibility=Visibility.PUBLIC, private_scores={})
    rows = rows.exclude(provenance=Entry.Provenance.REPORTED).order_by("system__name")
    record_reveal(
        present,
        subject,
        results=results,
        held=held,
        without=list(rows.values_list("system__name", flat=True)),
    )
    if results or held:
        board_changed(present, Kind.REVEALED)
    dataset.refresh_from_db()
    return RevealResult(results, held)


def record_reveal(
    dataset: Dataset, subject: str, *, results: int, held: int, without: Sequence[str] = ()
) -> None:
    """Keep in the audit record that private parts were told, in a reveal or by leaving the competition."""
    after = {"results": results, "held results shown": held, "shown without": list(without)}
    record("private part revealed", subject, dataset=dataset, after=after)


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
        entry.private_scores = published_private_scores(entry_evaluations(entry), dataset)
    Entry.objects.bulk_update(found, ["private_scores"], batch_size=200)
    return sum(bool(entry.private_scores) for entry in found)


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
    update_shown(dataset)
    return len(held)
