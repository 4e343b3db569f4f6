"""Site address and token, from arguments, the environment, or the stored login."""

from __future__ import annotations

import json
import os
from pathlib import Path
from urllib.parse import urlsplit

import requests
from requests.auth import AuthBase


def site_address(address: str | None) -> str:
    """Return the site's address with a final slash; by default, RUNBOARD_URL or that of `login`. Raises ValueError."""
    address = address or os.environ.get("RUNBOARD_URL") or read_login().get("url")
    if not address or urlsplit(address).scheme not in ("http", "https"):
        raise ValueError(
            "No site is set. Enter its address (https://…), set RUNBOARD_URL, or run `runboard login https://…`."
        )
    parts = urlsplit(address)
    if "@" in parts.netloc or parts.query or parts.fragment:
        raise ValueError(
            "Write the site's address without a user, a password, and anything after a “?” or “#”. "
            "`runboard login` asks for your token."
        )
    return address.split("/api/")[0].rstrip("/") + "/"


def token_for(url: str) -> str | None:
    """Return the token for this site, or None.

    RUNBOARD_TOKEN is for the site of RUNBOARD_URL or, if that is not set, for that of `login`. Other addresses get no
    token, because they may come from anywhere.
    """
    token, home_address = os.environ.get("RUNBOARD_TOKEN"), os.environ.get("RUNBOARD_URL")
    if token and home_address and url == site_address(home_address):
        return token
    login = read_login()
    if login.get("url") != url:
        return None
    return token if token and not home_address else login["token"]


def checked_token(token: str) -> str:
    """Return the stripped token. Raises ValueError, which does not quote it, for invalid characters."""
    token = token.strip()
    if not all("!" <= letter <= "~" for letter in token):
        raise ValueError(
            "The token contains a line break, a blank, or a letter that is not ASCII. Copy only the token."
        )
    return token


class Bearer(AuthBase):
    """Authentication by a token or key in the header, if there is one. It also disables passwords from a netrc file."""

    def __init__(self, key: str) -> None:
        self.key = key

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        if self.key:
            request.headers["Authorization"] = f"Bearer {self.key}"
        return request


class Session(requests.Session):
    """Session that sends only the credentials of `auth`, and only to the first host."""

    def rebuild_auth(self, prepared_request: requests.PreparedRequest, response: requests.Response) -> None:
        """Remove the credentials if a redirect leads to another host, and add none from a netrc file."""
        if self.should_strip_auth(str(response.request.url), str(prepared_request.url)):
            prepared_request.headers.pop("Authorization", None)

    def get_redirect_target(self, resp: requests.Response) -> str | None:
        """Return the target of a redirect, if any, without reading the body, which may be endless."""
        target = super().get_redirect_target(resp)
        if target:
            resp.close()
        return target


def config_path() -> Path:
    """Return the path of the stored login."""
    base = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(base) / "runboard" / "login.json"


def read_login() -> dict[str, str]:
    """Return the stored login, empty if there is none. Raises ValueError for an invalid file."""
    path = config_path()
    try:
        login = json.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        return {}
    except ValueError:
        login = None
    if not isinstance(login, dict) or not all(isinstance(login.get(name), str) for name in ("url", "token")):
        raise ValueError(f"{path} is not a file of `runboard login`: log in again or delete it.")
    return login


def write_login(url: str, token: str) -> Path:
    """Store address and token in a file that only the user can read. Return its path."""
    path = config_path()
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w") as file:
        json.dump({"url": url, "token": token}, file)
    return path
