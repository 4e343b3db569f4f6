"""Drawing a pool, and its files: for the scorer, since it reads judgements to leave out what is judged.

A pool is offered as CSV with texts, to be judged in a spreadsheet or a tool, and as TREC's lines to be filled in.
"""

import csv
import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson

from evaluation.collections.beir import read_corpus, read_queries
from evaluation.judgements.import_file import guard_cell
from evaluation.runs.pooling import draw_pool
from leaderboard.core.storage.runs import run_path
from leaderboard.core.storage.store import Area, local_path, put
from leaderboard.datasets.qrels import load_qrels, scoring_target
from leaderboard.judgements.disclosure import record_compared
from leaderboard.judgements.pools import JudgingRefused
from leaderboard.models import Pool
from leaderboard.results.pooled import runs_of

COLUMNS = ("item", "query_id", "query", "document_id", "title", "text", "grade")
#: The longest text of a cell: spreadsheets hold 32,767 characters in one.
LONGEST_TEXT = 30_000
#: What stands for a grade in TREC's lines until somebody judged: everywhere here a negative grade is none.
UNJUDGED = "-1"

Pairs = Sequence[tuple[str, str]]
Texts = Callable[[str], tuple[str, str]]


def draw(pool: Pool, folder: Path, progress: Callable[[float], None]) -> dict[str, Any]:
    """Draw the pool from its runs, store its files, and return the columns of its row; `folder` is for scratch.

    Only the topics are drawn, as only they are scored. Runs are read half the time, the corpus the other half.
    Within `audit.acting`: that hidden judgements are compared is recorded before they are read. Raises
    evaluation.runs.pooling.PoolTooLarge, and JudgingRefused where runs are gone.
    """
    dataset, version = pool.dataset, pool.version
    if gone := sorted({str(run.system) for run in runs_of(pool) if not run_path(run.sha256).exists()}):
        raise JudgingRefused(
            f"Runs of {', '.join(gone)} are no longer stored: restore them from a backup, or draw a pool without them."
        )
    qrels = dataset.current_qrels if dataset.current_version_id == version.pk else None
    record_compared(pool, dataset, qrels)
    target = replace(scoring_target(version), qrels=load_qrels(qrels) if qrels is not None else None)
    # In the order of their bytes' names, so that nothing depends on which was asked for first.
    paths = [run_path(key) for key in sorted(set(pool.runs.values_list("sha256", flat=True)))]
    seed = secrets.randbits(64)
    drawn = draw_pool(
        paths, target, depth=pool.depth, seed=seed, progress=lambda share: progress(0.5 * share)
    )
    pooled, wanted = {query for query, _ in drawn.pairs}, {document for _, document in drawn.pairs}
    topics = read_queries(local_path(Area.FILES, version.topics_sha256))
    asked = {query.id: _cut(query.text) for query in topics if query.id in pooled}
    corpus = local_path(Area.FILES, version.corpus_sha256) if version.corpus_sha256 else None
    table, lines = folder / "pool.csv", folder / "pool.qrels"
    with texts_of_documents(corpus, wanted, folder, lambda share: progress(0.5 + 0.5 * share)) as texts:
        write_csv(drawn.pairs, table, str(pool.pk), asked, texts)
    with lines.open("w", encoding="utf-8", newline="\n") as file:  # -1 is to be replaced by grades
        file.writelines(f"{query} 0 {document} {UNJUDGED}\n" for query, document in drawn.pairs)
    return {
        "qrels": qrels,
        "files": {"csv": put(Area.CURATION, table), "trec": put(Area.CURATION, lines)},
        "statistics": {**drawn.statistics(), "runs": len(drawn.by_run), "texts": corpus is not None},
    }


def record_pool(pool: Pool, columns: dict[str, Any]) -> None:
    """Store the columns of a pool that was drawn."""
    drawing = Pool.objects.filter(pk=pool.pk, state=Pool.State.DRAWING)
    drawing.update(state=Pool.State.READY, **columns)


def write_csv(pairs: Pairs, target: Path, prefix: str, queries: dict[str, str], texts: Texts) -> None:
    """One row a pair (RFC 4180, UTF-8 with a byte order mark, which spreadsheets need). `grade` is empty.

    `prefix` begins the items' numbers, which tell nothing. Cells that a spreadsheet would run begin with `'`
    (evaluation.judgements.import_file.guard_cell).
    """
    with target.open("w", encoding="utf-8-sig", newline="") as file:
        writer = csv.writer(file, lineterminator="\r\n")
        writer.writerow(COLUMNS)
        for number, (query, document) in enumerate(pairs, 1):
            title, text = texts(document)
            cells = (query, queries.get(query, ""), document, title, text)
            writer.writerow([f"{prefix}-{number:06}", *map(guard_cell, cells), ""])


@contextmanager
def texts_of_documents(
    corpus: Path | None, wanted: set[str], folder: Path, progress: Callable[[float], None]
) -> Iterator[Texts]:
    """Title and text of a document by its id, both empty where the corpus is not here.

    The corpus is read once, as a stream; what is wanted of it waits in a file, so that memory is the ids' alone.
    """
    if corpus is None:
        yield lambda document: ("", "")
        return
    places: dict[str, tuple[int, int]] = {}
    with (folder / "texts").open("w+b") as file:
        end = 0
        for document in read_corpus(corpus, progress):
            if document.id in wanted:
                length = file.write(orjson.dumps([_cut(document.title), _cut(document.text)]))
                places[document.id] = (end, length)
                end += length

        def read(name: str) -> tuple[str, str]:
            if name not in places:
                return "", ""
            start, length = places[name]
            file.seek(start)
            title, text = orjson.loads(file.read(length))
            return title, text

        yield read


def _cut(text: str) -> str:
    text = text.replace("\0", " ")
    return text if len(text) <= LONGEST_TEXT else f"{text[:LONGEST_TEXT].rstrip()} …"
