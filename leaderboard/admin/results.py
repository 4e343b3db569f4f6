"""Admin of entries and challenges.

Scores are never edited. Entries can be moderated, and one is the baseline. Challenges are settled with a public
decision, which may also correct the system.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar

from django import forms
from django.contrib import admin
from django.db.models import OuterRef, QuerySet, Subquery
from django.http import HttpRequest
from django.utils.html import format_html
from django.utils.translation import gettext_lazy as _

from leaderboard.admin.base import ReadOnlyAdmin, folded
from leaderboard.admin.forms import WhyField, optional_text, tick_box
from leaderboard.admin.pages import Operation, ReasonForm, ReviewAdmin
from leaderboard.admin.reported import REPORTS, report_view
from leaderboard.boards.system.standing import differing_entries, standings
from leaderboard.core.text.numbers import DECIMALS, difference, format_value, signed
from leaderboard.importing.reported.loader import withdraw_figure
from leaderboard.models import Challenge, Entry
from leaderboard.results.agreement import TOLERANCE
from leaderboard.results.publishing.visibility import (
    CannotModerate,
    name_baseline,
    quarantine,
    restore,
    unpublish,
)
from leaderboard.systems.challenges import (
    LONGEST_TEXT,
    ChallengeRefused,
    TrainingCorrection,
    redact_challenge,
    settle_challenge,
)
from leaderboard.systems.corrections import list_corrections
from leaderboard.systems.records import canonical_datasets

#: Permission to remove results from boards and restore them.
MODERATES = "leaderboard.moderate_entry"


class WithdrawForm(ReasonForm):
    """Form for the figure of a reported row to withdraw."""

    measure = optional_text(
        max_length=40, help_text="Measure or cost, for example nDCG@10 or index size. Default: the whole row"
    )


def _withdraw(entry: Entry, values: Mapping[str, Any]) -> str:
    withdraw_figure(entry, values["measure"].strip(), values["why"])
    return f"{values['measure'] or 'All figures'} of {entry} withdrawn."


def _make_run(verb: Callable[[Entry, str], object], state: str) -> Callable[[Entry, Mapping[str, Any]], str]:
    """Return the `run` of an operation that calls `verb` with entry and reason, and reports the new `state`."""

    def run(entry: Entry, values: Mapping[str, Any]) -> str:
        verb(entry, values["why"])
        return f"{entry} {state}."

    return run


def _check_baseline(entries: QuerySet[Entry]) -> str:
    """Return why the selection cannot become the baseline; empty if it is one public entry that is not reported."""
    selection = list(entries[:2])
    if len(selection) != 1 or selection[0].visibility != Entry.Visibility.PUBLIC:
        return "Choose one public entry."
    if selection[0].provenance == Entry.Provenance.REPORTED:
        return "Reported entries are compared with the baseline of their own source. Choose another entry."
    return ""


class AgreementFilter(admin.SimpleListFilter):
    """Filter for results that differ from the published score of the same model."""

    title = _("agreement with published scores")
    parameter_name = "agreement"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        return [("differs", _("differs by more than %s") % TOLERANCE)]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Entry]) -> QuerySet[Entry]:
        return queryset.filter(pk__in=differing_entries().values("pk")) if self.value() else queryset


class BaselineFilter(admin.BooleanFieldListFilter):
    """Filter for baselines."""

    title = property(lambda self: _("baseline"), lambda self, value: None)


class EntryAdmin(ReadOnlyAdmin):
    """Admin of results. `submissions.admin` registers it, with the actions that need a job."""

    list_display = ("system", "dataset", "score", "difference", "provenance", "visibility", "published_at")
    list_filter = (
        "provenance", "visibility", ("is_baseline", BaselineFilter), "late", AgreementFilter,
        ("dataset", admin.RelatedOnlyFieldListFilter),
    )  # fmt: skip
    list_select_related = ("system", "dataset")
    search_fields = (
        "system__name", "system__slug", "dataset__name", "dataset__slug", "source__title", "submission_reference",
    )  # fmt: skip
    date_hierarchy = "published_at"
    ordering = ("-published_at",)
    task_pages = (("Enter reported results", "admin:leaderboard_entry_report", REPORTS),)
    fieldsets = (
        (None, {"fields": (
            "system", "dataset", "configuration", "score", "difference", "runs", "provenance", "visibility",
            "withdrawal_reason", "moderation_reason", "training", "missing_queries", "round", "source",
            "locator", "submitter", "published_at", "scores", "private_scores", "figures",
        )}),
        folded(
            "Technical details", "late", "facts", "deviations", "evaluation", "comparison_group", "run_type", "pooled",
            "submission_reference", "public_wanted", "due_at",
        ),
    )  # fmt: skip
    help_texts: ClassVar = {"facts": "Properties of the system and of this run."}
    pages: ClassVar = {"report": "report/"}
    report_view = report_view
    pending = (
        "result differs from its published score: compare how the model is run",
        "results differ from their published scores: compare how the models are run",
        "?agreement=differs",
    )
    actions: Sequence[str] = ("make_baseline", "quarantine", "restore", "unpublish", "withdraw")

    pending_since = "published_at"

    def pending_rows(self) -> QuerySet[Entry]:
        return differing_entries()

    def get_queryset(self, request: HttpRequest) -> QuerySet[Entry]:
        """Return the entries, each with the scores of the public baseline of its comparison group."""
        group = {name: OuterRef(name) for name in ("dataset", "comparison_group")}
        baselines = Entry.objects.public().filter(is_baseline=True, **group).exclude(pk=OuterRef("pk"))
        return super().get_queryset(request).annotate(baseline_scores=Subquery(baselines.values("scores")[:1]))

    @admin.display(description=_("primary measure"))
    def score(self, entry: Entry) -> str:
        measure = entry.dataset.primary_measure
        return f"{measure} {format_value(entry.scores.get(measure), DECIMALS)}"

    @admin.display(description=_("difference from the baseline"))
    def difference(self, entry: Any) -> str:
        """Return the difference from the baseline, or the word baseline."""
        measure, baseline_scores = entry.dataset.primary_measure, entry.baseline_scores or {}
        delta = difference(entry.scores.get(measure), baseline_scores.get(measure))
        return "baseline" if entry.is_baseline else signed(delta, DECIMALS)

    @admin.display(description=_("runs"))
    def runs(self, entry: Entry) -> str:
        """Return `single run`, `mean of 5 runs with different seeds`, or `as reported`."""
        default = _("as reported") if entry.provenance == Entry.Provenance.REPORTED else _("single run")
        return str(_("mean of %s runs with different seeds") % entry.seed_count if entry.seed_count else default)

    def tools(self, request: HttpRequest, obj: Entry) -> list[tuple[str, str]]:
        """Return links to the pages that show the result."""
        pages = (_("Open the board"), obj.dataset), (_("Open the system’s page"), obj.system)
        return [(str(label), page.get_absolute_url()) for label, page in pages]

    def acts(self, obj: Entry) -> Iterable[str]:
        """Return the actions for the entry.

        Public entries can be quarantined, and withdrawn if they are reported or unpublished if not. Others can be
        restored.
        """
        if obj.visibility != Entry.Visibility.PUBLIC:
            return ("restore",)
        is_reported = obj.provenance == Entry.Provenance.REPORTED
        return ("withdraw", "quarantine") if is_reported else ("quarantine", "unpublish")

    def get_board_ids(self, key: Any) -> Iterable[int]:
        return Entry.objects.filter(pk=key).values_list("dataset_id", flat=True)

    make_baseline = Operation(
        "Set as baseline", "leaderboard.change_entry",
        _make_run(lambda entry, why: name_baseline(entry), "is now the baseline"),
        check=_check_baseline, title="Set as baseline", button="Set as baseline",
        explanation="All results of its comparison group will be compared with it.",
        help="Make a public result that was scored by Runboard the baseline of its board.",
        report=lambda entry, values: f"{entry} (entry {entry.pk}) is now the baseline.",
    )  # fmt: skip
    quarantine = Operation(
        "Quarantine: remove from the ranking with a public reason", MODERATES, _make_run(quarantine, "is quarantined"),
        refusals=(CannotModerate,), title="Quarantine results", button="Quarantine", danger=True,
        explanation="The results move below the ranking, without scores. The reason is shown on the board and in all "
        "exports.",
        help="Move a result below the ranking, without scores. The reason (--why) is public.",
        report=lambda entry, values: f"Quarantined: {entry} (entry {entry.pk}).",
    )  # fmt: skip
    restore = Operation(
        "Restore to the board", MODERATES, _make_run(lambda entry, why: restore(entry), "is restored"),
        refusals=(CannotModerate,), title="Restore results", button="Restore",
        explanation="The results are ranked again, unless their teams keep them private.",
        help="Restore a quarantined or unpublished result, unless its team keeps it private.",
        report=lambda entry, values: f"Restored: {entry} (entry {entry.pk}), {entry.get_visibility_display()} now.",
    )  # fmt: skip
    unpublish = Operation(
        "Unpublish: remove from the board and send the team the reason", MODERATES,
        _make_run(unpublish, "is unpublished"), refusals=(CannotModerate,), title="Unpublish results",
        button="Unpublish", danger=True, explanation="The results disappear from boards. Their teams see the reason.",
        help="Remove a result completely from its board; its team sees the reason (--why).",
        report=lambda entry, values: f"Unpublished: {entry} (entry {entry.pk}).",
    )  # fmt: skip
    withdraw = Operation(
        "Withdraw reported figures", MODERATES, _withdraw, form=WithdrawForm,
        refusals=(CannotModerate,), title="Withdraw reported figures", button="Withdraw a figure", danger=True,
        explanation="The figures disappear from the board, but permalinks keep them. Enter them again to restore them.",
    )  # fmt: skip


#: Permission to settle challenges.
SETTLES = "leaderboard.change_challenge"


class DecisionForm(ReasonForm):
    """Form for the public decision."""

    decision = forms.CharField(
        label="Public decision",
        max_length=LONGEST_TEXT,
        widget=forms.Textarea(attrs={"rows": 5, "class": "vLargeTextField"}),
        help_text="Enter Markdown. The system’s page shows the decision, signed “a curator”.",
    )
    why = WhyField(help_text="Stored with your name in the audit log. It is not public.")


class UpholdForm(DecisionForm):
    """Form for the decision and a correction of the system's training data."""

    correct = tick_box(
        label="Correct the system's training data",
        help_text="Replace its lists by the two below. Boards are updated, and its team cannot change the lists.",
    )
    training_datasets = optional_text(
        label="Trained on", help_text="Slugs or names, separated by commas. Leave empty for none."
    )
    adapted_to = optional_text(
        label="Adapted to", help_text="Slugs or names of datasets that only provided their corpus, without labels"
    )


class RedactForm(ReasonForm):
    """Form for the text that replaces the challenge's text."""

    text = optional_text(
        max_length=LONGEST_TEXT,
        widget=forms.Textarea(attrs={"rows": 5, "class": "vLargeTextField"}),
        help_text="New public text, in Markdown. Default: a note that a curator removed the text.",
    )


def read_correction(
    challenge: Challenge, training_datasets: str | None, adapted_to: str | None
) -> TrainingCorrection | None:
    """Return the correction of the system, with datasets from comma-separated names, or None if both lists are None.

    A list that is None remains unchanged.
    """
    if training_datasets is None and adapted_to is None:
        return None
    system = challenge.system
    trained, adapted = (
        stored_names if names is None else canonical_datasets(names.split(","))
        for names, stored_names in ((training_datasets, system.training_datasets), (adapted_to, system.adapted_to))
    )
    return TrainingCorrection(system.training_declared or training_datasets is not None, trained, adapted)


def _settle(challenge: Challenge, values: Mapping[str, Any], upheld: bool) -> str:
    """Settle the challenge, with a correction of the system if the form has one, and return a message."""
    correction = None
    if values.get("correct"):
        correction = read_correction(challenge, values["training_datasets"], values["adapted_to"])
    settled_challenge = settle_challenge(challenge, upheld=upheld, decision=values["decision"], correction=correction)
    return f"{settled_challenge}: {settled_challenge.get_state_display()}."


@admin.register(Challenge)
class ChallengeAdmin(ReviewAdmin):
    """Admin of challenges, which actions settle or redact; all other fields are read-only."""

    list_display = ("claim", "text", "system_page", "dataset", "raised_by", "age", "state")
    list_filter = ("state", "claim", ("dataset", admin.RelatedOnlyFieldListFilter))
    list_select_related = ("system", "dataset", "raised_by", "settled_by")
    search_fields = ("system__name", "system__slug", "text", "decision")
    actions = ("uphold", "reject", "take_words_out")
    empty_value_display = "none given"
    change_form_template = "admin/leaderboard/challenge.html"

    pending = ("challenge is open", "challenges are open", "?state__exact=open")
    pending_since = "raised_at"

    @admin.display(description=_("system"), ordering="system")
    def system_page(self, challenge: Challenge) -> str:
        return format_html('<a href="{}">{}</a>', challenge.system.get_absolute_url(), challenge.system)

    def change_context(self, obj: Challenge) -> dict[str, Any]:
        """Return the standings of the challenged results and the public corrections since the day of the challenge."""
        entries = Entry.objects.public().filter(system=obj.system).select_related("dataset")
        challenged = [entry for entry in entries if obj.dataset_id in (None, entry.dataset_id)]
        corrections = [row for row in list_corrections(obj.system_id) if row.day >= f"{obj.raised_at:%Y-%m-%d}"]
        return {"standings": standings(challenged).values(), "corrections": corrections}

    def acts(self, obj: Challenge) -> Iterable[str]:
        settling = ("uphold", "reject") if obj.state == Challenge.State.OPEN else ()
        return (*settling, "take_words_out")

    def get_board_ids(self, key: Any) -> Iterable[int]:
        return Entry.objects.filter(system__challenges=key).values_list("dataset_id", flat=True)

    uphold = Operation(
        "Uphold, and optionally correct the system", SETTLES, partial(_settle, upheld=True),
        title="Uphold", form=UpholdForm, button="Uphold", refusals=(ChallengeRefused,),
        explanation="The system’s page shows the challenge as upheld, with your decision. Ranks and scores stay until "
        "you quarantine a result.",
    )  # fmt: skip
    reject = Operation(
        "Reject", SETTLES, partial(_settle, upheld=False),
        title="Reject", form=DecisionForm, button="Reject", refusals=(ChallengeRefused,),
        explanation="The system’s page shows the challenge as not upheld, with your decision. The claim remains, and "
        "boards no longer mark its rows.",
    )  # fmt: skip
    take_words_out = Operation(
        "Redact the text", SETTLES,
        lambda challenge, values: f"{redact_challenge(challenge, values['text'])}: the text is redacted.",
        title="Redact the text", form=RedactForm, button="Redact the text", danger=True, refusals=(ChallengeRefused,),
        explanation="The new text replaces the old one, which is deleted. Readers see a note about this.",
        help="Remove words from a challenge's text, such as the name of an anonymous team. They are deleted.",
        report=lambda challenge, values: f"{challenge}: redacted.",
    )  # fmt: skip
