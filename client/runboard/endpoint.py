"""Client of an embedding or reranking API, which checks all responses."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, wait
from ipaddress import ip_address
from typing import Any
from urllib.parse import quote, unquote, urljoin, urlsplit

import numpy as np
import requests
from numpy.typing import NDArray
from requests.adapters import HTTPAdapter
from requests.auth import HTTPBasicAuth

from runboard.errors import Refused, SiteUnavailable, seconds_to_wait
from runboard.login import Bearer, Session
from runboard.pacing import Pacing
from runboard.providers import Fields, Format
from runboard.untrusted import read_beginning
from runboard.vectors import EncodedTexts, Vectors

#: Maximum number of concurrent requests.
MAX_JOBS = 64
#: Maximum seconds for a request and its response, and seconds between checks for an interrupt.
MAX_REQUEST_SECONDS, _PAUSE = 300.0, 0.2
_TIMEOUT = (10.0, MAX_REQUEST_SECONDS)
#: Maximum number of bytes of a response per text (a vector of some 40,000 dimensions), and of an error response.
_MAX_PER_TEXT, _MAX_OF_ERROR = 1 << 20, 4096


class Endpoint:
    """Thread-safe client of one operation of an API.

    `url` is the address shown in runs and messages. It omits the user and password, which are only sent in requests.
    `variable` is the environment variable of the key. Raises ValueError for an invalid address or key.
    """

    def __init__(self, address: str, model: str, form: Format, variable: str) -> None:
        base, user = _split_user(address, form, variable)
        version = form.path[: form.path.index("/", 1)] if form.path.startswith("/v") else form.path
        self.url = base.rstrip("/").removesuffix(form.path).removesuffix(version) + form.path.format(
            model=quote(model.removeprefix("models/"), safe="")
        )
        self.model, self.form, self.pacing = model, form, Pacing()
        self._session = _Session()
        for scheme in ("http://", "https://"):
            self._session.mount(scheme, HTTPAdapter(pool_maxsize=MAX_JOBS))
        key = os.environ.get(variable, "").strip()
        if not (key.isascii() and key.isprintable()):
            raise ValueError(f"{variable} has characters that are not allowed in a key, such as a line break.")
        if form.key_header and key:
            self._session.headers[form.key_header] = key
        self._session.auth = HTTPBasicAuth(*user) if user is not None else Bearer("" if form.key_header else key)

    @property
    def is_local(self) -> bool:
        """Whether the API runs on this machine."""
        host = urlsplit(self.url).hostname or ""
        try:
            return ip_address(host).is_loopback
        except ValueError:
            return host == "localhost" or host.endswith(".localhost")

    def ask(self, texts: Sequence[str], fields: Fields) -> EncodedTexts:
        """Return the texts' unit vectors or scores and their cost. Raises Refused and SiteUnavailable.

        `fields` are additional request fields. Fields with the value None are omitted.
        """
        form = self.form
        model = {"model": form.model.format(model=self.model.removeprefix("models/"))} if form.model else {}
        common = {name: value for name, value in {**model, **form.fixed, **fields}.items() if value is not None}
        if form.wraps_texts:
            wrapped_texts = [{**common, "content": {"parts": [{"text": text}]}} for text in texts]
            answer, headers, seconds = self._send({form.texts: wrapped_texts}, len(texts))
        else:
            answer, headers, seconds = self._send({**common, form.texts: list(texts)}, len(texts))
        try:
            rows = _parse_rows(_find(answer, form.rows), form, len(texts))
            vectors = rows.astype(np.float32) if not form.dimensions else _normalize(rows, texts)
            return EncodedTexts(vectors, _parse_tokens(answer, headers, form.tokens), seconds)
        except ValueError as error:
            raise self.refusal(f"answered {error}") from error
        except (KeyError, TypeError, AttributeError) as error:
            names = " and ".join(f"`{name}`" for name in ("index" * form.has_index, form.value) if name)
            place = f" `{'.'.join(form.rows)}`" if form.rows else ""
            kind = "vectors" if form.dimensions else "scores"
            problem = f"answered without {kind}: there is no list{place}{f' of {names}' if names else ''}"
            raise self.refusal(problem) from error

    def refusal(self, problem: str) -> Refused:
        return Refused(0, "endpoint", f"{self.url} {problem}.", [])

    def _send(self, body: dict[str, Any], count: int) -> tuple[Any, Mapping[str, str], float]:
        """Return the parsed response, its headers, and the seconds of all attempts that got a response.

        Raises SiteUnavailable if all attempts fail, and Refused for an invalid response or an error that a retry cannot
        correct.
        """
        seconds, attempts = 0.0, 0
        limit = count * _MAX_PER_TEXT
        while self.pacing.wait():
            start, pause = time.monotonic(), 0.0
            try:
                answer, content = self._post(body, limit)
            except requests.RequestException as error:
                failure, is_busy = type(error).__name__, False
            else:
                seconds += time.monotonic() - start
                if answer.ok:
                    self.pacing.succeed()
                    return self._parse(content, limit), answer.headers, seconds
                failure = f"{answer.status_code} {_one_line(content.decode('utf-8', 'replace'))}"
                if answer.status_code not in (408, 429) and answer.status_code < 500:
                    raise self.refusal(f"answered {failure}")
                pause, is_busy = seconds_to_wait(answer, 0.0), answer.status_code == 429
            # A busy API may accept other requests in the meantime, so only the shared pauses limit these attempts.
            attempts += not is_busy
            if not self.pacing.pause(start, pause) or attempts > len(self.pacing.waits):
                raise SiteUnavailable(
                    f"{self.url} failed {len(self.pacing.waits) + 1} times: {failure}. Finished results are stored."
                )
        raise SiteUnavailable(f"{self.url} was not asked again after another request failed.")

    def _post(self, body: dict[str, Any], limit: int) -> tuple[requests.Response, bytes]:
        """Return a response and the beginning of its body. Raises RequestException, also after the time limit.

        The timeout of `requests` limits each read, but not a response that arrives byte by byte. Therefore, another
        thread sends the request and is abandoned after the time limit.
        """
        result: Future[tuple[requests.Response, bytes]] = Future()

        def send() -> None:
            try:
                answer = self._session.post(self.url, json=body, timeout=_TIMEOUT, stream=True)
                result.set_result((answer, read_beginning(answer, limit + 1 if answer.ok else _MAX_OF_ERROR)))
            except BaseException as error:
                result.set_exception(error)

        threading.Thread(target=send, daemon=True).start()
        deadline = time.monotonic() + MAX_REQUEST_SECONDS
        while not wait([result], _PAUSE).done:
            if time.monotonic() > min(deadline, self.pacing.ends_at):
                raise requests.Timeout
        return result.result()

    def _parse(self, content: bytes, limit: int) -> Any:
        """Parse the JSON of a response. Raises Refused for other content and for more than `limit` bytes."""
        if len(content) > limit:
            raise self.refusal(f"answered more than {limit:,} bytes")
        try:
            return json.loads(content)
        except (ValueError, RecursionError) as error:
            problem = f"answered something other than JSON: is this the address before {self.form.path}?"
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


def _split_user(address: str, form: Format, variable: str) -> tuple[str, tuple[bytes, bytes] | None]:
    """Split an address into the address without credentials and its (user, password), or None without credentials.

    Raises ValueError, which quotes neither, if the address is unusable.
    """
    try:
        parts = urlsplit(address)
        is_usable = parts.scheme in ("http", "https") and parts.hostname and (parts.port or True)
    except ValueError:
        is_usable = False
    if not is_usable or parts.query or parts.fragment:
        raise ValueError(
            f"Set --endpoint to the address before {form.path}, such as https://api.example.org, without a query "
            f"string. The key is read from {variable}."
        )
    secret, has_user, host = parts.netloc.rpartition("@")
    user, _, password = secret.partition(":")
    base = parts._replace(netloc=host).geturl()
    return base, (unquote(user).encode(), unquote(password).encode()) if has_user else None


def _find(answer: Any, keys: Sequence[str]) -> Any:
    """Return the value at nested keys. Raises KeyError or TypeError if it is missing."""
    for key in keys:
        answer = answer[key]
    return answer


def _parse_rows(rows: Any, form: Format, count: int) -> NDArray[np.float64]:
    """Return the numbers of all results, of shape (texts, dimensions), in the order of the texts.

    Raises ValueError if the number of rows, or their indexes, lengths, or values are invalid, and KeyError or TypeError
    if a row is malformed.
    """
    name = "vectors" if form.dimensions else "scores"
    if len(rows) != count:
        raise ValueError(f"{len(rows)} {name} for {count} texts")
    by_index = {row["index"] if form.has_index else number: row for number, row in enumerate(rows)}
    if set(by_index) != set(range(count)):
        raise ValueError(f"{name} whose `index` is not each of 0 to {count - 1} once")
    values = [by_index[number][form.value] if form.value else by_index[number] for number in range(count)]
    rows_in_order = values if form.dimensions else [[value] for value in values]
    if not {type(number) for row in rows_in_order for number in row} <= {int, float}:
        raise ValueError(f"{name} with values that are not numbers")
    if len(sizes := {len(row) for row in rows_in_order}) > 1 or 0 in sizes:
        raise ValueError("vectors that are empty or of different lengths")
    try:
        numbers = np.array(rows_in_order, np.float64)
    except OverflowError:
        numbers = np.full((1, 1), np.inf)
    with np.errstate(over="ignore"):
        # Runs store scores as float32.
        magnitudes = np.linalg.norm(numbers, axis=1) if form.dimensions else numbers.astype(np.float32)
    if not np.isfinite(magnitudes).all():
        raise ValueError(f"{name} with values that are not finite (NaN or infinite)")
    return numbers


def _normalize(numbers: NDArray[np.float64], texts: Sequence[str]) -> Vectors:
    """Normalize the rows to unit length. Raises ValueError for a zero vector."""
    norms = np.linalg.norm(numbers, axis=1, keepdims=True)
    if not norms.all():
        raise ValueError(f"a vector of zeros for the text “{_one_line(texts[int(norms.argmin())])[:40]}”")
    unit: Vectors = (numbers / norms).astype(np.float32)
    return unit


def _parse_tokens(answer: Any, headers: Mapping[str, str], keys: Sequence[str]) -> int | None:
    """Return the number of tokens that a response reports, or None. Raises ValueError for invalid values."""
    if len(keys) == 1 and "-" in keys[0]:
        text = headers.get(keys[0], "")
        return int(text) if text.isdecimal() and len(text) < 16 else None
    value = answer if keys else None
    for key in keys:
        if value is not None and not isinstance(value, dict):
            raise ValueError(f"a `{keys[0]}` whose `{keys[-1]}` is not a number of tokens")
        value = value.get(key) if value is not None else None
    if value is None:
        return None
    tokens = int(value) if isinstance(value, float) and value.is_integer() else value
    if type(tokens) is not int or not 0 <= tokens < 2**53:
        raise ValueError(f"a `{keys[0]}` whose `{keys[-1]}` is not a number of tokens")
    return tokens


def _one_line(text: str) -> str:
    """Return at most 200 printable characters from the start of an untrusted text, in one line."""
    return "".join(character for character in " ".join(text[:1000].split()) if character.isprintable())[:200]
