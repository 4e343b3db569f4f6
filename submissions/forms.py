"""The forms of a submission, used by the page and the API alike: is the request well formed?"""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from typing import Any

from django import forms
from django.forms import ValidationError

from leaderboard.models import Architecture, System
from leaderboard.systems import SystemFields, canonical_datasets
from submissions.json_text import read_json
from submissions.names import NameField

#: What says "trained on none of these datasets".
NONE_WORDS = frozenset({"none", "zero-shot", "-"})


class WebAddressField(forms.URLField):
    """A link that pages may show: http or https only."""

    def __init__(self, **options: Any) -> None:
        super().__init__(assume_scheme="https", max_length=200, required=False, **options)

    def clean(self, value: Any) -> str:
        """The address. Raises ValidationError for any scheme that is not the web's."""
        address: str = super().clean(value)
        if address and not address.startswith(("http://", "https://")):
            raise ValidationError("Give an address that begins with https:// or http://.")
        return address


class ParametersField(forms.CharField):
    """Parameters as a JSON object, or as `key=value`, one a line or separated by commas.

    A comma with no further `key=` after it belongs to the value: weights=1,0.5. The values of those that `verbatim`
    names stand as they were written, blanks and all, unless they are JSON strings; of others blanks do not count.
    """

    def __init__(self, *, verbatim: Collection[str] = (), **options: Any) -> None:
        super().__init__(strip=False, **options)
        self.verbatim = frozenset(verbatim)

    def clean(self, value: Any) -> dict[str, Any]:
        """The parameters. Raises ValidationError saying what would be right."""
        text = super().clean(value)
        return self._from_json(text) if text.lstrip().startswith("{") else self._from_pairs(text)

    @staticmethod
    def _from_json(text: str) -> dict[str, Any]:
        try:
            return dict(read_json(text))
        except ValueError as error:
            raise ValidationError(f'Not a JSON object such as {{"k1": 0.9}}: {error}') from None

    def _from_pairs(self, text: str) -> dict[str, Any]:
        parameters: dict[str, Any] = {}
        parts = (part for line in re.split(r"\r?\n", text) for part in _BETWEEN_PAIRS.split(line))
        for part in parts:
            key, equals, value = part.partition("=")
            if not part.strip(_UNSAID):
                continue
            if not equals or not key.strip():
                raise ValidationError(f"“{part.strip()}” is not key=value, such as k1=0.9.")
            parameters[key.strip()] = self._value(key.strip(), value)
        return parameters

    def _value(self, name: str, text: str) -> Any:
        said = text.strip().rstrip(_UNSAID)
        try:
            value = read_json(said)
        except ValueError:
            value = said
        if name in self.verbatim and (value == said or not isinstance(value, str)):
            return text  # 1e3 and true are texts here, and blanks are part of them
        return value


#: A comma or semicolon with another `key=` after it.
_BETWEEN_PAIRS = re.compile(r"[,;](?=[^,;=]*=)")
#: What may stand after a value and means nothing.
_UNSAID = " \t,;"


class SystemForm(forms.Form):
    """What a new system says of itself."""

    name = NameField(
        max_length=120, help_text="As it should read on the board, for example “ColBERTv2 (2 bits)”."
    )
    architecture = forms.ChoiceField(choices=[("", "Choose one"), *Architecture.choices])
    description = forms.CharField(
        required=False,
        max_length=5000,
        widget=forms.Textarea(attrs={"rows": 4}),
        help_text="What it does, in a few sentences. Markdown is understood.",
    )
    paper_url = WebAddressField(label="Paper")
    code_url = WebAddressField(label="Code")
    model_url = WebAddressField(label="Model")
    licence = NameField(required=False, max_length=120)
    parameters = ParametersField(
        required=False,
        max_length=5000,
        widget=forms.Textarea(attrs={"rows": 3, "spellcheck": "false"}),
        help_text="A JSON object, or key=value, one a line.",
    )
    training_datasets = forms.CharField(
        label="Trained on",
        required=False,
        max_length=2000,
        widget=forms.Textarea(attrs={"rows": 2}),
        help_text="Names or slugs of datasets, separated by commas. Boards mark in-domain results with ‡.",
    )
    training_none = forms.BooleanField(
        label="None of the datasets here: everything is zero-shot", required=False
    )
    backbone = NameField(required=False, max_length=120, help_text="For example bert-base-uncased.")
    dimension = forms.IntegerField(
        required=False, min_value=1, max_value=1_000_000, help_text="Of the vectors, where there are any."
    )
    maximum_length = forms.IntegerField(
        label="Maximum input length",
        required=False,
        min_value=1,
        max_value=10_000_000,
        help_text="In tokens.",
    )
    bibtex = forms.CharField(
        label="BibTeX", required=False, max_length=5000, widget=forms.Textarea(attrs={"rows": 3})
    )

    def clean(self) -> dict[str, Any]:
        """Training data: named, or declared to be none, not both."""
        cleaned = super().clean() or self.cleaned_data
        names = [name.strip() for name in re.split(r"[\n,;]", cleaned.get("training_datasets", ""))]
        names = [name for name in names if name]
        if len(names) == 1 and names[0].casefold() in NONE_WORDS:
            names, cleaned["training_none"] = [], True
        if names and cleaned.get("training_none"):
            self.add_error("training_none", "Either name the training datasets, or say that there are none.")
        cleaned["training_names"] = names
        return cleaned

    @staticmethod
    def initial_of(system: System) -> dict[str, Any]:
        """What the form shows for a system that there is."""
        values = {name: getattr(system, name) for name in SystemForm.base_fields if name != "training_none"}
        return {
            **values,
            "parameters": json.dumps(system.parameters, ensure_ascii=False, indent=2)
            if system.parameters
            else "",
            "training_datasets": ", ".join(system.training_datasets),
            "training_none": system.training_declared and not system.training_datasets,
        }

    def fields_of_system(self) -> SystemFields:
        """The cleaned values as the domain takes them."""
        values = {name: self.cleaned_data[name] for name in self.fields if name not in _NOT_COLUMNS}
        names = canonical_datasets(self.cleaned_data["training_names"])
        declared = bool(names) or self.cleaned_data["training_none"]
        return SystemFields(**values, training_datasets=names, training_declared=declared)


_NOT_COLUMNS = {"training_datasets", "training_none"}


class SubmissionForm(forms.Form):
    """What belongs to this one submission. `system` is the slug of one of the sender's, empty for a new one."""

    system = forms.ChoiceField(required=False)
    configuration = NameField(
        label="Configuration",
        required=False,
        max_length=80,
        help_text="For example “top 200”: tells several results of one system on one dataset apart.",
    )
    seeds = forms.CharField(
        label="Seeds",
        required=False,
        max_length=500,
        help_text="Several files for one dataset are seeds of the system, and one result: mean ± deviation. Their "
        "labels in the order of the files, separated by commas; left empty, the files' names tell.",
    )
    public = forms.ChoiceField(
        label="Visibility",
        required=False,
        choices=[
            ("yes", "Public: shown on the board as soon as it is scored"),
            ("no", "Private: only your team sees it until you make it public"),
        ],
        widget=forms.RadioSelect,
        initial="yes",
    )
    reusable = forms.BooleanField(
        label="Others may build on its runs: re-rank or fuse them here, with credit",
        required=False,
        help_text="Once the results are public. The run files themselves are not handed out by this.",
    )
    note = forms.CharField(
        required=False,
        max_length=2000,
        widget=forms.Textarea(attrs={"rows": 2}),
        help_text="For your team alone.",
    )

    def __init__(self, *arguments: Any, systems: list[System], **options: Any) -> None:
        super().__init__(*arguments, **options)
        mine = [(system.slug, system.name) for system in systems]
        self.fields["system"] = forms.ChoiceField(required=False, choices=[("", "A new system"), *mine])

    def clean_public(self) -> bool:
        """Public unless said otherwise."""
        return bool(self.cleaned_data["public"] != "no")


class WithdrawalForm(forms.Form):
    """Why a submission is withdrawn; the reason stays on the dataset's page."""

    reason = NameField(
        max_length=300,
        error_messages={"required": "Say why, for example “wrong index used”: the reason stays visible."},
    )
