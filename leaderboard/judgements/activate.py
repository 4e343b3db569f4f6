"""These judgements are now to be the dataset's: at once where nothing stands on others, else after a rescore."""

from __future__ import annotations

from django.db import transaction

from leaderboard.core import wakeup
from leaderboard.judgements import rescoring
from leaderboard.judgements.rescoring.content import Content, offer_with
from leaderboard.models import Dataset, DatasetVersion, Entry, Qrels, Rescore
from leaderboard.results.history.revisions import Kind, board_changed, lock_boards
from leaderboard.systems.baselines import request_baseline


@transaction.atomic
def adopt_qrels(dataset: Dataset, qrels: Qrels, note: str, content: Content | None = None) -> Rescore | None:
    """Make `qrels` the judgements that the dataset is scored on. Returns the rescore that this takes, if any.

    `note` is public: where they are from. First judgements are taken at once: everything that waits for them is scored
    then, and the dataset's BM25 is made. `content` is what they bring then (`rescoring.content.prepare_content`), where
    the caller does not see to that.
    Within `audit.acting`. Raises rescoring.RescoreUnderWay while another rescore is not decided, and ValueError for
    judgements of another version than the dataset's.
    """
    lock_boards([dataset.pk])
    present = Dataset.objects.select_related("current_qrels").get(pk=dataset.pk)
    if present.current_version_id != qrels.version_id:
        raise ValueError(f"{qrels} are not for the present version of {dataset}")
    if present.current_qrels_id == qrels.pk:
        return None
    if rescoring.is_needed(present, qrels):
        return rescoring.start(present, qrels, note)
    other = rescoring.under_way(present)
    if other is not None:
        raise rescoring.RescoreUnderWay(other)
    present.current_qrels = qrels
    if present.runs_only:
        present.state = Dataset.State.PUBLISHED
    present.save()
    if content is not None:
        offer_with(present, DatasetVersion.objects.get(pk=qrels.version_id), qrels, content)
    wakeup.ring()  # runs that waited for judgements may be scored
    baselines = Entry.objects.filter(dataset=present, is_baseline=True, evaluation__qrels=qrels)
    if not present.runs_only and not baselines.exists():
        request_baseline(present)
    board_changed(present, Kind.IMPORTED)
    dataset.refresh_from_db()
    return None
