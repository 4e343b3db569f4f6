"""Encoding a corpus goes on whatever became of those who encoded it before, or do at the same time."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from evaluation.__main__ import main
from evaluation.checkpoints.description import CheckpointDescription, CheckpointKind
from evaluation.collections.beir import Document
from evaluation.core.problems import InvalidContent
from evaluation.engines import ENGINES, EncodingTask, Resources, encode
from evaluation.engines.corpus_encoding import EncodedCorpus
from submissions.sandbox.bubblewrap import _binaries
from tests.evaluation.neural import rebuilt
from tests.evaluation.tiny_models import tiny_dense
from tests.submissions.toy_engine import DESCRIPTION, ToyEngine

SHARDS = ["00000", "00001", "00002"]


@pytest.fixture
def corpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Fourteen documents: three shards of five at most."""
    monkeypatch.setitem(ENGINES, "toy", DESCRIPTION)
    path = tmp_path / "corpus.jsonl"
    path.write_text("".join(f'{{"_id": "d{n}", "text": "fox {n}"}}\n' for n in range(14)))
    CheckpointDescription(CheckpointKind.STATIC_EMBEDDINGS, ("model",), "toy", 1, 1, "0" * 64).write(tmp_path)
    return path


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.is_dir())


def encode_all(corpus: Path) -> EncodedCorpus:
    return encode(
        EncodingTask("toy", corpus, shards=corpus.with_name("shards"), resources=Resources(corpus.parent), shard_size=5)
    )


def test_encoding_goes_on_after_a_kill_by_a_process_of_the_same_id(
    corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shards = corpus.with_name("shards")
    with monkeypatch.context() as patch:

        def killed(engine: ToyEngine, documents: Sequence[Document], folder: Path, _: Any = None) -> None:
            (folder / "vectors.npy").write_bytes(b"half")
            os.kill(process, signal.SIGKILL)

        patch.setattr(ToyEngine, "encode_shard", killed)
        child = os.fork()
        if not child:
            process = os.getpid()
            patch.setattr(os, "getpid", lambda: 1)  # as that of each container is
            encode_all(corpus)
            os._exit(0)
        assert os.waitpid(child, 0)[1] == signal.SIGKILL
    assert len(names(shards)) == 1
    monkeypatch.setattr(os, "getpid", lambda: 1)
    assert encode_all(corpus).documents == 14
    assert names(shards) == SHARDS


def test_two_that_encode_the_same_shards_leave_one_of_each(corpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    encode_shard = ToyEngine.encode_shard
    others: Iterator[int] = iter([1])

    def both(engine: ToyEngine, documents: Sequence[Document], folder: Path, *more: Any) -> None:
        (folder / "begun").touch()
        for _ in others:
            assert encode_all(corpus).documents == 14
        encode_shard(engine, documents, folder, *more)

    monkeypatch.setattr(ToyEngine, "encode_shard", both)
    done = encode_all(corpus)
    assert [folder.name for folder in done.folders] == SHARDS
    assert names(corpus.with_name("shards")) == SHARDS


def test_a_failure_leaves_no_half_of_a_shard(corpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(engine: ToyEngine, documents: Sequence[Document], folder: Path, _: Any = None) -> None:
        (folder / "vectors.npy").write_bytes(b"half")
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(ToyEngine, "encode_shard", fails)
    with pytest.raises(OSError, match="full"):
        encode_all(corpus)
    assert names(corpus.with_name("shards")) == []


def test_shards_that_have_lost_bytes_are_named(corpus: Path) -> None:
    shards = corpus.with_name("shards")
    encode_all(corpus)
    vectors = shards / "00000" / "vectors.npy"
    size = vectors.stat().st_size
    os.truncate(vectors, 100)
    (shards / "00002" / "texts" / "ids.json").unlink()
    (shards / "00001" / "sizes.json").write_text("")
    with pytest.raises(InvalidContent) as refusal:
        encode_all(corpus)
    (problem,) = refusal.value.report.problems
    for part in (
        f"00000 (vectors.npy has 100 of {size} bytes)",
        "00001 (sizes.json",
        "00002 (texts/ids.json has 0 of",
    ):
        assert part in problem.message
    assert "Remove these folders" in problem.hint
    for name in SHARDS:
        shutil.rmtree(shards / name)
    assert encode_all(corpus).documents == 14


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return rebuilt(tmp_path_factory.mktemp("dense"), tiny_dense, CheckpointKind.SENTENCE_ENCODER)


def test_the_command_line_says_what_is_damaged(
    corpus: Path, checkpoint: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    queries, shards = corpus.with_name("queries.jsonl"), corpus.with_name("shards")
    queries.write_text(json.dumps({"_id": "q", "text": "fox"}))
    given = ["--engine", "dense", "--corpus", str(corpus), "--checkpoint", str(checkpoint), "--device", "cpu"]
    given += ["--shards", str(shards)]
    assert main(["encode", *given]) == 0
    os.truncate(shards / "00000" / "embeddings.npy", 200)
    capsys.readouterr()
    assert main(["retrieve", *given, "--queries", str(queries), "--out", str(corpus.with_name("run.txt"))]) == 1
    assert "embeddings.npy has 200 of" in capsys.readouterr().err


def on_a_full_disk(folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    """Run a command to which the folder is a file system of 64 KiB; the test is skipped where we may make none."""
    folder.mkdir(exist_ok=True)
    small = ["bwrap", "--dev-bind", "/", "/", "--size", str(2**16), "--tmpfs", str(folder)]
    small[0] = next(iter(_binaries()), "bwrap")
    if shutil.which(small[0]) is None or subprocess.run([*small, "true"], capture_output=True).returncode:
        pytest.skip("bwrap does not work here")
    return subprocess.run([*small, *command], capture_output=True, text=True, timeout=120)


def test_a_full_disk_is_an_error_and_no_signal(tmp_path: Path) -> None:
    script = """if True:
        import sys
        from pathlib import Path
        from evaluation.engines.index.vector_index import new_vectors
        new_vectors(Path(sys.argv[1], "small.npy"), 100, 16)[:] = 1
        try:
            new_vectors(Path(sys.argv[1], "vectors.npy"), 10_000, 16)[:] = 1
        except OSError as error:
            print(error)"""
    done = on_a_full_disk(tmp_path / "disk", sys.executable, "-c", script, str(tmp_path / "disk"))
    assert done.returncode == 0, done
    assert done.stdout == f"[Errno 28] No space left on device: '{tmp_path}/disk/vectors.npy'\n"


def test_the_command_line_says_that_the_disk_is_full(
    corpus: Path, checkpoint: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    shards = corpus.with_name("shards")
    given = ["--engine", "dense", "--corpus", str(corpus), "--checkpoint", str(checkpoint), "--device", "cpu"]
    assert main(["encode", *given, "--shards", str(shards)]) == 2
    (said,) = capsys.readouterr().err.splitlines()
    assert said.startswith("error: The disk is full: ")
    assert "/embeddings.npy'. Free some space" in said
    assert names(shards) == []


@pytest.mark.long
def test_the_whole_command_on_a_full_disk(corpus: Path, checkpoint: Path) -> None:
    corpus.write_text("".join(f'{{"_id": "d{n}", "text": "fox {n}"}}\n' for n in range(3000)))
    shards = corpus.with_name("shards")
    command = [sys.executable, "-m", "evaluation", "encode", "--engine", "dense", "--device", "cpu"]
    command += ["--corpus", str(corpus), "--checkpoint", str(checkpoint), "--shards", str(shards)]
    done = on_a_full_disk(shards, *command)
    assert done.returncode == 2, done
    assert "error: The disk is full: " in done.stderr
