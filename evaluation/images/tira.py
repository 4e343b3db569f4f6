"""Folders, variables, and placeholders of TIRA and TIREx, whose images run unchanged, and BEIR's layout.

Sources: tira-io/tira, `python-client/tira/third_party_integrations.py` and `ir_datasets_util.py`.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from html import escape
from pathlib import Path
from typing import Any, BinaryIO

from isal import igzip

from evaluation.collections.beir import Document, Query, read_corpus, read_queries
from evaluation.engines.first_stage import StoredRun, Texts, store_texts

#: Paths in an image of the input, the output, and the same collection in BEIR's layout.
INPUT, OUTPUT, BEIR = "/tira-data/input", "/tira-data/output", "/tira-data/beir"
#: Environment variables of an image. The placeholders are included, because shells expand them as variables.
VARIABLES: Mapping[str, str] = {
    **dict.fromkeys(("TIRA_INPUT_DATASET", "TIRA_INPUT_DIRECTORY", "inputDataset"), INPUT),
    **dict.fromkeys(("TIRA_OUTPUT_DIR", "TIRA_OUTPUT_DIRECTORY", "outputDir"), OUTPUT),
    "RUNBOARD_BEIR": BEIR,
}
#: Accepted file names for the run in an image's output folder.
RUN_NAMES = ("run.txt", "run.txt.gz")
_open_gzip: Callable[..., BinaryIO] = igzip.open
#: Number of documents of the run to re-rank, per query.
_DEPTH = 1000


def fill_placeholders(words: Iterable[str]) -> tuple[str, ...]:
    """Return the words of a command with `$inputDataset` and `$outputDir` replaced."""
    return tuple(word.replace("$inputDataset", INPUT).replace("$outputDir", OUTPUT) for word in words)


def write_inputs(
    corpus: Path, queries: Path, run: Path | None, folder: Path, progress: Callable[[float], None]
) -> None:
    """Write the collection to `input` and `beir` in the empty `folder`.

    Args:
        corpus: Documents, as for engines.
        queries: Queries, as for engines.
        run: Run to re-rank, or None for retrieval.
        folder: Folder for both layouts and temporary files.
        progress: Callback for the share of the corpus that was read. It may raise an exception to stop.
    """
    tira, beir = folder / "input", folder / "beir"
    tira.mkdir()
    beir.mkdir()
    topics = list(read_queries(queries))
    _write_lines(tira / "queries.jsonl", map(_tira_query, topics))
    _write_lines(beir / "queries.jsonl", ({"_id": query.id, "text": query.text} for query in topics))
    (tira / "queries.xml").write_text(_topics(topics), encoding="utf-8")
    documents: Iterable[Document] = read_corpus(corpus, progress)
    texts_folder = folder / "texts"
    if run is not None:
        documents = store_texts(documents, texts_folder)
    with ExitStack() as files:
        names = (tira / "documents.jsonl", beir / "corpus.jsonl")
        plain, beir_file = (files.enter_context(name.open("wb")) for name in names)
        packed = files.enter_context(_open_gzip(tira / "documents.jsonl.gz", "wb", compresslevel=1))
        for document in documents:
            line = _json(_tira_document(document))
            plain.write(line)
            packed.write(line)
            beir_file.write(_json({"_id": document.id, "title": document.title, "text": document.text}))
    (tira / "corpus.jsonl.gz").hardlink_to(tira / "documents.jsonl.gz")
    if run is not None:
        _write_lines(tira / "rerank.jsonl", _candidates(run, topics, Texts(texts_folder), folder / "run"))
        (tira / "rerank.jsonl.gz").write_bytes(igzip.compress((tira / "rerank.jsonl").read_bytes(), 1))


def _candidates(run: Path, topics: Iterable[Query], texts: Texts, folder: Path) -> Iterator[dict[str, Any]]:
    """Yield a record for each query and document of the run. Documents that are not in the corpus are omitted."""
    folder.mkdir()
    stored_run = StoredRun(run)
    stored_run.build((), folder)
    for query in topics:
        ranking = next(stored_run.search([query], _DEPTH))
        for rank, (identifier, score) in enumerate(zip(ranking.document_ids, ranking.scores.tolist(), strict=True), 1):
            number = texts.ids.find(identifier)
            if number >= 0:
                yield {**_tira_query(query), **_tira_document(texts[number]), "score": score, "rank": rank}


def _tira_query(query: Query) -> dict[str, Any]:
    return {"qid": query.id, "query": query.text, "original_query": {"query_id": query.id, "text": query.text}}


def _tira_document(document: Document) -> dict[str, Any]:
    original = {"doc_id": document.id, "title": document.title, "text": document.text}
    return {"docno": document.id, "text": document.title_and_text, "original_document": original}


def _topics(topics: Iterable[Query]) -> str:
    rows = (f'<topic number="{escape(query.id)}"><query>{escape(query.text)}</query></topic>\n' for query in topics)
    return f"<topics>\n{''.join(rows)}</topics>\n"


def _write_lines(path: Path, records: Iterable[Mapping[str, Any]]) -> None:
    with path.open("wb") as file:
        file.writelines(map(_json, records))


def _json(record: Mapping[str, Any]) -> bytes:
    return json.dumps(record, ensure_ascii=False).encode() + b"\n"
