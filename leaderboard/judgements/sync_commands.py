"""What the scorer does for pools and judgements, done at once: for commands, which have no queue to wait in."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from django.conf import settings
from django.db import transaction

from evaluation.judgements.merge import Comparison, compare
from leaderboard.judgements.comparing import (
    compare_import,
    merge_import,
    present_grades,
    record_comparison,
    record_merge,
)
from leaderboard.judgements.drawing import draw, record_pool
from leaderboard.judgements.imports import check_judgements
from leaderboard.models import Dataset, JudgementImport, Pool


@contextmanager
def scratch() -> Iterator[Path]:
    """A folder that only we can read, gone at the end."""
    work = Path(settings.VAR) / "work"
    work.mkdir(parents=True, exist_ok=True, mode=0o700)
    with tempfile.TemporaryDirectory(dir=work, prefix="judging-") as folder:
        yield Path(folder)


def draw_now(pool: Pool) -> None:
    """Draw a pool that was asked for. A scorer that comes to it meanwhile finds it drawn."""
    with scratch() as folder:
        record_pool(pool, draw(pool, folder, lambda share: None))
    pool.refresh_from_db()


def try_judgements(dataset: Dataset, path: Path, *, scale_grew: bool = False) -> Comparison:
    """What a file would bring, with nothing stored. Raises as `imports.check_judgements`."""
    found = check_judgements(dataset, path, scale_grew=scale_grew)
    return compare(present_grades(dataset.current_qrels), found.grades)


def compare_now(brought: JudgementImport) -> None:
    """Compare judgements that were brought."""
    with scratch() as folder:
        record_comparison(brought, compare_import(brought, folder))
    brought.refresh_from_db()


def merge_now(brought: JudgementImport) -> str:
    """Merge judgements whose merge was asked for; what came of it, in words. Within `audit.acting`."""
    with scratch() as folder:
        merged = merge_import(brought, folder)
        with transaction.atomic():
            said = record_merge(brought, merged)
    brought.refresh_from_db()
    return said
