"""Parts of a run, however a collection is cut, merge to the bytes of one search; and a search goes on where it was."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evaluation.__main__ import main
from evaluation.checkpoints.description import CheckpointKind
from evaluation.core.problems import InvalidContent
from evaluation.engines import (
    EncodingTask,
    InvalidParameter,
    Part,
    Resources,
    RetrievalTask,
    encode,
    merge,
    retrieve,
)
from evaluation.engines.base import SearchResult
from evaluation.engines.cross_encoder import CrossEncoderReRanking
from evaluation.engines.run_writing import merge_results
from tests.evaluation.neural import rebuilt
from tests.evaluation.tiny_models import _WORDS, tiny_colbert, tiny_cross_encoder, tiny_dense, tiny_splade

#: Texts that repeat, so that many scores are equal.
TEXTS = [" ".join(_WORDS[40 + n % 9 : 42 + n % 9 + n % 4]) for n in range(40)]
QUERIES = [" ".join(_WORDS[40 + n : 43 + n]) for n in range(9)] + ["", "zzz"]

MODELS: dict[str, tuple[Callable[..., Path], CheckpointKind]] = {
    "dense": (tiny_dense, CheckpointKind.SENTENCE_ENCODER),
    "learned-sparse": (tiny_splade, CheckpointKind.SPARSE_ENCODER),
    "late-interaction": (tiny_colbert, CheckpointKind.MULTI_VECTOR),
    "cross-encoder": (tiny_cross_encoder, CheckpointKind.CROSS_ENCODER),
}
#: Engines and parameters whose parts merge to the very bytes; those that probe lists probe all that matter here.
SAME = [
    ("dense", {}),
    ("dense", {"dimensions": "8", "stored_dtype": "float16"}),
    ("dense", {"passage_words": 2}),
    ("dense", {"search": "ivf", "ivf_lists": 3, "ivf_probes": 2}),
    ("dense", {"search": "pq"}),
    ("dense", {"stored_dtype": "int8"}),
    ("learned-sparse", {}),
    ("late-interaction", {"mode": "exhaustive"}),
    ("late-interaction", {"mode": "compressed", "probes": 1}),
    ("late-interaction", {"mode": "candidates", "candidates": 5}),
    ("cross-encoder", {"reranking_depth": 5, "reranking_depths": "2"}),
    ("bm25", {}),
]


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return {name: rebuilt(tmp_path_factory.mktemp(name), *made) for name, made in MODELS.items()}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("collection")
    rows = [{"_id": f"d{n * 7 % 40}", "title": "", "text": text} for n, text in enumerate(TEXTS)]
    asked = [{"_id": f"q{n}", "text": text} for n, text in enumerate(QUERIES)]
    for name, lines in (("corpus", rows), ("queries", asked)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder / "corpus.jsonl", folder / "queries.jsonl"


@pytest.mark.parametrize(("engine", "parameters"), SAME, ids=str)
def test_parts_merge_to_the_bytes_of_one_search(
    checkpoints: dict[str, Path],
    files: tuple[Path, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    engine: str,
    parameters: dict[str, Any],
) -> None:
    monkeypatch.setattr(CrossEncoderReRanking, "queries_at_once", 2)
    monkeypatch.setattr("evaluation.engines.base.Engine.queries_at_once", 3)
    given: dict[str, Any] = {"resources": Resources(checkpoints.get(engine)), "k": 6, "shard_size": 9}
    shards = tmp_path / "shards" if engine not in ("cross-encoder", "bm25") else None
    whole = retrieve(RetrievalTask(engine, *files, tmp_path / "run.txt", parameters=parameters, shards=shards, **given))
    for count in (2, 4):
        names = {path.name: [] for path in whole.variants.values()} or {"run.txt": []}
        for number in range(count, 0, -1):
            (tmp_path / f"{number}-{count}").mkdir()
            out = tmp_path / f"{number}-{count}" / "run.txt"
            retrieve(
                RetrievalTask(
                    engine,
                    *files,
                    out,
                    parameters=parameters,
                    shards=shards,
                    part=Part(number, count),
                    **given,
                )
            )
            for name, parts in names.items():
                parts.append(out.with_name(name))
        for name, parts in names.items():
            merge(parts, files[1], tmp_path / "merged.txt")
            assert (tmp_path / "merged.txt").read_bytes() == (tmp_path / name).read_bytes(), (name, count)
    assert (tmp_path / "run.txt").read_bytes().count(b"\n") > 20


@settings(max_examples=200, deadline=None)
@given(
    scores=st.lists(st.integers(-3, 3), max_size=30),
    cuts=st.lists(st.integers(0, 30), max_size=4),
    depth=st.integers(1, 12),
)
def test_any_split_merges_to_one_ranking(scores: list[int], cuts: list[int], depth: int) -> None:
    names = [f"d{n * 11 % 31}" for n in range(len(scores))]

    def best(some: slice) -> SearchResult:
        ranking = SearchResult("q", names[some], np.array(scores[some], np.float32))
        return merge_results([ranking], depth)

    edges = [0, *sorted(min(cut, len(scores)) for cut in cuts), len(scores)]
    merged = merge_results([best(slice(*pair)) for pair in pairwise(edges)], depth)
    whole = best(slice(None))
    assert merged.document_ids == whole.document_ids
    assert merged.scores.tolist() == whole.scores.tolist()


def test_graphs_of_parts_find_most_of_what_one_finds(
    checkpoints: dict[str, Path], files: tuple[Path, Path], tmp_path: Path
) -> None:
    given: dict[str, Any] = {"resources": Resources(checkpoints["dense"]), "shard_size": 9, "k": 10}
    parts = []
    for number in (1, 2):
        parts.append(tmp_path / f"{number}.txt")
        shards, part = tmp_path / "shards", Part(number, 2)
        encode(EncodingTask("dense", files[0], shards=shards, resources=Resources(checkpoints["dense"]), shard_size=9))
        retrieve(
            RetrievalTask("dense", *files, parts[-1], parameters={"search": "hnsw"}, shards=shards, part=part, **given)
        )
    merge(parts, files[1], tmp_path / "merged.txt")
    retrieve(RetrievalTask("dense", *files, tmp_path / "exact.txt", shards=tmp_path / "shards", **given))
    found, exact = ((tmp_path / f"{name}.txt").read_text().splitlines() for name in ("merged", "exact"))
    pairs = [{tuple(line.split()[:3:2]) for line in lines} for lines in (found, exact)]
    assert len(pairs[0] & pairs[1]) > 0.9 * len(pairs[1])


def test_an_interrupted_search_goes_on(
    checkpoints: dict[str, Path], files: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(CrossEncoderReRanking, "queries_at_once", 2)
    given: dict[str, Any] = {
        "resources": Resources(checkpoints["cross-encoder"]),
        "rankings": tmp_path / "kept",
    }
    asked: list[int] = []
    search = CrossEncoderReRanking._score_candidates

    def counted(engine: Any, queries: Any) -> Any:
        asked.append(len(queries))
        if len(asked) == 4:
            raise KeyboardInterrupt
        return search(engine, queries)

    retrieve(RetrievalTask("cross-encoder", *files, tmp_path / "whole.txt", resources=given["resources"]))
    monkeypatch.setattr(CrossEncoderReRanking, "_score_candidates", counted)
    with pytest.raises(KeyboardInterrupt):
        retrieve(RetrievalTask("cross-encoder", *files, tmp_path / "run.txt", **given))
    assert not (tmp_path / "run.txt").exists()
    next(iter(sorted((tmp_path / "kept").rglob("000001.json")))).write_bytes(b"")  # as a lost machine leaves it
    retrieve(RetrievalTask("cross-encoder", *files, tmp_path / "run.txt", **given))
    assert asked == [2, 2, 2, 2, 2, 2, 2, 1]  # three were kept, one of them damaged
    for variant in ("", ".top-10", ".top-50"):
        kept, whole = (tmp_path / f"{name}{variant}.txt" for name in ("run", "whole"))
        assert kept.read_bytes() == whole.read_bytes()
    other = {**given, "k": 3}
    retrieve(RetrievalTask("cross-encoder", *files, tmp_path / "run.txt", **other))
    assert len(asked) == 8 + 6  # nothing of another depth was taken for this one


def test_the_command_line_encodes_searches_and_merges(
    checkpoints: dict[str, Path], files: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    corpus, queries = map(str, files)
    given = [
        "--engine",
        "dense",
        "--corpus",
        corpus,
        "--checkpoint",
        str(checkpoints["dense"]),
        "--device",
        "cpu",
    ]
    given += ["--shards", str(tmp_path / "shards")]
    out = str(tmp_path / "run.txt")
    assert main(["encode", *given, "--part", "1/1"]) == 0
    assert "1 of 1 shards, 40 documents encoded now" in capsys.readouterr().err
    assert main(["retrieve", *given, "--queries", queries, "--out", out, "--part", "1/1"]) == 0
    assert main(["merge", out, "--queries", queries, "--out", str(tmp_path / "merged.txt")]) == 0
    assert "440 lines of 1 parts" in capsys.readouterr().err
    for part, said in (
        ("0/2", "The part '0/2' is not valid"),
        ("x", "The part 'x' is not valid"),
        ("1/2", "1 shards are too few for 2 parts"),
    ):
        assert main(["retrieve", *given, "--queries", queries, "--out", out, "--part", part]) == 2
        assert said in capsys.readouterr().err
    assert main(["merge", queries, "--queries", queries, "--out", out]) == 1
    assert "not a part of a run" in capsys.readouterr().err
    assert main(["encode", *given[2:]]) == 2


def test_parts_that_do_not_belong_together_are_refused(files: tuple[Path, Path], tmp_path: Path) -> None:
    def part(name: str, number: int, **more: Any) -> Path:
        path = tmp_path / name
        retrieve(RetrievalTask("bm25", *files, path, part=Part(number, 2), **more))
        return path

    def refused(*paths: Path, queries: Path = files[1]) -> str:
        with pytest.raises(InvalidContent) as refusal:
            merge(paths, queries, tmp_path / "merged.txt")
        assert not (tmp_path / "merged.txt").exists()
        return refusal.value.report.problems[0].code

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("evaluation.engines.base.Engine.queries_at_once", 4)
        first, second = part("1.txt", 1), part("2.txt", 2)
        other = part("other.txt", 2, parameters={"k1": 2.0})
        deeper = part("deeper.txt", 2, k=2000)
    merge([second, first], files[1], tmp_path / "merged.txt")
    (tmp_path / "merged.txt").unlink()
    assert refused(first) == refused(first, first) == "missing_parts"
    assert refused(first, other) == refused(first, deeper) == "other_run"
    few = tmp_path / "few.jsonl"
    few.write_text('{"_id": "q0", "text": ""}\n')
    assert refused(first, second, queries=few) == "other_queries"
    header, *own = second.read_text().splitlines()
    both = [*first.read_text().splitlines()[1:], *own]
    header = header.replace(f'"lines": {len(own)}', f'"lines": {len(both)}')
    second.write_text("".join(f"{line}\n" for line in [header, *both]))
    assert refused(first, second) == "overlapping_parts"


def test_an_index_learned_from_all_shards_waits_for_them(
    checkpoints: dict[str, Path], files: tuple[Path, Path], tmp_path: Path
) -> None:
    given: dict[str, Any] = {"resources": Resources(checkpoints["dense"]), "shard_size": 9}
    parameters = {"search": "ivf"}
    with pytest.raises(InvalidParameter, match=r"3 of 5 shards are not in .* yet, the first is 00002"):
        retrieve(
            RetrievalTask(
                "dense",
                *files,
                tmp_path / "run.txt",
                parameters=parameters,
                part=Part(1, 2),
                shards=tmp_path / "shards",
                **given,
            )
        )
