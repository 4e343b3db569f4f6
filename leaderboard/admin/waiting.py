"""What waits for a curator, at the head of the admin's first page."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils import timezone

from leaderboard.models import Challenge, JudgementImport, Rescore, Round


@dataclass(frozen=True, slots=True)
class Waiting:
    """Rows that somebody is to decide on: their number in words, and the list that shows them."""

    rows: QuerySet[Any]
    one: str
    several: str
    #: The query of the list's address.
    query: str

    @property
    def address(self) -> str:
        """The list with these rows alone."""
        options = self.rows.model._meta
        return reverse(f"admin:{options.app_label}_{options.model_name}_changelist") + self.query


def _own() -> list[Waiting]:
    due = Round.objects.filter(revealed_at=None, reveals_at__lte=timezone.now())
    return [
        Waiting(
            Rescore.objects.filter(state=Rescore.State.READY),
            "rescore is ready: look at what changes, then switch or throw it away",
            "rescores are ready: look at what changes, then switch or throw them away",
            "?state__exact=ready",
        ),
        Waiting(
            JudgementImport.objects.filter(state=JudgementImport.State.READY),
            "judgement import waits to be merged",
            "judgement imports wait to be merged",
            "?state__exact=ready",
        ),
        Waiting(
            Challenge.objects.filter(state=Challenge.State.OPEN),
            "challenge is open",
            "challenges are open",
            "?state__exact=open",
        ),
        Waiting(due, "round may be revealed", "rounds may be revealed", ""),
    ]


#: Who knows of rows that wait; other apps add theirs where their admin is loaded.
SOURCES = [_own]


def waiting_for(request: HttpRequest) -> list[dict[str, Any]]:
    """What waits of all that this person may see: how many, in words, and where."""
    found = []
    for each in (each for source in SOURCES for each in source()):
        options = each.rows.model._meta
        if request.user.has_perm(f"{options.app_label}.view_{options.model_name}") and (
            count := each.rows.count()
        ):
            words = each.one if count == 1 else each.several
            found.append({"count": count, "words": words, "address": each.address})
    return found


_index = admin.site.index


def index(request: HttpRequest, extra_context: dict[str, Any] | None = None) -> TemplateResponse:
    """The admin's first page, with what waits."""
    return _index(request, {**(extra_context or {}), "waiting": waiting_for(request)})


admin.site.index = index  # type: ignore[method-assign]
admin.site.index_template = "admin/curation_index.html"
