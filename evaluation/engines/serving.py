"""Engines that use the HTTP server of a container image to encode texts or score documents.

`/v1/embeddings` follows OpenAI, as served by TEI, vLLM, and Infinity. `/rerank` follows the API of Cohere and Jina
(`documents`), as served by vLLM and Infinity. If the server refuses it, the engine tries TEI's API (`texts`).
Runboard indexes, searches, and measures as for checkpoints. Requests use a Unix socket, and responses are
untrusted.
"""

import base64
import http.client
import os
import select
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from evaluation.checkpoints.description import CheckpointDescription, CheckpointKind
from evaluation.core.problems import ModelFailure
from evaluation.engines import cross_encoder, dense
from evaluation.engines.base import (
    AUTO,
    IMAGE_ON_SITE_ONLY,
    EngineDescription,
    Floats,
    InvalidParameter,
    Parameter,
    Progress,
    Resources,
    ignore,
)
from evaluation.engines.index.vector_index import normalize_vectors
from evaluation.engines.prompts import SIDES, select_prompt

#: Timeouts in seconds of a request, and of a readiness check.
_TIMEOUT, _READY_TIMEOUT = 600.0, 5.0
_MAX_ANSWER = 256 << 20
#: HTTP statuses of a busy server, and the pauses in seconds before retries.
_BUSY, _PAUSES = (429, 503), (0.05, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0)
#: HTTP statuses for requests that are too large or have an unsupported format.
_REFUSED = (400, 404, 405, 413, 422)
#: Maximum dimension of vectors, and maximum length of a model's name, which is part of every request.
_MAX_DIMENSION, _MAX_NAME = 65_536, 500


class TimedSocket(socket.socket):
    """Socket that receives until a deadline on the monotonic clock."""

    deadline = 0.0

    def recv_into(self, *arguments: Any) -> int:
        """Receive bytes. Raises TimeoutError after the deadline, even if there are more."""
        seconds = self.deadline - time.monotonic()
        if seconds <= 0 or not select.select([self], [], [], seconds)[0]:
            raise TimeoutError
        return super().recv_into(*arguments)


class UnixConnection(http.client.HTTPConnection):
    """HTTP connection over a Unix socket. Its path may exceed the kernel's limit of 107 bytes.

    The timeout limits a whole response, unlike that of `http.client`, which limits single reads.
    """

    sock: TimedSocket
    timeout: float

    def __init__(self, path: Path, timeout: float = _TIMEOUT) -> None:
        super().__init__("localhost", timeout=timeout)
        self._path = path

    def request(self, *arguments: Any, **options: Any) -> None:
        super().request(*arguments, **options)
        self.sock.deadline = time.monotonic() + self.timeout

    def connect(self) -> None:
        self.sock = TimedSocket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        folder = os.open(self._path.parent, os.O_PATH | os.O_DIRECTORY)
        try:
            self.sock.connect(f"/proc/self/fd/{folder}/{self._path.name}")
        finally:
            os.close(folder)


def is_ready(path: Path) -> bool:
    """Return whether the server answers `/health` with a status other than 503."""
    with suppress(OSError, http.client.HTTPException), closing(UnixConnection(path, _READY_TIMEOUT)) as connection:
        connection.request("GET", "/health")
        return connection.getresponse().status != 503
    return False


class RequestRefused(Exception):
    """The server refused the format or the size of a request."""


@dataclass(frozen=True, slots=True)
class BatchRequest:
    """Request for a batch: its address, and functions that build its body and parse (index, row) pairs."""

    address: str
    body: Callable[[list[str]], Mapping[str, Any]]
    parse: Callable[[Any], Iterator[tuple[int, Any]]]


class ServerClient:
    """Thread-safe client of the server, with one connection per thread. Methods raise ModelFailure."""

    def __init__(self, path: Path, parameters: Mapping[str, Any]) -> None:
        self._path, self._local = path, threading.local()
        self.batch_texts: int = parameters["batch_texts"]
        self._threads = ThreadPoolExecutor(parameters["concurrency"], thread_name_prefix="requests")
        self._model = parameters["served_model"] or self._first_model()

    def post(self, address: str, body: Mapping[str, Any]) -> Any:
        """Return the JSON response, retrying while the server is busy. Raises RequestRefused."""
        content = orjson.dumps({"model": self._model, **body})
        for pause in (*_PAUSES, None):
            status, answer = self._request("POST", address, content)
            if status == 200:
                return answer
            if status in _REFUSED:
                raise RequestRefused
            if status not in _BUSY or pause is None:
                break
            time.sleep(pause)
        raise ModelFailure("server_answer", f"the server answered {address} with status {status}")

    def get_rows(self, request: BatchRequest, texts: list[str]) -> Floats:
        """Return one row per text. Batches are halved until the server accepts their size."""
        try:
            answer = self.post(request.address, request.body(texts))
        except RequestRefused as error:
            if len(texts) == 1:
                raise ModelFailure("server_answer", f"the server refuses requests to {request.address}") from error
            half = (len(texts) + 1) // 2
            self.batch_texts = min(self.batch_texts, half)
            return np.concatenate([self.get_rows(request, texts[:half]), self.get_rows(request, texts[half:])])
        try:
            by_index = dict(request.parse(answer))
            rows = np.array([by_index[index] for index in range(len(texts))], np.float32)
        except (LookupError, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise ModelFailure("server_answer", "an answer does not have one result for each text") from error
        if not np.isfinite(rows).all():
            raise ModelFailure("not_finite_output", "the server returned infinite or undefined values")
        return rows

    def run(self, calls: Sequence[Callable[[], None]], progress: Progress = ignore) -> None:
        """Run the calls in the thread pool. After the first error, cancel the pending ones and raise it."""
        futures = [self._threads.submit(call) for call in calls]
        try:
            for number, future in enumerate(futures, 1):
                future.result()
                progress(number / len(futures))
        finally:
            for future in futures:
                future.cancel()

    def _first_model(self) -> str:
        """Return the first model that the server lists, or a default name."""
        with suppress(ModelFailure, LookupError, TypeError):
            return str(self._request("GET", "/v1/models", b"")[1]["data"][0]["id"])[:_MAX_NAME]
        return "default"

    def _request(self, method: str, address: str, content: bytes) -> tuple[int, Any]:
        """Return the status and the parsed response. Reconnect once if the server has closed the connection."""
        for is_last in (False, True):
            connection = getattr(self._local, "connection", None) or UnixConnection(self._path)
            self._local.connection = connection
            try:
                connection.request(method, address, content, {"Content-Type": "application/json"})
                response = connection.getresponse()
                text = response.read(_MAX_ANSWER + 1)
                if len(text) > _MAX_ANSWER:
                    raise ModelFailure("server_answer", "an answer of the server is too long")
                return response.status, orjson.loads(text) if response.status == 200 else None
            except TimeoutError as error:
                raise ModelFailure("server_silent", "the server did not answer a request") from error
            except ValueError as error:
                raise ModelFailure("server_answer", "an answer of the server is not JSON") from error
            except (OSError, http.client.HTTPException) as error:
                connection.close()
                self._local.connection = None
                if is_last:
                    raise ModelFailure("server_answer", "the server closed the connection") from error
        raise AssertionError


class ServedEncoder:
    """Encoder that calls `/v1/embeddings`, with the interface of `neural.encoding.Encoder`."""

    maximum_length = None
    pooling = ""

    def __init__(self, client: ServerClient, parameters: Mapping[str, Any], unit_length: bool) -> None:
        self._client, self._unit_length = client, unit_length
        vectors = client.get_rows(_VECTORS, _probe())
        if float(np.ptp(vectors, axis=0).max(initial=0.0)) <= 1e-6 * float(np.abs(vectors).max(initial=0.0)):
            raise ModelFailure("constant_output", "the server returns the same vector for different texts")
        self._full_dimension = vectors.shape[1]
        kept = parameters["truncate_dimension"]
        self.dimension = min(self._full_dimension, 0 if kept == AUTO else kept) or self._full_dimension

    def encode(self, texts: Sequence[str], prompt: str, output: Floats, progress: Progress = ignore) -> None:
        """Write the vector of each text, preceded by the prompt, to the rows of `output` (texts × dimension)."""
        # Batches of texts with similar lengths need little padding.
        order = sorted(range(len(texts)), key=lambda index: len(texts[index]), reverse=True)
        size = self._client.batch_texts
        batches = [order[start : start + size] for start in range(0, len(order), size)]
        self._client.run([partial(self._encode_batch, texts, prompt, indices, output) for indices in batches], progress)

    def _encode_batch(self, texts: Sequence[str], prompt: str, indices: Sequence[int], output: Floats) -> None:
        vectors = self._client.get_rows(_VECTORS, [prompt + texts[index] for index in indices])
        if vectors.shape[1] != self._full_dimension:
            raise ModelFailure("server_answer", "the server returned vectors of different dimensions")
        vectors = vectors[:, : self.dimension]
        if self._unit_length:
            vectors = normalize_vectors(vectors)
        output[indices] = vectors


def _parse_vectors(answer: Any) -> Iterator[tuple[int, Floats]]:
    for row in answer["data"]:
        yield row["index"], _parse_vector(row["embedding"])


_VECTORS = BatchRequest("/v1/embeddings", lambda texts: {"input": texts, "encoding_format": "base64"}, _parse_vectors)


def _parse_vector(value: object) -> Floats:
    """Parse a vector of numbers or base64-encoded little-endian float32. Raises ValueError or TypeError."""
    if isinstance(value, str):
        vector = np.frombuffer(base64.b64decode(value, validate=True), "<f4")
    else:
        vector = np.array(value, np.float32)
    if vector.ndim != 1 or not 0 < len(vector) <= _MAX_DIMENSION:
        raise ValueError("not a vector")
    return vector


class ServedScorer:
    """Scorer of pairs that calls `/rerank`, with the interface of `neural.pair_scoring.PairScorer`."""

    maximum_length = None

    def __init__(self, client: ServerClient, parameters: Mapping[str, Any]) -> None:
        self._client = client
        self._prompts = {side: select_prompt({}, side, parameters[f"{side}_prompt"]) for side in SIDES}
        texts, self._takes_documents = _probe(), True
        try:
            client.post("/rerank", self._body(texts[-1], texts))
        except RequestRefused:
            self._takes_documents = False
        if len(set(self._get_scores(texts[-1], texts).tolist())) == 1:
            raise ModelFailure("constant_output", "the server returns the same score for different documents")

    def score(self, queries: Sequence[str], documents: Sequence[str]) -> Floats:
        """Return the score of each pair of queries[i] and documents[i]."""
        scores = np.empty(len(queries), np.float32)
        calls = []
        for query, group in groupby(range(len(queries)), key=queries.__getitem__):
            numbers = list(group)
            for start in range(0, len(numbers), self._client.batch_texts):
                batch = numbers[start : start + self._client.batch_texts]
                calls.append(partial(self._score_batch, query, documents, batch, scores))
        self._client.run(calls)
        return scores

    def _score_batch(self, query: str, documents: Sequence[str], batch: list[int], output: Floats) -> None:
        texts = [self._prompts["document"] + documents[number] for number in batch]
        output[batch] = self._get_scores(self._prompts["query"] + query, texts)

    def _get_scores(self, query: str, texts: list[str]) -> Floats:
        return self._client.get_rows(BatchRequest("/rerank", partial(self._body, query), _parse_scores), texts)

    def _body(self, query: str, texts: list[str]) -> dict[str, Any]:
        if self._takes_documents:
            return {"query": query, "documents": texts, "top_n": len(texts), "return_documents": False}
        return {"query": query, "texts": texts, "raw_scores": True, "truncate": True}


def _parse_scores(answer: Any) -> Iterator[tuple[int, float]]:
    for row in answer["results"] if isinstance(answer, dict) else answer:
        yield row["index"], float(row.get("relevance_score", row.get("score")))


class ServedDenseRetrieval(dense.DenseRetrieval):
    """Dense retrieval with a server's embeddings."""

    @property
    def analyser_name(self) -> str:
        return f"/v1/embeddings of a container image, {self.similarity}"

    def load_encoders(self) -> Mapping[Any, Any]:
        """Return the same encoder for queries and documents."""
        encoder = ServedEncoder(ServerClient(self.resources.server, self.parameters), self.parameters, self.unit_length)
        return {"query": encoder, "document": encoder}


class ServedReRanking(cross_encoder.CrossEncoderReRanking):
    """Re-ranking with a server's scores."""

    @property
    def analyser_name(self) -> str:
        return f"top {self.main} of {self.first_stage.label}, /rerank of a container image"

    def load_scorer(self) -> ServedScorer:
        return ServedScorer(ServerClient(self.resources.server, self.parameters), self.parameters)


def _probe() -> list[str]:
    """Return test texts to which every usable model assigns different outputs.

    Also import the search and measurement libraries, so that searches do not include the import time.
    """
    from evaluation.engines.neural.encoding import PROBE

    import_module("faiss")
    return list(filter(None, PROBE))


class BatchImage:
    """Batch interface of an image, which only the site's workers run."""

    def __init__(self, parameters: Mapping[str, Any], resources: Resources) -> None:
        raise InvalidParameter(IMAGE_ON_SITE_ONLY)


def _check(
    name: str, engine: EngineDescription | None = None
) -> Callable[[Mapping[str, Any], CheckpointDescription | None], None]:
    """Return a parameter check that also refuses images whose label selects another engine than `name`."""

    def check(parameters: Mapping[str, Any], image: CheckpointDescription | None) -> None:
        """Raise InvalidParameter."""
        labelled = labelled_engine(image.model_type) if image is not None else None
        if labelled is not None and labelled.name != name:
            raise InvalidParameter(f"The image's label selects another interface: choose the engine {labelled.name}.")
        if engine is not None:
            engine.check_parameters(parameters, image)

    return check


def _adapt(engine: EngineDescription, omitted: Sequence[str]) -> Iterator[Parameter]:
    """Yield the engine's parameters that apply to a served model, and the parameters of the server."""
    yield from (parameter for parameter in engine.parameters if parameter.name not in omitted)
    yield from _SERVER_PARAMETERS


COMMAND = Parameter("command", "", "command for a shell of the image; empty for its own ENTRYPOINT and CMD")
_SERVER_PARAMETERS = (
    COMMAND,
    Parameter("served_model", "", "name of the model in requests; empty for the first one of /v1/models"),
    Parameter("batch_texts", 32, "texts per request; halved if the server refuses", minimum=1, maximum=4096),
    Parameter("concurrency", 4, "number of concurrent requests", minimum=1, maximum=64),
)
_BY_MODEL = ("pooling", "maximum_length", "compute_dtype", "batch_tokens", "template")
_DENSE, _RE_RANKING = dense.DESCRIPTIONS[0], cross_encoder.DESCRIPTIONS[0]
#: Name of the engine for each interface that an image's label can select.
_ENGINE_NAMES = {"batch": "container", "embeddings": "container-embeddings", "rerank": "container-rerank"}


def labelled_engine(label: str) -> EngineDescription | None:
    """Return the engine that an image's label selects, if any."""
    return next((engine for engine in DESCRIPTIONS if engine.name == _ENGINE_NAMES.get(label)), None)


DESCRIPTIONS = (
    EngineDescription(
        name="container",
        label="Container image",
        architecture="other",
        any_architecture=True,
        description="A container image reads corpus and queries as files and writes a run, as in TIRA and TIREx.",
        parameters=(COMMAND,),
        create=BatchImage,  # type: ignore[arg-type]
        checkpoints=(CheckpointKind.CONTAINER,),
        runs=(0, 1),
        check_parameters=_check("container"),
    ),
    replace(
        _DENSE,
        name="container-embeddings",
        label="Container image (embeddings)",
        description="A container image serves /v1/embeddings. Runboard indexes and searches as for dense checkpoints.",
        parameters=tuple(_adapt(_DENSE, _BY_MODEL)),
        create=ServedDenseRetrieval,
        checkpoints=(CheckpointKind.CONTAINER,),
        encoding_parameters=None,
        check_parameters=_check("container-embeddings", _DENSE),
    ),
    replace(
        _RE_RANKING,
        name="container-rerank",
        label="Container image (re-ranking)",
        description="A container image serves /rerank, which scores the top documents of BM25 or of a given run.",
        parameters=tuple(_adapt(_RE_RANKING, _BY_MODEL)),
        create=ServedReRanking,
        checkpoints=(CheckpointKind.CONTAINER,),
        check_parameters=_check("container-rerank", _RE_RANKING),
    ),
)
