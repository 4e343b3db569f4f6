"""Rank documents with bm25s, in the file layout of TIRA and TIREx."""

import gzip
import json
import os
from pathlib import Path

import bm25s
import Stemmer

source, target = Path(os.environ["TIRA_INPUT_DATASET"]), Path(os.environ["TIRA_OUTPUT_DIR"])
with gzip.open(source / "documents.jsonl.gz", "rt", encoding="utf-8") as file:
    documents = [json.loads(line) for line in file]
with (source / "queries.jsonl").open(encoding="utf-8") as file:
    queries = [json.loads(line) for line in file]

stemmer = Stemmer.Stemmer("english")
ids = [document["docno"] for document in documents]
index = bm25s.BM25(k1=0.9, b=0.4)
index.index(bm25s.tokenize([document["text"] for document in documents], stemmer=stemmer, show_progress=False))
tokens = bm25s.tokenize([query["query"] for query in queries], stemmer=stemmer, show_progress=False)
found, scores = index.retrieve(tokens, k=min(1000, len(ids)), show_progress=False)

with (target / "run.txt").open("w", encoding="utf-8") as run:
    for query, numbers, values in zip(queries, found, scores, strict=True):
        for rank, (number, score) in enumerate(zip(numbers, values, strict=True), 1):
            if score > 0:
                run.write(f"{query['qid']} Q0 {ids[number]} {rank} {score:.6f} bm25s\n")
