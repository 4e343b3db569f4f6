"""Actions on datasets that change what is told of hidden judgements: the policy, and the reveal of a private part."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django import forms
from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.template.response import TemplateResponse

from leaderboard.admin.pages import AskForm, NotDone, ask, require
from leaderboard.models import Dataset, Round
from leaderboard.models.datasets import Protection
from leaderboard.results.publishing import CannotReveal, reveal_private
from leaderboard.results.publishing.protection import CannotProtect, request_change

RIGHT = "leaderboard.reveal_dataset"


class ProtectForm(AskForm):
    """The policy that is wanted."""

    protection = forms.ChoiceField(choices=Protection.choices)
    share = forms.FloatField(
        label="Public share", required=False, min_value=0.05, max_value=0.95,
        help_text="Of the judged queries, in a competition; empty: as it is, ⅓ at first. Drawn once, it stays.",
    )  # fmt: skip
    although_told = forms.BooleanField(
        label="Although results were told in full",
        required=False,
        help_text="Their private part can be computed from what was published, and stays tuned on.",
    )
    although_reveals = forms.BooleanField(
        label="Although it reveals the private part",
        required=False,
        help_text="Leaving a competition tells it, where it was not revealed before.",
    )
    field_order = ("protection", "share", "although_told", "although_reveals", "why")


class RevealForm(AskForm):
    """Whose private part, and whether what was held is told."""

    round = forms.ModelChoiceField(
        queryset=Round.objects.all(), required=False, help_text="Empty: every result on the board"
    )
    show_held = forms.BooleanField(
        label="Tell what was held", required=False, help_text="Results that were no significant change, too"
    )
    field_order = ("round", "show_held", "why")


@admin.action(description="Change how hidden judgements are protected…")
def change_protection(
    page: admin.ModelAdmin, request: HttpRequest, datasets: QuerySet[Dataset]
) -> TemplateResponse | None:
    """Ask for another policy; the scorer makes the change."""
    require(request, RIGHT)
    return ask(
        page, request, datasets, _protect, form_class=ProtectForm, danger=True,
        title="Change protection", button="Change",
        explanation="Standard: the board shows means over all judged queries. Competition: it shows a public part, and "
        "moves only where a result is a significant change. All published values change at once, when a worker has "
        "drawn the parts. Going back to standard publishes means over all queries, and with them the private part.",
    )  # fmt: skip


def _protect(dataset: Dataset, said: Mapping[str, Any]) -> str:
    try:
        request_change(
            dataset,
            competition=said["protection"] == Protection.COMPETITION,
            share=said["share"],
            although_told=said["although_told"],
            although_reveals=said["although_reveals"],
        )
    except CannotProtect as error:
        raise NotDone(f"{error}.") from error
    return f"Asked for: {dataset} will be under the {Protection(said['protection']).label} policy."


@admin.action(description="Reveal the private part of a competition…")
def reveal(
    page: admin.ModelAdmin, request: HttpRequest, datasets: QuerySet[Dataset]
) -> TemplateResponse | None:
    """Publish the private part, of a round or of all results."""
    require(request, RIGHT)
    return ask(
        page, request, datasets, _reveal, form_class=RevealForm, danger=True,
        title="Reveal the private part", button="Reveal",
        explanation="The board gets a column with the private part's values and one with their difference to the "
        "public part. This cannot be taken back: permalinks keep it.",
    )  # fmt: skip


def _reveal(dataset: Dataset, said: Mapping[str, Any]) -> str:
    try:
        found = reveal_private(dataset, said["round"], show_held=said["show_held"])
    except CannotReveal as error:
        raise NotDone(f"{error}.") from error
    return f"{dataset}: the private part of {found.results} results is revealed; {found.held} held ones are told."
