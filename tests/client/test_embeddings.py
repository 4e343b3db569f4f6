"""Runs by vectors of an interface like OpenAI's, which a server on loopback plays, well and badly."""

from __future__ import annotations

import gzip
import json
import sqlite3
import sys
import threading
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from evaluation.runs.header import read_header
from runboard import pacing
from runboard.cli import main

#: Response to the texts of a request: status, headers, and body.
Answer = tuple[int, dict[str, str], Any]
DOCUMENTS = {"d1": "heart blood", "d2": "sound waves", "d3": "heart sound", "d4": ""}
WORDS = ("heart", "blood", "sound", "waves")


def vector(text: str) -> list[float]:
    return [float(text.split().count(word)) for word in WORDS] + [0.001]


class Interface:
    """The server, what it was asked, and how it answers."""

    def __init__(self) -> None:
        self.asked: list[list[str]] = []
        self.signed: list[str | None] = []
        self.answer: Callable[[int, list[str]], Answer] = lambda number, texts: self.well(texts)
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                assert self.path == "/v1/embeddings"
                outer.asked.append(body["input"])
                outer.signed.append(self.headers["Authorization"])
                status, headers, content = outer.answer(len(outer.asked), body["input"])
                sent = content if isinstance(content, bytes) else json.dumps(content).encode()
                self.send_response(status)
                for name, value in {**headers, "Content-Length": str(len(sent))}.items():
                    self.send_header(name, value)
                self.end_headers()
                with suppress(ConnectionError):  # the client reads no more than it needs
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
    thread = threading.Thread(target=found.server.serve_forever, args=(0.02,))
    thread.start()
    yield found
    found.server.shutdown()
    thread.join()
    found.server.server_close()


@pytest.fixture
def words(package: None, interface: Interface, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.setattr(pacing, "WAITS", (0, 0))
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
    assert main([*words, "--batch", "3", "--jobs", "1", "--price", "0.5"]) == 0, capsys.readouterr().err
    text = (tmp_path / "run.txt").read_bytes()
    lines = [line.split() for line in text.decode().splitlines() if not line.startswith("#")]
    assert [line[2] for line in lines if line[0] == "q1"][:2] == ["d1", "d3"]
    assert next(line[2] for line in lines if line[0] == "q2") == "d2"
    assert len(lines) == 8
    metadata = read_header(text).metadata
    assert "closed_interface" not in metadata["method"]["retrieval"][0], "a server on this machine is not closed"
    assert metadata["resources"] == {
        "self_reported": "true", "tokens": "10", "cost_usd": "0.000005",  # a text that is there twice is encoded once
        "query_tokens": "4", "price_usd_per_million_tokens": "0.5", "cost_usd_per_1000_queries": "0.001000",
        "seconds_waited": metadata["resources"]["seconds_waited"],
    }  # fmt: skip
    assert interface.asked[1] == [" "]  # no interface takes an empty text
    asked = len(interface.asked)
    assert main([*words, "--price", "0.5"]) == 0
    assert len(interface.asked) == asked  # vectors were kept, and what they cost
    assert (tmp_path / "run.txt").read_bytes() == text


def test_a_run_without_torch_and_faiss_is_the_same(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(words) == 0
    run = (tmp_path / "run.txt").read_bytes()
    for name in ("torch", "faiss"):
        monkeypatch.setitem(sys.modules, name, None)  # as where they are not installed
    assert main(words) == 0
    assert (tmp_path / "run.txt").read_bytes() == run


def rows(count: int, **changed: Any) -> Answer:
    """An answer of so many vectors, something changed in each."""
    return 200, {}, {"data": [{"index": place, "embedding": [1.0, 0.5], **changed} for place in range(count)]}


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (rows(1), "1 vectors for 4 texts"),
        (
            (200, {}, {"data": [{"index": n, "embedding": [1.0] * (n + 1)} for n in range(4)]}),
            "different lengths",
        ),
        (rows(4, embedding=[]), "empty"),
        (rows(4, embedding=[float("nan"), 1.0]), "NaN"),
        (rows(4, embedding=[10**400, 1.0]), "infinite"),
        (rows(4, embedding=[True, False]), "values that are not numbers"),
        (rows(4, embedding=[None, 1.0]), "values that are not numbers"),
        (rows(4, embedding="AACAPwAAgD8="), "values that are not numbers"),
        (rows(4, embedding=[0.0, 0.0]), "zeros for the text “heart blood”"),
        (rows(4, index=7), "`index`"),
        (rows(4, index=[0]), "without vectors"),
        ((200, {}, {"data": [{"embedding": [1.0]}] * 4}), "without vectors"),
        ((200, {}, {**rows(4)[2], "usage": [3]}), "not a number of tokens"),
        ((200, {}, {**rows(4)[2], "usage": {"total_tokens": -3}}), "not a number of tokens"),
        ((200, {}, {**rows(4)[2], "usage": {"total_tokens": "many"}}), "not a number of tokens"),
        ((200, {}, b"<html>Welcome</html>"), "other than JSON"),
        ((200, {}, b" " * (5 << 20)), "more than 4,194,304 bytes"),
        ((200, {"Content-Encoding": "gzip"}, gzip.compress(bytes(64 << 20))), "more than 4,194,304 bytes"),
        ((400, {}, b"x" * (5 << 20)), "400 xxx"),
        ((200, {}, {"message": "hello"}), "without vectors"),
        ((401, {}, {"error": "no such key"}), "no such key"),
        ((401, {}, b"<html>\n<h1>\x1b[31mNo</h1>"), "401 <html> <h1>[31mNo</h1>"),
    ],
)
def test_an_interface_that_answers_badly_is_refused_in_a_line(
    words: list[str],
    interface: Interface,
    answer: Answer,
    said: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    interface.answer = lambda number, texts: answer
    assert main(words) == 1
    plan, told = capsys.readouterr().err.splitlines()
    assert plan.startswith("To send: ")
    assert said in told
    assert told.startswith(f"{interface.address}/v1/embeddings answered ")
    assert not (tmp_path / "run.txt").exists()
    (kept,) = (tmp_path / "run.txt.vectors").iterdir()
    with closing(sqlite3.connect(kept)) as file:
        assert file.execute("SELECT count(*) FROM vector").fetchone() == (0,)


def test_texts_are_not_sent_to_another_host(
    words: list[str], interface: Interface, capsys: pytest.CaptureFixture[str]
) -> None:
    elsewhere = interface.address.replace("127.0.0.1", "localhost")
    interface.answer = lambda number, texts: (307, {"Location": f"{elsewhere}/v1/embeddings"}, {})
    assert main(words) == 1
    assert "to another host, localhost" in capsys.readouterr().err
    assert len(interface.asked) == 1


def test_other_dimensions_for_queries_are_refused(
    words: list[str], interface: Interface, capsys: pytest.CaptureFixture[str]
) -> None:
    def other(number: int, texts: list[str]) -> Answer:
        rows = [{"index": place, "embedding": [1.0] * (3 + number)} for place in range(len(texts))]
        return 200, {}, {"data": rows}

    interface.answer = other
    assert main(words) == 1
    assert "5 dimensions after 4" in capsys.readouterr().err
    interface.answer = lambda number, texts: rows(len(texts))
    assert main(words) == 1  # compared with what an earlier process kept
    assert "2 dimensions after 4" in capsys.readouterr().err


def test_a_busy_interface_is_asked_again_and_every_answer_is_kept(
    words: list[str], interface: Interface, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    interface.answer = lambda number, texts: (
        interface.well(texts) if number in (2, 3) else (429, {"Retry-After": "0"}, {"error": "slow down"})
    )
    words += ["--batch", "1", "--jobs", "1", "--price", "1000000"]
    assert main(words) == 3  # the first document at the second try, the second at once, the third in none of three
    assert "429" in capsys.readouterr().err
    interface.answer = lambda number, texts: interface.well(texts)
    assert main(words) == 0
    assert [texts for (texts,) in interface.asked[6:]] == ["heart sound", " ", "waves"]
    metadata = read_header((tmp_path / "run.txt").read_bytes()).metadata
    assert metadata["resources"]["cost_usd"] == "10.000000"  # of both processes; a text of both is encoded once


@pytest.mark.parametrize("usage", [{}, {"usage": None}, {"usage": {"total_tokens": None}}])
def test_no_cost_is_stated_where_the_interface_says_no_tokens(
    words: list[str],
    interface: Interface,
    usage: dict[str, Any],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    interface.answer = lambda number, texts: (200, {}, {**rows(len(texts))[2], **usage})
    assert main([*words, "--price", "1"]) == 0
    assert "states no cost" in capsys.readouterr().err
    told = read_header((tmp_path / "run.txt").read_bytes()).metadata["resources"]
    assert set(told) == {"self_reported", "seconds_waited"}


def test_a_password_in_the_address_is_sent_and_written_nowhere(
    words: list[str], interface: Interface, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = words.index(interface.address)
    words[place] = interface.address.replace("//", "//someone:pa%3A55@")
    assert main(words) == 0
    assert interface.signed[0] == "Basic " + b64encode(b"someone:pa:55").decode()
    words[place] = interface.address
    asked = len(interface.asked)
    assert main(words) == 0
    assert len(interface.asked) == asked  # it is the same interface
    words[place] = interface.address.replace("//", "//someone:pa%3A55@")
    interface.answer = lambda number, texts: (403, {}, {})
    assert main([*words, "--query-prefix", "new"]) == 1
    files = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    for told in (files.decode("utf-8", "replace"), capsys.readouterr().err, str(list(tmp_path.rglob("*")))):
        assert "someone" not in told
        assert "pa%3A55" not in told


@pytest.mark.parametrize(
    ("name", "given", "said"),
    [
        ("corpus", '{"_id": "d1", "text": "a"}\nno JSON\n{"_id": "d 2", "text": "a"}\n', "line 3"),
        ("corpus", '{"_id": "d1", "text": "a"}\n{"_id": "d1", "text": "b"}\n', "(line 2)"),
        ("corpus", "", "corpus.jsonl has no document"),
        ("queries", "\n", "queries.jsonl has no query"),
        ("--batch", "0", "not a whole number of at least 1"),
        ("--depth", "0", "not a whole number of at least 1"),
        ("--depth", "-3", "not a whole number of at least 1"),
        ("--price", "nan", "not a price"),
        ("--price", "-1", "not a price"),
        ("--endpoint", "api.example.org", "OPENAI_API_KEY"),
        ("--endpoint", "http://me:se/cret@example.org/", "OPENAI_API_KEY"),
        ("--endpoint", "http://example.org/?key=secret", "OPENAI_API_KEY"),
    ],
)
def test_what_is_given_wrong_is_said_before_anything_is_asked(
    words: list[str],
    interface: Interface,
    name: str,
    given: str,
    said: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if name.startswith("-"):
        words.append(f"{name}={given}")
    else:
        (tmp_path / f"{name}.jsonl").write_text(given)
    try:
        status = main(words)
    except SystemExit as ended:  # of argparse
        status = int(str(ended.code))
    told = capsys.readouterr().err
    assert status == 2
    assert said in told
    assert "secret" not in told
    assert not interface.asked
    assert not (tmp_path / "run.txt").exists()
