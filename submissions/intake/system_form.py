"""Form that describes a system, shared by the pages and the API."""

import json
import re
from collections.abc import Iterable
from typing import Any

from django import forms
from django.db.models import QuerySet
from django.forms import ValidationError
from django.utils import timezone
from django.utils.html import format_html
from django.utils.translation import gettext_lazy as _

from leaderboard.core.text.latex import find_forbidden_command
from leaderboard.core.text.names import validate_name
from leaderboard.models import (
    DECLARED_NUMBERS,
    Challenge,
    Dataset,
    Entry,
    EntryQuerySet,
    System,
    Team,
    architecture_choices,
)
from leaderboard.systems.challenges import CLAIMS, latest_settlement
from leaderboard.systems.records import SystemFields, canonical_datasets
from submissions.core.names import NameField, TextField
from submissions.intake.forms import ParametersField, WebAddressField

#: Values that declare that a system was not trained on any dataset.
NONE_WORDS = frozenset({"none", "zero-shot", "-"})
#: Earliest year of a system, because there was no machine retrieval before.
FIRST_YEAR = 1950
_TRUE_WORDS, _FALSE_WORDS = frozenset({"yes", "true", "1", "on"}), frozenset({"no", "false", "0", "off"})


def seen_systems() -> QuerySet[System]:
    return System.objects.filter(pk__in=EntryQuerySet(Entry).seen().values("system_id"))


class OptionalBooleanField(forms.Field):
    """Field with the values True, False, and None (not specified)."""

    def __init__(self, **options: Any) -> None:
        choices = [("", "Not specified"), ("yes", "Yes"), ("no", "No")]
        super().__init__(required=False, widget=forms.Select(choices=choices), **options)

    def prepare_value(self, value: Any) -> Any:
        return {True: "yes", False: "no", None: ""}.get(value, value)

    def clean(self, value: Any) -> bool | None:
        """Return True, False, or None if the value is empty or “unknown”. Raises ValidationError for other texts."""
        text = str(value if value is not None else "").strip().casefold()
        if text in _TRUE_WORDS or text in _FALSE_WORDS:
            return text in _TRUE_WORDS
        if text in ("", "unknown", "none", "null"):
            return None
        raise ValidationError(f"“{value}” is not valid. Use yes or no, or omit the value if it is unknown.")


class CheckboxField(forms.BooleanField):
    """Checkbox that also accepts explicit negative values in requests."""

    def __init__(self, **options: Any) -> None:
        super().__init__(required=False, **options)

    def to_python(self, value: Any) -> bool:
        text = str(value).strip().casefold()
        return text not in _FALSE_WORDS and bool(super().to_python(value))


class SystemForm(forms.Form):
    """Form for the description of a new system, or of `system`."""

    name = NameField(
        max_length=120,
        help_text=_("Name on the board, for example “ColBERTv2 (2 bits)”."),
        error_messages={"required": _("Enter the system's name, for example “ColBERTv2 (2 bits)”.")},
    )
    architecture = forms.ChoiceField(
        choices=lambda: [("", _("Choose one")), *architecture_choices()],
        error_messages={"required": _("Choose the system's architecture.")},
    )
    description = TextField(
        rows=4,
        required=False,
        max_length=5000,
        help_text=_("Describe the system in a few sentences. Supports Markdown."),
    )
    participant = NameField(
        required=False,
        max_length=120,
        help_text=_("Producer of the runs, if not your team. Boards show it instead of your team."),
    )
    paper_url = WebAddressField(label=_("Paper"))
    code_url = WebAddressField(label=_("Code"))
    model_url = WebAddressField(label=_("Model"))
    licence = NameField(label=_("License"), required=False, max_length=120, help_text=_("For example Apache-2.0."))
    commercial_use = OptionalBooleanField(
        label=_("Commercial use"), help_text=_("Select yes if the license permits commercial use.")
    )
    open_weights = OptionalBooleanField(
        label=_("Open weights"), help_text=_("Select yes if the model weights are available to everyone.")
    )
    closed_api = CheckboxField(
        label=_("Uses a paid API"), help_text=_("Such results cannot be reproduced, so boards rank them separately.")
    )
    parameters = ParametersField(
        required=False,
        max_length=5000,
        widget=forms.Textarea(attrs={"rows": 3, "spellcheck": "false"}),
        help_text=_("A JSON object, or key=value pairs on separate lines, such as k1=0.9."),
    )
    training_datasets = forms.CharField(
        label=_("Trained on"),
        required=False,
        max_length=2000,
        widget=forms.Textarea(attrs={"rows": 2}),
        help_text=_("Names or slugs of datasets, separated by commas. Boards mark in-domain results with ‡."),
    )
    training_none = forms.BooleanField(label=_("Not trained on any of these datasets (zero-shot)"), required=False)
    adapted_to = forms.CharField(
        label=_("Adapted to"),
        required=False,
        max_length=2000,
        help_text=_(
            "Names or slugs of datasets on this site whose corpus was used for training without labels, "
            "separated by commas."
        ),
    )
    variant_of = forms.CharField(
        label=_("Variant of"),
        required=False,
        max_length=120,
        help_text=_("Slug of a system on this site, which is the last part of its page's URL."),
    )
    backbone = NameField(required=False, max_length=120, help_text=_("For example bert-base-uncased."))
    training_compute = NameField(
        label=_("Training compute"), required=False, max_length=120, help_text=_("For example 8 A100, 3 days.")
    )
    authors = NameField(
        required=False,
        max_length=500,
        help_text=_("Names joined by “and”, as in BibTeX. For example Ada Lovelace and Grace Hopper."),
    )
    year = forms.IntegerField(required=False, min_value=FIRST_YEAR, help_text=_("Year of publication."))
    bibtex = TextField(label=_("BibTeX"), rows=3, required=False, max_length=5000)

    def __init__(self, *arguments: Any, system: System | None = None, **options: Any) -> None:
        """Disable the fields that an upheld challenge of the existing `system` settled."""
        super().__init__(*arguments, **options)
        self.system = system
        self.settlement = latest_settlement(system) if system is not None else None
        if system is not None and self.settlement is not None:
            self._disable_settled(system, self.settlement)

    def _disable_settled(self, system: System, settlement: Challenge) -> None:
        """Disable the training fields, which an upheld challenge corrected. Their input is ignored."""
        initial_values = self.get_initial_values(system)
        for name in _TRAINING_FIELDS:
            field = self.fields[name]
            field.disabled, self.initial[name] = True, initial_values[name]
            field.help_text = format_html(
                'Settled by <a href="{}#challenge-{}">an upheld challenge</a>. Only a curator can change it.',
                system.get_absolute_url(),
                settlement.pk,
            )

    def clean_participant(self) -> str:
        """Return the participant. Raises ValidationError for the name of a registered team."""
        name: str = self.cleaned_data["participant"]
        is_unchanged = self.system is not None and self.system.participant == name
        if name and not is_unchanged and Team.objects.filter(name__iexact=name).exists():
            raise ValidationError(
                f"“{name}” is a team on this site and submits its own runs. Leave the field empty if it is "
                "your team, or ask a curator to import the runs."
            )
        return name

    def clean_year(self) -> int | None:
        """Return the year. Raises ValidationError if it is later than next year."""
        year: int | None = self.cleaned_data["year"]
        latest_year = timezone.now().year + 1
        if year is not None and year > latest_year:
            raise ValidationError(f"Enter a year from {FIRST_YEAR} to {latest_year}.")
        return year

    def clean_bibtex(self) -> str:
        """Return the BibTeX. Raises ValidationError for TeX commands that are unsafe to compile."""
        text: str = self.cleaned_data["bibtex"]
        if command := find_forbidden_command(text):
            raise ValidationError(f"“{command}” is not allowed in a reference. Remove it.")
        return text

    def clean_adapted_to(self) -> list[str]:
        """Return the slugs of the datasets, or the settled ones after an upheld challenge.

        Raises ValidationError for unknown datasets.
        """
        if self.system is not None and self.settlement is not None:
            return self.system.adapted_to
        names = canonical_datasets(_split(self.cleaned_data["adapted_to"]))
        known_slugs = set(Dataset.objects.listed().filter(slug__in=names).values_list("slug", flat=True))
        if unknown_names := [name for name in names if name not in known_slugs]:
            raise ValidationError(f"This site has no dataset {' or '.join(f'“{name}”' for name in unknown_names)}.")
        return names

    def clean_variant_of(self) -> int | None:
        """Return the key of the system with this slug or URL, or None if the field is empty.

        Raises ValidationError if no such system has a public result, or if it is the system itself.
        """
        slug = self.cleaned_data["variant_of"].strip().rstrip("/").rpartition("/")[2]
        if not slug:
            return None
        system = seen_systems().filter(slug=slug).first()
        if system is None:
            raise ValidationError(f"No system with a public result has the slug “{slug}”.")
        if system == self.system:
            raise ValidationError("A system cannot be a variant of itself.")
        return system.pk

    def clean(self) -> dict[str, Any]:
        """Return the values with the names of the training data as `training_names`.

        Names are validated, and a form may not both name training data and declare that there is none. Adds errors to
        fields, also to those that a challenge settled with other values.
        """
        values = super().clean() or self.cleaned_data
        text = values.get("training_datasets", "")
        names = _split(text)
        try:  # pages and boards show these names, which may refer to datasets of other sites
            for name in names:
                validate_name(name)
        except ValidationError as error:
            self.add_error("training_datasets", error)
        if text.strip().casefold() in NONE_WORDS:
            values["training_none"] = True
        if names and values.get("training_none"):
            self.add_error("training_none", "Either name the training datasets, or declare that there are none.")
        values["training_names"] = names
        if self.system is not None and self.settlement is not None:
            self._refuse_undoing(self.system)
        return values

    def _refuse_undoing(self, system: System) -> None:
        """Add an error to each field that was sent with another value than an upheld challenge settled.

        An outdated page may send such values.
        """
        settled_values = {"training_datasets": system.training_datasets, "adapted_to": system.adapted_to}
        for name, value in settled_values.items():
            sent_text = self.data.get(self.add_prefix(name))
            if sent_text is not None and set(canonical_datasets(_split(sent_text))) != set(canonical_datasets(value)):
                settled_text = ", ".join(value) or "none"
                self.add_error(name, f"A challenge settled this field as “{settled_text}”. Omit it, or ask a curator.")
        is_checked = self.data.get(self.add_prefix("training_none")) not in (None, "", "false", "False")
        if is_checked and not self.initial["training_none"]:
            self.add_error("training_none", "A challenge settled this field. Omit it, or ask a curator.")

    @staticmethod
    def get_initial_values(system: System) -> dict[str, Any]:
        """Return the form's initial values for an existing system, with lists and parameters as text."""
        values = {name: getattr(system, name) for name in SystemForm.base_fields if name != "training_none"}
        return {
            **values,
            "parameters": json.dumps(system.parameters, ensure_ascii=False, indent=2) if system.parameters else "",
            "training_datasets": ", ".join(system.training_datasets),
            "training_none": system.training_declared and not system.training_datasets,
            "adapted_to": ", ".join(system.adapted_to),
            "variant_of": system.variant_of.slug if system.variant_of else "",
        }

    def build_system_fields(self) -> SystemFields:
        """Return the cleaned values as fields of a system. Fields that a challenge settled keep the system's values."""
        values = {COLUMNS.get(name, name): self.cleaned_data[name] for name in self.fields if name not in _NOT_COLUMNS}
        names = canonical_datasets(self.cleaned_data["training_names"])
        is_declared = bool(names) or self.cleaned_data["training_none"]
        values.update(training_datasets=names, training_declared=is_declared)
        if self.system is not None and self.settlement is not None:
            values.update({name: getattr(self.system, name) for name in CLAIMS})
        return SystemFields(**values)

    def differing_fields(self, system: System, names: Iterable[str]) -> list[str]:
        """Return the field names whose values differ from `system`. The form must be valid."""
        fields = self.build_system_fields()
        columns = {name: COLUMNS.get(name, name) for name in names}
        return [name for name, column in columns.items() if getattr(fields, column) != getattr(system, column)]


SystemForm.base_fields.update(
    {
        number.name: forms.IntegerField(
            label=number.label, required=False, min_value=1, max_value=number.greatest, help_text=number.hint
        )
        for number in DECLARED_NUMBERS
    }
)
_NOT_COLUMNS = {"training_datasets", "training_none"}
#: Fields that an upheld challenge can settle.
_TRAINING_FIELDS = ("training_datasets", "training_none", "adapted_to")
#: Columns of form fields, where the names differ.
COLUMNS = {"variant_of": "variant_of_id", "training_none": "training_declared"}


def _split(text: str) -> list[str]:
    """Split names at line breaks, commas, and semicolons; a single word such as “none” means no names."""
    names = [name.strip() for name in re.split(r"[\n,;]", text) if name.strip()]
    return [] if len(names) == 1 and names[0].casefold() in NONE_WORDS else names
