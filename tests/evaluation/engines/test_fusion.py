"""Fusion: equal to its formulas added up one document after the other, whatever the runs' order, form and ties."""

from __future__ import annotations

import gzip
import json
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from evaluation.collections.beir import Query
from evaluation.core.problems import InvalidRun
from evaluation.engines import InvalidParameter, Resources, RetrievalTask, describe, retrieve
from evaluation.engines.base import SearchResult

Run = dict[str, dict[str, float]]


def write_run(path: Path, run: Run) -> Path:
    lines = [
        f"{query} Q0 {document} {rank} {score!r} tag\n"
        for query, scores in run.items()
        for rank, (document, score) in enumerate(scores.items(), 1)
    ]
    path.write_text("".join(lines), encoding="utf-8")
    return path


def fused(folder: Path, runs: list[Path], queries: list[str], depth: int, **parameters: Any) -> list[SearchResult]:
    description = describe("fusion")
    resources = Resources(runs=tuple(runs))
    description.check(resources)
    engine = description.create(description.complete(parameters), resources)
    engine.build((), folder)
    assert engine.facts() == {"runs_fused": len(runs)}
    return list(engine.search([Query(name, "") for name in queries], depth))


def expected(runs: list[Run], query: str, method: str, k: int, weights: list[float]) -> list[tuple[str, float]]:
    """The formula, for one query: (document, score), best first."""
    totals: dict[str, float] = {}
    for run, weight in zip(runs, weights, strict=True):
        ranked = sorted(
            ((float(np.float32(score)), name.encode()) for name, score in run.get(query, {}).items()),
            reverse=True,
        )
        least, greatest = (ranked[-1][0], ranked[0][0]) if ranked else (0.0, 0.0)
        for rank, (score, name) in enumerate(ranked, 1):
            share = (score - least) / (greatest - least) if greatest > least else 1.0
            value = {"rrf": 1 / (k + rank), "combsum": share, "sum": score}[method]
            totals[name.decode()] = totals.get(name.decode(), 0.0) + weight * value
    best = sorted(((np.float32(total), name.encode()) for name, total in totals.items()), reverse=True)
    return [(name.decode(), float(score)) for score, name in best]


SCORES = st.dictionaries(
    st.sampled_from(["d1", "d2", "d3", "d10", "é", "Z", "z"]),
    st.sampled_from([0.0, -1.5, 2.0, 2.0000000001, 7.25, 1e-30]) | st.floats(-100, 100, width=32),
    min_size=1,
)
RUNS = st.lists(st.dictionaries(st.sampled_from(["q1", "q2"]), SCORES), min_size=2, max_size=5)


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(runs=RUNS, method=st.sampled_from(["rrf", "combsum", "sum"]), k=st.sampled_from([0, 60]), data=st.data())
def test_fusion_is_its_formula(
    tmp_path_factory: pytest.TempPathFactory, runs: list[Run], method: str, k: int, data: st.DataObject
) -> None:
    weights = data.draw(st.lists(st.sampled_from([1.0, 0.5, 3.0]), min_size=len(runs), max_size=len(runs)))
    folder = tmp_path_factory.mktemp("runs")
    paths = [write_run(folder / f"{number}.run", run) for number, run in enumerate(runs)]
    (folder / "index").mkdir()
    text = ",".join(map(str, weights))
    rankings = fused(folder / "index", paths, ["q1", "q2"], 5, method=method, rrf_k=k, weights=text)
    for ranking in rankings:
        pairs = list(zip(ranking.document_ids, ranking.scores.tolist(), strict=True))
        assert pairs == expected(runs, ranking.query_id, method, k, weights)[:5]


def test_a_run_may_be_compressed_scattered_commented_or_json(tmp_path: Path) -> None:
    run = {"q1": {"a": 3.0, "b": 2.0}, "q2": {"c": 1.0}}
    plain = write_run(tmp_path / "plain.run", run)
    lines = plain.read_text().splitlines(keepends=True)
    scattered = tmp_path / "scattered.run.gz"
    text = "\ufeff# ir_metadata.start\r\n\n" + "".join([lines[1], lines[2], lines[0]])
    scattered.write_bytes(gzip.compress(text.encode()))
    predictions = tmp_path / "predictions.json"
    predictions.write_text(json.dumps({"mteb_model_meta": {}, "default": {"test": run}}))
    (tmp_path / "index").mkdir()
    rankings = fused(tmp_path / "index", [plain, scattered, predictions], ["q2", "q1", "none"], 10)
    assert [ranking.document_ids for ranking in rankings] == [["c"], ["a", "b"], []]
    assert rankings[1].scores.tolist() == [np.float32(3 / 61), np.float32(3 / 62)]


def test_only_the_queries_asked_for_come_out_and_no_corpus_is_read(tmp_path: Path) -> None:
    runs = [
        write_run(tmp_path / "1.run", {"q1": {"a": 1.0, "b": 0.5}, "hidden": {"x": 1.0}}),
        write_run(tmp_path / "2.run", {"q1": {"b": 9.0}}),
    ]
    queries = tmp_path / "queries.jsonl"
    queries.write_text('{"_id": "q1", "text": "t"}\n')
    resources = Resources(runs=tuple(runs))
    done = retrieve(RetrievalTask("fusion", tmp_path / "no corpus", queries, tmp_path / "out.run", resources=resources))
    lines = [line.split() for line in (tmp_path / "out.run").read_text().splitlines()]
    assert [(line[0], line[2]) for line in lines] == [("q1", "b"), ("q1", "a")]
    assert (done.documents, done.queries, done.lines) == (3, 1, 2)
    assert [query for query, _ in groupby(lines, key=lambda line: line[0])] == ["q1"]


@pytest.mark.parametrize("weights", ["1", "1,1,1", "1,-1", "0,0", "1,x", "1,nan", "1,inf"])
def test_weights_that_do_not_fit_are_refused_with_an_example(tmp_path: Path, weights: str) -> None:
    runs = [write_run(tmp_path / f"{number}.run", {"q1": {"a": 1.0}}) for number in range(2)]
    with pytest.raises(InvalidParameter, match='such as "1,1"'):
        fused(tmp_path, runs, ["q1"], 5, weights=weights)


def test_one_run_is_not_enough(tmp_path: Path) -> None:
    with pytest.raises(InvalidParameter, match="accepts 2 to 16 runs, but 1 were given"):
        fused(tmp_path, [write_run(tmp_path / "1.run", {})], ["q1"], 5)


def test_a_line_that_is_none_is_named(tmp_path: Path) -> None:
    good = write_run(tmp_path / "good.run", {"q1": {"a": 1.0}})
    bad = tmp_path / "bad.run"
    bad.write_text("q1 Q0 a 1 2.0 tag\nq1 Q0 b 2 much tag\n")
    (tmp_path / "index").mkdir()
    with pytest.raises(InvalidRun, match="line 2 is not a line of a run"):
        fused(tmp_path / "index", [good, bad], ["q1"], 5)
