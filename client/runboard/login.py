"""Which site is meant, and which token is for it."""

from __future__ import annotations

import json
import os
from pathlib import Path
from urllib.parse import urlsplit

import requests
from requests.auth import AuthBase


def site_address(address: str | None) -> str:
    """The site's address, a slash at its end; without one that of RUNBOARD_URL, else of `login`. Raises ValueError."""
    address = address or os.environ.get("RUNBOARD_URL") or read_login().get("url")
    if not address or urlsplit(address).scheme not in ("http", "https"):
        raise ValueError(
            "Which site? Name it (https://…), set RUNBOARD_URL, or run `runboard login https://…`."
        )
    parts = urlsplit(address)
    if "@" in parts.netloc or parts.query or parts.fragment:
        raise ValueError(
            "A site's address has no user, no password, and nothing after a “?” or “#”: write https://… alone. "
            "`runboard login` asks for your token."
        )
    return address.split("/api/")[0].rstrip("/") + "/"


def token_for(url: str) -> str | None:
    """The token for this site.

    RUNBOARD_TOKEN is for the site of RUNBOARD_URL, or where that is not set for the one of `login`. An address that
    somebody pasted gets neither.
    """
    given, home = os.environ.get("RUNBOARD_TOKEN"), os.environ.get("RUNBOARD_URL")
    if given and home and url == site_address(home):
        return given
    known = read_login()
    if known.get("url") != url:
        return None
    return given if given and not home else known["token"]


def checked_token(token: str) -> str:
    """The token without blanks around it. Raises ValueError, which does not quote it, for what no header can hold."""
    token = token.strip()
    if not all("!" <= letter <= "~" for letter in token):
        raise ValueError(
            "The token has a line break, a blank or a letter that is not ASCII inside: copy it again, alone."
        )
    return token


class Bearer(AuthBase):
    """A token or key in the header; nothing where it is empty. Either way a netrc file adds no password."""

    def __init__(self, key: str) -> None:
        self.key = key

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        """The request with the header."""
        if self.key:
            request.headers["Authorization"] = f"Bearer {self.key}"
        return request


class Session(requests.Session):
    """Requests that carry no credentials but those of `auth`, to no other host than the first."""

    def rebuild_auth(self, prepared_request: requests.PreparedRequest, response: requests.Response) -> None:
        """Take the credentials out where a redirect leads to another host; a netrc file's are not put in."""
        if self.should_strip_auth(str(response.request.url), str(prepared_request.url)):
            prepared_request.headers.pop("Authorization", None)

    def get_redirect_target(self, resp: requests.Response) -> str | None:
        """Where a redirect leads, if the answer is one; its body, which may have no end, is not read."""
        target = super().get_redirect_target(resp)
        if target:
            resp.close()
        return target


def config_path() -> Path:
    """Where `login` keeps address and token."""
    base = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(base) / "runboard" / "login.json"


def read_login() -> dict[str, str]:
    """What `login` kept; empty without. Raises ValueError for a file that `login` did not write."""
    path = config_path()
    try:
        found = json.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        return {}
    except ValueError:
        found = None
    if not isinstance(found, dict) or not all(isinstance(found.get(name), str) for name in ("url", "token")):
        raise ValueError(f"{path} does not have what `runboard login` keeps: log in again, or delete it.")
    return found


def write_login(url: str, token: str) -> Path:
    """Keep address and token, for nobody else to read."""
    path = config_path()
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w") as file:
        json.dump({"url": url, "token": token}, file)
    return path
