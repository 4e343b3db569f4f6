"""API like OpenAI's `/v1/embeddings`: requests for vectors and checks of its responses."""

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
from runboard.untrusted import read_beginning
from runboard.vectors import EncodedTexts, Vectors

#: Environment variable of the API key, because other users of the machine can read command lines.
KEY_VARIABLE = "OPENAI_API_KEY"
_WAITS = (1, 2, 4, 8, 16, 30, 60)
_TIMEOUT = (10.0, 300.0)
#: Maximum number of bytes of a response per text (a vector of some 40,000 dimensions), and of an error response.
_MAX_PER_TEXT, _MAX_OF_ERROR = 1 << 20, 4096
_ADDRESS = (
    "Set --endpoint to the address before /v1/embeddings, such as https://api.example.org, without a query string. "
    f"The key is read from {KEY_VARIABLE}."
)


class Endpoint:
    """An API like OpenAI's `/v1/embeddings`.

    `url` is its address in runs and messages, without a user and password, which are only sent in requests. Raises
    ValueError for an invalid address or key.
    """

    def __init__(self, address: str, model: str, key: str) -> None:
        base, user = _split_user(address)
        self.url = f"{base.rstrip('/').removesuffix('/v1/embeddings').removesuffix('/v1')}/v1/embeddings"
        self.model = model
        self._session = _Session()
        if not (key.isascii() and key.isprintable()):
            raise ValueError(f"{KEY_VARIABLE} has characters that are not allowed in a key, such as a line break.")
        self._session.auth = HTTPBasicAuth(*user) if user is not None else Bearer(key)

    def encode(self, texts: Sequence[str]) -> EncodedTexts:
        """Return unit vectors of the texts, and their cost. Raises Refused and SiteUnavailable."""
        answer, seconds = self._ask({"model": self.model, "input": list(texts), "encoding_format": "float"})
        try:
            return EncodedTexts(_parse_vectors(answer["data"], texts), _parse_tokens(answer.get("usage")), seconds)
        except ValueError as error:
            raise self.refusal(f"answered {error}") from error
        except (KeyError, TypeError, AttributeError) as error:
            raise self.refusal(
                "answered without vectors: there is no list `data` of `index` and `embedding`"
            ) from error

    def refusal(self, problem: str) -> Refused:
        return Refused(0, "endpoint", f"{self.url} {problem}.", [])

    def _ask(self, body: dict[str, Any]) -> tuple[Any, float]:
        """Return the parsed response, and the seconds of all attempts that got a response, without pauses.

        Raises SiteUnavailable if all attempts fail, and Refused for an invalid response or an error that a retry cannot
        correct.
        """
        failure, seconds = "", 0.0
        limit = len(body["input"]) * _MAX_PER_TEXT
        for pause in (*_WAITS, 0):
            wait: float = pause
            start = time.monotonic()
            try:
                answer = self._session.post(self.url, json=body, timeout=_TIMEOUT, stream=True)
                content = read_beginning(answer, limit + 1 if answer.ok else _MAX_OF_ERROR)
            except requests.RequestException as error:
                failure = type(error).__name__
            else:
                seconds += time.monotonic() - start
                if answer.ok:
                    return self._parse(content, limit), seconds
                failure = f"{answer.status_code} {_one_line(content.decode('utf-8', 'replace'))}"
                if answer.status_code not in (408, 429) and answer.status_code < 500:
                    raise self.refusal(f"answered {failure}")
                wait = wait and max(wait, min(seconds_to_wait(answer, 0.0), 120.0))
            if wait:
                time.sleep(wait)
        raise SiteUnavailable(f"{self.url} failed {len(_WAITS) + 1} times: {failure}. Finished vectors are stored.")

    def _parse(self, content: bytes, limit: int) -> Any:
        """Parse the JSON of a response. Raises Refused for other content and for more than `limit` bytes."""
        if len(content) > limit:
            raise self.refusal(f"answered more than {limit:,} bytes")
        try:
            return json.loads(content)
        except (ValueError, RecursionError) as error:
            problem = "answered something other than JSON: is this the address before /v1/embeddings?"
            raise self.refusal(problem) from error


class _Session(Session):
    """Session that sends texts only to the host that gets the key."""

    def get_redirect_target(self, resp: requests.Response) -> str | None:
        """Return the target of a redirect on the same host. Raises Refused for another host."""
        target = super().get_redirect_target(resp)
        if target and self.should_strip_auth(resp.url, urljoin(resp.url, target)):
            host = urlsplit(urljoin(resp.url, target)).hostname
            message = f"{resp.url} redirects to another host, {_one_line(str(host))}, to which no texts are sent."
            raise Refused(0, "endpoint", message, [])
        return target


def _split_user(address: str) -> tuple[str, tuple[bytes, bytes] | None]:
    """Return an address without user and password, and these two, or None if there are none.

    Raises ValueError, which quotes neither, if the address is unusable.
    """
    try:
        parts = urlsplit(address)
        is_usable = parts.scheme in ("http", "https") and parts.hostname and (parts.port or True)
    except ValueError:
        is_usable = False
    if not is_usable or parts.query or parts.fragment:
        raise ValueError(_ADDRESS)
    secret, has_user, host = parts.netloc.rpartition("@")
    user, _, password = secret.partition(":")
    base = parts._replace(netloc=host).geturl()
    return base, (unquote(user).encode(), unquote(password).encode()) if has_user else None


def _parse_vectors(rows: Any, texts: Sequence[str]) -> Vectors:
    """Return unit vectors of shape (texts, dimensions), in the order of the rows' `index`.

    Raises ValueError if the number of rows, or their indexes, lengths, or values are invalid, and KeyError or TypeError
    if a row is malformed.
    """
    if len(rows) != len(texts):
        raise ValueError(f"{len(rows)} vectors for {len(texts)} texts")
    by_index = {row["index"]: row["embedding"] for row in rows}
    if set(by_index) != set(range(len(texts))):
        raise ValueError(f"vectors whose `index` is not each of 0 to {len(texts) - 1} once")
    rows_in_order = [by_index[number] for number in range(len(texts))]
    if not {type(number) for vector in rows_in_order for number in vector} <= {int, float}:
        raise ValueError("vectors of values that are not numbers")
    if len(sizes := {len(vector) for vector in rows_in_order}) > 1 or 0 in sizes:
        raise ValueError("vectors that are empty or of different lengths")
    try:
        vectors = np.array(rows_in_order, np.float64)
    except OverflowError:
        vectors = np.full((1, 1), np.inf)
    with np.errstate(over="ignore"):
        norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    if not np.isfinite(norms).all():
        raise ValueError("vectors with values that are not finite (NaN or infinite)")
    if not norms.all():
        raise ValueError(f"a vector of zeros for the text “{_one_line(texts[int(norms.argmin())])[:40]}”")
    unit: Vectors = (vectors / norms).astype(np.float32)
    return unit


def _parse_tokens(usage: Any) -> int | None:
    """Return the number of tokens in a response's usage, or None. Raises ValueError for invalid values."""
    tokens = usage.get("total_tokens") if isinstance(usage, dict) else usage
    if tokens is None:
        return None
    if not isinstance(usage, dict) or type(tokens) is not int or not 0 <= tokens < 2**53:
        raise ValueError("a `usage` whose `total_tokens` is not a number of tokens")
    return tokens


def _one_line(text: str) -> str:
    """Return at most 200 printable characters from the start of an untrusted text, in one line."""
    return "".join(character for character in " ".join(text[:1000].split()) if character.isprintable())[:200]
