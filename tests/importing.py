"""*Import dataset* as a curator uses it: choose a zip, and confirm what was found in it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from django.core.files.uploadedfile import SimpleUploadedFile
from django.forms import FileField
from django.test import Client

IMPORT = "/admin/leaderboard/dataset/import/"


def choose(client: Client, path: Path, name: str = "tiny.zip", query: str = "") -> Any:
    """Send the zip. The answer is the form to confirm, or the problems of the zip."""
    upload = SimpleUploadedFile(name, path.read_bytes(), "application/zip")
    return client.post(IMPORT + query, {"archive": upload}, follow=True)


def confirm(client: Client, page: Any, **fields: Any) -> Any:
    """Send the form to confirm as it is, but for some fields; None leaves one out. The answer is the result."""
    form = page.context["form"]
    values = {bound.html_name: bound.value() for bound in form if not isinstance(bound.field, FileField)}
    data = {name: value for name, value in values.items() if value not in (None, "", False)}
    sent = {name: value for name, value in {**data, **fields}.items() if value is not None}
    return client.post(page.request["PATH_INFO"] + "?" + page.request["QUERY_STRING"], sent, follow=True)


def send(client: Client, path: Path, slug: str = "tiny", **fields: Any) -> Any:
    """Choose the zip and confirm it, as a new dataset or as an update."""
    page = choose(client, path, query=f"?dataset={slug}")
    return confirm(client, page, slug=slug, **fields) if page.status_code == 200 else page
