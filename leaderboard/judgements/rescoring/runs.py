"""Which runs a rescore is about, which of them wait, and how far it is."""

from __future__ import annotations

from django.db import transaction
from django.db.models import Exists, OuterRef, QuerySet

from evaluation.measures import SPEC_VERSION
from leaderboard.judgements.rescoring.content import Content
from leaderboard.models import Dataset, Evaluation, Rescore, Run
from leaderboard.results.history.revisions import lock_boards

State = Rescore.State
#: A run over which a worker was lost so often is left out: one run shall not keep all others from their numbers.
TRIES = 2
#: Settings of a dataset that numbers are made under: where they changed since, the numbers are made again.
_SETTINGS = (
    "hidden", "protection", "public_share", "relevance_level", "drop_self_matches", "measures", "current_version_id",
)  # fmt: skip
_TRIES = "tries"


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
    """What the dataset's numbers are made under."""
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
        lose_run(rescore, run, "it was begun twice, and the worker was lost over it each time")
        return False
    _keep(rescore, {str(run.pk): before + 1})
    return True


def end_run(rescore: Rescore) -> None:
    """Note that no run is being evaluated: what follows is no fault of one."""
    _keep(rescore, {})


def lose_run(rescore: Rescore, run: Run, why: str) -> None:
    """List the run among those that cannot be evaluated: results of it stay on the judgements they are on."""
    rescore.lost = {**rescore.lost, str(run.pk): why}
    Rescore.objects.filter(pk=rescore.pk).update(lost=rescore.lost)
    end_run(rescore)


def _keep(rescore: Rescore, tries: dict[str, int]) -> None:
    rescore.content = {_TRIES: tries} if tries else {}
    Rescore.objects.filter(pk=rescore.pk).update(content=rescore.content)


@transaction.atomic
def finish(rescore: Rescore, content: Content, settings: dict[str, object]) -> bool:
    """Let the curator decide: every run has its evaluation. False where further runs came, or settings changed."""
    lock_boards([rescore.dataset_id])
    note_progress(rescore)
    dataset = Dataset.objects.get(pk=rescore.dataset_id)
    if rescore.done < rescore.total or settings_of(dataset) != settings:
        return False
    kept = {"settings": settings, **content.as_dict()}
    evaluating = Rescore.objects.filter(pk=rescore.pk, state=State.EVALUATING)
    evaluating.update(state=State.READY, content=kept)
    return True
