"""Servers of container images: forms of requests and answers, busy servers, and answers that cannot be used."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from socketserver import ThreadingUnixStreamServer
from typing import Any

import numpy as np
import pytest

from evaluation.core.problems import ModelFailure
from evaluation.engines import ENGINES, serving
from evaluation.engines.serving import ServedEncoder, ServedScorer, ServerClient, is_ready

#: An answer: status and JSON value, or bytes.
Answer = tuple[int, Any]
TEXTS = [f"{'word ' * (number % 5)}{number}" for number in range(50)]


@contextmanager
def server(folder: Path, answer: Callable[[str, Any], Answer]) -> Iterator[Path]:
    """Yield the socket of a server that answers posts, and lists a model."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._send((200, {"data": [{"id": "listed"}]}))

        def do_POST(self) -> None:
            self._send(answer(self.path, json.loads(self.rfile.read(int(self.headers["Content-Length"])))))

        def _send(self, reply: Answer) -> None:
            content = reply[1] if isinstance(reply[1], bytes) else json.dumps(reply[1]).encode()
            self.send_response(reply[0])
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *words: object) -> None:
            pass

    path = folder / "server.sock"
    with ThreadingUnixStreamServer(str(path), Handler) as running:  # type: ignore[arg-type]
        running.daemon_threads = True
        threading.Thread(target=running.serve_forever, daemon=True).start()
        yield path
        running.shutdown()


def vector(text: str) -> list[float]:
    return [float(len(text)), float(sum(text.encode()) % 97), 1.0]


def embeddings(texts: list[str], packed: bool = False) -> Answer:
    rows = [vector(text) for text in texts]
    values = [base64.b64encode(np.array(row, "<f4").tobytes()).decode() for row in rows] if packed else rows
    data = [{"index": number, "embedding": value} for number, value in enumerate(values)]
    return 200, {"data": data[::-1]}


def encode(path: Path, **changes: Any) -> np.ndarray[Any, Any]:
    parameters = ENGINES["container-embeddings"].complete(changes)
    encoder = ServedEncoder(ServerClient(path, parameters), parameters, unit_length=False)
    output = np.zeros((len(TEXTS), encoder.dimension), np.float32)
    encoder.encode(TEXTS, "query: ", output)
    return output


@pytest.mark.parametrize("packed", [True, False])
def test_both_forms_of_vectors(packed: bool, tmp_path: Path) -> None:
    models = set()

    def answer(path: str, body: Any) -> Answer:
        models.add(body["model"])
        return embeddings(body["input"], packed)

    with server(tmp_path, answer) as path:
        assert is_ready(path)
        np.testing.assert_array_equal(encode(path), [vector(f"query: {text}") for text in TEXTS])
        assert encode(path, truncate_dimension=2, served_model="named").shape == (50, 2)
    assert models == {"listed", "named"}
    assert not is_ready(path)


def test_busy_servers_and_small_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "_PAUSES", (0.0,) * 3)
    sizes, refusals = [], iter([429, 503] * 8)

    def answer(path: str, body: Any) -> Answer:
        sizes.append(len(body["input"]))
        if len(body["input"]) > 8:
            return 413, {}
        status = next(refusals, 200) if len(sizes) % 2 else 200
        return embeddings(body["input"]) if status == 200 else (status, {})

    with server(tmp_path, answer) as path:
        np.testing.assert_array_equal(encode(path, concurrency=1), [vector(f"query: {text}") for text in TEXTS])
    assert max(sizes[-5:]) <= 8


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        ((500, {}), "server_answer"),
        ((429, {}), "server_answer"),
        ((422, {}), "server_answer"),
        ((200, b"not JSON"), "server_answer"),
        ((200, []), "server_answer"),
        ((200, {"data": []}), "server_answer"),
        ((200, {"data": [{"index": 0, "embedding": [1.0]}] * 9}), "server_answer"),
        ((200, {"data": [{"index": n, "embedding": "not base64"} for n in range(9)]}), "server_answer"),
        ((200, {"data": [{"index": n, "embedding": [[1.0]]} for n in range(9)]}), "server_answer"),
        ((200, {"data": [{"index": n, "embedding": [1.0] * (n + 1)} for n in range(9)]}), "server_answer"),
        ((200, {"data": [{"index": n, "embedding": "AADAfw=="} for n in range(9)]}), "not_finite_output"),
        ((200, {"data": [{"index": n, "embedding": [1.0, 2.0]} for n in range(9)]}), "constant_output"),
    ],
)
def test_unusable_answers_are_failures(
    answer: Answer, code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving, "_PAUSES", (0.0,) * 3)
    with server(tmp_path, lambda path, body: answer) as path, pytest.raises(ModelFailure) as failure:
        encode(path)
    assert failure.value.code == code


def test_other_dimensions_later(tmp_path: Path) -> None:
    calls = []

    def answer(path: str, body: Any) -> Answer:
        calls.append(1)
        rows = [{"index": n, "embedding": vector(t)[: 4 - len(calls)]} for n, t in enumerate(body["input"])]
        return 200, {"data": rows}

    with server(tmp_path, answer) as path, pytest.raises(ModelFailure, match="different dimensions"):
        encode(path, concurrency=1)


@pytest.mark.parametrize("form", ["documents", "texts"])
def test_both_forms_of_scores(form: str, tmp_path: Path) -> None:
    def answer(path: str, body: Any) -> Answer:
        if form not in body:
            return 422, {}
        scores = [len(text) + sum(text.encode()) / 1e5 for text in body[form]]
        if form == "texts":
            return 200, [{"index": n, "score": score} for n, score in enumerate(scores)][::-1]
        return 200, {"results": [{"index": n, "relevance_score": score} for n, score in enumerate(scores)]}

    parameters = ENGINES["container-rerank"].complete({"query_prompt": "", "document_prompt": ""})
    with server(tmp_path, answer) as path:
        scorer = ServedScorer(ServerClient(path, parameters), parameters)
        found = scorer.score(["a"] * 40 + ["b"] * 10, TEXTS)
    np.testing.assert_allclose(found, [len(text) + sum(text.encode()) / 1e5 for text in TEXTS], rtol=1e-5)


def test_a_server_that_refuses_single_documents(tmp_path: Path) -> None:
    parameters = ENGINES["container-rerank"].complete({})
    with server(tmp_path, lambda path, body: (400, {})) as path, pytest.raises(ModelFailure, match="refuses"):
        ServedScorer(ServerClient(path, parameters), parameters)
