"""Remains of a lost machine, a full disk, or a wrong file are not accepted as results by `merge` or stored rankings."""

from __future__ import annotations

import gzip
import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

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
from evaluation.engines.dense import DenseRetrieval
from tests.evaluation.neural import rebuilt
from tests.evaluation.tiny_models import tiny_dense

WORDS = ("fox", "dog", "cat", "market", "price", "wing", "layer", "flow", "heat", "theory")
QUERIES = ("#", "#part", "q1", "q2", "q3", "q4")


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    """A corpus and queries, two of whose ids begin like a comment."""
    rows = [{"_id": f"d{n}", "title": "", "text": " ".join(WORDS[n % 7 : n % 7 + 3])} for n in range(30)]
    asked = [{"_id": name, "text": " ".join(WORDS[n : n + 2])} for n, name in enumerate(QUERIES)]
    for name, lines in (("corpus", rows), ("queries", asked)):
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return tmp_path / "corpus.jsonl", tmp_path / "queries.jsonl"


@pytest.fixture
def parts(files: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Two parts of BM25's run, the second one compressed."""
    monkeypatch.setattr("evaluation.engines.base.Engine.queries_at_once", 3)
    made = [tmp_path / "1.txt", tmp_path / "2.txt.gz"]
    for number, path in enumerate(made, 1):
        retrieve(RetrievalTask("bm25", *files, path, part=Part(number, 2)))
    return made


def problems(paths: Sequence[Path], queries: Path) -> list[str]:
    """Why they are not merged: the messages, and no run is left."""
    out = queries.with_name("merged.txt")
    with pytest.raises(InvalidContent) as refusal:
        merge(paths, queries, out)
    assert not out.exists()
    return [problem.message for problem in refusal.value.report.problems]


def test_queries_whose_ids_begin_like_a_comment_are_merged(
    files: tuple[Path, Path], parts: list[Path], tmp_path: Path
) -> None:
    retrieve(RetrievalTask("bm25", *files, tmp_path / "whole.txt"))
    merge(parts, files[1], tmp_path / "merged.txt")
    assert (tmp_path / "merged.txt").read_bytes() == (tmp_path / "whole.txt").read_bytes()
    assert {line.split()[0] for line in (tmp_path / "merged.txt").read_text().splitlines()} == set(QUERIES)


def test_a_part_that_is_cut_is_refused_wherever_it_is_cut(files: tuple[Path, Path], parts: list[Path]) -> None:
    whole, packed = parts[0].read_bytes(), parts[1].read_bytes()
    lines = whole.splitlines(keepends=True)
    for kept in (-1, 4, 1):
        parts[0].write_bytes(b"".join(lines[:kept]))
        assert "lines follow the first one instead of" in problems(parts, files[1])[0]
    parts[0].write_bytes(whole.removesuffix(b" bm25\n"))
    assert problems(parts, files[1]) == [f"1.txt: line {len(lines)} is not a line of a run"]
    parts[0].write_bytes(whole[:-60])
    parts[1].write_bytes(packed[:-30])
    cut, member = problems(parts, files[1])  # all of them at once
    assert cut.startswith("1.txt: ")
    assert member.startswith("2.txt.gz: the gzip data is damaged")


def test_a_line_that_is_none_of_a_run_is_named(files: tuple[Path, Path], parts: list[Path]) -> None:
    lines = parts[0].read_bytes().splitlines(keepends=True)
    for wrong in (b"q1 Q0 d1 1\n", b"q1 Q0 d1 1 x bm25\n", b"q1 Q0 \xff 1 2.0 bm25\n", b"\n"):
        parts[0].write_bytes(b"".join([*lines[:3], wrong, *lines[4:]]))
        assert problems(parts, files[1]) == ["1.txt: line 4 is not a line of a run"]


@pytest.mark.parametrize(
    "wrong",
    [
        {"depth": "x"},
        {"depth": 0},
        {"part": 0},
        {"part": 3},
        {"parts": True},
        {"tag": "two words"},
        {"lines": None},
    ],
    ids=str,
)
def test_a_first_line_with_impossible_values_is_none_of_a_part(
    files: tuple[Path, Path], parts: list[Path], wrong: dict[str, Any]
) -> None:
    first, rest = parts[0].read_text().split("\n", 1)
    header = json.loads(first.removeprefix("# part: "))
    parts[0].write_text(f"# part: {json.dumps({**header, **wrong})}\n{rest}")
    assert problems(parts, files[1]) == ["1.txt: the file is not a part of a run"]


def test_parts_of_two_corpora_of_one_size_are_not_merged(files: tuple[Path, Path], parts: list[Path]) -> None:
    files[0].write_text(files[0].read_text().replace("fox", "dog"))
    retrieve(RetrievalTask("bm25", *files, parts[1], part=Part(2, 2)))
    assert problems(parts, files[1]) == ["the files are parts of different runs"]


def test_a_part_is_a_run_to_everybody_else(files: tuple[Path, Path], parts: list[Path]) -> None:
    for path in parts:
        assert main(["check", "--run", str(path)]) == 0
    lines = gzip.decompress(parts[1].read_bytes()).splitlines()
    assert json.loads(lines[0].removeprefix(b"# part: "))["lines"] == len(lines) - 1


def test_merge_says_which_file_is_not_there(
    files: tuple[Path, Path], parts: list[Path], capsys: pytest.CaptureFixture[str]
) -> None:
    missing = str(files[0].with_name("3.txt"))
    assert main(["merge", missing, "--queries", str(files[1]), "--out", str(files[0].with_name("x"))]) == 2
    assert missing in capsys.readouterr().err


def test_rankings_are_kept_for_one_corpus(files: tuple[Path, Path], tmp_path: Path) -> None:
    found = []
    for words in (("fox", "dog"), ("dog", "fox")):  # the same number of bytes
        files[0].write_text(files[0].read_text().replace(*words))
        for rankings in (tmp_path / "kept", None):
            retrieve(RetrievalTask("bm25", *files, tmp_path / "run.txt", rankings=rankings))
            found.append((tmp_path / "run.txt").read_bytes())
    assert found[0] == found[1]
    assert found[2] == found[3] != found[0]


@pytest.mark.parametrize("damage", ["lists", "row"])
def test_a_kept_ranking_that_is_damaged_is_made_again(files: tuple[Path, Path], tmp_path: Path, damage: str) -> None:
    def run() -> bytes:
        retrieve(RetrievalTask("bm25", *files, tmp_path / "run.txt", rankings=tmp_path / "kept"))
        return (tmp_path / "run.txt").read_bytes()

    whole = run()
    kept = next((tmp_path / "kept").rglob("000000.json"))
    content = json.loads(kept.read_bytes())
    if damage == "lists":
        content["rankings"][2][""][2].pop()
    else:
        content["rankings"][2] = "x"
    kept.write_text(json.dumps(content))
    assert run() == whole


@pytest.fixture(scope="module")
def dense(tmp_path_factory: pytest.TempPathFactory) -> Resources:
    return Resources(rebuilt(tmp_path_factory.mktemp("dense"), tiny_dense, CheckpointKind.SENTENCE_ENCODER))


def test_rankings_are_kept_for_each_part(files: tuple[Path, Path], dense: Resources, tmp_path: Path) -> None:
    given: dict[str, Any] = {"resources": dense, "shard_size": 10, "shards": tmp_path / "shards"}
    retrieve(RetrievalTask("dense", *files, tmp_path / "whole.txt", **given))
    given["rankings"] = tmp_path / "kept"
    paths = [tmp_path / f"{number}.txt" for number in (1, 2, 3)]
    for number, path in enumerate(paths, 1):
        retrieve(RetrievalTask("dense", *files, path, part=Part(number, 3), **given))
    merge(paths, files[1], tmp_path / "merged.txt")
    retrieve(RetrievalTask("dense", *files, tmp_path / "run.txt", **given))
    whole = (tmp_path / "whole.txt").read_bytes()
    assert (tmp_path / "merged.txt").read_bytes() == (tmp_path / "run.txt").read_bytes() == whole


def test_what_two_parts_learn_at_once_is_one_index(
    files: tuple[Path, Path], dense: Resources, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shards = tmp_path / "shards"
    given: dict[str, Any] = {"resources": dense, "shard_size": 10, "shards": shards}
    paths = [tmp_path / "1.txt", tmp_path / "2.txt"]

    def part(number: int) -> None:
        retrieve(
            RetrievalTask(
                "dense",
                *files,
                paths[number - 1],
                parameters={"search": "ivf"},
                part=Part(number, 2),
                **given,
            )
        )

    retrieve(RetrievalTask("dense", *files, tmp_path / "whole.txt", parameters={"search": "ivf"}, **given))
    learn: Callable[..., None] = DenseRetrieval.learn
    others: Iterator[int] = iter([2])

    def learns_at_once(engine: DenseRetrieval, folders: Sequence[Path], folder: Path) -> None:
        (folder / "begun").touch()
        for number in others:
            part(number)
        learn(engine, folders, folder)

    monkeypatch.setattr(DenseRetrieval, "learn", learns_at_once)
    part(1)
    (learned,) = shards.glob("learned-*")  # and nothing of what the slower one began
    merge(paths, files[1], tmp_path / "merged.txt")
    assert (tmp_path / "merged.txt").read_bytes() == (tmp_path / "whole.txt").read_bytes()
    damaged = next(path for path in sorted(learned.iterdir()) if path.name not in ("begun", "sizes.json"))
    damaged.write_bytes(damaged.read_bytes()[:-1])
    with pytest.raises(InvalidContent, match=damaged.name):
        part(1)


def test_shards_of_something_else_are_refused(files: tuple[Path, Path], dense: Resources, tmp_path: Path) -> None:
    """Wherever they are given to: else a run would name the documents of another corpus."""
    shards = tmp_path / "shards"
    other = tmp_path / "other.jsonl"
    other.write_text(files[0].read_text().replace('"d', '"e'))

    def refused(corpus: Path, parameters: dict[str, object] | None = None, size: int = 10) -> str:
        given: dict[str, Any] = {"shards": shards, "part": Part(1, 2), "resources": dense, "shard_size": size}
        with pytest.raises(InvalidParameter) as refusal:
            retrieve(
                RetrievalTask("dense", corpus, files[1], tmp_path / "run.txt", parameters=parameters or {}, **given)
            )
        with pytest.raises(InvalidParameter) as again:
            encode(
                EncodingTask(
                    "dense",
                    corpus,
                    shards=shards,
                    parameters=parameters or {},
                    resources=dense,
                    shard_size=size,
                )
            )
        assert str(again.value) == str(refusal.value)
        return str(refusal.value).removeprefix(f"The shards in {shards} were made with another ")

    encode(EncodingTask("dense", files[0], shards=shards, resources=dense, shard_size=10))
    assert refused(other) == "corpus; choose a new folder."
    assert refused(files[0], size=20) == "shard_size; choose a new folder."
    given: dict[str, object] = {"fields": "title", "maximum_length": 3}
    assert refused(files[0], given) == "fields, maximum_length; choose a new folder."
    assert not (tmp_path / "run.txt").exists()

    def learn(corpus: Path) -> int:
        encode(EncodingTask("dense", corpus, shards=shards, resources=dense, shard_size=10))
        given: dict[str, Any] = {"shards": shards, "part": Part(1, 2), "resources": dense, "shard_size": 10}
        retrieve(RetrievalTask("dense", corpus, files[1], tmp_path / "run.txt", parameters={"search": "ivf"}, **given))
        return len(list(shards.glob("learned-*")))

    assert learn(files[0]) == 1
    (shards / "made-from.json").unlink()
    for folder in shards.glob("0*"):
        shutil.rmtree(folder)
    assert learn(other) == 2  # what was learned from the first corpus is not taken for it
