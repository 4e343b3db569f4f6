"""Embedding and reranking APIs of all formats, played by servers on loopback."""

from __future__ import annotations

import json
import socket
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import wait as concurrent_wait
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from evaluation.runs.header import read_header
from runboard import endpoint, pacing, requesting
from runboard.cli import main
from tests.client.loopback import Answer, Request, playing

WORDS = ("heart", "blood", "sound", "waves")
DOCUMENTS = {
    f"d{n}": text for n, text in enumerate(("heart blood", "sound waves", "heart sound", "blood", "waves", "heart"))
}
QUERIES = {"q1": "blood heart heart", "q2": "sound"}
KEYS = {
    "openai": "OPENAI_API_KEY", "cohere": "COHERE_API_KEY", "voyage": "VOYAGE_API_KEY", "jina": "JINA_API_KEY",
    "gemini": "GEMINI_API_KEY", "tei": "TEI_API_KEY", "vllm": "VLLM_API_KEY",
}  # fmt: skip
RERANKERS = ("cohere", "voyage", "jina", "tei", "vllm")
COMMIT = "0123456789abcdef0123456789abcdef01234567"
#: Body and headers of a response to texts with these vectors or scores.
Content = tuple[Any, dict[str, str]]


def vector(text: str) -> list[float]:
    return [float(text.split().count(word)) for word in WORDS] + [0.5]


def score(query: str, text: str) -> float:
    return sum(a * b for a, b in zip(vector(query), vector(text), strict=True)) / 100 + len(text) / 1e4


class Call(NamedTuple):
    """A request of an API's format: its texts, the fields beside them, and the query for a reranker."""

    texts: list[str]
    fields: dict[str, Any]
    query: str = ""


def parse_call(form: str, request: Request) -> Call:
    """Check the path and the key of a request, and return its content."""
    path = request.path.removeprefix("/")
    body = json.loads(request.body)
    is_reranking = path.endswith("rerank")
    expected_path = {
        "cohere": "v2/rerank" if is_reranking else "v2/embed", "tei": "rerank" if is_reranking else "embed",
        "gemini": "v1beta/models/acme-small:batchEmbedContents",
    }.get(form, "v1/rerank" if is_reranking else "v1/embeddings")  # fmt: skip
    assert path == expected_path
    headers = {name.lower(): value for name, value in request.headers.items()}
    if form == "gemini":
        assert headers["x-goog-api-key"] == "key of gemini"
        assert "authorization" not in headers
        rows = body["requests"]
        assert all(row.pop("model") == "models/acme-small" for row in rows)
        texts = [row.pop("content")["parts"][0]["text"] for row in rows]
        assert all(row == rows[0] for row in rows)
        return Call(texts, rows[0])
    assert headers["authorization"] == f"Bearer key of {form}"
    assert (body.pop("model", None) == "acme-small") == (form != "tei")
    name = "inputs" if form == "tei" else "texts" if form == "cohere" else "input"
    if is_reranking:
        name = "texts" if form == "tei" else "documents"
    return Call(body.pop(name), body, body.pop("query", ""))


def embeddings(form: str, vectors: list[list[float]]) -> Content:
    tokens = 3 * len(vectors)
    if form == "cohere":
        return {"embeddings": {"float": vectors}, "meta": {"billed_units": {"input_tokens": float(tokens)}}}, {}
    if form == "gemini":
        rows = [{"values": values} for values in vectors]
        return {"embeddings": rows, "usageMetadata": {"promptTokenCount": tokens}}, {}
    if form == "tei":
        return vectors, {"x-compute-tokens": str(tokens)}
    rows = [{"index": index, "embedding": values} for index, values in enumerate(vectors)]
    return {"data": rows[::-1], "usage": {"total_tokens": tokens}}, {}


def scores(form: str, values: list[float]) -> Content:
    tokens = 5 * len(values)
    name = "score" if form == "tei" else "relevance_score"
    rows = sorted(({"index": index, name: value} for index, value in enumerate(values)), key=lambda row: -row[name])
    if form == "tei":
        return rows, {"x-compute-tokens": str(tokens)}
    usage = {"meta": {"billed_units": {"search_units": 1}}} if form == "cohere" else {"usage": {"total_tokens": tokens}}
    return {"data" if form == "voyage" else "results": rows, **usage}, {}


def answer_well(form: str, call: Call) -> Answer:
    content, headers = (
        scores(form, [score(call.query, text) for text in call.texts])
        if call.query
        else embeddings(form, [vector(text) for text in call.texts])
    )
    return Answer(content, headers=headers)


class Provider:
    """An API of one format: the calls that it received, and how it responds to them."""

    def __init__(self, form: str) -> None:
        self.form, self.calls = form, list[Call]()
        self.respond: Callable[[Call], Answer] = lambda call: answer_well(form, call)
        self.address = ""

    def __call__(self, request: Request) -> Answer:
        call = parse_call(self.form, request)
        self.calls.append(call)
        return self.respond(call)

    @property
    def texts(self) -> list[str]:
        return [text for call in self.calls for text in call.texts]


@contextmanager
def on_loopback(provider: Provider) -> Iterator[None]:
    """Serve the API, and set its address."""
    with playing(provider) as server:
        provider.address = server.address
        yield


class Runner:
    """Commands on the same collection; each has its own output and cache unless they share a name."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name, rows in (("corpus", DOCUMENTS), ("queries", QUERIES)):
            lines = [json.dumps({"_id": key, "title": "", "text": text}) for key, text in rows.items()]
            (folder / f"{name}.jsonl").write_text("\n".join(lines))
        first_stage = [f"{query} Q0 {document} 1 {n} bm25" for query in QUERIES for n, document in enumerate(DOCUMENTS)]
        (folder / "first.txt").write_text("\n".join(first_stage))

    def __call__(self, command: str, provider: Provider, *words: str, out: str = "") -> int:
        given = ["--run", str(self.folder / "first.txt")] if command == "rerank" else []
        return main([
            command, "--endpoint", provider.address, "--format", provider.form, "--model", "acme-small",
            "--corpus", str(self.folder / "corpus.jsonl"), "--queries", str(self.folder / "queries.jsonl"),
            "--out", str(self.path(provider.form, out)), *given, *words,
        ])  # fmt: skip

    def path(self, form: str, out: str = "") -> Path:
        return self.folder / f"{out or form}.txt"

    def lines(self, form: str, out: str = "") -> str:
        """The run without its header."""
        lines = self.path(form, out).read_text().splitlines()
        return "\n".join(line for line in lines if not line.startswith("#"))

    def metadata(self, form: str, out: str = "") -> dict[str, Any]:
        return read_header(self.path(form, out).read_bytes()).metadata


@pytest.fixture
def run(package: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Runner:
    monkeypatch.setattr(pacing, "WAITS", (0, 0))
    for form, variable in KEYS.items():
        monkeypatch.setenv(variable, f"key of {form}")
    return Runner(tmp_path)


@pytest.fixture
def provider(request: pytest.FixtureRequest) -> Any:
    """The API of the format that the test's parameter names, by default OpenAI's."""
    provider = Provider(getattr(request, "param", "openai"))
    with on_loopback(provider):
        yield provider


#: Fields beside the texts, the model, and those of kind: of embeddings for documents and queries, and of scores.
FIELDS = {
    "openai": ({"encoding_format": "float"}, {}, {}, None),
    "cohere": ({"embedding_types": ["float"]}, {"input_type": "search_document"}, {"input_type": "search_query"}, {}),
    "voyage": ({}, {"input_type": "document"}, {"input_type": "query"}, {}),
    "jina": (
        {"embedding_type": "float"}, {"task": "retrieval.passage"}, {"task": "retrieval.query"},
        {"return_documents": False},
    ),
    "gemini": ({}, {"taskType": "RETRIEVAL_DOCUMENT"}, {"taskType": "RETRIEVAL_QUERY"}, None),
    "tei": ({"truncate": True}, {}, {}, {"truncate": True, "raw_scores": True}),
    "vllm": ({"encoding_format": "float"}, {}, {}, {}),
}  # fmt: skip
DIMENSIONS = {"cohere": "output_dimension", "voyage": "output_dimension", "gemini": "outputDimensionality"}


def test_every_format_gives_the_same_run(run: Runner) -> None:
    runs = {}
    for form, (fixed, document, query, _) in FIELDS.items():
        provider = Provider(form)
        with on_loopback(provider):
            words = ("--dimensions", "5", "--query-extra", '{"extra": [1]}', "--price", "2")
            assert run("retrieve", provider, *words) == 0
        dimensions = {DIMENSIONS.get(form, "dimensions"): 5}
        sent = {json.dumps(call.fields, sort_keys=True): call.texts for call in provider.calls}
        assert sent[json.dumps({**fixed, **document, **dimensions}, sort_keys=True)] == list(DOCUMENTS.values())
        assert sent[json.dumps({**fixed, **query, **dimensions, "extra": [1]}, sort_keys=True)] == list(
            QUERIES.values()
        )
        runs[form] = run.lines(form)
        metadata = run.metadata(form)
        assert metadata["resources"]["tokens"] == "24"
        assert metadata["resources"]["query_tokens"] == "6"
        assert metadata["resources"]["cost_usd"] == "0.000048"
        assert metadata["resources"]["cost_usd_per_1000_queries"] == "0.006000"
        (method,) = metadata["method"]["retrieval"]
        assert (method["name"], method["dimension"], method["format"]) == ("dense", "5", form)
    assert len(set(runs.values())) == 1
    first_line = runs["openai"].split("\n")[0]
    assert first_line.startswith("q1 Q0 d0 1 ")


def test_every_reranker_gives_the_same_run(run: Runner) -> None:
    runs = {}
    for form in RERANKERS:
        provider = Provider(form)
        with on_loopback(provider):
            assert run("rerank", provider, "--depth", "4", "--extra", '{"instruction": "find"}', "--price", "2") == 0
        assert sorted(call.query for call in provider.calls) == sorted(QUERIES.values())
        for call in provider.calls:
            assert call.fields == {**(FIELDS[form][3] or {}), "instruction": "find"}
            assert sorted(call.texts) == sorted(list(DOCUMENTS.values())[2:]), "the last four have the highest scores"
        runs[form] = run.lines(form)
        resources = run.metadata(form)["resources"]
        if form == "cohere":
            assert "tokens" not in resources, "Cohere bills searches"
        else:
            assert (resources["tokens"], resources["cost_usd_per_1000_queries"]) == ("40", "0.040000")
        (method,) = run.metadata(form)["method"]["retrieval"]
        assert (method["name"], method["first_stage"], method["depth"]) == ("re-ranking", "bm25", "4")
    assert len(set(runs.values())) == 1
    ranking = [line.split()[2] for line in runs["tei"].split("\n") if line.startswith("q1 ")]
    assert ranking == sorted(list(DOCUMENTS)[2:], key=lambda name: -score(QUERIES["q1"], DOCUMENTS[name]))


def test_the_cost_of_queries_can_be_stated_where_an_api_does_not_count_tokens(run: Runner) -> None:
    provider = Provider("cohere")
    with on_loopback(provider):
        assert run("rerank", provider, "--cost-per-1000-queries", "2") == 0
    resources = run.metadata("cohere")["resources"]
    assert resources.items() >= {"self_reported": "true", "cost_usd_per_1000_queries": "2.000000"}.items()
    assert "cost_usd" not in resources


def changed(form: str, kind: str, call: Call) -> Answer:
    """Respond to a call with one fault."""
    values: list[Any] = [score(call.query, text) if call.query else vector(text) for text in call.texts]
    if kind == "partial":
        values = values[:-1]
    elif kind == "nan":
        values[0] = float("nan") if call.query else [float("nan"), *values[0][1:]]
    elif kind == "dimensions":
        values = [row[:-1] for row in values]
    content, headers = scores(form, values) if call.query else embeddings(form, values)
    if kind == "index":
        rows = content if form == "tei" else content.get("data") or content["results"]
        rows[0]["index"] = rows[1]["index"]
    return Answer(content, headers=headers)


@pytest.mark.parametrize("provider", KEYS, indirect=True)
@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("partial", "answered 5 vectors for 6 texts"),
        ("nan", "not finite"),
        ("dimensions", "answered vectors of 4 dimensions instead of 5; choose --dimensions that the model supports"),
        ("index", "whose `index` is not each of 0 to 5 once"),
    ],
)
def test_faulty_vectors_are_refused(
    kind: str, reason: str, provider: Provider, run: Runner, capsys: pytest.CaptureFixture[str]
) -> None:
    if kind == "index" and provider.form in ("cohere", "gemini", "tei"):
        pytest.skip("This format returns vectors in the order of the texts.")
    provider.respond = lambda call: changed(provider.form, kind, call)
    assert run("retrieve", provider, "--dimensions", "5") == 1
    assert reason in capsys.readouterr().err
    assert not run.path(provider.form).exists()


@pytest.mark.parametrize("provider", RERANKERS, indirect=True)
@pytest.mark.parametrize(
    ("kind", "reason"),
    [("partial", "answered 5 scores for 6 texts"), ("nan", "not finite"), ("index", "is not each of 0 to 5 once")],
)
def test_faulty_scores_are_refused(
    kind: str, reason: str, provider: Provider, run: Runner, capsys: pytest.CaptureFixture[str]
) -> None:
    provider.respond = lambda call: changed(provider.form, kind, call)
    assert run("rerank", provider) == 1
    assert reason in capsys.readouterr().err
    assert not run.path(provider.form).exists()


@pytest.mark.parametrize("command", ["retrieve", "rerank"])
def test_as_many_requests_are_in_flight_as_jobs(command: str, run: Runner) -> None:
    provider = Provider("vllm")
    lock, running, most = threading.Lock(), 0, 0
    together = threading.Barrier(3)

    def respond(call: Call) -> Answer:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        together.wait(10)  # It breaks unless three requests are in flight.
        time.sleep(0.05)  # A fourth request would arrive now.
        with lock:
            running -= 1
        return answer_well("vllm", call)

    provider.respond = respond
    words = ("--jobs", "3", "--batch", "1" if command == "rerank" else "2")
    if command == "retrieve":
        # The two queries are one request, which is answered at once.
        provider.respond = lambda call: (
            respond(call) if call.texts[0] in DOCUMENTS.values() else answer_well("vllm", call)
        )
    with on_loopback(provider):
        assert run(command, provider, *words) == 0
    assert most == 3


@pytest.mark.parametrize(
    ("command", "provider"),
    [*(("retrieve", form) for form in KEYS), *(("rerank", form) for form in RERANKERS)],
    indirect=["provider"],
)
def test_a_busy_api_of_every_format_is_asked_again(command: str, provider: Provider, run: Runner) -> None:
    assert run(command, provider, out="undisturbed") == 0
    busy = iter([Answer({"error": "slow down"}, 429, {"Retry-After": "0"}), Answer("busy", 429)])
    sent = len(provider.calls)
    provider.respond = lambda call: next(busy, None) or answer_well(provider.form, call)
    assert run(command, provider, "--cache", str(run.folder / "other")) == 0
    assert run.lines(provider.form) == run.lines(provider.form, "undisturbed")
    assert len(provider.calls) == sent + sent + 2


def test_all_requests_pause_when_the_api_is_busy(run: Runner, provider: Provider) -> None:
    arrivals: list[float] = []
    busy_until = 0.0

    def respond(call: Call) -> Answer:
        nonlocal busy_until
        now = time.monotonic()
        arrivals.append(now)
        if len(arrivals) == 2:
            busy_until = now + 1
            return Answer({"error": "slow down"}, 429, {"Retry-After": "1"})
        time.sleep(0.1)
        return answer_well("openai", call)

    provider.respond = respond
    assert run("retrieve", provider, "--batch", "1", "--jobs", "2") == 0
    early = [arrival for arrival in arrivals[2:] if arrival < busy_until - 0.05]
    assert not early, "no request is sent during the pause, whichever request was refused"
    assert len(arrivals) == len(DOCUMENTS) + len(QUERIES) + 1


def test_an_api_that_stays_busy_ends_the_command(run: Runner, provider: Provider) -> None:
    provider.respond = lambda call: Answer({}, 429)
    assert run("retrieve", provider, "--batch", "1", "--jobs", "3") == 3
    assert len(provider.calls) <= 3 * 3


@pytest.mark.parametrize("command", ["retrieve", "rerank"])
def test_results_of_the_requests_in_flight_are_stored_when_another_fails(
    command: str, run: Runner, capsys: pytest.CaptureFixture[str]
) -> None:
    provider = Provider("vllm")
    paid: Counter[tuple[str, str]] = Counter()
    failed = threading.Event()

    def fail_once(call: Call) -> Answer:
        if call.texts == ["heart sound"] and not failed.is_set():
            time.sleep(0.1)
            failed.set()
            return Answer({"error": "no more credit"}, 402)
        if call.texts == ["sound waves"]:
            failed.wait(10)
            time.sleep(0.1)  # Its response arrives after the failure.
        paid.update((call.query, text) for text in call.texts)
        return answer_well("vllm", call)

    provider.respond = fail_once
    words = ("--batch", "1", "--jobs", "2", "--price", "1")
    with on_loopback(provider):
        assert run(command, provider, *words) == 1
        assert "402" in capsys.readouterr().err
        assert not run.path("vllm").exists()
        assert paid
        assert run(command, provider, *words) == 0
    assert set(paid.values()) == {1}, "nothing is paid twice"
    assert len(paid) == (12 if command == "rerank" else 8)
    assert run.metadata("vllm")["resources"]["tokens"] == str(sum(paid.values()) * (5 if command == "rerank" else 3))


def test_an_interrupted_command_stores_the_requests_in_flight(
    run: Runner, provider: Provider, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    waits = 0

    def interrupted_once(*arguments: Any, **options: Any) -> Any:
        nonlocal waits
        waits += 1
        if waits == 2:
            raise KeyboardInterrupt
        return concurrent_wait(*arguments, **options)

    monkeypatch.setattr(requesting, "wait", interrupted_once)
    assert run("retrieve", provider, "--batch", "1", "--jobs", "3") == 130
    assert "Run the same command again to continue." in capsys.readouterr().err
    assert 3 <= len(provider.texts) < len(DOCUMENTS)
    assert run("retrieve", provider, "--batch", "1", "--jobs", "3") == 0
    assert sorted(provider.texts) == sorted([*DOCUMENTS.values(), *QUERIES.values()]), "nothing is paid twice"


@pytest.fixture(params=["HTTP/1.1 200 OK\r\nX: ", "HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n"])
def slow(request: pytest.FixtureRequest) -> Iterator[Provider]:
    """Serve responses that begin as given and then arrive byte by byte without end."""
    stopped, provider = threading.Event(), Provider("openai")

    def respond(client: socket.socket) -> None:
        with client, suppress(OSError):
            client.sendall(request.param.encode())
            while not stopped.wait(0.02):
                client.sendall(b"1")

    def serve() -> None:
        with suppress(OSError):
            while True:
                threading.Thread(target=respond, args=listener.accept()[:1], daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        provider.address = f"http://127.0.0.1:{listener.getsockname()[1]}/"
        threading.Thread(target=serve, daemon=True).start()
        yield provider
        stopped.set()
        listener.shutdown(socket.SHUT_RDWR)


def test_a_response_without_end_is_a_failed_request(
    run: Runner, slow: Provider, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(endpoint, "MAX_REQUEST_SECONDS", 0.1)
    assert run("retrieve", slow) == 3
    assert "failed 3 times: Timeout. Finished results are stored." in capsys.readouterr().err


@pytest.mark.parametrize(("seconds", "interrupts"), [(0.1, 1), (1e9, 2)])
def test_interrupts_end_requests_that_do_not_finish(
    run: Runner, slow: Provider, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
    seconds: float, interrupts: int,
) -> None:  # fmt: skip
    pending = iter([KeyboardInterrupt] * interrupts)

    def interrupt_wait(*arguments: Any, **options: Any) -> Any:
        if interrupt := next(pending, None):
            raise interrupt
        return concurrent_wait(*arguments, **options)

    monkeypatch.setattr(requesting, "INTERRUPT_SECONDS", seconds)
    monkeypatch.setattr(requesting, "wait", interrupt_wait)
    assert run("retrieve", slow) == 130
    assert "Run the same command again to continue." in capsys.readouterr().err


def test_results_are_cached_by_fields_and_dimensions(run: Runner, provider: Provider) -> None:
    cache = ("--cache", str(run.folder / "cache"))
    assert run("retrieve", provider, *cache) == 0
    del provider.calls[:]
    assert run("retrieve", provider, *cache) == 0
    assert not provider.calls
    assert run("retrieve", provider, *cache, "--query-extra", '{"prompt": "query: "}') == 0
    assert provider.texts == list(QUERIES.values()), "documents have the same fields as before"
    del provider.calls[:]
    provider.respond = lambda call: Answer(embeddings("openai", [vector(text)[:4] for text in call.texts])[0])
    assert run("retrieve", provider, *cache, "--dimensions", "4") == 0
    assert len(provider.texts) == len(DOCUMENTS) + len(QUERIES)


class Terminal:
    """Standard input of a user who types one line."""

    def __init__(self, line: str) -> None:
        self.line = line

    def isatty(self) -> bool:
        return True

    def readline(self) -> str:
        return self.line


def test_a_user_is_asked_before_the_first_request(
    run: Runner, provider: Provider, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", Terminal("\n"))
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    assert run("retrieve", provider, "--price", "1e5") == 0, "a server on this machine costs nothing"
    assert "Continue?" not in capsys.readouterr().err
    monkeypatch.setattr(endpoint.Endpoint, "is_local", False)
    words = ("retrieve", provider, "--price", "1e5", "--batch", "4")
    del provider.calls[:]
    assert run(*words, out="declined") == 1
    told = capsys.readouterr().err
    size = sum(len(text) for text in (*DOCUMENTS.values(), *QUERIES.values()))
    assert f"8 texts in 3 requests, about {-(-size // 4)} tokens (about {-(-size // 4) / 10:.2f} US dollars" in told
    assert "Nothing was sent." in told
    assert not provider.calls
    monkeypatch.setattr(sys, "stdin", Terminal("y\n"))
    assert run(*words, out="accepted") == 0
    monkeypatch.setattr(sys, "stdin", Terminal("n\n"))
    assert run(*words, out="accepted") == 0, "everything is cached"
    assert run(*words, "--yes", out="forced") == 0
    monkeypatch.setattr(sys.stdin, "isatty", lambda: False)
    assert run(*words, out="script") == 0, "scripts are not asked"


@pytest.mark.parametrize(
    ("words", "is_local", "expected"),
    [
        ((), True, {}),
        ((), False, {"closed_interface": "true"}),
        (("--closed-api",), True, {"closed_interface": "true"}),
        (
            ("--open-weights", f"acme/small@{COMMIT}"), False,
            {"open_weights": "true", "hub_model": "acme/small", "hub_commit": COMMIT},
        ),
    ],
)  # fmt: skip
def test_a_run_states_whether_others_can_run_the_model(
    words: tuple[str, ...], is_local: bool, expected: dict[str, str], run: Runner, provider: Provider,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(endpoint.Endpoint, "is_local", is_local)
    assert run("retrieve", provider, *words) == 0
    (method,) = run.metadata("openai")["method"]["retrieval"]
    names = ("closed_interface", "open_weights", "hub_model", "hub_commit")
    assert {name: method[name] for name in names if name in method} == expected


@pytest.mark.parametrize(
    ("host", "is_local"),
    [("127.0.0.1", True), ("127.8.9.1:80", True), ("[::1]:8080", True), ("localhost", True), ("api.example.org", False),
     ("10.0.0.1", False), ("localhost.example.org", False)],
)  # fmt: skip
def test_loopback_addresses_are_recognized(host: str, is_local: bool) -> None:
    form = endpoint.Format("/embed", "inputs", (), "", (), 32)
    assert endpoint.Endpoint(f"http://{host}/", "m", form, "TEI_API_KEY").is_local == is_local


@pytest.mark.parametrize(
    ("command", "words", "reason"),
    [
        ("retrieve", ("--query-extra", "[1]"), "expected a JSON object"),
        ("retrieve", ("--document-extra", '{"texts": []}'), "must not contain texts"),
        ("retrieve", ("--query-extra", '{"output_dimension": 9, "model": "x"}'), "must not contain model, output_dim"),
        ("retrieve", ("--open-weights", "acme/small@main"), "40 hexadecimal digits"),
        ("retrieve", ("--jobs", "65"), "from 1 to 64"),
        ("retrieve", ("--price", "1", "--cost-per-1000-queries", "1"), "not allowed with"),
        ("rerank", ("--format", "openai"), "invalid choice"),
        ("rerank", ("--run", "nowhere.txt"), "nowhere.txt"),
    ],
)
def test_wrong_arguments_are_reported_before_a_request(
    command: str, words: tuple[str, ...], reason: str, run: Runner, capsys: pytest.CaptureFixture[str]
) -> None:
    provider = Provider("cohere")
    with on_loopback(provider):
        try:
            status = run(command, provider, *words)
        except SystemExit as ended:
            status = int(str(ended.code))
    assert status == 2
    assert reason in capsys.readouterr().err
    assert not provider.calls


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        ("q1 Q0 unknown 1 3 tag\n", "documents that are not in"),
        ("other Q0 d1 1 3 tag\n", "ranks no query"),
        ("q1 Q0 d1\n", "not a line of a run"),
    ],
)
def test_a_run_that_cannot_be_reranked_is_reported(
    lines: str, reason: str, run: Runner, capsys: pytest.CaptureFixture[str]
) -> None:
    (run.folder / "first.txt").write_text(lines)
    provider = Provider("tei")
    provider.address = "http://127.0.0.1:9"
    assert run("rerank", provider) == 2
    assert reason in capsys.readouterr().err
