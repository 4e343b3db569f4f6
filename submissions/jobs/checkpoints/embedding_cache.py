"""Keep what embeddings take within its bound: what was used longest ago goes first, what is in use stays.

A folder, the shared one or a host's own, has `EMBEDDINGS_CACHE_BYTES`; a bucket, which is everybody's, has
`EMBEDDINGS_STORAGE_BYTES`: no host with a small disk decides what the others find there.
"""

from __future__ import annotations

import logging
import shutil
import time
from contextlib import suppress

from django.conf import settings
from django.core.cache import cache
from django.db import transaction
from django.db.models import Sum

from submissions.jobs.checkpoints import embedding_files, embedding_storage
from submissions.jobs.checkpoints.embedding_files import (
    GRACE,
    is_remote,
    list_folders,
    list_old_folders,
    remove_embeddings,
)
from submissions.jobs.checkpoints.embedding_storage import remove_stored, stored_keys
from submissions.models import TERMINAL, Encoding, Job
from submissions.queue.queue import wake_worker
from submissions.sandbox.processes import size_of

logger = logging.getLogger(__name__)

#: Seconds between two sweeps of a storage elsewhere: by anybody, and by one process where the cache is away.
_PAUSE = 3600.0
_SWEPT = "embeddings-swept"
_swept_at = -_PAUSE


def sweep_embeddings() -> int:
    """Remove what no row names, and whole encodings beyond the bound; returns how many.

    A storage elsewhere is for workers that run models to sweep (`trim_cache`): one of them is woken.
    """
    if is_remote():
        wake_worker(Job.Queue.CPU)
        return 0
    return _sweep()


def trim_cache() -> None:
    """Sweep the storage elsewhere, if there is one, once an hour, and this machine's part of it. Logs what fails."""
    global _swept_at
    if not is_remote():
        return
    try:
        _trim_local_copies()
        if time.monotonic() - _swept_at >= _PAUSE:
            _swept_at = time.monotonic()
            if cache.add(_SWEPT, 1, _PAUSE):
                _sweep()
    except Exception:
        logger.exception("the embeddings could not be swept")


def _sweep() -> int:
    count = _sweep_unnamed_stored() if is_remote() else _sweep_unnamed_folders()
    sizes = dict(Encoding.objects.annotate(size=Sum("shards__size")).values_list("key", "size"))
    total = sum(size or 0 for size in sizes.values())
    bound = settings.EMBEDDINGS_CACHE_BYTES if not is_remote() else settings.EMBEDDINGS_STORAGE_BYTES or total
    if total > bound:
        for key in sorted(sizes, key=_last_used):
            if total <= bound:
                break
            if _remove(key):
                total -= sizes[key] or 0
                count += 1
    if count:
        logger.info("swept the embeddings of %s encodings", count)
    return count


def _last_used(key: str) -> float:
    return embedding_storage.last_used(key) if is_remote() else embedding_files.last_used(key)


def _sweep_unnamed_folders() -> int:
    named = set(Encoding.objects.values_list("key", flat=True))
    unnamed = [folder for folder in list_old_folders() if folder.name not in named]
    for folder in unnamed:
        shutil.rmtree(folder, ignore_errors=True)
    return len(unnamed)


def _sweep_unnamed_stored() -> int:
    named, limit = set(Encoding.objects.values_list("key", flat=True)), time.time() - GRACE
    unnamed = [key for key in stored_keys() if key not in named and embedding_storage.last_used(key) < limit]
    for key in unnamed:
        remove_stored(key)
    return len(unnamed)


def _trim_local_copies() -> None:
    """Remove this machine's copies of what no row names, and those beyond the bound. They can be brought again."""
    _sweep_unnamed_folders()
    sizes = {}
    for folder in list_folders():
        with suppress(FileNotFoundError):  # another worker of this host was quicker
            sizes[folder.name] = size_of([folder])
    total = sum(sizes.values())
    for key in sorted(sizes, key=embedding_files.last_used):
        if total <= settings.EMBEDDINGS_CACHE_BYTES:
            break
        with transaction.atomic():
            encoding = Encoding.objects.select_for_update().filter(key=key).first()
            if encoding is not None and not _is_in_use(encoding):
                remove_embeddings(key)
                total -= sizes[key]


def _remove(key: str) -> bool:
    """Forget the encoding and delete its files, unless it is in use, or will be."""
    with transaction.atomic():
        encoding = Encoding.objects.select_for_update().filter(key=key).first()
        if encoding is None or _is_in_use(encoding) or _is_wanted(encoding):
            return False
        encoding.delete()
        remove_embeddings(key)
    if is_remote():  # a shard that is made anew in this moment is missed, and made again, by whoever needs it
        remove_stored(key)
    return True


def _is_in_use(encoding: Encoding) -> bool:
    """Whether a job uses it, waits for it, or makes a part of it."""
    made = encoding.shards.filter(job__isnull=False).exclude(job__state__in=TERMINAL)
    return encoding.waiting_jobs.exists() or made.exists()


def _is_wanted(encoding: Encoding) -> bool:
    """Whether a job that has not ended is of the same model and corpus: it may be about to ask for it."""
    jobs = Job.objects.filter(
        submission__checkpoint__model_sha256=encoding.checkpoint.model_sha256,
        dataset__current_version__corpus_sha256=encoding.version.corpus_sha256,
    )
    return jobs.exclude(state__in=TERMINAL).exists()
