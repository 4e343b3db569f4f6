"""An interface like OpenAI's `/v1/embeddings`, asked for vectors, and what it answers checked."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from typing import Any
from urllib.parse import unquote, urljoin, urlsplit

import numpy as np
import requests
from requests.auth import HTTPBasicAuth

from runboard.errors import Refused, SiteUnavailable, seconds_to_wait
from runboard.login import Bearer, Session
from runboard.untrusted import beginning_of
from runboard.vectors import Encoded, Vectors

#: The key of the interface is taken from the environment, since everybody on a machine can read a command's words.
KEY = "OPENAI_API_KEY"
_WAITS = (1, 2, 4, 8, 16, 30, 60)
_TIMEOUT = (10.0, 300.0)
#: Bytes of an answer for each text, which is a vector of some 40,000 dimensions; bytes that are read of a refusal.
_MOST_PER_TEXT, _MOST_OF_REFUSAL = 1 << 20, 4096
_ADDRESS = (
    "--endpoint is the address before /v1/embeddings, such as https://api.example.org, without what may follow a “?”: "
    f"a key is read from {KEY}."
)


class Endpoint:
    """An interface like OpenAI's `/v1/embeddings`.

    `url` is what runs and messages call it: without the user and password that its address may have, which go into
    requests alone. Raises ValueError for an address or a key that cannot be one.
    """

    def __init__(self, address: str, model: str, key: str) -> None:
        base, user = _without_user(address)
        self.url = f"{base.rstrip('/').removesuffix('/v1/embeddings').removesuffix('/v1')}/v1/embeddings"
        self.model = model
        self._session = _Session()
        if not (key.isascii() and key.isprintable()):
            raise ValueError(f"{KEY} has characters that no key has, such as a line break.")
        self._session.auth = HTTPBasicAuth(*user) if user is not None else Bearer(key)

    def encode(self, texts: Sequence[str]) -> Encoded:
        """Vectors of the texts, of length 1, and what they took. Raises Refused and SiteUnavailable."""
        answer, seconds = self._ask({"model": self.model, "input": list(texts), "encoding_format": "float"})
        try:
            return Encoded(_vectors_of(answer["data"], texts), _tokens_of(answer.get("usage")), seconds)
        except ValueError as error:
            raise self.refusal(f"answered {error}") from error
        except (KeyError, TypeError, AttributeError) as error:
            raise self.refusal(
                "answered without vectors: no list `data` of `index` and `embedding`"
            ) from error

    def refusal(self, what: str) -> Refused:
        """The error that says so of the interface."""
        return Refused(0, "endpoint", f"{self.url} {what}.", [])

    def _ask(self, body: dict[str, Any]) -> tuple[Any, float]:
        """The answer, and the seconds that it and those before it took; pauses are not counted."""
        said, seconds = "", 0.0
        most = len(body["input"]) * _MOST_PER_TEXT
        for pause in (*_WAITS, 0):
            wait: float = pause
            started = time.monotonic()
            try:
                answer = self._session.post(self.url, json=body, timeout=_TIMEOUT, stream=True)
                content = beginning_of(answer, most + 1 if answer.ok else _MOST_OF_REFUSAL)
            except requests.RequestException as error:
                said = type(error).__name__
            else:
                seconds += time.monotonic() - started
                if answer.ok:
                    return self._parsed(content, most), seconds
                said = f"{answer.status_code} {_one_line(content.decode('utf-8', 'replace'))}"
                if answer.status_code not in (408, 429) and answer.status_code < 500:
                    raise self.refusal(f"answered {said}")
                wait = wait and max(wait, min(seconds_to_wait(answer, 0.0), 120.0))
            if wait:
                time.sleep(wait)
        raise SiteUnavailable(
            f"{self.url} cannot be used: {said}, {len(_WAITS) + 1} times. What was encoded is kept."
        )

    def _parsed(self, content: bytes, most: int) -> Any:
        """The JSON of an answer. Raises Refused for anything else, and for more bytes than `most`."""
        if len(content) > most:
            raise self.refusal(f"answered more than {most:,} bytes")
        try:
            return json.loads(content)
        except (ValueError, RecursionError) as error:
            raise self.refusal("answered no JSON: is this the address before /v1/embeddings?") from error


class _Session(Session):
    """Requests whose texts go no further than their key."""

    def get_redirect_target(self, resp: requests.Response) -> str | None:
        """Where a redirect leads, on the same host. Raises Refused for another."""
        target = super().get_redirect_target(resp)
        if target and self.should_strip_auth(resp.url, urljoin(resp.url, target)):
            where = urlsplit(urljoin(resp.url, target)).hostname
            told = (
                f"{resp.url} sends its callers to another host, {_one_line(str(where))}, which gets no texts."
            )
            raise Refused(0, "endpoint", told, [])
        return target


def _without_user(address: str) -> tuple[str, tuple[bytes, bytes] | None]:
    """The address, and apart from it the user and password that it has. Raises ValueError, which quotes neither."""
    try:
        parts = urlsplit(address)
        usable = parts.scheme in ("http", "https") and parts.hostname and (parts.port or True)
    except ValueError:
        usable = False
    if not usable or parts.query or parts.fragment:
        raise ValueError(_ADDRESS)
    secret, at, host = parts.netloc.rpartition("@")
    user, _, password = secret.partition(":")
    base = parts._replace(netloc=host).geturl()
    return base, (unquote(user).encode(), unquote(password).encode()) if at else None


def _vectors_of(rows: Any, texts: Sequence[str]) -> Vectors:
    """The texts' vectors, of length 1. Raises ValueError, which says what was there instead, and what lookups raise."""
    if len(rows) != len(texts):
        raise ValueError(f"{len(rows)} vectors for {len(texts)} texts")
    by_index = {row["index"]: row["embedding"] for row in rows}
    if set(by_index) != set(range(len(texts))):
        raise ValueError(f"vectors whose `index` is not each of 0 to {len(texts) - 1} once")
    found = [by_index[number] for number in range(len(texts))]
    if not {type(number) for vector in found for number in vector} <= {int, float}:
        raise ValueError("vectors of something else than numbers")
    if len(sizes := {len(vector) for vector in found}) > 1 or 0 in sizes:
        raise ValueError("vectors that are empty or not of one length")
    try:
        vectors = np.array(found, np.float64)
    except OverflowError:
        vectors = np.full((1, 1), np.inf)
    with np.errstate(over="ignore"):
        norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    if not np.isfinite(norms).all():
        raise ValueError("vectors with values that are no finite numbers (NaN or infinite)")
    if not norms.all():
        raise ValueError(f"a vector of zeros for the text “{_one_line(texts[int(norms.argmin())])[:40]}”")
    unit: Vectors = (vectors / norms).astype(np.float32)
    return unit


def _tokens_of(usage: Any) -> int | None:
    """The tokens that an answer says it took; None where it does not say. Raises ValueError for anything else."""
    tokens = usage.get("total_tokens") if isinstance(usage, dict) else usage
    if tokens is None:
        return None
    if not isinstance(usage, dict) or type(tokens) is not int or not 0 <= tokens < 2**53:
        raise ValueError("a `usage` whose `total_tokens` is no number of tokens")
    return tokens


def _one_line(text: str) -> str:
    """The beginning of a text from elsewhere, fit for a terminal."""
    return "".join(each for each in " ".join(text[:1000].split()) if each.isprintable())[:200]
