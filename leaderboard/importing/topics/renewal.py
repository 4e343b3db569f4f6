"""Renewal of rolling benchmarks: on schedule, a new batch of topics starts and the oldest hidden one is revealed."""

import logging
import secrets
from datetime import datetime, timedelta
from pathlib import Path

from django.db import transaction
from django.db.models import Max, Q
from django.utils import timezone

from leaderboard.core.storage.store import Area, local_path, work_folder
from leaderboard.core.text.slugs import first_unused
from leaderboard.core.work_requests import request_work
from leaderboard.datasets.qrels import private_paths
from leaderboard.importing.collections.importer import import_dataset
from leaderboard.importing.collections.source import ImportOptions
from leaderboard.importing.topics.batches import draw_batch, read_library
from leaderboard.importing.topics.code_search import build_collection
from leaderboard.models import (
    Dataset,
    DatasetVersion,
    Protection,
    Round,
    TopicBatch,
    TopicSource,
    Visibility,
    WorkRequest,
)
from leaderboard.results.board_rows.revisions import Kind, boards_changed, lock_boards

logger = logging.getLogger(__name__)

#: Time after which a scheduled renewal that has not started its batch is requested again.
RETRY_AFTER = timedelta(days=1)
#: Settings that all batches share with the first dataset.
_COMMON_SETTINGS = (
    "task", "domain", "language", "licence", "homepage", "documents_visibility", "runs_visibility",
    "relevance_level", "drop_self_matches",
)  # fmt: skip


class RenewalRefused(ValueError):
    """A batch is in use; the message names the batch, the reason, and what to do."""


def request_due_renewals(now: datetime) -> None:
    """Request the renewals that are due at `now`, again after `RETRY_AFTER` until the batch has started.

    A fault of one rolling benchmark is logged and does not prevent the others. The admin shows refused renewals.
    """
    for source in TopicSource.objects.filter(enabled=True, next_at__lte=now):
        try:
            with transaction.atomic():
                payload = {"source": source.pk, "number": _next_number(_lock_source(source.pk))}
                requests = WorkRequest.objects.filter(kind=WorkRequest.Kind.RENEW, created_at__gt=now - RETRY_AFTER)
                if not requests.filter(payload=payload).exists():
                    request_renewal(source)
        except RenewalRefused:
            continue
        except Exception:
            logger.exception("Fault %s in the schedule of %s", secrets.token_hex(4), source)


@transaction.atomic
def request_renewal(source: TopicSource) -> int:
    """Request the start of the next batch, and return its number.

    Raises RenewalRefused.
    """
    locked = _lock_source(source.pk)
    if locked.dataset is None:
        locked.dataset = _create_dataset(locked.slug, locked.name)
        TopicSource.objects.filter(pk=locked.pk).update(dataset=locked.dataset)
    number = _next_number(locked)
    _batches_to_reveal(locked, number)
    request_work(WorkRequest.Kind.RENEW, locked.dataset, {"source": locked.pk, "number": number})
    return number


def renewal_obstacle(source: TopicSource) -> str:
    """Return the reason why the next batch cannot start now, or empty text."""
    try:
        _batches_to_reveal(source, _next_number(source))
    except RenewalRefused as error:
        return str(error)
    return ""


def _lock_source(key: int) -> TopicSource:
    """Lock the row until the transaction ends, and return its present values. Boards must be locked before."""
    return TopicSource.objects.select_for_update(no_key=True).get(pk=key)


def _next_number(source: TopicSource) -> int:
    return (source.batches.exclude(started_at=None).aggregate(last=Max("number"))["last"] or 1) + 1


def _create_dataset(base: str, name: str) -> Dataset:
    """Create a dataset in preparation whose slug is `base`, or the next free one."""
    used_slugs = set(Dataset.objects.filter(slug__startswith=base).values_list("slug", flat=True))
    return Dataset.objects.create(slug=first_unused(base, used_slugs), name=name, state=Dataset.State.PREPARING)


def renew(source: TopicSource, number: int) -> bool:
    """Start the batch with this number, and reveal the oldest hidden ones. Return False if it has already started.

    A new call continues an interrupted renewal: a batch is stored when it is drawn, and repeated imports of the same
    content change nothing.

    Raises:
        SourceExhausted: If there are no topics for another batch. Nothing is revealed then.
        RenewalRefused: If the batch, or one to reveal, is in a round or competition. Nothing is revealed then.
        InvalidContent: If the corpus or the topics cannot be imported.
    """
    _batches_to_reveal(source, number)
    first = _ensure_first_dataset(source)
    batch = source.batches.filter(number=number).first() or draw_batch(source, _version(first), number)
    if batch.started_at is not None:
        return False
    # Import the new batch first: if this fails, the oldest batch has to remain hidden.
    dataset = _import_hidden(batch, first)
    with transaction.atomic():
        batches = _batches_to_reveal(_lock_source(source.pk), number)
    for batch_to_reveal in batches:
        _reveal(batch_to_reveal, first)
    return _start_batch(batch, dataset)


def _batches_to_reveal(source: TopicSource, number: int) -> list[TopicBatch]:
    """Return the earlier batches to reveal before batch `number` starts; none if another worker has started it.

    Raises RenewalRefused if one of these batches is in an unrevealed round or in a competition.
    """
    batch = source.batches.filter(number=number).select_related("dataset").first()
    if batch is not None and batch.started_at is not None:
        return []
    # A worker may be late: later batches must stay hidden.
    earlier_batches = source.batches.filter(number__lt=number, dataset__hidden=True).exclude(started_at=None)
    hidden_batches = list(earlier_batches.select_related("dataset"))
    batches = hidden_batches[: max(0, len(hidden_batches) + 1 - source.hidden_batches)]
    for row in [*batches, *([batch] if batch and batch.dataset else [])]:
        rounds = Round.objects.filter(Q(dataset=row.dataset) | Q(benchmark__members__dataset=row.dataset))
        if unrevealed_round := rounds.filter(revealed_at=None).first():
            raise RenewalRefused(f"{row} is in the round {unrevealed_round}. Reveal the results of the round first.")
        if row.dataset is not None and row.dataset.protection == Protection.COMPETITION:
            raise RenewalRefused(f"{row} is in a competition. Change its protection to standard first.")
    return batches


def add_batch(source: TopicSource, number: int, dataset: Dataset) -> None:
    """Add an existing dataset as a batch that has started, and is revealed if its judgments are open."""
    times = {"started_at": dataset.created_at, "revealed_at": None if dataset.hidden else dataset.created_at}
    TopicBatch.objects.get_or_create(source=source, number=number, defaults={"dataset": dataset, **times})


def _ensure_first_dataset(source: TopicSource) -> Dataset:
    """Return the open dataset of `source`, after creating it with the generator if it has no documents yet."""
    dataset = Dataset.objects.get(topic_source=source)
    if dataset.current_version is None:
        options = ImportOptions(slug=dataset.slug, name=source.name, task="Code search", hidden=False)
        with work_folder("batch") as folder:
            build_collection(folder, read_library(source.generator), source.batch_size)
            dataset = import_dataset(folder, options).dataset
    add_batch(source, 1, dataset)
    return dataset


def _version(dataset: Dataset) -> DatasetVersion:
    """Return a dataset's current version. Raises ValueError if it has no documents."""
    if dataset.current_version is None or not dataset.current_version.corpus_sha256:
        raise ValueError(f"{dataset} has no documents")
    return dataset.current_version


def _import(options: ImportOptions, corpus: Dataset, queries: Path, qrels: Path) -> None:
    """Import a batch over the documents of the dataset `corpus`. They are stored only once."""
    with work_folder("batch") as folder:
        (folder / "qrels").mkdir()
        (folder / "corpus.jsonl").symlink_to(local_path(Area.FILES, _version(corpus).corpus_sha256))
        (folder / "queries.jsonl").symlink_to(queries)
        (folder / "qrels" / f"{options.split}.tsv").symlink_to(qrels)
        import_dataset(folder, options)


def _import_hidden(batch: TopicBatch, first: Dataset) -> Dataset:
    """Import a stored batch as a hidden dataset with sealed queries, and return the dataset."""
    with transaction.atomic():
        _lock_source(batch.source_id)
        batch.refresh_from_db(fields=["dataset"])
        if batch.dataset is None:
            batch.dataset = _create_dataset(f"{batch.source.slug}-batch-{batch.number}", str(batch))
            batch.save(update_fields=["dataset"])
    description = (
        f"Batch {batch.number} of [{batch.source}]({batch.source.get_absolute_url()}), over the corpus of "
        f"[{first}]({first.get_absolute_url()})."
    )
    options = ImportOptions(
        slug=batch.dataset.slug, name=str(batch), hidden=True, queries_visibility=Visibility.CURATORS,
        primary=first.primary_measure, description=description,
        **{name: getattr(first, name) for name in _COMMON_SETTINGS},
    )  # fmt: skip
    _import(options, first, *private_paths(batch.queries_sha256, batch.qrels_sha256))
    return batch.dataset


@transaction.atomic
def _start_batch(batch: TopicBatch, dataset: Dataset) -> bool:
    """Start an imported batch: compare it with the newest revealed one, and request results of earlier models.

    A renewal that is due is scheduled again. Return False if another worker has started the batch.
    """
    lock_boards(batch.source.batches.exclude(dataset=None).values_list("dataset", flat=True))
    source, now = _lock_source(batch.source_id), timezone.now()
    rows = TopicBatch.objects.filter(pk=batch.pk, started_at=None)
    if not rows.update(started_at=now, queries_sha256="", qrels_sha256=""):
        return False
    without_twin = Q(dataset__twin=None) | Q(dataset__twin=dataset)
    open_batches = source.batches.filter(without_twin, dataset__hidden=False).exclude(started_at=None)
    newest_batch = open_batches.order_by("number").last()
    _set_twin(dataset, newest_batch.dataset if newest_batch else None)
    _request_repeats(batch)
    next_at = now + timedelta(days=source.interval_days)
    TopicSource.objects.filter(pk=source.pk, next_at__lte=now).update(next_at=next_at)
    return True


def request_missed_repeats(dataset: Dataset, created_at: datetime) -> None:
    """Request results on hidden batches that started during a job, which was created at `created_at` for `dataset`.

    Call this in the transaction that ends the job.
    """
    batches = TopicBatch.objects.filter(source__batches__dataset=dataset, started_at__gt=created_at)
    for batch in batches.filter(dataset__hidden=True).exclude(dataset=dataset):
        _request_repeats(batch)


def _request_repeats(batch: TopicBatch) -> None:
    """Request results on a batch of all models that succeeded on other batches."""
    datasets = batch.source.batches.exclude(dataset=None).values_list("dataset", flat=True)
    request_work(WorkRequest.Kind.REPEAT, batch.dataset, {"datasets": list(datasets)})


def _reveal(batch: TopicBatch, first: Dataset) -> None:
    """Open the judgments and queries of a hidden batch, so that it can be downloaded."""
    dataset = batch.dataset
    if dataset is None or dataset.current_version is None or dataset.current_qrels is None:
        raise ValueError(f"{batch} was not imported")
    _set_twin(dataset, None)
    queries = local_path(Area.FILES, dataset.current_version.queries_sha256)
    options = ImportOptions(
        slug=dataset.slug, name=str(batch), hidden=False, split=dataset.current_qrels.split,
        queries_visibility=first.queries_visibility,
    )  # fmt: skip
    # The first dataset may have other documents by now.
    _import(options, dataset, queries, *private_paths(dataset.current_qrels.sha256))
    TopicBatch.objects.filter(pk=batch.pk, revealed_at=None).update(revealed_at=timezone.now())


@transaction.atomic
def _set_twin(hidden: Dataset, open_half: Dataset | None) -> None:
    """Set the open half with which boards compare a hidden dataset. None unlinks the two."""
    halves = [pk for pk in (hidden.pk, hidden.twin_of_id, open_half and open_half.pk) if pk]
    dataset = lock_boards(halves)[hidden.pk]
    dataset.twin_of = open_half
    dataset.save()
    boards_changed(halves, Kind.DESCRIPTION)
