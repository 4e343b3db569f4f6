"""What an export says of the board that it is of: its name, its date, its address that stays."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from django.conf import settings

#: As addresses of past boards write a time, to the second.
MOMENT = "%Y-%m-%dT%H:%M:%SZ"


@dataclass(frozen=True, slots=True)
class Cited:
    """A board with its date. `at` is when it last changed, None where nobody wrote that down.

    `url` is its permalink in the same view, with a host; without an `at` the address of the present board.
    """

    kind: Literal["dataset", "benchmark"]
    slug: str
    name: str
    url: str
    at: datetime.datetime | None = None
    #: What each system's own page says to cite, by its slug; read for BibTeX only.
    bibtex: Mapping[str, str] = field(default_factory=dict)

    @property
    def site(self) -> str:
        """Who publishes it."""
        return settings.SITE_NAME

    @property
    def date(self) -> str:
        """`21 November 2026`, empty where it is not known."""
        return f"{self.at.day} {self.at:%B %Y}" if self.at else ""

    @property
    def moment(self) -> str:
        """`2026-11-21T17:05:09Z`, empty where it is not known."""
        return self.at.strftime(MOMENT) if self.at else ""
