"""The life of a rescore, from its start until it is decided: which runs it is about, which wait, how far it is."""

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
#: The states of a rescore that is not decided: a dataset has one such at most.
OPEN = (State.EVALUATING, State.READY)
#: A run over which a worker was lost so often is left out: one run shall not keep all others from their numbers.
TRIES = 2
#: Settings of a dataset that numbers are made under: where they changed since, the numbers are made again.
_SETTINGS = (
    "hidden", "protection", "public_share", "relevance_level", "drop_self_matches", "candidates_only", "measures",
    "current_version_id",
)  # fmt: skip
_TRIES = "tries"


class RescoreUnderWay(ValueError):
    """The dataset is being rescored already: `rescore` is to be decided first."""

    def __init__(self, rescore: Rescore) -> None:
        super().__init__(
            f"{rescore.dataset} is being rescored on qrels v{rescore.to_qrels.number} already "
            f"({rescore.get_state_display()}): switch its board or throw that away first"
        )
        self.rescore = rescore


class CannotRescore(ValueError):
    """The judgements are not such that the dataset's runs could be evaluated on them, or the rescore is decided."""


def under_way(dataset: Dataset | int) -> Rescore | None:
    """Return the dataset's rescore that waits for runs to be evaluated, or for the curator."""
    rescores = Rescore.objects.filter(dataset=dataset, state__in=OPEN)
    return rescores.select_related("dataset", "from_qrels", "to_qrels").first()


def is_needed(dataset: Dataset, qrels: Qrels) -> bool:
    """Whether the board cannot stand on these judgements at once, because results of it stand on others.

    Judgements of another version or split are another test, not more of the same: no stored run answers it.
    """
    present = dataset.current_qrels
    if present is None or present.pk == qrels.pk:
        return False
    same_test = (present.version_id, present.split) == (qrels.version_id, qrels.split)
    return same_test and Evaluation.objects.filter(qrels=present).exists()


@transaction.atomic
def start_rescore(dataset: Dataset, qrels: Qrels, note: str = "") -> Rescore:
    """Have every stored run of the dataset evaluated on `qrels`; its board stays as it is until it is switched.

    `note` says what changed the judgements, and is public after the switch; why somebody acts is the record's alone.

    Within `audit.acting`. Raises RescoreUnderWay while there is one that is not decided, and CannotRescore for
    judgements that the board stands on, or of another version or split.
    """
    present = lock_board(dataset.pk)
    other = under_way(dataset)
    if other is not None:
        raise RescoreUnderWay(other)
    before = present.current_qrels
    if before is None:
        raise CannotRescore(f"{dataset} has no judgements yet: there is nothing to rescore")
    if before.pk == qrels.pk:
        raise CannotRescore(f"the board of {dataset} stands on these judgements already")
    if (before.version_id, before.split) != (qrels.version_id, qrels.split):
        raise CannotRescore(
            f"{qrels} are not for the version and split that {dataset} is scored on: {before}"
        )
    rescore = Rescore.objects.create(
        dataset=present, from_qrels=before, to_qrels=qrels, reason=note[:300], created_by=actor().person
    )
    record(
        "rescore started",
        rescore,
        dataset=present,
        before={"qrels": before.number},
        after={"qrels": qrels.number},
    )
    _request_work(rescore)
    return rescore


def _request_work(rescore: Rescore) -> None:
    request_work(WorkRequest.Kind.RESCORE, rescore.dataset, {"rescore": rescore.pk})


@transaction.atomic
def discard_rescore(rescore: Rescore) -> None:
    """Throw the rescore away: no board changes. What was evaluated stays, and need not be evaluated again.

    Raises CannotRescore where it was decided before.
    """
    lock_boards([rescore.dataset_id])
    waiting = Rescore.objects.filter(pk=rescore.pk, state__in=[*OPEN, State.FAILED])
    if not waiting.update(state=State.DISCARDED, decided_by=actor().person, decided_at=timezone.now()):
        raise CannotRescore(_decided(rescore))
    rescore.refresh_from_db()
    record(
        "rescore discarded", rescore, dataset=rescore.dataset_id, before={"qrels": rescore.to_qrels.number}
    )


@transaction.atomic
def resume_rescore(rescore: Rescore) -> None:
    """Evaluate what is not evaluated: after a failure of ours, or where the dataset's settings changed.

    Raises CannotRescore where it was decided before or is at it, RescoreUnderWay where another was started since.
    """
    lock_boards([rescore.dataset_id])
    other = under_way(rescore.dataset_id)
    if other is not None and other.pk != rescore.pk:
        raise RescoreUnderWay(other)
    if not Rescore.objects.filter(pk=rescore.pk, state__in=[*OPEN, State.FAILED]).update(
        state=State.EVALUATING
    ):
        raise CannotRescore(_decided(rescore))
    rescore.refresh_from_db()
    record("rescore went on", rescore, dataset=rescore.dataset_id)
    _request_work(rescore)


def include_new_run(dataset: Dataset | int) -> None:
    """See to it that a run which has just been scored is evaluated on the judgements of the dataset's rescore too.

    In the transaction that publishes its result, with the board locked. While the rescore evaluates it finds the run
    by itself.
    """
    rescore = Rescore.objects.filter(dataset=dataset, state=State.READY).first()
    if rescore is not None:
        Rescore.objects.filter(pk=rescore.pk).update(state=State.EVALUATING)
        _request_work(rescore)


def fail_rescore(rescore: Rescore) -> bool:
    """Say that a fault of ours ended the rescore before all runs were evaluated: `resume_rescore` or `discard_rescore`
    it."""
    return bool(Rescore.objects.filter(pk=rescore.pk, state=State.EVALUATING).update(state=State.FAILED))


def _decided(rescore: Rescore) -> str:
    present = Rescore.objects.select_related("decided_by").get(pk=rescore.pk)
    by = f" by {present.decided_by}" if present.decided_by else ""
    return f"this rescore is already {present.get_state_display()}{by}"


def runs_of(rescore: Rescore) -> QuerySet[Run]:
    """Every run of the version that was ever evaluated, whoever may see its result; in order of arrival.

    Also those whose result stands on judgements before the present ones: they are not stale afterwards.
    """
    same_test = Evaluation.objects.filter(run=OuterRef("pk"), qrels__split=rescore.to_qrels.split)
    evaluated = same_test.exclude(qrels=rescore.to_qrels_id)
    return Run.objects.filter(Exists(evaluated), version=rescore.to_qrels.version_id).order_by("pk")


def waiting_runs(rescore: Rescore) -> QuerySet[Run]:
    """Those that have no evaluation on the new judgements yet, and may come to have one."""
    done = Evaluation.objects.filter(
        run=OuterRef("pk"), qrels=rescore.to_qrels_id, specification=SPEC_VERSION
    )
    return runs_of(rescore).filter(~Exists(done)).exclude(pk__in=[int(key) for key in rescore.lost])


def settings_of(dataset: Dataset) -> dict[str, object]:
    """Return the settings that the dataset's numbers depend on."""
    return {name: getattr(dataset, name) for name in _SETTINGS}


def note_progress(rescore: Rescore) -> None:
    """Count what is done and what waits."""
    waiting = waiting_runs(rescore).count()
    rescore.total = runs_of(rescore).count()
    rescore.done = rescore.total - waiting
    Rescore.objects.filter(pk=rescore.pk).update(total=rescore.total, done=rescore.done)


def begin_run(rescore: Rescore, run: Run) -> bool:
    """Note that the run is about to be evaluated; False, and it is left out, where workers were lost over it before."""
    tries = rescore.content.get(_TRIES, {})
    before = tries.get(str(run.pk), 0)
    if before >= TRIES:
        exclude_run(rescore, run, "it was begun twice, and the worker was lost over it each time")
        return False
    _store_tries(rescore, {str(run.pk): before + 1})
    return True


def end_run(rescore: Rescore) -> None:
    """Note that no run is being evaluated: what follows is no fault of one."""
    _store_tries(rescore, {})


def exclude_run(rescore: Rescore, run: Run, why: str) -> None:
    """List the run among those that cannot be evaluated: results of it stay on the judgements they are on."""
    rescore.lost = {**rescore.lost, str(run.pk): why}
    Rescore.objects.filter(pk=rescore.pk).update(lost=rescore.lost)
    end_run(rescore)


def _store_tries(rescore: Rescore, tries: dict[str, int]) -> None:
    rescore.content = {_TRIES: tries} if tries else {}
    Rescore.objects.filter(pk=rescore.pk).update(content=rescore.content)


@transaction.atomic
def finish_rescore(
    rescore: Rescore, content: OfferedContent, settings: dict[str, object], marks: Mapping[str, object]
) -> bool:
    """Let the curator decide: every run has its evaluation. False where further runs came, or settings changed.

    `marks` are kept for the comparison.
    """
    dataset = lock_board(rescore.dataset_id)
    note_progress(rescore)
    if rescore.done < rescore.total or settings_of(dataset) != settings:
        return False
    kept = {"settings": settings, "marks": marks, **asdict(content)}
    evaluating = Rescore.objects.filter(pk=rescore.pk, state=State.EVALUATING)
    evaluating.update(state=State.READY, content=kept)
    return True
