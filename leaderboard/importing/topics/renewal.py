"""Renewal of rolling benchmarks: on schedule, a new batch of topics starts and the oldest hidden one is revealed."""

from datetime import datetime, timedelta
from pathlib import Path

from django.db import transaction
from django.db.models import Max, Q
from django.utils import timezone

from leaderboard.core.storage.store import Area, local_path, work_folder
from leaderboard.core.work_requests import request_work
from leaderboard.datasets.qrels import private_paths
from leaderboard.importing.collections.importer import import_dataset
from leaderboard.importing.collections.source import ImportOptions
from leaderboard.importing.topics.batches import draw_batch, read_library
from leaderboard.importing.topics.code_search import build_collection
from leaderboard.models import Dataset, TopicBatch, TopicSource, Visibility, WorkRequest
from leaderboard.results.board_rows.revisions import Kind, boards_changed, lock_boards

#: Settings that all batches share with the first dataset.
_COMMON_SETTINGS = (
    "task", "domain", "language", "licence", "homepage", "documents_visibility", "runs_visibility",
    "relevance_level", "drop_self_matches",
)  # fmt: skip


def request_due_renewals(now: datetime) -> None:
    """Request the renewals that are due at `now`, and schedule the next ones."""
    for source in TopicSource.objects.filter(enabled=True, next_at__lte=now):
        with transaction.atomic():
            # Another dispatcher may have done this since the query.
            rows = TopicSource.objects.filter(pk=source.pk, next_at=source.next_at)
            if rows.update(next_at=now + timedelta(days=source.interval_days)):
                request_renewal(source)


def request_renewal(source: TopicSource) -> int:
    """Request the start of the next batch, and return its number."""
    last_number = source.batches.exclude(started_at=None).aggregate(last=Max("number"))["last"] or 1
    dataset = source.dataset or _create_dataset(source.slug, source.name)
    if source.dataset is None:
        TopicSource.objects.filter(pk=source.pk).update(dataset=dataset)
    request_work(WorkRequest.Kind.RENEW, dataset, {"source": source.pk, "number": last_number + 1})
    return last_number + 1


def _create_dataset(slug: str, name: str) -> Dataset:
    return Dataset.objects.create(slug=slug, name=name, state=Dataset.State.PREPARING)


def renew(source: TopicSource, number: int) -> bool:
    """Start the batch with this number, and reveal the oldest hidden ones. Return False if it has already started.

    A new call continues an interrupted renewal: a batch is stored when it is drawn, and repeated imports of the same
    content change nothing.

    Raises:
        SourceExhausted: If there are no topics for another batch. Nothing is revealed then.
        InvalidContent: If the corpus or the topics cannot be imported.
    """
    first = _ensure_first_dataset(source)
    batch = source.batches.filter(number=number).first() or draw_batch(source, _corpus_path(first), number)
    if batch.started_at is not None:
        return False
    # Import the new batch first: if this fails, the oldest batch has to remain hidden.
    dataset = _import_hidden(batch, first)
    hidden_batches = source.batches.exclude(started_at=None).filter(revealed_at=None)
    for batch_to_reveal in list(hidden_batches)[: max(0, len(hidden_batches) + 1 - source.hidden_batches)]:
        _reveal(batch_to_reveal, first)
    _start_batch(batch, dataset)
    return True


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


def _corpus_path(dataset: Dataset) -> Path:
    """Return the path of a dataset's documents. Raises ValueError if it has none."""
    if dataset.current_version is None or not dataset.current_version.corpus_sha256:
        raise ValueError(f"{dataset} has no documents")
    return local_path(Area.FILES, dataset.current_version.corpus_sha256)


def _import(options: ImportOptions, first: Dataset, queries: Path, qrels: Path) -> None:
    """Import a batch over the corpus of the first one. The corpus is stored only once."""
    with work_folder("batch") as folder:
        (folder / "qrels").mkdir()
        (folder / "corpus.jsonl").symlink_to(_corpus_path(first))
        (folder / "queries.jsonl").symlink_to(queries)
        (folder / "qrels" / f"{options.split}.tsv").symlink_to(qrels)
        import_dataset(folder, options)


def _import_hidden(batch: TopicBatch, first: Dataset) -> Dataset:
    """Import a stored batch as a hidden dataset with sealed queries, and return the dataset."""
    if batch.dataset is None:
        with transaction.atomic():
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


def _start_batch(batch: TopicBatch, dataset: Dataset) -> None:
    """Start an imported batch: compare it with the newest revealed one, and request results of earlier models."""
    with transaction.atomic():
        without_twin = Q(dataset__twin=None) | Q(dataset__twin=dataset)
        newest_batch = batch.source.batches.filter(without_twin).exclude(revealed_at=None).order_by("number").last()
        _set_twin(dataset, newest_batch.dataset if newest_batch else None)
        rows = TopicBatch.objects.filter(pk=batch.pk, started_at=None)
        if rows.update(started_at=timezone.now(), queries_sha256="", qrels_sha256=""):
            datasets = list(batch.source.batches.exclude(dataset=None).values_list("dataset", flat=True))
            request_work(WorkRequest.Kind.REPEAT, dataset, {"datasets": datasets})


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
    _import(options, first, queries, *private_paths(dataset.current_qrels.sha256))
    TopicBatch.objects.filter(pk=batch.pk, revealed_at=None).update(revealed_at=timezone.now())


@transaction.atomic
def _set_twin(hidden: Dataset, open_half: Dataset | None) -> None:
    """Set the open half with which boards compare a hidden dataset. None unlinks the two."""
    halves = [pk for pk in (hidden.pk, hidden.twin_of_id, open_half and open_half.pk) if pk]
    dataset = lock_boards(halves)[hidden.pk]
    dataset.twin_of = open_half
    dataset.save()
    boards_changed(halves, Kind.DESCRIPTION)
