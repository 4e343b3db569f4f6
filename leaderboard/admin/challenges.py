"""Challenges: to read, and to settle with a public decision, which may correct the system in the same step."""

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

from django import forms
from django.contrib import admin
from django.db.models import QuerySet

from leaderboard.admin.base import ReadOnlyAdmin
from leaderboard.admin.forms import optional_text, tick_box
from leaderboard.admin.pages import Operation, ReasonForm
from leaderboard.models import Challenge, Entry
from leaderboard.systems.challenges import (
    LONGEST_TEXT,
    ChallengeRefused,
    TrainingCorrection,
    redact_challenge,
    settle_challenge,
)
from leaderboard.systems.records import canonical_datasets

#: Whoever may change challenges settles them.
SETTLES = "leaderboard.change_challenge"


class DecisionForm(ReasonForm):
    """The public decision."""

    decision = forms.CharField(
        max_length=LONGEST_TEXT,
        widget=forms.Textarea(attrs={"rows": 5, "class": "vLargeTextField"}),
        help_text="Public, on the system's page. Markdown.",
    )


class UpholdForm(DecisionForm):
    """The decision, and what the system says from now on."""

    correct = tick_box(
        label="Edit the system of its training",
        help_text="Then the two lists below are what it says from now on. Boards follow; its team cannot change them.",
    )
    training_datasets = optional_text(
        label="Trained on", help_text="Slugs or names, separated by commas; empty: none."
    )
    adapted_to = optional_text(
        label="Adapted to", help_text="Slugs or names of datasets whose corpus it saw."
    )


class RedactForm(ReasonForm):
    """The text that replaces the challenge's."""

    text = optional_text(
        max_length=LONGEST_TEXT,
        widget=forms.Textarea(attrs={"rows": 5, "class": "vLargeTextField"}),
        help_text="What everyone reads from now on: public. Markdown. Empty: only that a curator took the text out.",
    )


def read_correction(
    challenge: Challenge, training_datasets: str | None, adapted_to: str | None
) -> TrainingCorrection | None:
    """Return the correction of the system, from names between commas. A list that is None stays as it is."""
    if training_datasets is None and adapted_to is None:
        return None
    system = challenge.system
    trained, adapted = (
        present if names is None else canonical_datasets(names.split(","))
        for names, present in ((training_datasets, system.training_datasets), (adapted_to, system.adapted_to))
    )
    return TrainingCorrection(system.training_declared or training_datasets is not None, trained, adapted)


def _settle(challenge: Challenge, values: Mapping[str, Any], upheld: bool) -> str:
    correction = None
    if values.get("correct"):
        correction = read_correction(challenge, values["training_datasets"], values["adapted_to"])
    settled = settle_challenge(challenge, upheld=upheld, decision=values["decision"], correction=correction)
    return f"{settled}: {settled.get_state_display()}."


@admin.register(Challenge)
class ChallengeAdmin(ReadOnlyAdmin):
    """Doubts on record. The actions of this list settle them and take words out; nothing else is edited."""

    list_display = ("system", "claim", "dataset", "state", "raised_by", "raised_at", "settled_by")
    list_filter = ("state", "claim", ("dataset", admin.RelatedOnlyFieldListFilter))
    list_select_related = ("system", "dataset", "raised_by", "settled_by")
    search_fields = ("system__name", "system__slug", "text", "decision")
    actions = ("uphold", "reject", "take_words_out")

    pending = ("challenge is open", "challenges are open", "?state__exact=open")

    def pending_rows(self) -> QuerySet[Challenge]:
        return Challenge.objects.filter(state=Challenge.State.OPEN)

    def acts(self, obj: Challenge) -> Iterable[str]:
        settling = ("uphold", "reject") if obj.state == Challenge.State.OPEN else ()
        return (*settling, "take_words_out")

    def boards_of(self, key: Any) -> Iterable[int]:
        return Entry.objects.filter(system__challenges=key).values_list("dataset_id", flat=True)

    uphold = Operation(
        "Uphold; the system may be corrected", SETTLES, partial(_settle, upheld=True),
        title="Uphold", form=UpholdForm, button="Uphold", refusals=(ChallengeRefused,),
        explanation="The challenge is upheld. The decision is public; the record says “a curator”, not who.",
    )  # fmt: skip
    reject = Operation(
        "Reject", SETTLES, partial(_settle, upheld=False),
        title="Reject", form=DecisionForm, button="Reject", refusals=(ChallengeRefused,),
        explanation="The challenge is rejected: the system's claim stands. The decision is public.",
    )  # fmt: skip
    take_words_out = Operation(
        "Take words out of the text", SETTLES,
        lambda challenge, values: f"{redact_challenge(challenge, values['text'])}: the text is another now.",
        title="Take words out", form=RedactForm, button="Take words out", refusals=(ChallengeRefused,),
        explanation="The new text takes the place of the old, which is kept nowhere. Readers are told so.",
        help="Take words out of a challenge's text, such as the name of an anonymous team. They are kept nowhere.",
        report=lambda challenge, values: f"{challenge}: redacted.",
    )  # fmt: skip
