"""Admin of entries, reported figures, and challenges.

Scores are never edited. Entries can be moderated, and one is the baseline. Challenges are settled with a public
decision, which may also correct the system.

Reported figures are entered one by one in a form, as a CSV with the form's fields as columns, or as a zip of results
in MTEB's layout.
"""

import csv
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar

from django import forms
from django.contrib import admin
from django.core.exceptions import ValidationError
from django.core.validators import RegexValidator
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.urls import reverse

from evaluation.core.problems import InvalidContent, Problem, format_count
from evaluation.measures.registry import UnknownMeasureError, parse_measure
from leaderboard.admin.base import ReadOnlyAdmin
from leaderboard.admin.forms import TextFileField, WhyField, optional_choice, optional_text, tick_box
from leaderboard.admin.pages import Operation, ReasonForm, curation_page, require, submit
from leaderboard.core.storage.store import work_folder
from leaderboard.core.text.numbers import parse_number
from leaderboard.importing.reported.loader import SCALES, CuratedFigure, enter_figures, withdraw_figure
from leaderboard.importing.reported.mteb import MtebResults, read_mteb_results
from leaderboard.models import Challenge, Dataset, Entry, Source, System, architecture_choices
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
from leaderboard.systems.records import canonical_datasets

#: Permissions for entering reported figures.
REPORTS = ("leaderboard.add_source", "leaderboard.change_entry")
#: Maximum size of a CSV in bytes.
MAX_CSV_BYTES = 1_000_000
_SOURCE_FIELDS = ("key", "title", "authors", "year", "venue", "url")


class FigureForm(forms.Form):
    """Form for one reported figure; its fields are also the columns of the CSV."""

    use_required_attribute = False  # The fields may stay empty if there is a CSV.

    dataset = forms.ModelChoiceField(
        Dataset.objects.listed(), to_field_name="slug",
        error_messages={"invalid_choice": "There is no dataset %(value)s. Give its slug, as in /datasets/slug/."},
    )  # fmt: skip
    system = forms.CharField(max_length=120, help_text="Name in the publication")
    measure = forms.CharField(max_length=40, help_text="Name on boards, for example nDCG@10")
    value = forms.CharField(
        help_text="Printed value: 0.344, or 34.4 with the scale percent",
        validators=[
            RegexValidator(
                r"^([0-9]{1,3}(\.[0-9]{1,6})?|\.[0-9]{1,6})$", "Enter a number as printed, for example 0.344."
            )
        ],
    )
    scale = optional_choice(choices=[("", "share (0.344)"), *((name, name) for name in SCALES)])
    locator = forms.CharField(max_length=80, help_text="Location in the publication, for example Table 2")
    architecture = optional_choice(
        choices=lambda: [("", "unchanged"), *architecture_choices()], help_text="For new systems only"
    )
    configuration = optional_text(
        max_length=120, help_text="Distinguishes configurations of one system, for example base or large"
    )

    #: The publication, if it exists already.
    source: Source | None = None

    def clean_measure(self) -> str:
        """Return the measure's canonical name. Raises ValidationError for an unknown measure."""
        try:
            return str(parse_measure(self.cleaned_data["measure"]))
        except UnknownMeasureError as error:
            raise ValidationError(str(error)) from error

    def clean(self) -> dict[str, Any]:
        """Check that the dataset uses the measure, the value fits its scale, and a new system has an architecture."""
        values: dict[str, Any] = super().clean() or self.cleaned_data
        values["scale"] = values.get("scale") or "share"
        dataset, measure, value = (values.get(name) for name in ("dataset", "measure", "value"))
        if dataset and measure and measure not in dataset.measures:
            self.add_error(
                "measure",
                f"{dataset.slug} does not use {measure}. Choose one of {', '.join(dataset.measures)}.",
            )
        if value and float(value) > (maximum := SCALES[values["scale"]]):
            self.add_error(
                "value",
                f"{value} is not a {values['scale']}: the maximum is {maximum:g}. Did you mean the other scale?",
            )
        matching_systems = System.objects.filter(source=self.source, name=values.get("system"))
        if not values.get("architecture") and (self.source is None or not matching_systems.exists()):
            self.add_error("architecture", "Choose an architecture, because the system is new.")
        return values


class PublicationForm(forms.ModelForm):
    """Form for an existing or new publication, and optionally a CSV instead of a single figure."""

    #: The required fields depend on other fields, which browsers cannot check.
    use_required_attribute = False

    publication = forms.ModelChoiceField(
        Source.objects.all(), required=False, empty_label="new publication, described below"
    )
    csv = TextFileField(
        label="CSV", max_bytes=MAX_CSV_BYTES,
        help_text="Or upload a CSV. Columns: " + ", ".join(FigureForm.base_fields) + ".",
    )  # fmt: skip
    mteb = forms.FileField(
        label="MTEB results", required=False,
        help_text="Or upload a zip of model__name/revision/Task.json. The URL of the publication must point to "
        "these folders.",
    )  # fmt: skip
    why = WhyField()
    field_order = ("publication", *_SOURCE_FIELDS, "csv", "mteb", "why")

    class Meta:
        model = Source
        fields = _SOURCE_FIELDS
        field_classes = {"url": partial(forms.URLField, assume_scheme="https")}

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if self.data.get("publication"):
            for name in _SOURCE_FIELDS:
                self.fields[name].required = False

    def _post_clean(self) -> None:
        if not self.cleaned_data.get("publication"):
            super()._post_clean()  # type: ignore[misc]  # A private hook of Django's model forms.

    def clean(self) -> dict[str, Any]:
        """Check that there is at most one file, and that the publication has a URL if there are MTEB results."""
        values: dict[str, Any] = super().clean() or self.cleaned_data
        if values.get("mteb"):
            if values.get("csv"):
                self.add_error("mteb", "Upload either this or a CSV.")
            if not (values["publication"].url if values.get("publication") else values.get("url")):
                self.add_error("mteb", "The publication needs a URL, because each row links to its file there.")
        return values


def report_view(page: Any, request: HttpRequest) -> HttpResponse:
    """Show the form for reported figures; on POST, publish those of form, CSV file, or MTEB zip if all are valid."""
    require(request, *REPORTS)
    is_single = request.method == "POST" and not request.FILES
    figure_form = FigureForm(request.POST if is_single else None)
    figure_form.source = Source.objects.filter(pk=parse_number(request.POST.get("publication", "")) or 0).first()
    form = PublicationForm(request.POST or None, request.FILES or None)

    def act(values: Mapping[str, Any]) -> str:
        """Publish the figures, and return the URL of the list of reported results."""
        source = values["publication"] or form.instance
        if values["mteb"]:
            file = values["mteb"]
            with work_folder("mteb") as work:
                path = work / "results.zip"
                with path.open("wb") as stored:
                    stored.writelines(file.chunks())
                results = read_mteb_results(path, source.url, work)
        elif figure_form.is_bound:
            results = MtebResults([CuratedFigure(**figure_form.cleaned_data)])
        else:
            rows = read_figures(values["csv"], values["publication"])
            results = MtebResults([CuratedFigure(**row) for row in rows])
        enter_figures(source, results.figures, results.described)
        message = f"Published: {format_count(len(results.figures), 'reported figure')} of {source}."
        page.message_user(request, " ".join([message, *results.left_out()]))
        return reverse("admin:leaderboard_entry_changelist") + "?provenance__exact=reported"

    can_submit = figure_form.is_valid() or not figure_form.is_bound
    redirect, problems = submit(request, form, act) if can_submit else (None, [])
    return redirect or curation_page(
        request, page, "admin/leaderboard/entry/report.html", "Enter reported figures",
        problems=problems, form=form, figure=figure_form,
        status=400 if problems or form.errors or figure_form.errors else 200,
    )  # fmt: skip


def read_figures(text: str, source: Source | None) -> list[dict[str, Any]]:
    """Return the figures of a CSV as values of `FigureForm`. Raises InvalidContent with all problems by line.

    `source` is the existing publication, or None.
    """
    reader = csv.DictReader(text.splitlines())
    figures, keys = [], set()
    lines_by_message: defaultdict[str, list[int]] = defaultdict(list)
    columns, fields = set(reader.fieldnames or ()), FigureForm.base_fields
    required_names = {name for name, field in fields.items() if field.required}
    if required_names - columns or columns - set(fields):
        lines_by_message[f"The columns are {', '.join(fields)}, not {', '.join(map(str, columns))}."].append(1)
    for row in reader if not lines_by_message else ():
        form = FigureForm(row)
        form.source = source
        key = tuple(row.get(name) for name in ("dataset", "system", "configuration", "measure"))
        for name, messages in form.errors.items():
            for message in messages:
                lines_by_message[f"{name}: {message}"].append(reader.line_num)
        if key in keys:
            lines_by_message["An earlier line has the same figure. Remove one of them."].append(reader.line_num)
        keys.add(key)
        figures.append(form.cleaned_data)
    if not lines_by_message and not figures:
        lines_by_message["The file has no figures. Write one per line below the column names."].append(1)
    if lines_by_message:
        problems = [
            Problem("error", "reported", len(line_numbers), text, "", tuple(line_numbers[:5]))
            for text, line_numbers in lines_by_message.items()
        ]
        raise InvalidContent.build(*problems)
    return figures


#: Permission to remove results from boards and restore them.
MODERATES = "leaderboard.moderate_entry"


class WithdrawForm(ReasonForm):
    """Form for the figure of a reported row to withdraw."""

    measure = optional_text(max_length=40, help_text="Default: the whole row")


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
    reported = selection[0].provenance == Entry.Provenance.REPORTED
    return (
        "Reported entries are compared with the baseline of their own source. Choose another entry." if reported else ""
    )


class EntryAdmin(ReadOnlyAdmin):
    """Admin of results. `submissions.admin` registers it, with the actions that need a job."""

    list_display = (
        "system", "dataset", "configuration", "provenance", "visibility", "is_baseline", "moderation_reason",
        "published_at",
    )  # fmt: skip
    list_filter = (
        "provenance",
        "visibility",
        "is_baseline",
        "late",
        ("dataset", admin.RelatedOnlyFieldListFilter),
    )
    list_select_related = ("system", "dataset")
    search_fields = ("system__name", "system__slug", "dataset__name", "dataset__slug", "submission_reference")
    date_hierarchy = "published_at"
    change_list_template = "admin/leaderboard/entry/change_list.html"
    pages: ClassVar = {"report": "report/"}
    report_view = report_view
    actions: Sequence[str] = ("make_baseline", "quarantine", "restore", "unpublish", "withdraw")

    def acts(self, obj: Entry) -> Iterable[str]:
        """Return the actions for the entry.

        Public entries can be quarantined, and withdrawn if they are reported or unpublished if not. Others can be
        restored.
        """
        if obj.visibility == Entry.Visibility.PUBLIC and obj.provenance == Entry.Provenance.REPORTED:
            return ("withdraw", "quarantine")
        if obj.visibility == Entry.Visibility.PUBLIC:
            return ("quarantine", "unpublish")
        return ("restore",)

    def get_board_ids(self, key: Any) -> Iterable[int]:
        return Entry.objects.filter(pk=key).values_list("dataset_id", flat=True)

    make_baseline = Operation(
        "Set as baseline", "leaderboard.change_entry",
        _make_run(lambda entry, why: name_baseline(entry), "is now the baseline"),
        check=_check_baseline, title="Set as baseline", button="Set as baseline",
        explanation="All results of its comparison group will be compared with it:",
        help="Make a public result that was scored on this site the baseline of its board.",
        report=lambda entry, values: f"{entry} (entry {entry.pk}) is now the baseline.",
    )  # fmt: skip
    quarantine = Operation(
        "Quarantine: remove from the ranking with a public reason", MODERATES, _make_run(quarantine, "is quarantined"),
        refusals=(CannotModerate,), title="Quarantine results", button="Quarantine", danger=True,
        explanation="The results move below the ranking, without scores. The reason is shown on the board and in all "
        "exports:",
        help="Move a result below the ranking, without scores. The reason (--why) is public.",
        report=lambda entry, values: f"Quarantined: {entry} (entry {entry.pk}).",
    )  # fmt: skip
    restore = Operation(
        "Restore to the board", MODERATES, _make_run(lambda entry, why: restore(entry), "is restored"),
        refusals=(CannotModerate,), title="Restore results", button="Restore",
        explanation="The results are ranked again, unless their teams keep them private:",
        help="Restore a quarantined or unpublished result, unless its team keeps it private.",
        report=lambda entry, values: f"Restored: {entry} (entry {entry.pk}), {entry.get_visibility_display()} now.",
    )  # fmt: skip
    unpublish = Operation(
        "Unpublish: remove from the board and send the team the reason", MODERATES,
        _make_run(unpublish, "is unpublished"), refusals=(CannotModerate,), title="Unpublish results",
        button="Unpublish", danger=True, explanation="The results disappear from boards. Their teams see the reason:",
        help="Remove a result completely from its board; its team sees the reason (--why).",
        report=lambda entry, values: f"Unpublished: {entry} (entry {entry.pk}).",
    )  # fmt: skip
    withdraw = Operation(
        "Withdraw reported figures", MODERATES, _withdraw, form=WithdrawForm,
        refusals=(CannotModerate,), title="Withdraw reported figures", button="Withdraw a figure", danger=True,
        explanation="The figures disappear from the board, but permalinks keep them. Enter them again to restore them:",
    )  # fmt: skip


#: Permission to settle challenges.
SETTLES = "leaderboard.change_challenge"


class DecisionForm(ReasonForm):
    """Form for the public decision."""

    decision = forms.CharField(
        max_length=LONGEST_TEXT,
        widget=forms.Textarea(attrs={"rows": 5, "class": "vLargeTextField"}),
        help_text="Shown on the system's page, in Markdown",
    )


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
class ChallengeAdmin(ReadOnlyAdmin):
    """Admin of challenges, which actions settle or redact; all other fields are read-only."""

    list_display = ("system", "claim", "dataset", "state", "raised_by", "raised_at", "settled_by")
    list_filter = ("state", "claim", ("dataset", admin.RelatedOnlyFieldListFilter))
    list_select_related = ("system", "dataset", "raised_by", "settled_by")
    search_fields = ("system__name", "system__slug", "text", "decision")
    actions = ("uphold", "reject", "take_words_out")

    pending = ("challenge is open", "challenges are open", "?state__exact=open")

    def acts(self, obj: Challenge) -> Iterable[str]:
        settling = ("uphold", "reject") if obj.state == Challenge.State.OPEN else ()
        return (*settling, "take_words_out")

    def get_board_ids(self, key: Any) -> Iterable[int]:
        return Entry.objects.filter(system__challenges=key).values_list("dataset_id", flat=True)

    uphold = Operation(
        "Uphold, and optionally correct the system", SETTLES, partial(_settle, upheld=True),
        title="Uphold", form=UpholdForm, button="Uphold", refusals=(ChallengeRefused,),
        explanation="The challenge is upheld. The decision is public, signed “a curator”.",
    )  # fmt: skip
    reject = Operation(
        "Reject", SETTLES, partial(_settle, upheld=False),
        title="Reject", form=DecisionForm, button="Reject", refusals=(ChallengeRefused,),
        explanation="The challenge is rejected, so the system's claim remains. The decision is public.",
    )  # fmt: skip
    take_words_out = Operation(
        "Redact the text", SETTLES,
        lambda challenge, values: f"{redact_challenge(challenge, values['text'])}: the text is redacted.",
        title="Redact the text", form=RedactForm, button="Redact", refusals=(ChallengeRefused,),
        explanation="The new text replaces the old one, which is deleted. Readers see a note about this.",
        help="Remove words from a challenge's text, such as the name of an anonymous team. They are deleted.",
        report=lambda challenge, values: f"{challenge}: redacted.",
    )  # fmt: skip
