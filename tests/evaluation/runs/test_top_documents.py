"""The first documents of a run, and the beginnings of documents, from files made for pages."""

from __future__ import annotations

import gzip
import json
import random
from pathlib import Path

import pytest

from evaluation.collections.excerpts import EXCERPT_CHARACTERS, DocumentTexts, write_document_texts
from evaluation.core.order import trec_order
from evaluation.judgements.qrels import Qrels
from evaluation.runs.score import ScoringTarget, score_run
from evaluation.runs.top_documents import (
    STORED_DEPTH,
    TopDocuments,
    displayed_documents,
    sort_by_query,
    write_top_documents,
)


def _top(tmp_path: Path, text: str) -> TopDocuments:
    run, target = tmp_path / "run", tmp_path / "top"
    run.write_bytes(text.encode())
    write_top_documents(run, target)
    return TopDocuments(target)


def test_the_first_documents_are_those_of_trec_eval_whatever_the_order_of_lines(tmp_path: Path) -> None:
    random.seed(7)
    judged: dict[str, dict[str, float]] = {}
    lines = []
    for query in ("10", "9", "q/1", "ä", "q"):
        scores = {f"d{number}": random.choice([1.0, 1.00000001, 0.5, random.random()]) for number in range(60)}
        judged[query] = scores
        lines += [f"{query} Q0 {name} 1 {score!r} tag" for name, score in scores.items()]
    random.shuffle(lines)
    top = _top(tmp_path, "# a comment\n" + "\n".join(lines))
    for query, scores in judged.items():
        ids = list(scores)
        wanted = [ids[place] for place in trec_order(ids, list(scores.values()))][:STORED_DEPTH]
        assert top.get_documents(query) == wanted
    assert top.get_documents("nobody") == top.get_documents("") == top.get_documents("zzz") == []
    assert {query for query, _ in top} == set(judged)


@pytest.mark.parametrize("size", [1, 40_000])
def test_scoring_a_run_finds_the_first_documents_of_the_dataset_s_queries(tmp_path: Path, size: int) -> None:
    generator = random.Random(size)
    queries = [f"q{number}" for number in range(7)] + ["é" * 40]
    names = [f"d{number}" for number in range(max(2, size // 8))]
    run = {
        query: {name: generator.choice([3.0, 2.00000001, generator.random()]) for name in names}
        for query in [*queries, "unknown"]
    }
    lines = [f"{query} Q0 {name} 1 {score!r} t" for query, found in run.items() for name, score in found.items()]
    target = ScoringTarget(Qrels.from_dict({"q1": {"d1": 1}}), queries, drop_self_matches=True)
    for order in ("grouped", "shuffled"):
        if order == "shuffled":
            generator.shuffle(lines)
        path = tmp_path / order
        path.write_text("\n".join(lines))
        scored = score_run(path, target, ["RR"], first_documents=STORED_DEPTH)
        (tmp_path / "top").write_bytes(sort_by_query(scored.first_documents))
        found = dict(TopDocuments(tmp_path / "top"))
        assert found == {
            query: [names[place] for place in trec_order(names, [run[query][name] for name in names])][:STORED_DEPTH]
            for query in queries
        }
    assert score_run(path, target, ["RR"]).first_documents == b""


def test_a_run_of_one_line_and_one_of_none(tmp_path: Path) -> None:
    assert _top(tmp_path, "q Q0 d 1 2.5 tag\n").get_documents("q") == ["d"]
    empty = tmp_path / "nothing"
    empty.touch()
    assert TopDocuments(empty).get_documents("q") == []
    assert list(TopDocuments(empty)) == []


def test_a_document_that_is_its_query_leaves_its_place_to_another() -> None:
    documents = ["a", "q", "b", "c"]
    assert displayed_documents(documents, "q", depth=3, drop_self_matches=True) == ["a", "b", "c"]
    assert displayed_documents(documents, "q", depth=3, drop_self_matches=False) == ["a", "q", "b"]


@pytest.mark.parametrize("compressed", [False, True])
def test_documents_are_found_by_id_with_title_and_beginning(tmp_path: Path, compressed: bool) -> None:
    documents = [
        {"_id": f"d{number}", "title": f"Title {number}", "text": f"words  of {number}\n" + "x" * number}
        for number in range(900)
    ]
    content = "".join(json.dumps(document) + "\n" for document in documents).encode()
    corpus, target = tmp_path / "corpus.jsonl", tmp_path / "texts"
    corpus.write_bytes(gzip.compress(content) if compressed else content)
    write_document_texts(corpus, target)
    texts = DocumentTexts(target)
    assert len(texts) == 900
    found = texts.find(["d0", "d899", "d5", "missing"])
    assert set(found) == {"d0", "d899", "d5"}
    assert found["d5"] == ("Title 5", "words of 5 xxxxx", False)
    assert found["d899"].cut
    assert len(found["d899"].text) <= EXCERPT_CHARACTERS


def test_an_empty_corpus_and_another_file(tmp_path: Path) -> None:
    corpus, target = tmp_path / "corpus.jsonl", tmp_path / "texts"
    corpus.touch()
    write_document_texts(corpus, target)
    assert DocumentTexts(target).find(["d1"]) == {}
    target.write_bytes(b"x" * 100)
    with pytest.raises(ValueError, match="not a file of document excerpts"):
        DocumentTexts(target)
