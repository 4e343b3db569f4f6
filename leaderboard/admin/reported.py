"""Entering what publications report: one figure by a form, many by a CSV with the form's fields as columns, or a zip of
results in MTEB's layout.
"""

import csv
from collections import defaultdict
from collections.abc import Mapping
from functools import partial
from typing import Any

from django import forms
from django.core.exceptions import ValidationError
from django.core.files.uploadedfile import UploadedFile
from django.core.validators import RegexValidator
from django.http import HttpRequest, HttpResponse
from django.urls import reverse

from evaluation.core.problems import InvalidContent, Problem, number_of
from evaluation.measures.registry import UnknownMeasureError, parse_measure
from leaderboard.admin.forms import TextFileField, WhyField, optional_choice, optional_text
from leaderboard.admin.pages import curation_page, require, submit
from leaderboard.core.storage.store import work_folder
from leaderboard.core.text.numbers import parse_number
from leaderboard.importing.reported.loader import SCALES, CuratedFigure, enter_figures
from leaderboard.importing.reported.mteb import MtebResults, read_mteb_results
from leaderboard.models import Dataset, Source, System, architecture_choices

#: The rights that entering figures takes.
REPORTS = ("leaderboard.add_source", "leaderboard.change_entry")
#: The largest CSV that is taken, in bytes.
LARGEST = 1_000_000
_NEW = ("key", "title", "authors", "year", "venue", "url")


class FigureForm(forms.Form):
    """One figure: the fields of the form, and the columns of the CSV."""

    use_required_attribute = False  # a CSV may take its place

    dataset = forms.ModelChoiceField(
        Dataset.objects.listed(), to_field_name="slug",
        error_messages={"invalid_choice": "There is no dataset %(value)s: give its slug, as in /datasets/slug/."},
    )  # fmt: skip
    system = forms.CharField(max_length=120, help_text="As the publication calls it.")
    measure = forms.CharField(max_length=40, help_text="As on boards: nDCG@10.")
    value = forms.CharField(
        help_text="As printed: 0.344, or 34.4 with the scale percent.",
        validators=[
            RegexValidator(r"^([0-9]{1,3}(\.[0-9]{1,6})?|\.[0-9]{1,6})$", "Write a number as printed: 0.344.")
        ],
    )
    scale = optional_choice(choices=[("", "share (0.344)"), *((each, each) for each in SCALES)])
    locator = forms.CharField(max_length=80, help_text="Where it is printed: Table 2.")
    architecture = optional_choice(
        choices=lambda: [("", "as it is"), *architecture_choices()], help_text="Of a system that is new here."
    )
    configuration = optional_text(max_length=120, help_text="Tells settings of one system apart.")

    #: The publication, where it is here already.
    source: Source | None = None

    def clean_measure(self) -> str:
        """Return the measure's name on boards."""
        try:
            return str(parse_measure(self.cleaned_data["measure"]))
        except UnknownMeasureError as error:
            raise ValidationError(str(error)) from error

    def clean(self) -> dict[str, Any]:
        """Check fields that depend on each other."""
        values: dict[str, Any] = super().clean() or self.cleaned_data
        values["scale"] = values.get("scale") or "share"
        dataset, measure, value = (values.get(name) for name in ("dataset", "measure", "value"))
        if dataset and measure and measure not in dataset.measures:
            self.add_error(
                "measure", f"{dataset.slug} does not show {measure}, but {', '.join(dataset.measures)}."
            )
        if value and float(value) > (most := SCALES[values["scale"]]):
            self.add_error(
                "value", f"{value} is no {values['scale']}, which ends at {most:g}: is it the other scale?"
            )
        known = System.objects.filter(source=self.source, name=values.get("system"))
        if not values.get("architecture") and (self.source is None or not known.exists()):
            self.add_error("architecture", "The system is new here: say which architecture it has.")
        return values


class PublicationForm(forms.ModelForm):
    """The publication, one of those that are here or a new one, and a CSV in the place of a single figure."""

    #: What is needed depends on the other fields: the browser must not decide.
    use_required_attribute = False

    publication = forms.ModelChoiceField(
        Source.objects.all(), required=False, empty_label="a new one, described below"
    )
    csv = TextFileField(
        label="CSV", largest=LARGEST,
        help_text="In the place of the figure below. Columns: " + ", ".join(FigureForm.base_fields) + ".",
    )  # fmt: skip
    mteb = forms.FileField(
        label="MTEB results", required=False,
        help_text="In the place of the figure below: a zip of model__name/revision/Task.json. The publication’s "
        "address is where these folders lie.",
    )  # fmt: skip
    why = WhyField()
    field_order = ("publication", *_NEW, "csv", "mteb", "why")

    class Meta:
        model = Source
        fields = _NEW
        field_classes = {"url": partial(forms.URLField, assume_scheme="https")}

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if self.data.get("publication"):
            for name in _NEW:
                self.fields[name].required = False

    def _post_clean(self) -> None:
        if not self.cleaned_data.get("publication"):
            super()._post_clean()  # type: ignore[misc]  # a private hook of Django's model forms

    def clean(self) -> dict[str, Any]:
        """Require at most one file, and an address if rows link to files."""
        values: dict[str, Any] = super().clean() or self.cleaned_data
        if values.get("mteb"):
            if values.get("csv"):
                self.add_error("mteb", "Send either this or a CSV.")
            if not (values["publication"].url if values.get("publication") else values.get("url")):
                self.add_error("mteb", "The publication needs an address: each row links to its file there.")
        return values


def report_view(page: Any, request: HttpRequest) -> HttpResponse:
    """Show the form, and publish its figures all together or not at all."""
    require(request, *REPORTS)
    one = request.method == "POST" and not request.FILES
    single = FigureForm(request.POST if one else None)
    single.source = Source.objects.filter(pk=parse_number(request.POST.get("publication", "")) or 0).first()
    form = PublicationForm(request.POST or None, request.FILES or None)

    def act(values: Mapping[str, Any]) -> str:
        source = values["publication"] or form.instance
        if values["mteb"]:
            results = _read_zip(values["mteb"], source)
        elif single.is_bound:
            results = MtebResults([CuratedFigure(**single.cleaned_data)])
        else:
            rows = read_figures(values["csv"], values["publication"])
            results = MtebResults([CuratedFigure(**row) for row in rows])
        enter_figures(source, results.figures, results.described)
        published = f"Published: {number_of(len(results.figures), 'reported figure')} of {source}."
        page.message_user(request, " ".join([published, *results.left_out()]))
        return reverse("admin:leaderboard_entry_changelist") + "?provenance__exact=reported"

    sendable = single.is_valid() or not single.is_bound
    redirect, problems = submit(request, form, act) if sendable else (None, [])
    return redirect or curation_page(
        request, page, "admin/leaderboard/entry/report.html", "Enter reported figures",
        problems=problems, form=form, figure=single, status=400 if problems or form.errors or single.errors else 200,
    )  # fmt: skip


def _read_zip(file: UploadedFile, source: Source) -> MtebResults:
    """Read a zip of MTEB's results. Raises InvalidContent."""
    with work_folder("mteb") as work:
        path = work / "results.zip"
        with path.open("wb") as stored:
            stored.writelines(file.chunks())
        return read_mteb_results(path, source.url, work)


def read_figures(text: str, source: Source | None) -> list[dict[str, Any]]:
    """Read the figures of a CSV. Raises InvalidContent with all problems by line."""
    reader = csv.DictReader(text.splitlines())
    figures, seen = [], set()
    wrong: defaultdict[str, list[int]] = defaultdict(list)
    named, fields = set(reader.fieldnames or ()), FigureForm.base_fields
    needed = {name for name, field in fields.items() if field.required}
    if needed - named or named - set(fields):
        wrong[f"The columns are {', '.join(fields)}, not {', '.join(map(str, named))}."].append(1)
    for row in reader if not wrong else ():
        form = FigureForm(row)
        form.source = source
        place = tuple(row.get(name) for name in ("dataset", "system", "configuration", "measure"))
        for name, messages in form.errors.items():
            for message in messages:
                wrong[f"{name}: {message}"].append(reader.line_num)
        if place in seen:
            wrong["The same figure stands on an earlier line."].append(reader.line_num)
        seen.add(place)
        figures.append(form.cleaned_data)
    if not wrong and not figures:
        wrong["The file has no figure: write one a line, below the names of the columns."].append(1)
    if wrong:
        found = [Problem("error", "reported", len(at), text, "", tuple(at[:5])) for text, at in wrong.items()]
        raise InvalidContent.of(*found)
    return figures
