"""What pages read of runs and corpora: small files made of them once. The only writer of both.

The worker makes them when it has scored a run for open judgements. Where they are missing (a dataset was opened later,
or came with an older release), a page makes those that are quick to make, and does without the others until
`manage.py prepare_query_pages` was run.
"""

import hashlib
import logging
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from pathlib import Path

from evaluation.collections.excerpts import DocumentTexts, write_document_texts
from evaluation.core.problems import InvalidContent
from evaluation.judgements.qrels import read_excluded
from evaluation.runs.top_documents import TopDocuments, by_query, write_top_documents
from leaderboard.core.storage.runs import run_path
from leaderboard.core.storage.store import Area, atomic_write, local_path, path_of
from leaderboard.models import Dataset, Run, Visibility

logger = logging.getLogger(__name__)

#: What a page makes itself: a run of half a million lines takes half a second, such a corpus two.
QUICK_RUN_BYTES = 32 * 2**20
QUICK_CORPUS_BYTES = 16 * 2**20

_top_documents = lru_cache(maxsize=128)(TopDocuments)
_excerpts = lru_cache(maxsize=8)(DocumentTexts)


def top_documents_path(run: str, excluded: str = "") -> Path:
    """Where the first documents of a run lie, once they are found. Both are sha256s: of the run, and of the
    documents that are left out of rankings (`DatasetVersion.excluded_sha256`).
    """
    name = hashlib.sha256(f"{run} {excluded}".encode()).hexdigest() if excluded else run
    return path_of(Area.TOP_DOCUMENTS, name)


def top_documents(run: Run, excluded: str = "") -> TopDocuments | None:
    """Return the first documents of each query of a stored run; None where they would take too long to find now."""
    path = top_documents_path(run.sha256, excluded)
    if not path.exists() and (
        run.size > QUICK_RUN_BYTES or not _try_make(lambda: prepare_run(run.sha256, excluded))
    ):
        return None
    return _top_documents(path)


def excerpts(dataset: Dataset) -> DocumentTexts | None:
    """Titles and beginnings of the dataset's documents; None where they are not public, not here, or not prepared."""
    version = dataset.current_version
    if not _shows_documents(dataset) or version is None:
        return None
    path = path_of(Area.EXCERPTS, version.corpus_sha256)
    if not path.exists():
        corpus = local_path(Area.FILES, version.corpus_sha256)
        if not corpus.exists() or corpus.stat().st_size > QUICK_CORPUS_BYTES:
            return None
        if not _try_make(lambda: prepare_corpus(version.corpus_sha256)):
            return None
    return _excerpts(path)


def _shows_documents(dataset: Dataset) -> bool:
    """Whether pages show everyone what the documents say."""
    return bool(
        dataset.documents_visibility == Visibility.PUBLIC
        and not dataset.runs_only
        and dataset.current_version is not None
        and dataset.current_version.corpus_sha256
    )


def keep_first_documents(found: Mapping[str, bytes], excluded: str = "") -> None:
    """Write what scoring found of runs, by their sha256s, in place of `prepare_run`; nothing of those without any.

    A fault is logged and no more: results do not depend on it.
    """
    for sha256, first in found.items():
        target = top_documents_path(sha256, excluded)
        if not first or target.exists():
            continue
        try:
            with atomic_write(target) as file:
                file.write_bytes(by_query(first))
        except OSError as error:
            logger.warning("derived files were not made: %s", error)


def lacks_excerpts(dataset: Dataset) -> bool:
    """Whether pages show the dataset's documents, of which no excerpts were made yet."""
    version = dataset.current_version if not dataset.hidden and _shows_documents(dataset) else None
    return version is not None and not path_of(Area.EXCERPTS, version.corpus_sha256).exists()


def prepare_files(dataset: Dataset, runs: Iterable[str] = ()) -> None:
    """Make what pages need of a dataset with open judgements and of runs for it, by their sha256s.

    A fault is logged and no more: results do not depend on it.
    """
    if dataset.hidden:
        return
    version = dataset.current_version
    excluded = version.excluded_sha256 if version else ""
    for sha256 in runs:
        _try_make(lambda sha256=sha256: prepare_run(sha256, excluded))  # type: ignore[misc]
    if version is not None and _shows_documents(dataset):
        _try_make(lambda: prepare_corpus(version.corpus_sha256))


def prepare_run(sha256: str, excluded: str = "") -> None:
    """Find the first documents of each query of a stored run. Raises FileNotFoundError for an unknown one."""
    target = top_documents_path(sha256, excluded)
    if not target.exists():
        left_out = read_excluded(local_path(Area.FILES, excluded)) if excluded else None
        with atomic_write(target) as file:
            write_top_documents(run_path(sha256), file, left_out)


def prepare_corpus(sha256: str) -> None:
    """Write the excerpts of a stored corpus. Raises FileNotFoundError for an unknown one."""
    target = path_of(Area.EXCERPTS, sha256)
    if not target.exists():
        with atomic_write(target) as file:
            write_document_texts(local_path(Area.FILES, sha256), file)


def _try_make(make: Callable[[], None]) -> bool:
    try:
        make()
    except (OSError, ValueError, InvalidContent) as error:
        logger.warning("derived files were not made: %s", error)
        return False
    return True
