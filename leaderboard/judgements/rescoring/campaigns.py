"""Life cycle of rescores, from the start to the decision: included runs, waiting runs, and progress."""

from collections.abc import Mapping
from dataclasses import asdict

from django.db import transaction
from django.db.models import Exists, OuterRef, QuerySet
from django.utils import timezone

from evaluation.measures.registry import SPEC_VERSION
from leaderboard.core.audit import actor, record
from leaderboard.core.work_requests import request_work
from leaderboard.judgements.rescoring.content import OfferedContent
from leaderboard.models import Dataset, Evaluation, Qrels, Rescore, Run, WorkRequest
from leaderboard.results.board_rows.revisions import lock_board, lock_boards

State = Rescore.State
#: States of a pending rescore; a dataset has at most one of them.
OPEN = (State.EVALUATING, State.READY)
#: Maximum number of worker crashes before a run is excluded, so that it cannot block the rescore.
TRIES = 2
#: Dataset settings that affect scores; if they change, the runs are evaluated again.
_SETTINGS = (
    "hidden", "protection", "public_share", "relevance_level", "drop_self_matches", "candidates_only", "measures",
    "current_version_id",
)  # fmt: skip
_TRIES = "tries"


class RescoreUnderWay(ValueError):
    """Another `rescore` of the dataset is pending and must be decided first."""

    def __init__(self, rescore: Rescore) -> None:
        """Set a message that names the pending rescore and asks for its decision."""
        super().__init__(
            f"{rescore.dataset} is already being rescored on qrels v{rescore.to_qrels.number} "
            f"({rescore.get_state_display()}): switch its board or discard that rescore first"
        )
        self.rescore = rescore


class CannotRescore(ValueError):
    """The runs cannot be evaluated on these judgments, or the rescore is already decided."""


def get_pending_rescore(dataset: Dataset | int) -> Rescore | None:
    """Return the dataset's pending rescore, or None."""
    rescores = Rescore.objects.filter(dataset=dataset, state__in=OPEN)
    return rescores.select_related("dataset", "from_qrels", "to_qrels").first()


def must_rescore(dataset: Dataset, qrels: Qrels) -> bool:
    """Return whether results must be rescored before the board can use these judgments.

    False for judgments of another version or split, which are a different test that stored runs do not cover, and
    without evaluations on the current judgments.
    """
    current_qrels = dataset.current_qrels
    if current_qrels is None or current_qrels.pk == qrels.pk:
        return False
    same_test = (current_qrels.version_id, current_qrels.split) == (qrels.version_id, qrels.split)
    return same_test and Evaluation.objects.filter(qrels=current_qrels).exists()


@transaction.atomic
def start_rescore(dataset: Dataset, qrels: Qrels, note: str = "") -> Rescore:
    """Create a rescore of all stored runs on `qrels` and request its work. The board does not change until the switch.

    `note` describes the change of the judgments and becomes public with the switch. The acting user's reason is only in
    the audit record. Call this within `audit.acting`.

    Raises:
        RescoreUnderWay: While another rescore is pending.
        CannotRescore: Without current judgments, for the board's own ones, or for those of another version or split.
    """
    locked_dataset = lock_board(dataset.pk)
    pending_rescore = get_pending_rescore(dataset)
    if pending_rescore is not None:
        raise RescoreUnderWay(pending_rescore)
    current_qrels = locked_dataset.current_qrels
    if current_qrels is None:
        raise CannotRescore(f"{dataset} has no judgments yet, so there is nothing to rescore")
    if current_qrels.pk == qrels.pk:
        raise CannotRescore(f"the board of {dataset} already uses these judgments")
    if (current_qrels.version_id, current_qrels.split) != (qrels.version_id, qrels.split):
        raise CannotRescore(f"{qrels} are not for the version and split that {dataset} is scored on: {current_qrels}")
    rescore = Rescore.objects.create(
        dataset=locked_dataset,
        from_qrels=current_qrels,
        to_qrels=qrels,
        reason=note[:300],
        created_by=actor().person,
    )
    record(
        "rescore started",
        rescore,
        dataset=locked_dataset,
        before={"qrels": current_qrels.number},
        after={"qrels": qrels.number},
    )
    _request_work(rescore)
    return rescore


def _request_work(rescore: Rescore) -> None:
    request_work(WorkRequest.Kind.RESCORE, rescore.dataset, {"rescore": rescore.pk})


@transaction.atomic
def discard_rescore(rescore: Rescore) -> None:
    """Discard a rescore without changing the board; its evaluations remain available for later use.

    Raises CannotRescore if it is already decided.
    """
    lock_boards([rescore.dataset_id])
    pending_rescores = Rescore.objects.filter(pk=rescore.pk, state__in=[*OPEN, State.FAILED])
    if not pending_rescores.update(state=State.DISCARDED, decided_by=actor().person, decided_at=timezone.now()):
        raise CannotRescore(_decided_message(rescore))
    rescore.refresh_from_db()
    record("rescore discarded", rescore, dataset=rescore.dataset_id, before={"qrels": rescore.to_qrels.number})


@transaction.atomic
def resume_rescore(rescore: Rescore) -> None:
    """Request the evaluation of a rescore again, after an error or a change of the dataset's settings.

    Raises:
        CannotRescore: If it is already decided.
        RescoreUnderWay: If another one was started in the meantime.
    """
    lock_boards([rescore.dataset_id])
    pending_rescore = get_pending_rescore(rescore.dataset_id)
    if pending_rescore is not None and pending_rescore.pk != rescore.pk:
        raise RescoreUnderWay(pending_rescore)
    if not Rescore.objects.filter(pk=rescore.pk, state__in=[*OPEN, State.FAILED]).update(state=State.EVALUATING):
        raise CannotRescore(_decided_message(rescore))
    rescore.refresh_from_db()
    record("rescore went on", rescore, dataset=rescore.dataset_id)
    _request_work(rescore)


def include_new_run(dataset: Dataset | int) -> None:
    """Set the dataset's ready rescore, if any, back to evaluating, so that it includes a newly scored run.

    Call this in the transaction that publishes the result, with the board locked. A rescore that is still evaluating
    finds the run by itself.
    """
    rescore = Rescore.objects.filter(dataset=dataset, state=State.READY).first()
    if rescore is not None:
        Rescore.objects.filter(pk=rescore.pk).update(state=State.EVALUATING)
        _request_work(rescore)


def fail_rescore(rescore: Rescore) -> bool:
    """Mark an evaluating rescore as failed after an internal error, and return whether it was evaluating.

    It can be resumed or discarded.
    """
    return bool(Rescore.objects.filter(pk=rescore.pk, state=State.EVALUATING).update(state=State.FAILED))


def _decided_message(rescore: Rescore) -> str:
    stored_rescore = Rescore.objects.select_related("decided_by").get(pk=rescore.pk)
    suffix = f" by {stored_rescore.decided_by}" if stored_rescore.decided_by else ""
    return f"this rescore is already {stored_rescore.get_state_display()}{suffix}"


def get_rescore_runs(rescore: Rescore) -> QuerySet[Run]:
    """Return the runs of the version with evaluations on other judgments of the split, in order of arrival.

    Their visibility does not matter. Runs with results on judgments before the current ones are included, so that these
    are not stale afterward.
    """
    same_test = Evaluation.objects.filter(run=OuterRef("pk"), qrels__split=rescore.to_qrels.split)
    other_evaluations = same_test.exclude(qrels=rescore.to_qrels_id)
    return Run.objects.filter(Exists(other_evaluations), version=rescore.to_qrels.version_id).order_by("pk")


def waiting_runs(rescore: Rescore) -> QuerySet[Run]:
    """Return runs that have no evaluation on the new judgments yet and are not excluded."""
    new_evaluations = Evaluation.objects.filter(
        run=OuterRef("pk"), qrels=rescore.to_qrels_id, specification=SPEC_VERSION
    )
    return get_rescore_runs(rescore).filter(~Exists(new_evaluations)).exclude(pk__in=[int(key) for key in rescore.lost])


def scoring_settings(dataset: Dataset) -> dict[str, object]:
    return {name: getattr(dataset, name) for name in _SETTINGS}


def note_progress(rescore: Rescore) -> None:
    """Count all runs of the rescore and the evaluated ones, and store the numbers in its row."""
    waiting_count = waiting_runs(rescore).count()
    rescore.total = get_rescore_runs(rescore).count()
    rescore.done = rescore.total - waiting_count
    Rescore.objects.filter(pk=rescore.pk).update(total=rescore.total, done=rescore.done)


def begin_run(rescore: Rescore, run: Run) -> bool:
    """Record the start of a run's evaluation; return False, and exclude the run, after too many worker crashes."""
    tries = rescore.content.get(_TRIES, {})
    earlier_tries = tries.get(str(run.pk), 0)
    if earlier_tries >= TRIES:
        exclude_run(rescore, run, "it was started twice, and the worker crashed each time")
        return False
    _store_tries(rescore, {str(run.pk): earlier_tries + 1})
    return True


def end_run(rescore: Rescore) -> None:
    """Record that no run is being evaluated, so that later crashes are not attributed to a run."""
    _store_tries(rescore, {})


def exclude_run(rescore: Rescore, run: Run, reason: str) -> None:
    """Exclude a run that cannot be evaluated; its results keep their judgments."""
    rescore.lost = {**rescore.lost, str(run.pk): reason}
    Rescore.objects.filter(pk=rescore.pk).update(lost=rescore.lost)
    end_run(rescore)


def _store_tries(rescore: Rescore, tries: dict[str, int]) -> None:
    rescore.content = {_TRIES: tries} if tries else {}
    Rescore.objects.filter(pk=rescore.pk).update(content=rescore.content)


@transaction.atomic
def finish_rescore(
    rescore: Rescore, content: OfferedContent, settings: dict[str, object], marks: Mapping[str, object]
) -> bool:
    """Mark the rescore as ready for the decision; return False if runs are waiting or scoring settings have changed.

    `settings` are those that the runs were evaluated with. `marks` are stored for the comparison.
    """
    dataset = lock_board(rescore.dataset_id)
    note_progress(rescore)
    if rescore.done < rescore.total or scoring_settings(dataset) != settings:
        return False
    stored_content = {"settings": settings, "marks": marks, **asdict(content)}
    pending_rescores = Rescore.objects.filter(pk=rescore.pk, state=State.EVALUATING)
    pending_rescores.update(state=State.READY, content=stored_content)
    return True
