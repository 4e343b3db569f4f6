"""The form behind *Import dataset*: the command's options, for a zip."""

from pathlib import Path
from typing import Any

from django import forms
from django.core.files.uploadedfile import TemporaryUploadedFile

from evaluation.collections.other_formats import FIELDS
from leaderboard.admin.forms import (
    TermInput,
    optional_choice,
    optional_integer,
    optional_share,
    optional_text,
    tick_box,
)
from leaderboard.importing.collections.halves import import_twin
from leaderboard.importing.collections.importer import ImportResult, import_dataset
from leaderboard.importing.collections.source import ImportOptions, Progress
from leaderboard.models import Dataset, Protection, Visibility

#: What the form asks, step by step: title, what it is about, and the fields.
_STEPS: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("Files", "The collection and its judgements.",
     ("archive", "slug", "runs_only", "baseline", "collecting", "split", "topic_field",
      "version_label")),
    ("Judgements", "Who may read them, and what teams are told of results on them.",
     ("judgements", "protection", "public_share")),
    ("Twin", "A public and a hidden half of the topics, which show a contamination gap.",
     ("twin", "seed", "twin_of")),
    ("Measures", "What the board shows, and what counts as relevant.",
     ("primary", "measures", "relevance_level", "drop_self_matches", "candidates_only", "strict")),
    ("Description", "What the public page says.",
     ("name", "task", "domain", "language", "licence", "homepage", "citation", "description")),
    ("Who may download what", "Beside judgements.",
     ("queries_visibility", "documents_visibility", "runs_visibility")),
)  # fmt: skip
#: What an empty choice means for a new dataset; of one that is here it changes nothing.
_DEFAULTS = {
    "judgements": "hidden", "protection": "standard", "queries_visibility": "everyone",
    "documents_visibility": "everyone", "runs_visibility": "curators only",
}  # fmt: skip
_EMPTY = ("", "")
#: Fields that say what is done with the options.
_NO_OPTIONS = ("archive", "twin", "seed")


class ImportForm(forms.Form):
    """Fields left empty keep what a dataset has, or give a new one its default."""

    archive = forms.FileField(
        label="Zip",
        help_text="corpus.jsonl, queries.jsonl and qrels/test.tsv (BEIR), or qrels.txt and topics (TREC), CSV, SMART; "
        ".gz too",
    )
    slug = forms.SlugField(max_length=80, help_text="The dataset's address: /datasets/slug/")
    name = optional_text(max_length=120)
    judgements = optional_choice(
        choices=[_EMPTY, ("hidden", "hidden"), ("open", "open to everyone")],
        help_text="Hidden judgements stay with the scorer. What was open once cannot be hidden again.",
    )
    protection = optional_choice(
        choices=[_EMPTY, *Protection.choices],
        help_text="Of hidden judgements, for a new dataset; later an action changes it.",
    )
    public_share = optional_share(help_text="Of a competition's judged queries: ⅓")
    twin = forms.FloatField(
        label="Draw a twin",
        required=False,
        help_text="The open half's share of the topics, 0.5: makes two datasets, slug and slug-hidden.",
    )
    seed = optional_integer(help_text="Of that draw: 0")
    twin_of = forms.SlugField(
        required=False, help_text="Instead: the open dataset whose hidden half this is, over the same corpus"
    )
    runs_only = tick_box(help_text="There are no documents: runs are scored.")
    collecting = tick_box(help_text="Take runs before there are judgements.")
    baseline = forms.FileField(
        label="Baseline run",
        required=False,
        help_text="Other systems are compared with this run instead of BM25, for example if BM25 retrieves nothing",
    )
    split = forms.CharField(
        max_length=20, initial="test", help_text="The judgements that runs are scored against"
    )
    topic_field = optional_choice(
        choices=[("", "title (default)"), *((name, name) for name in FIELDS)],
        help_text="Of TREC topics: the query",
    )
    primary = optional_text(label="Primary measure", max_length=40, help_text="nDCG@10 unless said otherwise")
    measures = optional_text(
        max_length=400,
        help_text="Separated by spaces; with hidden judgements at most three, the primary one included",
    )
    relevance_level = optional_integer(min_value=1, help_text="Lowest grade that is relevant: 1")
    drop_self_matches = tick_box(help_text="Leave out a document whose id is its query's (ArguAna, Quora)")
    candidates_only = tick_box(
        help_text="Re-ranking: a query's judged documents are its candidates, others are passed over"
    )
    strict = tick_box(help_text="Refuse judgments of documents that the corpus lacks. Default: report them.")
    task = optional_text(max_length=80, widget=TermInput(Dataset, "task"))
    domain = optional_text(max_length=80, widget=TermInput(Dataset, "domain"))
    language = optional_text(
        max_length=60, help_text="A code or an English name, such as de, deu, or German. Default: en."
    )
    licence = optional_text(max_length=120, widget=TermInput(Dataset, "licence"))
    homepage = forms.URLField(required=False, assume_scheme="https")
    citation = optional_text(widget=forms.Textarea(attrs={"rows": 4}))
    description = optional_text(widget=forms.Textarea(attrs={"rows": 4}), help_text="Markdown")
    queries_visibility = optional_choice(choices=[_EMPTY, *Visibility.choices])
    documents_visibility = optional_choice(choices=[_EMPTY, *Visibility.choices])
    runs_visibility = optional_choice(
        choices=[_EMPTY, *Visibility.choices],
        help_text="Of public results on open judgements, those already here too",
    )
    version_label = optional_text(max_length=80, help_text="A name for this version of the content")

    def __init__(self, *args: Any, known: Dataset | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for name, default in _DEFAULTS.items():
            words = f"{default} (default)"
            if known and name == "judgements":
                words = f"unchanged: {'hidden' if known.hidden else 'open to everyone'}"
            elif known:
                words = f"unchanged: {getattr(known, f'get_{name}_display')()}"
            self.fields[name].choices = [("", words), *self.fields[name].choices[1:]]  # type: ignore[attr-defined]
        if known is not None:
            self.initial["slug"] = known.slug
            self.fields["slug"].widget.attrs["readonly"] = True
            self.fields[
                "slug"
            ].help_text = "Fields left empty stay as they are. New content makes a new version."

    def steps(self) -> list[tuple[str, str, list[forms.BoundField]]]:
        """Return the fields by step."""
        return [(title, words, [self[name] for name in names]) for title, words, names in _STEPS]

    def options(self) -> ImportOptions:
        """Return the options of the import. Empty fields get the defaults of `ImportOptions`."""
        values = {
            name: value for name, value in self.cleaned_data.items() if value and name not in _NO_OPTIONS
        }
        if judgements := values.pop("judgements", None):
            values["hidden"] = judgements == "hidden"
        values["measures"] = tuple(values.get("measures", "").replace(",", " ").split())
        values["baseline"] = path_of_upload(values.get("baseline"))
        return ImportOptions(**values)

    def import_from(self, path: Path, options: ImportOptions, progress: Progress) -> list[ImportResult]:
        """Import a folder or zip as one dataset or, if a twin was asked for, as two."""
        twin, seed = self.cleaned_data["twin"], self.cleaned_data["seed"]
        if twin is None:
            return [import_dataset(path, options, progress)]
        return list(import_twin(path, options, twin, seed or 0, progress))


def path_of_upload(upload: Any) -> Path | None:
    """Return the path of an uploaded file, which the upload handler always writes to disk, or of a local file."""
    if isinstance(upload, TemporaryUploadedFile):
        return Path(upload.temporary_file_path())
    return upload if isinstance(upload, Path) else None
