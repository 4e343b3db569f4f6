"""Challenges: to read, and to settle with a public decision, which may correct the system in the same step."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from django import forms
from django.contrib import admin

from leaderboard.admin.base import ReadOnlyAdmin
from leaderboard.admin.pages import ReasonForm, confirmed_action
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
    """What everyone reads of the decision."""

    decision = forms.CharField(
        max_length=LONGEST_TEXT,
        widget=forms.Textarea(attrs={"rows": 5, "class": "vLargeTextField"}),
        help_text="Public, on the system's page. Markdown.",
    )


class UpholdForm(DecisionForm):
    """The decision, and what the system says from now on."""

    correct = forms.BooleanField(
        required=False,
        label="Edit the system of its training",
        help_text="Then the two lists below are what it says from now on. Boards follow; its team cannot change them.",
    )
    training_datasets = forms.CharField(
        required=False, label="Trained on", help_text="Slugs or names, separated by commas; empty: none."
    )
    adapted_to = forms.CharField(
        required=False, label="Adapted to", help_text="Slugs or names of datasets whose corpus it saw."
    )


class RedactForm(ReasonForm):
    """What stands in the place of what was said."""

    text = forms.CharField(
        required=False,
        max_length=LONGEST_TEXT,
        widget=forms.Textarea(attrs={"rows": 5, "class": "vLargeTextField"}),
        help_text="What everyone reads from now on: public. Markdown. Empty: only that a curator took the text out.",
    )
    field_order = ("text", "why")


def _uphold(challenge: Challenge, values: Mapping[str, Any]) -> str:
    correction = None
    if values["correct"]:
        trained, adapted = (
            canonical_datasets(values[name].split(",")) for name in ("training_datasets", "adapted_to")
        )
        correction = TrainingCorrection(training_declared=True, training_datasets=trained, adapted_to=adapted)
    return _settle(challenge, values, upheld=True, correction=correction)


def _reject(challenge: Challenge, values: Mapping[str, Any]) -> str:
    return _settle(challenge, values, upheld=False)


def _settle(
    challenge: Challenge,
    values: Mapping[str, Any],
    *,
    upheld: bool,
    correction: TrainingCorrection | None = None,
) -> str:
    settled = settle_challenge(challenge, upheld=upheld, decision=values["decision"], correction=correction)
    return f"{settled}: {settled.get_state_display()}."


def _redact(challenge: Challenge, values: Mapping[str, Any]) -> str:
    return f"{redact_challenge(challenge, values['text'])}: the text is another now."


@admin.register(Challenge)
class ChallengeAdmin(ReadOnlyAdmin):
    """Doubts on record. The actions of this list settle them and take words out; nothing else is edited."""

    list_display = ("system", "claim", "dataset", "state", "raised_by", "raised_at", "settled_by")
    list_filter = ("state", "claim", ("dataset", admin.RelatedOnlyFieldListFilter))
    list_select_related = ("system", "dataset", "raised_by", "settled_by")
    search_fields = ("system__name", "system__slug", "text", "decision")
    actions = ("uphold", "reject", "take_words_out")

    def acts(self, obj: Challenge) -> Iterable[str]:
        """An open one is settled; words are taken out of any."""
        settling = ("uphold", "reject") if obj.state == Challenge.State.OPEN else ()
        return (*settling, "take_words_out")

    def boards_of(self, key: Any) -> Iterable[int]:
        """Those with results of the system."""
        return Entry.objects.filter(system__challenges=key).values_list("dataset_id", flat=True)

    uphold = confirmed_action(
        "Uphold; the system may be corrected", SETTLES, _uphold,
        title="Uphold", form_class=UpholdForm, button="Uphold", refusals=(ChallengeRefused,),
        explanation="The challenge is upheld. The decision is public; the record says “a curator”, not who.",
    )  # fmt: skip
    reject = confirmed_action(
        "Reject", SETTLES, _reject,
        title="Reject", form_class=DecisionForm, button="Reject", refusals=(ChallengeRefused,),
        explanation="The challenge is rejected: the system's claim stands. The decision is public.",
    )  # fmt: skip
    take_words_out = confirmed_action(
        "Take words out of the text", SETTLES, _redact,
        title="Take words out", form_class=RedactForm, button="Take words out", refusals=(ChallengeRefused,),
        explanation="The new text takes the place of the old, which is kept nowhere. Readers are told so.",
    )  # fmt: skip
