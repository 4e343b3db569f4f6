"""Drawing of pools and their files; runs in the scorer, because judged documents are omitted.

A pool is offered as CSV with texts, for spreadsheets and tools, and as qrels lines to be completed. Answers that lack
labels are offered as JSON Lines.
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
from leaderboard.datasets.qrels import load_labels, load_qrels, scoring_target
from leaderboard.judgements.disclosure import record_compared
from leaderboard.judgements.labels import collect_answers, count_unlabeled, find_unlabeled, write_unlabeled
from leaderboard.judgements.pools import JudgingRefused
from leaderboard.models import Pool
from leaderboard.results.pooled import get_pool_runs

COLUMNS = ("item", "query_id", "query", "document_id", "title", "text", "grade")
#: Maximum length of a cell in characters; spreadsheets allow 32,767.
LONGEST_TEXT = 30_000
#: Placeholder grade in qrels lines; negative grades mean unjudged everywhere.
UNJUDGED = "-1"

Pairs = Sequence[tuple[str, str]]
Texts = Callable[[str], tuple[str, str]]


def draw(pool: Pool, folder: Path, progress: Callable[[float], None]) -> dict[str, Any]:
    """Draw the pool from its runs, store its files, and return the columns of its row; `folder` is for temporary files.

    Only unjudged documents of the scored topics are drawn. Reading the runs is half of the progress, and reading the
    corpus is the other half. Call this within `audit.acting`: a comparison with hidden judgments is recorded before
    they are read.

    Raises:
        evaluation.runs.pooling.PoolTooLarge: For too many pairs.
        JudgingRefused: If runs are no longer stored.
    """
    dataset, version = pool.dataset, pool.version
    if missing_systems := sorted({str(run.system) for run in get_pool_runs(pool) if not run_path(run.sha256).exists()}):
        raise JudgingRefused(
            f"Runs of {', '.join(missing_systems)} are no longer stored: restore them from a backup, or draw a pool "
            "without them."
        )
    qrels = dataset.current_qrels if dataset.current_version_id == version.pk else None
    record_compared(pool, dataset, qrels)
    target = replace(scoring_target(version), qrels=load_qrels(qrels) if qrels is not None else None)
    # Sort by checksum, so that the pool does not depend on the order of the request.
    paths = [run_path(key) for key in sorted(set(pool.runs.values_list("sha256", flat=True)))]
    seed = secrets.randbits(64)
    drawn_pool = draw_pool(paths, target, depth=pool.depth, seed=seed, progress=lambda share: progress(0.5 * share))
    unlabeled = find_unlabeled(collect_answers(get_pool_runs(pool)), load_labels(qrels), qrels)
    pooled_documents = {document for _, document in drawn_pool.pairs}
    topics = read_queries(local_path(Area.FILES, version.topics_sha256))
    query_texts = {query.id: _truncate(query.text) for query in topics}
    corpus = local_path(Area.FILES, version.corpus_sha256) if version.corpus_sha256 else None
    csv_path, qrels_path = folder / "pool.csv", folder / "pool.qrels"
    with texts_of_documents(corpus, pooled_documents, folder, lambda share: progress(0.5 + 0.5 * share)) as texts:
        write_csv(drawn_pool.pairs, csv_path, str(pool.pk), query_texts, texts)
    with qrels_path.open("w", encoding="utf-8", newline="\n") as file:  # assessors replace -1 by grades
        file.writelines(f"{query} 0 {document} {UNJUDGED}\n" for query, document in drawn_pool.pairs)
    files = {"csv": put(Area.CURATION, csv_path), "trec": put(Area.CURATION, qrels_path)}
    if any(unlabeled.values()):
        write_unlabeled(unlabeled, query_texts, folder / "answers.jsonl")
        files["answers"] = put(Area.CURATION, folder / "answers.jsonl")
    return {
        "qrels": qrels,
        "files": files,
        "statistics": {
            **drawn_pool.statistics(),
            "runs": len(drawn_pool.by_run),
            "texts": corpus is not None,
            "unlabeled": count_unlabeled(unlabeled),
        },
    }


def record_pool(pool: Pool, columns: dict[str, Any]) -> None:
    drawing = Pool.objects.filter(pk=pool.pk, state=Pool.State.DRAWING)
    drawing.update(state=Pool.State.READY, **columns)


def write_csv(pairs: Pairs, target: Path, prefix: str, queries: dict[str, str], texts: Texts) -> None:
    """Write a CSV file with one row per pair: its number, query, document, and an empty `grade`.

    The format is RFC 4180, in UTF-8 with the byte order mark that spreadsheets need. `prefix` starts the item numbers,
    which carry no information. Cells that a spreadsheet would execute start with `'`
    (`evaluation.judgements.import_file.guard_cell`).
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
    corpus: Path | None, document_ids: set[str], folder: Path, progress: Callable[[float], None]
) -> Iterator[Texts]:
    """Yield a lookup of title and text by document id; both are empty if the corpus is not stored.

    The corpus is read once as a stream. The required texts are buffered in a file, so memory holds only their ids.
    """
    if corpus is None:
        yield lambda document: ("", "")
        return
    positions: dict[str, tuple[int, int]] = {}
    with (folder / "texts").open("w+b") as file:
        end = 0
        for document in read_corpus(corpus, progress):
            if document.id in document_ids:
                length = file.write(orjson.dumps([_truncate(document.title), _truncate(document.text)]))
                positions[document.id] = (end, length)
                end += length

        def read(name: str) -> tuple[str, str]:
            """Return the title and text of a document; both are empty if the corpus lacks it."""
            if name not in positions:
                return "", ""
            start, length = positions[name]
            file.seek(start)
            title, text = orjson.loads(file.read(length))
            return title, text

        yield read


def _truncate(text: str) -> str:
    text = text.replace("\0", " ")
    return text if len(text) <= LONGEST_TEXT else f"{text[:LONGEST_TEXT].rstrip()} …"
