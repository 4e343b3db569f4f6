"""Tiny collections in BEIR layout, written to disk, whole or with one thing wrong."""

from __future__ import annotations

import gzip
import json
import zipfile
from collections.abc import Mapping
from pathlib import Path

HEADER = "query-id\tcorpus-id\tscore\n"


def lines_of(records: list[dict[str, str]]) -> str:
    """The records as JSON lines."""
    return "".join(json.dumps(record) + "\n" for record in records)


def good_files() -> dict[str, str]:
    """Five documents (one empty), three queries, graded judgements with one negative grade; also a train split."""
    documents = [{"_id": f"d{n}", "title": f"Title {n}", "text": f"words of document {n}"} for n in range(1, 5)]
    documents.append({"_id": "d5", "title": "", "text": ""})
    queries = [{"_id": f"q{n}", "text": f"query number {n}"} for n in range(1, 4)]
    return {
        "corpus.jsonl": lines_of(documents),
        "queries.jsonl": lines_of(queries),
        "qrels/test.tsv": HEADER + "q1\td1\t2\nq1\td2\t1\nq2\td3\t1\nq2\td4\t-1\nq2\td5\t0\n",
        "qrels/train.tsv": HEADER + "q3\td4\t1\n",
    }


def write_folder(folder: Path, changes: Mapping[str, str | None] = {}, *, compressed: bool = False) -> Path:
    """The good collection in `folder`, with other contents for some files, or without them (None)."""
    for name, content in {**good_files(), **changes}.items():
        if content is None:
            continue
        path = folder / (name + ".gz" if compressed else name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(gzip.compress(content.encode()) if compressed else content.encode())
    return folder


def write_zip(path: Path, changes: Mapping[str, str | None] = {}, root: str = "tiny/") -> Path:
    """The same as a zip, in one folder as BEIR packs it, with the litter that zips come with."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("__MACOSX/._corpus.jsonl", "litter")
        archive.writestr(f"{root}README.md", "litter")
        for name, content in {**good_files(), **changes}.items():
            if content is not None:
                archive.writestr(root + name, content)
    return path
