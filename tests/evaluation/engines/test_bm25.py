"""BM25: equal to a plain transcription of Lucene's formula, whatever the corpus, the fields and the shards."""

from __future__ import annotations

import gzip
import json
import math
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from evaluation.collections.beir import Document, Query
from evaluation.core.problems import InvalidContent
from evaluation.engines import (
    ENGINES,
    Engine,
    InvalidParameter,
    Resources,
    RetrievalTask,
    describe,
    retrieve,
)
from evaluation.engines.base import SearchResult
from evaluation.engines.bm25 import FIELDS
from evaluation.engines.index import kernels
from evaluation.engines.index.inverted_index import DECODED_LENGTHS, IndexBuilder, encode_lengths
from evaluation.engines.run_writing import run_lines
from evaluation.text import analyser_for
from tests.evaluation.real_collections import scores_of


def engine_with(**parameters: Any) -> Engine:
    description = ENGINES["bm25"]
    return description.create(description.complete(parameters), Resources())


def built(folder: Path, documents: Iterable[Document], **parameters: Any) -> Engine:
    engine = engine_with(**parameters)
    engine.build(documents, folder)
    return engine


def lucene_length(length: int) -> int:
    """SmallFloat.byte4ToInt(SmallFloat.intToByte4(length)), as it stands in Lucene."""
    if length < 24:
        return length
    rest = length - 24
    bits = rest.bit_length()
    return 24 + (rest if bits < 4 else rest >> (bits - 4) << (bits - 4))


def expected_ranking(
    documents: list[Document], query: str, depth: int, k1: float, b: float, fields: str
) -> list[tuple[str, float]]:
    """Lucene's BM25Similarity, transcribed: (document id, score), best first."""
    f = np.float32
    analyse = analyser_for("en")
    totals: dict[str, float] = {}
    for field in range(len(FIELDS[fields](documents[0]))):
        counts = {document.id: Counter(analyse(FIELDS[fields](document)[field])) for document in documents}
        with_field = sum(bool(count) for count in counts.values())
        mean = f(sum(count.total() for count in counts.values()) / max(with_field, 1))
        for term, boost in Counter(analyse(query)).items():
            frequency = sum(term in count for count in counts.values())
            idf = f(math.log(1 + (with_field - frequency + 0.5) / (frequency + 0.5)))
            weight = f(boost) * idf
            for name, count in counts.items():
                if term in count:
                    length = f(lucene_length(count.total()))
                    norm = f(1) / (f(k1) * ((f(1) - f(b)) + f(b) * length / mean))
                    score = weight - weight / (f(1) + f(count[term]) * norm)
                    totals[name] = totals.get(name, 0.0) + float(score)
    ranked = sorted((-f(total), name.encode()) for name, total in totals.items())[:depth]
    scores = scores_with_order([-score for score, _ in ranked])
    return [(name.decode(), score) for (_, name), score in zip(ranked, scores, strict=True)]


def scores_with_order(scores: list[np.float32]) -> list[float]:
    """Anserini's ScoreTiesAdjusterReranker, transcribed, and the six decimals of its runs."""
    f = np.float32
    adjusted: list[np.float32] = []
    tied = 0
    for score in scores:
        rounded = f(math.floor(float(score) * 10_000.0 + 0.5) / 10_000.0)
        tied = 0 if not adjusted or adjusted[-1] - rounded > f(1e-4) else tied + 1
        adjusted.append(rounded - f(1e-6) * f(tied))
    return [float(f(f"{score:.6f}")) for score in adjusted]


def as_pairs(ranking: SearchResult) -> list[tuple[str, float]]:
    return list(zip(ranking.document_ids, ranking.scores.tolist(), strict=True))


WORDS = st.lists(st.sampled_from(["apple", "pear", "plum", "the", "fig", "kiwi", "apples", "x_y"]), max_size=60).map(
    " ".join
)
DOCUMENTS = st.lists(
    st.builds(Document, id=st.text(alphabet="aZ09é-", min_size=1, max_size=4), title=WORDS, text=WORDS),
    min_size=1,
    max_size=30,
    unique_by=lambda document: document.id,
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    documents=DOCUMENTS,
    query=WORDS,
    depth=st.integers(1, 12),
    k1=st.sampled_from([0.9, 1.2, 0.0]),
    b=st.sampled_from([0.4, 0.75, 0.0, 1.0]),
    fields=st.sampled_from(list(FIELDS)),
)
def test_scores_and_order_are_lucenes(
    tmp_path_factory: pytest.TempPathFactory,
    documents: list[Document],
    query: str,
    depth: int,
    k1: float,
    b: float,
    fields: str,
) -> None:
    engine = built(tmp_path_factory.mktemp("index"), documents, k1=k1, b=b, fields=fields)
    (ranking,) = engine.search([Query("q", query)], depth)
    with np.errstate(divide="ignore"):
        expected = expected_ranking(documents, query, depth, k1, b, fields)
    assert as_pairs(ranking) == expected


def random_documents(count: int) -> list[Document]:
    random = np.random.default_rng(3)
    vocabulary = [f"w{number}" for number in range(500)]
    return [
        Document(f"d{number}", "", " ".join(random.choice(vocabulary, random.integers(1, 40))))
        for number in range(count)
    ]


@pytest.mark.parametrize("tokens_in_shard", [1, 500, 7_000])
def test_an_index_made_in_shards_is_the_index_made_at_once(tmp_path: Path, tokens_in_shard: int) -> None:
    documents = random_documents(300)
    folders = tmp_path / "once", tmp_path / "shards"
    for folder, tokens in zip(folders, (2**24, tokens_in_shard), strict=True):
        folder.mkdir()
        builder = IndexBuilder(folder, analyser_for("en"), fields=2, tokens_in_shard=tokens)
        for document in documents:
            builder.add(document.id, (document.id, document.text))
        builder.finish()
    names = sorted(path.name for path in folders[0].iterdir())
    assert names == sorted(path.name for path in folders[1].iterdir())
    for name in names:
        assert (folders[0] / name).read_bytes() == (folders[1] / name).read_bytes(), name


def test_more_documents_than_a_block_and_deeper_than_all_of_them(tmp_path: Path) -> None:
    documents = random_documents(20_000)
    engine = built(tmp_path, documents)
    query = Query("q", "w1 w2 w3 w3 w4 w5 w499")
    (everything,) = engine.search([query], 30_000)
    for depth in (1, 10, 700, 5_000):
        (ranking,) = engine.search([query], depth)
        assert as_pairs(ranking) == as_pairs(everything)[:depth]
    scores = [score for _, score in as_pairs(everything)]
    assert scores == sorted(scores, reverse=True)
    keys = everything.document_ids
    terms = {"w1", "w2", "w3", "w4", "w5", "w499"}
    assert len(keys) == sum(bool(terms & set(document.text.split())) for document in documents)


def test_equal_scores_are_in_ascending_byte_order_and_made_different(tmp_path: Path) -> None:
    ids = ["b", "a", "é", "z", "B", "10", "9"]
    engine = built(tmp_path, [Document(name, "", "same text") for name in ids])
    (ranking,) = engine.search([Query("q", "text")], 5)
    assert ranking.document_ids == ["10", "9", "B", "a", "b"]
    assert ranking.scores.tolist() == pytest.approx([0.034, 0.033999, 0.033998, 0.033997, 0.033996], abs=1e-8)


def test_nearly_equal_scores_keep_their_order() -> None:
    scores = np.array([2.08744, 2.08736, 2.08736, 1.6025, 0.00002, 0.00001], np.float32)
    kernels.write_order_into_scores(scores)
    assert scores.tolist() == pytest.approx([2.0874, 2.087399, 2.087398, 1.6025, 0.0, -0.000001], abs=2e-7)
    assert (np.diff(scores) < 0).all()


def test_pictographs_count_in_a_documents_length(tmp_path: Path) -> None:
    """Anserini 1.7.1 gives these scores."""
    engine = built(tmp_path, [Document("a", "", "aspirin ©"), Document("b", "", "aspirin")])
    (ranking,) = engine.search([Query("q", "aspirin")], 5)
    assert as_pairs(ranking) == [
        ("b", pytest.approx(0.1024, abs=1e-8)),
        ("a", pytest.approx(0.0903, abs=1e-8)),
    ]


def test_lengths_are_rounded_as_lucene_does() -> None:
    lengths = np.array([*range(3000), 10**5, 10**6 + 7, 2**31 - 1])
    assert DECODED_LENGTHS[encode_lengths(lengths)].tolist() == [lucene_length(int(n)) for n in lengths]


def test_very_long_words_are_cut_and_very_frequent_ones_counted(tmp_path: Path) -> None:
    engine = built(tmp_path, [Document("a", "", "y" * 300 + " z"), Document("b", "", "often " * 70_000)])
    results = engine.search([Query("1", "y" * 255), Query("2", "y" * 45), Query("3", "often"), Query("4", "no")], 5)
    assert [ranking.document_ids for ranking in results] == [["a"], ["a"], ["b"], []]


def test_a_corpus_without_a_word_is_searched_in_vain(tmp_path: Path) -> None:
    engine = built(tmp_path, [Document("a", "", ""), Document("b", "", "the")])
    assert [ranking.document_ids for ranking in engine.search([Query("q", "word")], 5)] == [[]]
    assert engine.documents == 2


# --- runs


@pytest.fixture
def collection(tmp_path: Path) -> tuple[Path, Path]:
    documents = [Document(f"d{number}", f"title {number}", "common " * number) for number in range(30)]
    corpus, queries = tmp_path / "corpus.jsonl", tmp_path / "queries.jsonl"
    corpus.write_text("".join(json.dumps({"_id": d.id, "title": d.title, "text": d.text}) + "\n" for d in documents))
    rows = [("d7", "common title 7"), ("q2", "title 3"), ("q3", "nothing matches")]
    queries.write_text("".join(json.dumps({"_id": name, "text": text}) + "\n" for name, text in rows))
    return corpus, queries


def lines_of(path: Path) -> list[list[str]]:
    return [line.split(" ") for line in path.read_text("utf-8").splitlines()]


def test_a_run_has_six_fields_ranks_from_one_and_scores_that_read_back(
    collection: tuple[Path, Path], tmp_path: Path
) -> None:
    done = retrieve(RetrievalTask("bm25", *collection, tmp_path / "run.txt", k=10))
    lines = lines_of(tmp_path / "run.txt")
    assert {line[0] for line in lines} == {"d7", "q2"}
    assert [line[3] for line in lines] == [str(rank) for rank in range(1, 11)] * 2
    assert {(line[1], line[5]) for line in lines} == {("Q0", "bm25")}
    scores = [np.float32(line[4]) for line in lines[:10]]
    assert scores == sorted(scores, reverse=True)
    assert (done.documents, done.queries, done.queries_without_results, done.lines) == (30, 3, 1, 20)
    assert done.analyser == "English, Porter"
    assert done.parameters["k1"] == 0.9
    assert done.index_bytes > 0


@given(score=st.floats(width=32, min_value=2.0**-100, max_value=2.0**100))
def test_every_score_reads_back_as_it_was(score: float) -> None:
    ranking = SearchResult("q", ["d"], np.array([score], np.float32))
    assert np.float32(run_lines(ranking, "tag").split()[4]) == np.float32(score)


def test_a_query_does_not_find_itself_when_so_asked(collection: tuple[Path, Path], tmp_path: Path) -> None:
    retrieve(RetrievalTask("bm25", *collection, tmp_path / "all.txt", k=30))
    retrieve(RetrievalTask("bm25", *collection, tmp_path / "others.txt", k=29, drop_self_matches=True))
    found = [line[2] for line in lines_of(tmp_path / "all.txt") if line[0] == "d7"]
    others = [line for line in lines_of(tmp_path / "others.txt") if line[0] == "d7"]
    assert [line[2] for line in others] == [document for document in found if document != "d7"]
    assert [line[3] for line in others] == [str(rank) for rank in range(1, 30)]


def test_excluded_documents_are_left_out_and_the_run_keeps_its_depth(
    collection: tuple[Path, Path], tmp_path: Path
) -> None:
    retrieve(RetrievalTask("bm25", *collection, tmp_path / "all.txt", k=30))
    found = [line[2] for line in lines_of(tmp_path / "all.txt") if line[0] == "q2"]
    (tmp_path / "excluded.tsv").write_text("".join(f"q2\t{name}\n" for name in found[:3]))
    retrieve(RetrievalTask("bm25", *collection, tmp_path / "run.txt", k=10, excluded=tmp_path / "excluded.tsv"))
    lines = [line for line in lines_of(tmp_path / "run.txt") if line[0] == "q2"]
    assert [line[2] for line in lines] == found[3:13]
    assert [line[3] for line in lines] == [str(rank) for rank in range(1, 11)]


def test_progress_goes_through_the_stages_and_may_stop_without_a_trace(
    collection: tuple[Path, Path], tmp_path: Path
) -> None:
    stages: list[str] = []
    out, work = tmp_path / "run.txt", tmp_path / "work"
    work.mkdir()
    retrieve(
        RetrievalTask("bm25", *collection, out, work_folder=work),
        progress=lambda stage, share: stages.append(stage),
    )
    assert list(dict.fromkeys(stages)) == ["loading", "indexing", "searching"]
    out.unlink()

    def stop(stage: str, share: float) -> None:
        if stage == "searching" and share > 0:
            raise InterruptedError

    with pytest.raises(InterruptedError):
        retrieve(RetrievalTask("bm25", *collection, out, work_folder=work), progress=stop)
    assert not list(work.iterdir())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["corpus.jsonl", "queries.jsonl", "work"]


def test_a_run_is_compressed_if_its_name_says_so(collection: tuple[Path, Path], tmp_path: Path) -> None:
    retrieve(RetrievalTask("bm25", *collection, tmp_path / "run.txt", tag="mine"))
    retrieve(RetrievalTask("bm25", *collection, tmp_path / "run.txt.gz", tag="mine"))
    assert gzip.decompress((tmp_path / "run.txt.gz").read_bytes()) == (tmp_path / "run.txt").read_bytes()


def test_a_corpus_with_duplicate_ids_is_refused(collection: tuple[Path, Path], tmp_path: Path) -> None:
    corpus, queries = collection
    corpus.write_text('{"_id": "a", "text": "x"}\n' * 2)
    with pytest.raises(InvalidContent, match="identifier"):
        retrieve(RetrievalTask("bm25", corpus, queries, tmp_path / "run.txt"))
    assert not (tmp_path / "run.txt").exists()


@pytest.mark.parametrize(
    ("engine", "parameters", "message"),
    [
        ("bm26", {}, "no engine 'bm26'. Available: bm25"),
        ("bm25", {"k2": 1}, "no parameter k2. Available: k1, b"),
        ("bm25", {"k1": "much"}, "k1 = 'much' is not valid; expected a number from 0 to 100"),
        ("bm25", {"b": 1.5}, "a number from 0 to 1"),
        ("bm25", {"k1": float("nan")}, "k1"),
        ("bm25", {"fields": "body"}, "title, text, multifield"),
        ("bm25", {"stemming": "perhaps"}, "true or false"),
    ],
)
def test_what_an_engine_does_not_take_is_said(engine: str, parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidParameter, match=message):
        describe(engine).complete(parameters)


def test_parameters_are_understood_as_text_and_engines_by_their_other_names() -> None:
    values = describe("bm25-flat").complete({"k1": "1.2", "stemming": "false"})
    assert (values["k1"], values["stemming"], values["b"]) == (1.2, False, 0.4)
    assert describe("bm25-multifield").complete({})["fields"] == "multifield"


@pytest.mark.parametrize(
    ("collection", "expected"),
    [
        ("nfcorpus", (0.3218, 0.2457, 0.3704)),
        ("cranfield", (0.3564, 0.7206, 0.9518)),
        ("vaswani", (0.4368, 0.6186, 0.9340)),
    ],
)
def test_collections_score_as_with_anserini(
    collection: str, expected: tuple[float, float, float], tmp_path: Path
) -> None:
    """Anserini 1.7.1 with its defaults: nDCG@10, R@100, and R@1000; those of NFCorpus are published."""
    found = scores_of("bm25", collection, tmp_path)
    assert tuple(found.values()) == pytest.approx(expected, abs=0.00005)


def test_the_language_is_that_of_the_corpus_unless_another_is_named() -> None:
    description = describe("bm25")
    german = Resources(language="de")
    assert description.create(description.complete({}), Resources()).analyser_name.startswith("English")
    found = description.create(description.complete({}), german).analyser_name
    assert found == description.create(description.complete({"language": "de"}), Resources()).analyser_name
    named = description.create(description.complete({"language": "en"}), german).analyser_name
    assert named != found
