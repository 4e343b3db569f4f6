"""Admin pages for reported results: a form, a CSV with the form's fields as columns, or files of other tools.

All but MTEB's files show a preview before anything is stored.
"""

import csv
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from decimal import Decimal
from functools import partial
from typing import Any, ClassVar

from django import forms
from django.core.exceptions import ValidationError
from django.core.validators import RegexValidator
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from evaluation.core.problems import InvalidContent, Problem, format_count
from evaluation.measures.registry import UnknownMeasureError, parse_measure
from leaderboard.admin.forms import (
    GroupedForm,
    MeasureInput,
    TermInput,
    TextFileField,
    WhyField,
    optional_choice,
    optional_text,
)
from leaderboard.admin.import_form import uploaded_path
from leaderboard.admin.pages import curation_page, require, submit
from leaderboard.core.storage.store import work_folder
from leaderboard.datasets.terms import suggest_terms
from leaderboard.importing.reported.exchange import read_rows
from leaderboard.importing.reported.loader import CuratedFigure, enter_figures, preview_figures
from leaderboard.importing.reported.model_meta import InvalidFile
from leaderboard.importing.reported.mteb import ImportedResults, read_mteb_results
from leaderboard.importing.reported.tables import SCALES
from leaderboard.models import DECLARED_NUMBERS, Dataset, Source, System, architecture_choices
from leaderboard.results.reported_facts import COST_UNIT, SIZE_UNITS, make_figure

#: Permissions for entering reported results.
REPORTS = ("leaderboard.add_source", "leaderboard.change_entry")
#: Maximum size of a CSV in bytes.
MAX_CSV_BYTES = 1_000_000
_SOURCE_FIELDS = ("title", "authors", "year", "venue", "url")
#: Names of stored costs by field of the form.
_COSTS = {"latency": "latency", "index_size": "index size", "cost": "cost"}
#: A number, with thousands separators or without, and an optional unit.
_QUANTITY = re.compile(r"(?=[.0-9])((?:[0-9]{1,3}(?:,[0-9]{3})+|[0-9]+)?(?:\.[0-9]+)?)\s*([a-zA-Z]*)")
#: A score as printed.
_SCORE = RegexValidator(
    r"^([0-9]{1,3}(\.[0-9]{1,8})?|\.[0-9]{1,8})$", _("Enter a number as printed, for example 0.344.")
)
_COUNT_UNITS = {"": 1, "K": 10**3, "M": 10**6, "B": 10**9}


class QuantityField(forms.CharField):
    """Field for a printed number with an optional unit, such as `1.2 GB`. The value is (number, unit) or None."""

    def __init__(self, units: Iterable[str], default: str, **options: Any) -> None:
        super().__init__(required=False, max_length=15, **options)
        self.units = {unit.casefold(): unit for unit in (*units, default)}
        self.default = default

    def clean(self, value: Any) -> tuple[str, str] | None:
        """Return the number without separators, and its unit. Raises ValidationError for invalid text."""
        text = super().clean(value)
        match = _QUANTITY.fullmatch(text)
        unit = self.units.get((match[2] or self.default).casefold()) if match else None
        if match and unit is not None:
            return match[1].replace(",", ""), unit
        if text:
            units = {"units": ", ".join(filter(str.isalpha, self.units.values())) or gettext("no unit")}
            raise ValidationError(gettext("Enter a number, for example 1,200, and optionally: %(units)s.") % units)
        return None


class FigureForm(forms.Form):
    """Form for one reported result; its fields are also the columns of the CSV."""

    use_required_attribute = False

    dataset = forms.ModelChoiceField(
        Dataset.objects.listed(), to_field_name="slug", empty_label=_("Choose a dataset"),
        error_messages={"invalid_choice": _("There is no dataset %(value)s. Give its slug, as in /datasets/slug/.")},
    )  # fmt: skip
    system = forms.CharField(
        max_length=120,
        widget=TermInput(partial(suggest_terms, System, "name")),
        help_text=_("Name in the publication, for example ColBERTv2"),
    )
    architecture = optional_choice(
        choices=lambda: [("", _("unchanged")), *architecture_choices()], help_text=_("For new systems only")
    )
    configuration = optional_text(max_length=120, help_text=_("If the system has several, for example base or large"))
    parameters = QuantityField(_COUNT_UNITS, "", help_text=_("Parameters of the model, for example 110M or 109482240"))
    measure = forms.CharField(max_length=40, widget=MeasureInput(), help_text=_("Name on boards, for example nDCG@10"))
    value = forms.CharField(help_text=_("Printed value: 0.344, or 34.4 with the scale percent"), validators=[_SCORE])
    scale = optional_choice(choices=[("", _("share (0.344)")), *((name, name) for name in SCALES)])
    locator = forms.CharField(label=_("Page or table"), max_length=80, help_text=_("For example Table 2"))
    latency = QuantityField(
        ("ms", "s"), "ms", label=_("Latency per query (ms)"), help_text=_("For example 58 or 1.2 s")
    )
    hardware = optional_text(max_length=120, help_text=_("For the latency, for example 1 A100 GPU, or: not stated"))
    index_size = QuantityField(
        SIZE_UNITS, "B", label=_("Index size (bytes)"), help_text=_("For example 1200000000, 1.2 GB, or 800 MiB")
    )
    cost = QuantityField((), COST_UNIT, label=_("Cost per 1,000 queries (USD)"), help_text=_("For example 0.19"))

    #: The publication of a line of a CSV, if it exists already.
    source: Source | None = None

    def clean_measure(self) -> str:
        """Return the measure's canonical name. Raises ValidationError for an unknown measure."""
        try:
            return str(parse_measure(self.cleaned_data["measure"]))
        except UnknownMeasureError as error:
            raise ValidationError(str(error)) from error

    def clean_parameters(self) -> int | None:
        """Return the number of parameters, or None if it is not reported. Raises ValidationError if it is too large."""
        if (quantity := self.cleaned_data["parameters"]) is None:
            return None
        count = int(Decimal(quantity[0]) * _COUNT_UNITS[quantity[1]])
        if count > DECLARED_NUMBERS[0].greatest:
            raise ValidationError(gettext("This is more than any model has. Check the number and its unit."))
        return count

    def clean(self) -> dict[str, Any]:
        """Check the measure, scale, and hardware, and that a new system has an architecture."""
        values: dict[str, Any] = super().clean() or self.cleaned_data
        values["scale"] = values.get("scale") or "share"
        dataset, measure, value = (values.get(name) for name in ("dataset", "measure", "value"))
        if dataset and measure and measure not in dataset.measures:
            text = f"{dataset.name} does not use {measure}. Choose one of {', '.join(dataset.measures)}."
            self.add_error("measure", text)
        if value and float(value) > (maximum := SCALES[values["scale"]]):
            text = f"{value} is not a {values['scale']}: the maximum is {maximum:g}. Did you mean the other scale?"
            self.add_error("value", text)
        if values.get("latency") and not values.get("hardware"):
            self.add_error("hardware", gettext("Enter the hardware of the latency, or: not stated."))
        source = values.get("publication") or self.source
        matching_systems = System.objects.filter(source=source, name=values.get("system"))
        if not values.get("architecture") and (source is None or not matching_systems.exists()):
            self.add_error("architecture", "Choose an architecture, because the system is new.")
        return values

    def figure(self) -> CuratedFigure:
        """Return the valid form's score with its costs."""
        values = {name: self.cleaned_data[name] for name in FigureForm.base_fields}
        hardware, parameter_count = values.pop("hardware"), values.pop("parameters")
        costs = [
            make_figure(name, quantity[0], quantity[1], values["locator"], hardware if field == "latency" else "")
            for field, name in _COSTS.items()
            if (quantity := values.pop(field)) is not None
        ]
        details = {} if parameter_count is None else {"parameter_count": parameter_count}
        return CuratedFigure(**values, costs=costs, details=details)


class DoiOrUrlField(forms.URLField):
    """Field for a URL, or for a DOI such as `10.48550/arXiv.2104.08663`, which is converted to a URL."""

    widget = forms.TextInput

    def to_python(self, value: Any) -> str | None:
        """Return the URL. Raises ValidationError if it is neither a URL nor a DOI."""
        doi = re.fullmatch(r"(?:doi:\s*)?(10\.[0-9]{4,9}/\S+)", str(value or "").strip(), re.IGNORECASE)
        return super().to_python(f"https://doi.org/{doi[1]}" if doi else value)


class PublicationForm(GroupedForm, forms.ModelForm):
    """Base form for results of an existing or new publication."""

    folded_groups: ClassVar[Any] = ((_("New publication"), _("Unless you choose one above"), _SOURCE_FIELDS),)

    #: The required fields depend on other fields, which browsers cannot check.
    use_required_attribute = False

    publication = forms.ModelChoiceField(
        Source.objects.order_by("title"), required=False, empty_label=_("new: enter it below")
    )
    why = WhyField()

    class Meta:
        model = Source
        fields = _SOURCE_FIELDS
        field_classes = {"url": partial(DoiOrUrlField, assume_scheme="https")}
        labels = {"url": _("DOI or URL")}
        help_texts = {
            "authors": _("Names joined by “and”, for example Nandan Thakur and Nils Reimers"),
            "url": _("For example 10.48550/arXiv.2104.08663"),
        }

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if self.data.get("publication"):
            for name in _SOURCE_FIELDS:
                self.fields[name].required = False

    def _post_clean(self) -> None:
        if not self.cleaned_data.get("publication"):
            super()._post_clean()  # type: ignore[misc]  # A private hook of Django's model forms.

    def clean(self) -> dict[str, Any]:
        """Check that a new publication does not exist yet."""
        values: dict[str, Any] = super().clean() or self.cleaned_data
        title = values.get("title")
        if not values.get("publication") and title and Source.objects.filter(title__iexact=title).exists():
            self.add_error("title", gettext("This publication exists. Choose it under “Publication”."))
        return values


class ResultForm(FigureForm, PublicationForm):
    """Form for one result of a publication."""

    folded_groups = (
        *PublicationForm.folded_groups,
        (_("More details"), _("Configuration and costs. Boards mark costs as self-reported."),
         ("configuration", "parameters", "latency", "hardware", "index_size", "cost")),
    )  # fmt: skip

    def results(self) -> ImportedResults:
        return ImportedResults([self.figure()])


class CsvForm(PublicationForm):
    """Form for a CSV with results of a publication."""

    csv = TextFileField(label=_("CSV file"), max_bytes=MAX_CSV_BYTES)
    table = optional_text(
        label=_("Text of the file"), max_length=MAX_CSV_BYTES, strip=False, help_text=_("Instead of a file"),
        widget=forms.Textarea(attrs={"rows": 10, "class": "vLargeTextField", "spellcheck": "false"}),
    )  # fmt: skip

    def clean(self) -> dict[str, Any]:
        """Return the cleaned data. The text of a file is stored in `table`, so that the page shows it again."""
        values = super().clean()
        if values.get("csv"):
            values["table"] = values["csv"]
            self.data = {**dict(self.data.items()), "table": values["csv"]}
        elif not values.get("table") and "csv" not in self.errors:
            self.add_error("csv", gettext("Choose a file, or enter its text below."))
        return values

    def results(self) -> ImportedResults:
        """Return the results in the CSV. Raises InvalidContent."""
        return ImportedResults(read_figures(self.cleaned_data["table"], self.cleaned_data["publication"]))


class ExchangeForm(CsvForm):
    """Form for a file of Every Eval Ever or of the Hugging Face hub, and for what the file does not state."""

    csv = TextFileField(
        label=_("File"), max_bytes=MAX_CSV_BYTES,
        help_text=_("A record of Every Eval Ever (JSON), a file of .eval_results/, or a model card with model-index."),
    )  # fmt: skip
    system = optional_text(max_length=120, help_text=_("Name of the model. Files of .eval_results/ do not state it."))
    architecture = FigureForm.base_fields["architecture"]
    scale = FigureForm.base_fields["scale"]

    def results(self) -> ImportedResults:
        """Return the results in the file, with the form's system. Raises InvalidContent."""
        results, values = ImportedResults(), self.cleaned_data
        try:
            rows = read_rows(values["table"], results.ignored)
        except InvalidFile as error:
            problem = Problem("error", "reported", 1, f"The file was not read: {error}.", "")
            raise InvalidContent.build(problem) from error
        for row in rows:
            row.update({name: row.get(name) or values[name] for name in ("system", "architecture", "scale")})
        empty = " ".join(["The file has no results for boards on this site.", *results.left_out()])
        results.figures = check_rows(((row["location"], row) for row in rows), values["publication"], empty)
        return results


class MtebForm(PublicationForm):
    """Form for MTEB's files of results."""

    mteb = forms.FileField(
        label=_("MTEB results"),
        help_text=_("A zip of model__name/revision/Task.json. The URL of the publication must point to these folders."),
    )

    def clean(self) -> dict[str, Any]:
        """Check that the publication has a URL."""
        values = super().clean()
        publication = values.get("publication")
        if values.get("mteb") and not (publication.url if publication else values.get("url")):
            self.add_error("mteb", "The publication needs a URL, because each row links to its file there.")
        return values

    def results(self) -> ImportedResults:
        """Return the results in the uploaded zip. Raises InvalidContent."""
        source = self.cleaned_data["publication"] or self.instance
        with work_folder("mteb") as work:
            path = work / "results.zip"  # Messages show this name instead of that of the temporary file.
            path.symlink_to(uploaded_path(self.cleaned_data["mteb"]))
            return read_mteb_results(path, source.url, work)


#: Forms by way of entering results, `?by=` of the page.
_FORMS: dict[str, Any] = {"form": ResultForm, "csv": CsvForm, "exchange": ExchangeForm, "mteb": MtebForm}


def report_view(page: Any, request: HttpRequest) -> HttpResponse:
    """Show the form for reported results; on POST, show a preview or the problems, and store confirmed results.

    MTEB's files are stored without a preview.
    """
    require(request, *REPORTS)
    way = request.GET.get("by", "")
    way = way if way in _FORMS else "form"
    form = _FORMS[way](request.POST or None, request.FILES or None)
    context: dict[str, Any] = {"form": form, "way": way}

    def act(values: Mapping[str, Any]) -> str:
        """Publish the results, and return the URL of the list of reported results; or add a preview to the context."""
        source, results = values["publication"] or form.instance, form.results()
        if way != "mteb" and "confirmed" not in request.POST:
            context["rows"], warnings = preview_figures(source, results.figures)
            context.update(source=source, warnings=[*warnings, *results.left_out()])
            return ""
        enter_figures(source, results.figures)
        message = f"Published: {format_count(len(results.figures), 'reported figure')} of {source}."
        page.message_user(request, " ".join([message, *results.left_out()]))
        return reverse("admin:leaderboard_entry_changelist") + "?provenance__exact=reported"

    redirect, problems = submit(request, form, act) if "back" not in request.POST else (None, [])
    if "rows" in context:
        return curation_page(
            request, page, "admin/leaderboard/entry/preview.html", gettext("Preview of reported results"), **context
        )
    return redirect or curation_page(
        request, page, "admin/leaderboard/entry/report.html", gettext("Enter reported results"), problems=problems,
        columns=FigureForm(), **context,
    )  # fmt: skip


def read_figures(text: str, source: Source | None) -> list[CuratedFigure]:
    """Return the figures of a CSV with the columns of `FigureForm`.

    `source` is the existing publication, or None. Raises InvalidContent with all problems by line and column.
    """
    reader = csv.DictReader(text.splitlines())
    columns, fields = set(reader.fieldnames or ()), FigureForm.base_fields
    required_names = {name for name, field in fields.items() if field.required}
    if required_names - columns or columns - set(fields):
        message = f"The columns are {', '.join(fields)}, not {', '.join(map(str, columns))}."
        raise InvalidContent.build(Problem("error", "reported", 1, message, "", (1,)))
    empty = "The file has no figures. Write one per line below the column names."
    return check_rows(((reader.line_num, row) for row in reader), source, empty)


def check_rows(
    rows: Iterable[tuple[int | str, Mapping[str, str]]], source: Source | None, empty: str
) -> list[CuratedFigure]:
    """Return the figures of rows with the columns of `FigureForm`, each with its line or location in the file.

    Raises InvalidContent with all problems, or with the message `empty` if there are no rows.
    """
    figures: list[CuratedFigure] = []
    earlier_cells: dict[tuple[Any, ...], object] = {}
    places_by_message: defaultdict[str, list[int | str]] = defaultdict(list)
    for place, row in rows:
        form = FigureForm(row)
        form.source = source
        messages = [f"{name}: {message}" for name, texts in form.errors.items() for message in texts]
        # A measure must not occur twice; costs may be repeated for each measure of a result.
        result = tuple(row.get(name) for name in ("dataset", "system", "configuration"))
        cells: dict[tuple[Any, ...], object] = {("measure", row.get("measure"), *result): place}
        cells |= {(name, row.get("hardware"), *result): row[name] for name in (*_COSTS, "parameters") if row.get(name)}
        messages += [
            f"{key[0]}: An earlier entry has another value for the same result. Remove one of them."
            for key, value in cells.items()
            if earlier_cells.setdefault(key, value) != value
        ]
        for message in messages:
            places_by_message[message].append(place)
        if not messages:
            figures.append(form.figure())
    problems = [
        Problem("error", "reported", len(places), text, "", tuple(line for line in places[:5] if isinstance(line, int)))
        if isinstance(places[0], int)
        else Problem("error", "reported", len(places), f"{', '.join(map(str, places[:5]))}: {text}", "")
        for text, places in places_by_message.items()
    ]
    if problems or not figures:
        raise InvalidContent.build(*(problems or [Problem("error", "reported", 1, empty, "")]))
    return figures
