"""Forms of *Import dataset*: one for the source, and one for the options of the command `import_dataset`."""

import re
from functools import partial
from pathlib import Path
from typing import Any

from django import forms
from django.forms.utils import pretty_name
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from evaluation.collections.other_formats import FIELDS
from leaderboard.admin.forms import (
    GroupedForm,
    MeasureInput,
    MeasuresInput,
    TermInput,
    optional_choice,
    optional_integer,
    optional_share,
    optional_text,
    tick_box,
)
from leaderboard.datasets.terms import TERMS, stored_spelling, suggest_terms
from leaderboard.importing.collections.halves import import_twin
from leaderboard.importing.collections.importer import ImportResult, import_dataset
from leaderboard.importing.collections.source import ImportOptions, Progress
from leaderboard.models import Dataset, Protection, Visibility

#: Fields that every import confirms.
_MAIN_FIELDS = ("name", "slug", "judgements", "split", "primary", "measures", "task", "domain", "language", "licence")
_GROUPS: tuple[tuple[Any, Any, tuple[str, ...]], ...] = (
    (_("Public page"), _("Further texts of the public page."), ("description", "citation", "homepage", "judged_by")),
    (_("Downloads"), _("Visibility of queries, documents, and runs."),
     ("queries_visibility", "documents_visibility", "runs_visibility")),
    (_("Protection of hidden judgments"), _("Feedback to teams."), ("protection", "public_share")),
    (_("Twin"), _("Public and hidden halves of the topics, to measure contamination gaps."),
     ("twin", "seed", "twin_of")),
    (_("Scoring"), _("Threshold of relevance, and special rules of the collection."),
     ("relevance_level", "drop_self_matches", "candidates_only", "strict", "baseline")),
    (_("Content"), _("Parts of the collection to use."), ("topic_field", "runs_only", "collecting", "version_label")),
)  # fmt: skip
#: Meaning of an empty choice for a new dataset; existing datasets stay unchanged.
_DEFAULTS = {
    "judgements": "hidden", "protection": "standard", "queries_visibility": "everyone",
    "documents_visibility": "everyone", "runs_visibility": "curators only",
}  # fmt: skip
#: Fields that are not options of the import.
_NO_OPTIONS = ("twin", "seed")


class SourceForm(forms.Form):
    """Form for the source of a collection: a zip, or its name on the hub or in ir_datasets."""

    archive = forms.FileField(
        label=_("Zip"),
        required=False,
        help_text=_(
            "corpus.jsonl, queries.jsonl and qrels/test.tsv (BEIR), or qrels.txt and topics (TREC), CSV or SMART "
            "files, each plain or .gz"
        ),
    )
    source = forms.CharField(
        label=_("Or a source"),
        required=False,
        max_length=250,
        widget=forms.TextInput(attrs={"class": "vTextField", "autocomplete": "off", "spellcheck": "false"}),
        help_text=_("hf:mteb/scifact for the Hugging Face hub, or ir_datasets:beir/nfcorpus/test for ir_datasets"),
    )

    def clean(self) -> dict[str, Any]:
        """Return the cleaned data. Raises ValidationError unless exactly one source is given."""
        values: dict[str, Any] = super().clean() or self.cleaned_data
        if not self.errors and bool(values["archive"]) == bool(values["source"]):
            raise forms.ValidationError(gettext("Choose a zip or enter the name of a source, not both."))
        return values


def _term(name: str, **options: Any) -> forms.CharField:
    """Return an optional text field of a dataset with suggestions."""
    return optional_text(**{"max_length": 80, "widget": TermInput(partial(suggest_terms, Dataset, name)), **options})


class ImportForm(GroupedForm):
    """Form for importing a dataset. Empty fields keep a dataset's value, or give a new one its default."""

    folded_groups = _GROUPS

    slug = forms.SlugField(max_length=80, help_text="Name of the dataset in its URL: /datasets/slug/")
    name = optional_text(max_length=120, help_text="Default: the slug")
    judgements = optional_choice(
        label="Judgments",
        choices=[("hidden", "hidden"), ("open", "open to everyone")],
        help_text="Only the scorer and permitted curators read hidden judgments. Published ones remain public.",
    )
    protection = optional_choice(
        choices=Protection.choices,
        help_text="Protection of hidden judgments, for new datasets. Use the action to change it later.",
    )
    public_share = optional_share(
        help_text="Share of a competition's judged queries that are public. Default: one third."
    )
    twin = forms.FloatField(
        label="Draw a twin",
        required=False,
        help_text="Share of topics in the open half, for example 0.5. Creates two datasets, slug and slug-hidden.",
    )
    seed = optional_integer(help_text="Random seed of the draw. Default: 0.")
    twin_of = forms.SlugField(
        required=False,
        help_text="Alternative: slug of the open dataset with the other half of the topics and the same corpus",
    )
    runs_only = tick_box(help_text="Select this if there is no corpus. Only uploaded runs are then scored.")
    collecting = tick_box(help_text="Accept runs before there are judgments.")
    baseline = forms.FileField(
        label="Baseline run",
        required=False,
        help_text="Run to compare other systems with instead of BM25, for example if BM25 retrieves nothing",
    )
    split = forms.CharField(max_length=20, initial="test", help_text="Split of the judgments used for scoring")
    topic_field = optional_choice(
        choices=[("", "title (default)"), *((name, name) for name in FIELDS)],
        help_text="Field of TREC topics to use as query",
    )
    primary = optional_text(
        label="Primary measure", max_length=40, widget=MeasureInput(), help_text="Ranks the board. Default: nDCG@10"
    )
    measures = optional_text(
        label="Other measures",
        max_length=400,
        widget=MeasuresInput,
        help_text="With hidden judgments, choose at most three, including the primary one.",
    )
    relevance_level = optional_integer(min_value=1, help_text="Lowest relevant grade. Default: 1.")
    drop_self_matches = tick_box(
        help_text="Remove documents with the id of the query from its ranking (ArguAna, Quora)"
    )
    candidates_only = tick_box(
        help_text="Re-ranking: use each query's judged documents as candidates, and ignore all other documents"
    )
    strict = tick_box(help_text="Reject judgments of documents that are not in the corpus. Default: report them.")
    task = _term("task", help_text="Choose a suggestion or enter a name, for example Question Answering")
    domain = _term("domain", help_text="Choose a suggestion or enter a name, for example Bio-Medical")
    language = _term("language", help_text="A code or an English name, such as de, deu, or German. Default: en.")
    licence = _term("licence", label="License", max_length=120)
    homepage = forms.URLField(required=False, assume_scheme="https")
    citation = optional_text(widget=forms.Textarea(attrs={"rows": 4}))
    description = optional_text(widget=forms.Textarea(attrs={"rows": 4}), help_text="Markdown")
    judged_by = optional_text(
        max_length=60, help_text="Judges, or how the judgments were made, such as NIST assessors. Shown on the board."
    )
    queries_visibility = optional_choice(choices=Visibility.choices)
    documents_visibility = optional_choice(choices=Visibility.choices)
    runs_visibility = optional_choice(
        choices=Visibility.choices,
        help_text="Visibility of public results on open judgments, including existing ones",
    )
    version_label = optional_text(max_length=80, help_text="A name for this version of the content")

    def __init__(self, *args: Any, existing: Dataset | None = None, splits: Any = None, **kwargs: Any) -> None:
        """Label empty choices with the default, or with the value of `existing`, whose slug is then read-only.

        `splits` maps the available splits to descriptions, if they are known.
        """
        super().__init__(*args, **kwargs)
        for name, default in _DEFAULTS.items():
            words = f"{default} (default)"
            if existing and name == "judgements":
                words = f"unchanged: {'hidden' if existing.hidden else 'open to everyone'}"
            elif existing:
                words = f"unchanged: {getattr(existing, f'get_{name}_display')()}"
            self.fields[name].choices = [("", words), *self.fields[name].choices]  # type: ignore[attr-defined]
        if existing is not None:
            self.initial["slug"] = existing.slug
            self.fields["slug"].widget.attrs["readonly"] = True
            self.fields["slug"].help_text = "Empty fields stay unchanged. New content creates a new version."
        if splits is not None:
            self.fields["split"].widget = TermInput(lambda: splits)

    def clean_slug(self) -> str:
        """Return the slug. Raises ValidationError if it is the slug of a dataset that this import does not update."""
        slug: str = self.cleaned_data["slug"]
        if self.initial and slug != self.initial["slug"] and Dataset.objects.filter(slug=slug).exists():
            message = gettext("%(slug)s exists. Choose another slug, or update it from its page in the admin.")
            raise forms.ValidationError(message % {"slug": slug})
        return slug

    def main_fields(self) -> list[forms.BoundField]:
        return [self[name] for name in _MAIN_FIELDS]

    def options(self) -> ImportOptions:
        """Return the import options from the valid form. Empty fields get the defaults of `ImportOptions`."""
        values = {name: value for name, value in self.cleaned_data.items() if value and name not in _NO_OPTIONS}
        if judgements := values.pop("judgements", None):
            values["hidden"] = judgements == "hidden"
        values |= {name: stored_spelling(name, values[name]) for name in TERMS[Dataset] if name in values}
        values["measures"] = tuple(values.get("measures", "").replace(",", " ").split())
        return ImportOptions(**values)

    def import_from(self, path: Path, options: ImportOptions, progress: Progress) -> list[ImportResult]:
        """Import a folder or zip as one dataset, or as two if the form has a share for a twin; return the results."""
        twin, seed = self.cleaned_data["twin"], self.cleaned_data["seed"]
        if twin is None:
            return [import_dataset(path, options, progress)]
        return list(import_twin(path, options, twin, seed or 0, progress))


def name_fields(text: str) -> str:
    """Replace options of the import command, such as `--runs-only`, with the quoted labels of the form's fields."""
    fields = ImportForm.base_fields.items()
    labels = {name.replace("_", "-"): str(field.label or pretty_name(name)) for name, field in fields}
    labels |= {"open": gettext("Judgments: open to everyone"), "hidden": gettext("Judgments: hidden")}
    return re.sub(r"--([a-z-]*[a-z])", lambda m: f"“{labels[m[1]]}”" if m[1] in labels else m[0], text)


def uploaded_path(upload: Any) -> Path:
    """Return the path of an uploaded file, which the upload handler always writes to disk."""
    return Path(upload.temporary_file_path())
