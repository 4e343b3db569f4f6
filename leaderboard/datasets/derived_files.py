"""Small files derived from runs and corpora to speed up pages. Only this module writes them.

The worker creates them after it has scored a run with open judgments. If they are missing (the dataset was opened
later, or an older release imported it), a page creates those that are quick to compute, and omits the others until
`manage.py prepare_query_pages` is run.
"""

import hashlib
import logging
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from pathlib import Path

from evaluation.collections.excerpts import DocumentTexts, write_document_texts
from evaluation.core.problems import InvalidContent
from evaluation.judgements.qrels import read_excluded
from evaluation.runs.top_documents import TopDocuments, sort_by_query, write_top_documents
from leaderboard.core.storage.runs import run_path
from leaderboard.core.storage.store import Area, atomic_write, local_path, path_of
from leaderboard.models import Dataset, Run, Visibility

logger = logging.getLogger(__name__)

#: Size limits for creation by a page: such a run (half a million lines) takes half a second, such a corpus two.
QUICK_RUN_BYTES = 32 * 2**20
QUICK_CORPUS_BYTES = 16 * 2**20

_top_documents = lru_cache(maxsize=128)(TopDocuments)
_excerpts = lru_cache(maxsize=8)(DocumentTexts)


def top_documents_path(run: str, excluded: str = "") -> Path:
    """Return the path of a run's top documents, which may not exist yet.

    Both arguments are SHA-256 checksums: of the run, and of the documents excluded from rankings
    (`DatasetVersion.excluded_sha256`).
    """
    name = hashlib.sha256(f"{run} {excluded}".encode()).hexdigest() if excluded else run
    return path_of(Area.TOP_DOCUMENTS, name)


def top_documents(run: Run, excluded: str = "") -> TopDocuments | None:
    """Return the top documents per query of a stored run, creating them if that is quick.

    Returns None if they are missing and the run is large or creation fails.
    """
    path = top_documents_path(run.sha256, excluded)
    if not path.exists() and (run.size > QUICK_RUN_BYTES or not _try_create(lambda: prepare_run(run.sha256, excluded))):
        return None
    return _top_documents(path)


def excerpts(dataset: Dataset) -> DocumentTexts | None:
    """Return titles and beginnings of the dataset's documents, creating them if that is quick.

    Returns None if the documents are not public or not stored, or if excerpts are missing and the corpus is large.
    """
    version = dataset.current_version
    if not _shows_documents(dataset) or version is None:
        return None
    path = path_of(Area.EXCERPTS, version.corpus_sha256)
    if not path.exists():
        corpus = local_path(Area.FILES, version.corpus_sha256)
        if not corpus.exists() or corpus.stat().st_size > QUICK_CORPUS_BYTES:
            return None
        if not _try_create(lambda: prepare_corpus(version.corpus_sha256)):
            return None
    return _excerpts(path)


def _shows_documents(dataset: Dataset) -> bool:
    """Return whether the dataset's documents are public and stored."""
    return bool(
        dataset.documents_visibility == Visibility.PUBLIC
        and not dataset.runs_only
        and dataset.current_version is not None
        and dataset.current_version.corpus_sha256
    )


def keep_first_documents(documents_by_run: Mapping[str, bytes], excluded: str = "") -> None:
    """Store the top documents of runs, by run checksum, as computed during scoring; existing ones do not change.

    This is an alternative to `prepare_run`. Errors are only logged, because results do not depend on these files.
    """
    for sha256, documents in documents_by_run.items():
        target = top_documents_path(sha256, excluded)
        if not documents or target.exists():
            continue
        try:
            with atomic_write(target) as file:
                file.write_bytes(sort_by_query(documents))
        except OSError as error:
            logger.warning("could not create derived files: %s", error)


def lacks_excerpts(dataset: Dataset) -> bool:
    """Return whether pages show the dataset's documents, but excerpts are missing."""
    version = dataset.current_version if not dataset.hidden and _shows_documents(dataset) else None
    return version is not None and not path_of(Area.EXCERPTS, version.corpus_sha256).exists()


def prepare_files(dataset: Dataset, runs: Iterable[str] = ()) -> None:
    """Create missing derived files of a dataset with open judgments, and of runs by their checksums.

    Does nothing if judgments are hidden. Errors are only logged, because results do not depend on these files.
    """
    if dataset.hidden:
        return
    version = dataset.current_version
    excluded = version.excluded_sha256 if version else ""
    for sha256 in runs:
        _try_create(lambda sha256=sha256: prepare_run(sha256, excluded))  # type: ignore[misc]
    if version is not None and _shows_documents(dataset):
        _try_create(lambda: prepare_corpus(version.corpus_sha256))


def prepare_run(sha256: str, excluded: str = "") -> None:
    """Store the top documents per query of a stored run unless they exist.

    Raises FileNotFoundError for an unknown run.
    """
    target = top_documents_path(sha256, excluded)
    if not target.exists():
        excluded_documents = read_excluded(local_path(Area.FILES, excluded)) if excluded else None
        with atomic_write(target) as file:
            write_top_documents(run_path(sha256), file, excluded_documents)


def prepare_corpus(sha256: str) -> None:
    """Store the excerpts of a stored corpus unless they exist. Raises FileNotFoundError for an unknown corpus."""
    target = path_of(Area.EXCERPTS, sha256)
    if not target.exists():
        with atomic_write(target) as file:
            write_document_texts(local_path(Area.FILES, sha256), file)


def _try_create(make: Callable[[], None]) -> bool:
    """Call `make`; log an error of files or content, and return whether there was none."""
    try:
        make()
    except (OSError, ValueError, InvalidContent) as error:
        logger.warning("could not create derived files: %s", error)
        return False
    return True
