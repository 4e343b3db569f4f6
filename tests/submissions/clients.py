"""Clients of the API and of the site, as the people of these tests."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from typing import Any

from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client

from leaderboard.models import User
from submissions.accounts.access import make_token
from tests.submissions.collections import run_text


@dataclass(frozen=True)
class Answer:
    """An answer of the API."""

    status: int
    body: Any
    headers: Any

    def problem(self, code: str) -> dict[str, Any]:
        """The one problem with this code."""
        found = [problem for problem in self.body["problems"] if problem["code"] == code]
        assert len(found) == 1, self.body["problems"]
        return found[0]


class Api:
    """The API with one person's token."""

    def __init__(self, user: User | None) -> None:
        self.user = user
        self.headers = {"Authorization": f"Bearer {make_token(user, 'test')}"} if user else {}
        self.client = Client()

    def get(self, path: str) -> Answer:
        """GET under /api/v1/."""
        return self._answer(self.client.get(f"/api/v1/{path}", headers=self.headers))

    def post(self, path: str, **fields: Any) -> Answer:
        """POST multipart under /api/v1/."""
        return self._answer(self.client.post(f"/api/v1/{path}", fields, headers=self.headers))

    def check(self, content: str | bytes, dataset: str = "demo", name: str = "run.txt") -> Answer:
        """POST check/."""
        return self.post("check/", dataset=dataset, file=upload(content, name))

    def submit(self, content: str | bytes | None = None, **fields: Any) -> Answer:
        """POST submissions/ with one good run, unless told otherwise."""
        values: dict[str, Any] = {
            "kind": "run",
            "system": "My system",
            "architecture": "dense",
            "dataset": "demo",
            "file": upload(run_text() if content is None else content),
            **fields,
        }
        present = {name: value for name, value in values.items() if value is not None}
        return self.post("submissions/", **present)

    @staticmethod
    def _answer(response: Any) -> Answer:
        return Answer(response.status_code, json.loads(response.content or b"null"), response.headers)


def describe_anew(client: Client, slug: str = "my-system", **fields: Any) -> Any:
    """Save a system's editing page with these fields, as it was opened just now."""
    address = f"/systems/{slug}/edit/"
    opened = client.get(address).context["rendered_from"]
    return client.post(address, {"architecture": "dense", "rendered_from": opened, **fields})


def upload(content: str | bytes, name: str = "run.txt") -> SimpleUploadedFile:
    """A file as a form sends it."""
    return SimpleUploadedFile(name, content.encode() if isinstance(content, str) else content)


def show_again(client: Client, person: User, method: str = "password") -> None:
    """As if who is signed in had just shown again who they are."""
    session = client.session
    session["account_authentication_methods_user"] = str(person.pk)
    session["account_authentication_methods"] = [{"method": method, "at": time.time(), "reauthenticated": True}]
    session.save()
