"""The form behind *Import dataset*: the command's options, for a zip."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from django import forms
from django.core.files.uploadedfile import TemporaryUploadedFile

from leaderboard.importing.collections.options import ImportOptions
from leaderboard.models.datasets import Protection, Visibility

_SAME = ("", "as it is, or everyone")


class ImportForm(forms.Form):
    """Fields left empty keep what a dataset has, or give a new one its default."""

    archive = forms.FileField(
        label="Zip",
        help_text="corpus.jsonl, queries.jsonl and qrels/test.tsv (BEIR), or qrels.txt (TREC); .gz too",
    )
    slug = forms.SlugField(max_length=80, help_text="The dataset's address: /datasets/slug/")
    name = forms.CharField(max_length=120, required=False)
    judgements = forms.ChoiceField(
        choices=[("", "as they are, or hidden"), ("hidden", "hidden"), ("open", "open to everyone")],
        required=False,
        help_text="Hidden judgements stay with the scorer. What was open once cannot be hidden again.",
    )
    protection = forms.ChoiceField(
        choices=[("", "standard, or as it is"), *Protection.choices],
        required=False,
        help_text="Of hidden judgements, for a new dataset; later an action changes it.",
    )
    public_share = forms.FloatField(
        required=False, min_value=0.05, max_value=0.95, help_text="Of a competition's judged queries: ⅓"
    )
    runs_only = forms.BooleanField(required=False, help_text="There are no documents: runs are scored.")
    collecting = forms.BooleanField(required=False, help_text="Take runs before there are judgements.")
    baseline = forms.FileField(
        label="Baseline run",
        required=False,
        help_text="For a dataset without documents, whose BM25 nobody here makes",
    )
    split = forms.CharField(
        max_length=20, initial="test", help_text="The judgements that runs are scored against"
    )
    primary = forms.CharField(
        label="Primary measure", max_length=40, required=False, help_text="nDCG@10 unless said otherwise"
    )
    measures = forms.CharField(
        max_length=400,
        required=False,
        help_text="Separated by spaces; with hidden judgements at most three, the primary one included",
    )
    relevance_level = forms.IntegerField(
        min_value=1, required=False, help_text="Lowest grade that is relevant: 1"
    )
    drop_self_matches = forms.BooleanField(
        required=False, help_text="Leave out a document whose id is its query's (ArguAna, Quora)"
    )
    task = forms.CharField(max_length=80, required=False)
    domain = forms.CharField(max_length=80, required=False)
    language = forms.CharField(max_length=16, required=False, help_text="Language code, en by default")
    licence = forms.CharField(max_length=120, required=False)
    homepage = forms.URLField(required=False, assume_scheme="https")
    citation = forms.CharField(widget=forms.Textarea(attrs={"rows": 4}), required=False)
    description = forms.CharField(
        widget=forms.Textarea(attrs={"rows": 4}), required=False, help_text="Markdown"
    )
    queries_visibility = forms.ChoiceField(choices=[_SAME, *Visibility.choices], required=False)
    documents_visibility = forms.ChoiceField(choices=[_SAME, *Visibility.choices], required=False)
    runs_visibility = forms.ChoiceField(
        choices=[("", "as it is, or curators only"), *Visibility.choices],
        required=False,
        help_text="Of public results on open judgements, those already here too",
    )
    version_label = forms.CharField(
        max_length=80, required=False, help_text="A name for this version of the content"
    )

    def options(self) -> ImportOptions:
        """What was said, as the domain takes it."""
        said = {name: value for name, value in self.cleaned_data.items() if value and name != "archive"}
        if judgements := said.pop("judgements", None):
            said["hidden"] = judgements == "hidden"
        said["measures"] = tuple(said.get("measures", "").replace(",", " ").split())
        said["baseline"] = path_of_upload(said.get("baseline"))
        return ImportOptions(**said)


def path_of_upload(upload: Any) -> Path | None:
    """Where the uploaded file lies, which the upload handler always writes to disk."""
    return Path(upload.temporary_file_path()) if isinstance(upload, TemporaryUploadedFile) else None
