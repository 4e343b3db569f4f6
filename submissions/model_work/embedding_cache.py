"""Keep what embeddings take on disk within its bound: what was used longest ago goes first, what is in use stays."""

from __future__ import annotations

import logging
import shutil

from django.conf import settings
from django.db import transaction
from django.db.models import Sum

from submissions.model_work.embedding_files import last_used, old_folders, remove_embeddings
from submissions.models import TERMINAL, Encoding

logger = logging.getLogger(__name__)


def sweep_embeddings() -> int:
    """Remove folders that no row names, and whole encodings beyond `EMBEDDINGS_CACHE_BYTES`; returns how many."""
    count = _sweep_unnamed()
    sizes = dict(Encoding.objects.annotate(size=Sum("shards__size")).values_list("key", "size"))
    total = sum(size or 0 for size in sizes.values())
    for key in sorted(sizes, key=last_used):
        if total <= settings.EMBEDDINGS_CACHE_BYTES:
            break
        if _remove(key):
            total -= sizes[key] or 0
            count += 1
    if count:
        logger.info("swept the embeddings of %s encodings", count)
    return count


def _sweep_unnamed() -> int:
    named = set(Encoding.objects.values_list("key", flat=True))
    unnamed = [folder for folder in old_folders() if folder.name not in named]
    for folder in unnamed:
        shutil.rmtree(folder, ignore_errors=True)
    return len(unnamed)


@transaction.atomic
def _remove(key: str) -> bool:
    """Forget the encoding and delete its files, unless a job uses it, waits for it, or makes a part of it."""
    encoding = Encoding.objects.select_for_update().filter(key=key).first()
    if encoding is None or encoding.waiting_jobs.exists():
        return False
    if encoding.shards.filter(job__isnull=False).exclude(job__state__in=TERMINAL).exists():
        return False
    encoding.delete()
    remove_embeddings(key)
    return True
