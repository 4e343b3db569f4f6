"""Models named on the hub instead of sent: which names are understood, and whether this site fetches any."""

from __future__ import annotations

import re
from dataclasses import dataclass

from django.conf import settings

from submissions.refusals import Refused

_NAME = re.compile(r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}")
_COMMIT = re.compile(r"[0-9a-f]{40}")


@dataclass(frozen=True, slots=True)
class HubModel:
    """A model on the hub at one commit, which a branch's name would not pin."""

    name: str
    commit: str


def refuse_hub(model: HubModel) -> None:
    """Raises Refused where the site fetches nothing, or the name or commit is not one."""
    if not settings.HUB_DOWNLOADS:
        raise Refused.of(
            "hub_downloads_off",
            "This site fetches no models from the hub (HUB_DOWNLOADS=off).",
            f"Download {model.name} yourself and upload it: python -m evaluation pack FOLDER writes the archive.",
        )
    if not _NAME.fullmatch(model.name):
        raise Refused.of(
            "hub_name",
            f"“{model.name}” does not name a model on the hub.",
            "Give it as owner/name, such as sentence-transformers/all-MiniLM-L6-v2.",
        )
    if not _COMMIT.fullmatch(model.commit):
        raise Refused.of(
            "hub_commit",
            f"“{model.commit}” is not a commit: a branch or tag may point elsewhere tomorrow.",
            "Give all 40 hexadecimal digits; the hub shows them under Files and versions, History.",
        )
