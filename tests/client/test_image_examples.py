"""The examples of container images do what their pages promise, here without Docker."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from evaluation.checkpoints.rebuilding import open_checkpoint
from evaluation.engines import ENGINES, Resources
from evaluation.engines.serving import ServedEncoder, ServerClient, TimedSocket, UnixConnection
from evaluation.images.archive import INTERFACES
from evaluation.images.tira import write_inputs
from tests.submissions.models import WORDS, static_archive, static_files

EXAMPLES = Path(__file__).parents[2] / "client" / "examples"


@pytest.mark.parametrize("name", ["image-bm25", "image-embeddings"])
def test_the_dockerfile_is_short_and_names_its_interface(name: str) -> None:
    lines = (EXAMPLES / name / "Dockerfile").read_text().splitlines()
    assert len(lines) < 20
    label = next(line for line in lines if line.startswith("LABEL org.runboard.interface="))
    assert label.partition("=")[2] in INTERFACES
    copied = next(line.split()[1] for line in lines if line.startswith("COPY"))
    assert (EXAMPLES / name / copied).is_file()


def test_the_batch_image_writes_a_run(tmp_path: Path) -> None:
    pytest.importorskip("bm25s")
    corpus, queries = tmp_path / "corpus.jsonl", tmp_path / "queries.jsonl"
    texts = ["the heart and the blood", "search engines rank documents", "berlin and paris"]
    corpus.write_text("".join(json.dumps({"_id": f"d{n}", "text": text}) + "\n" for n, text in enumerate(texts)))
    queries.write_text(json.dumps({"_id": "q1", "text": "ranking of documents"}) + "\n")
    (tmp_path / "image").mkdir()
    (tmp_path / "out").mkdir()
    write_inputs(corpus, queries, None, tmp_path / "image", lambda share: None)
    folders = {"TIRA_INPUT_DATASET": str(tmp_path / "image" / "input"), "TIRA_OUTPUT_DIR": str(tmp_path / "out")}
    command = [sys.executable, str(EXAMPLES / "image-bm25" / "main.py")]
    subprocess.run(command, env={**os.environ, **folders}, check=True)
    (line,) = (tmp_path / "out" / "run.txt").read_text().splitlines()
    assert line.startswith("q1 Q0 d1 1 ")


class _LocalConnection(UnixConnection):
    """Connection to a port instead of a socket, which the sandbox's relay would provide."""

    def connect(self) -> None:
        self.sock = TimedSocket(socket.AF_INET)
        self.sock.connect(("127.0.0.1", int(self._path.name)))


@contextmanager
def served(model: Path) -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [sys.executable, str(EXAMPLES / "image-embeddings" / "server.py"), str(model)]
    process = subprocess.Popen(command, env={**os.environ, "PORT": str(port)})
    try:
        for _ in range(200):
            with socket.socket() as client:
                if client.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.1)
        yield port
    finally:
        process.kill()
        process.wait()


def test_the_server_has_the_vectors_of_the_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Static embeddings from the server and from the same model as a checkpoint are equal, as the rankings then are."""
    from evaluation.engines.neural.encoding import Encoder

    monkeypatch.setattr("evaluation.engines.serving.UnixConnection", _LocalConnection)
    for name, content in static_files().items():
        (tmp_path / name).write_bytes(content)
    texts = [f"{first} {second}" for first in WORDS[:20] for second in WORDS] + ["", "unknown"]
    archive = tmp_path / "model.zip"
    archive.write_bytes(static_archive())
    checkpoint = open_checkpoint(archive, ["static-embeddings"], tmp_path)
    dense = ENGINES["dense"].complete({})
    encoder = Encoder(Resources(checkpoint=checkpoint).first_part, "cpu", dense, unit_length=True)
    expected = np.zeros((len(texts), encoder.dimension), np.float32)
    encoder.encode(texts, "", expected)
    with served(tmp_path) as port:
        parameters = ENGINES["container-embeddings"].complete({})
        monkeypatch.setattr("evaluation.engines.serving._probe", lambda: WORDS[:2])
        server = ServedEncoder(ServerClient(Path(f"/{port}"), parameters), parameters, unit_length=True)
        actual = np.zeros_like(expected)
        server.encode(texts, "", actual)
    np.testing.assert_allclose(actual, expected, atol=1e-6)
