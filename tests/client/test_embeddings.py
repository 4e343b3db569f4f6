"""Runs by vectors of an interface like OpenAI's, which a server on loopback plays, well and badly."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from evaluation.runs.header import read_header
from runboard import embeddings
from runboard.cli import main

#: What the server answers to the texts of a request: status, headers and body.
Answer = tuple[int, dict[str, str], Any]
DOCUMENTS = {"d1": "heart blood", "d2": "sound waves", "d3": "heart sound", "d4": ""}
WORDS = ("heart", "blood", "sound", "waves")


def vector(text: str) -> list[float]:
    return [float(text.split().count(word)) for word in WORDS] + [0.001]


class Interface:
    """The server, what it was asked, and how it answers."""

    def __init__(self) -> None:
        self.asked: list[list[str]] = []
        self.answer: Callable[[int, list[str]], Answer] = lambda number, texts: self.well(texts)
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                assert self.path == "/v1/embeddings"
                outer.asked.append(body["input"])
                status, headers, content = outer.answer(len(outer.asked), body["input"])
                sent = content if isinstance(content, bytes) else json.dumps(content).encode()
                self.send_response(status)
                for name, value in {**headers, "Content-Length": str(len(sent))}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(sent)

            def log_message(self, format: str, *args: Any) -> None:
                """Say nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self.server.server_port}"

    def well(self, texts: list[str]) -> Answer:
        rows = [{"index": number, "embedding": vector(text)} for number, text in enumerate(texts)]
        return 200, {}, {"data": rows[::-1], "usage": {"total_tokens": 2 * len(texts)}}


@pytest.fixture
def interface() -> Iterator[Interface]:
    found = Interface()
    thread = threading.Thread(target=found.server.serve_forever)
    thread.start()
    yield found
    found.server.shutdown()
    thread.join()
    found.server.server_close()


@pytest.fixture
def words(package: None, interface: Interface, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.setattr(embeddings, "_WAITS", (0, 0))
    for name, rows in (("corpus", DOCUMENTS), ("queries", {"q1": "heart blood", "q2": "waves"})):
        lines = [json.dumps({"_id": key, "title": "", "text": text}) for key, text in rows.items()]
        (tmp_path / f"{name}.jsonl").write_text("\n".join(lines))
    given = ["--corpus", str(tmp_path / "corpus.jsonl"), "--queries", str(tmp_path / "queries.jsonl")]
    return [
        "retrieve",
        "--endpoint",
        interface.address,
        "--model",
        "acme/small",
        *given,
        "--out",
        str(tmp_path / "run.txt"),
    ]


def test_a_run_says_how_it_was_made_and_what_it_cost(
    words: list[str], interface: Interface, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*words, "--batch", "3", "--price", "0.5"]) == 0, capsys.readouterr().err
    text = (tmp_path / "run.txt").read_bytes()
    lines = [line.split() for line in text.decode().splitlines() if not line.startswith("#")]
    assert [line[2] for line in lines if line[0] == "q1"][:2] == ["d1", "d3"]
    assert next(line[2] for line in lines if line[0] == "q2") == "d2"
    assert len(lines) == 8
    metadata = read_header(text).metadata
    assert metadata["method"]["retrieval"][0]["closed_interface"] == "true"
    assert metadata["resources"] == {
        "self_reported": "true", "tokens": "12", "cost_usd": "0.000006",
        "seconds_waited": metadata["resources"]["seconds_waited"],
    }  # fmt: skip
    assert interface.asked[1] == [" "]  # no interface takes an empty text
    asked = len(interface.asked)
    assert main(words) == 0
    assert len(interface.asked) == asked  # vectors were kept


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (lambda texts: (200, {}, {"data": [{"index": 0, "embedding": [1.0]}]}), "1 vectors for 4 texts"),
        (
            lambda texts: (200, {}, {"data": [{"index": n, "embedding": [1.0] * (n + 1)} for n in range(4)]}),
            "one length",
        ),
        (
            lambda texts: (
                200,
                {},
                b'{"data": [' + b",".join([b'{"index": 0, "embedding": [NaN]}'] * 4) + b"]}",
            ),
            "no numbers",
        ),
        (lambda texts: (200, {}, b"<html>Welcome</html>"), "no JSON"),
        (lambda texts: (200, {}, {"message": "hello"}), "without vectors"),
        (lambda texts: (401, {}, {"error": "no such key"}), "no such key"),
    ],
)
def test_an_interface_that_answers_badly_is_refused_in_a_line(
    words: list[str],
    interface: Interface,
    answer: Any,
    said: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    interface.answer = lambda number, texts: answer(texts)
    assert main(words) == 1
    told = capsys.readouterr().err
    assert said in told
    assert "Traceback" not in told
    assert not (tmp_path / "run.txt").exists()
    assert not list((tmp_path / "run.txt.vectors").glob("*.npy"))


def test_other_dimensions_for_queries_are_refused(
    words: list[str], interface: Interface, capsys: pytest.CaptureFixture[str]
) -> None:
    def other(number: int, texts: list[str]) -> Answer:
        rows = [{"index": place, "embedding": [1.0] * (3 + number)} for place in range(len(texts))]
        return 200, {}, {"data": rows}

    interface.answer = other
    assert main(words) == 1
    assert "5 dimensions after 4" in capsys.readouterr().err


def test_a_busy_interface_is_asked_again_and_what_was_encoded_is_kept(
    words: list[str], interface: Interface, capsys: pytest.CaptureFixture[str]
) -> None:
    interface.answer = lambda number, texts: (
        interface.well(texts) if number in (2, 6) else (429, {"Retry-After": "0"}, {"error": "slow down"})
    )
    assert main(words) == 3  # documents at the second try; queries not in three
    assert "429" in capsys.readouterr().err
    assert main(words) == 0
    assert [len(texts) for texts in interface.asked] == [4, 4, 2, 2, 2, 2]
