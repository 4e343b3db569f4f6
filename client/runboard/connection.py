"""An authenticated connection to a site, with retries while the site is busy."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Mapping
from typing import Any
from urllib.parse import urljoin

import requests
from requests.adapters import HTTPAdapter
from urllib3.util import Retry

from runboard.errors import LONGEST_WAIT, Refused, SiteUnavailable, describe_root_cause, retry_advice, seconds_to_wait
from runboard.login import Bearer, Session, checked_token, site_address, token_for
from runboard.terminal import say
from runboard.untrusted import T, parse_json, read_content, require_form

_TIMEOUT = (10.0, 120.0)
#: Seconds before each retry, unless the site asks for a longer pause.
_PAUSES = (1.0, 2.0, 4.0, 8.0, 16.0)


class Connection:
    """A site's API, with the arguments and errors that `runboard.client.Client` describes."""

    def __init__(self, url: str | None = None, token: str | None = None) -> None:
        self.url = site_address(url)
        token = checked_token((token_for(self.url) if token is None else token) or "")
        self._session = Session()
        self._session.headers["User-Agent"] = "runboard-client"
        self._session.auth = self._credentials = Bearer(token)
        # These retries are only for broken connections. `request` checks the responses.
        retries = Retry(
            total=6, backoff_factor=0.5, allowed_methods=("GET", "HEAD"), respect_retry_after_header=False
        )  # fmt: skip
        for scheme in ("http://", "https://"):
            self._session.mount(scheme, HTTPAdapter(max_retries=retries))

    def ask(self, method: str, path: str, **options: Any) -> Any:
        """Return the parsed response to an API call, None if it is empty. `path` is relative to /api/v1/."""
        answer = self.request(method, urljoin(self.url, f"api/v1/{path}"), **options)
        body = read_content(answer)
        return parse_json(body, answer.url) if body else None

    def ask_for(self, form: type[T], method: str, path: str, **options: Any) -> T:
        """Return the response to an API call as a `form` of `runboard.answers`. Raises SiteUnavailable otherwise."""
        return require_form(form, self.ask(method, path, **options), urljoin(self.url, f"api/v1/{path}"))

    def get_headers(self, path: str, **options: Any) -> Mapping[str, str]:
        """Return the headers of the response to a HEAD request."""
        answer = self.request("HEAD", urljoin(self.url, f"api/v1/{path}"), **options)
        answer.close()
        return answer.headers

    def request(self, method: str, url: str, **options: Any) -> requests.Response:
        """Return a successful response without reading its body. Raises Refused or SiteUnavailable for others.

        Responses 429, and 502 to 504 to GET and HEAD, are retried after a pause, unless the site asks for a pause of
        more than LONGEST_WAIT seconds or the request has a streamed body.
        """
        for pause in (*_PAUSES, None):
            try:
                answer = self._session.request(method, url, timeout=_TIMEOUT, stream=True, **options)
            except requests.RequestException as error:
                raise SiteUnavailable(f"{self.url} cannot be reached: {describe_root_cause(error)}") from error
            if answer.ok:
                return answer
            is_busy = answer.status_code == 429 or (method in ("GET", "HEAD") and answer.status_code in (502, 503, 504))
            wait = seconds_to_wait(answer, pause or 0.0)
            # A streamed body cannot be sent twice.
            if pause is None or not is_busy or "data" in options or wait > LONGEST_WAIT:
                break
            answer.close()
            if wait > _PAUSES[-1]:
                say(f"{self.url} asks to wait {wait:.0f} s.", file=sys.stderr)
            time.sleep(wait)
        raise self._failure(answer)

    def _failure(self, answer: requests.Response) -> Refused | SiteUnavailable:
        """Return the exception for a response with status 4xx (Refused) or 5xx (SiteUnavailable)."""
        body, wait = read_content(answer), seconds_to_wait(answer, 0.0)
        if answer.status_code >= 500:
            message = f"{self.url} answered {answer.status_code}. {_detail(body)}".rstrip()
            return SiteUnavailable(message + retry_advice(wait), wait)
        if answer.status_code == 401:
            message = f"{_detail(body)} Run `runboard login {self.url}`.".lstrip()
            if os.environ.get("RUNBOARD_TOKEN") and not self._credentials.key:
                message += f" RUNBOARD_TOKEN is only for the site of RUNBOARD_URL. Set RUNBOARD_URL to {self.url}."
            return Refused(401, "unauthorised", message, [])
        return Refused.from_response(answer.status_code, body, answer.url, wait)


def _detail(body: bytes) -> str:
    try:
        return str(json.loads(body)["detail"])
    except (ValueError, KeyError, TypeError):
        return ""
