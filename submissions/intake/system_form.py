"""The form in which a system says what it is, used by the pages and the API alike."""

import json
import re
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

#: What says "trained on none of these datasets".
NONE_WORDS = frozenset({"none", "zero-shot", "-"})
#: Before it, nothing was retrieved by machines.
FIRST_YEAR = 1950
_YES, _NO = frozenset({"yes", "true", "1", "on"}), frozenset({"no", "false", "0", "off"})


def seen_systems() -> QuerySet[System]:
    """Return the systems with a result that everyone sees."""
    return System.objects.filter(pk__in=EntryQuerySet(Entry).seen().values("system_id"))


class OptionalBooleanField(forms.Field):
    """Yes, no, or not said: True, False or None."""

    def __init__(self, **options: Any) -> None:
        choices = [("", "Not said"), ("yes", "Yes"), ("no", "No")]
        super().__init__(required=False, widget=forms.Select(choices=choices), **options)

    def prepare_value(self, value: Any) -> Any:
        """Return the choice for a stored value."""
        return {True: "yes", False: "no", None: ""}.get(value, value)

    def clean(self, value: Any) -> bool | None:
        """Return the value. Raises ValidationError for anything else."""
        said = str(value if value is not None else "").strip().casefold()
        if said in _YES or said in _NO:
            return said in _YES
        if said in ("", "unknown", "none", "null"):
            return None
        raise ValidationError(f"“{value}” is neither yes nor no; leave it out where it is not known.")


class CheckboxField(forms.BooleanField):
    """A box to tick; a request may also say no."""

    def __init__(self, **options: Any) -> None:
        super().__init__(required=False, **options)

    def to_python(self, value: Any) -> bool:
        """Whether it was ticked."""
        said = str(value).strip().casefold()
        return said not in _NO and bool(super().to_python(value))


class SystemForm(forms.Form):
    """What a new system says of itself, or `system` from now on."""

    name = NameField(
        max_length=120, help_text=_("As it should read on the board, for example “ColBERTv2 (2 bits)”.")
    )
    architecture = forms.ChoiceField(choices=lambda: [("", _("Choose one")), *architecture_choices()])
    description = TextField(
        rows=4,
        required=False,
        max_length=5000,
        help_text=_("What it does, in a few sentences. Markdown is understood."),
    )
    participant = NameField(
        required=False,
        max_length=120,
        help_text=_("Who made the runs, where that is not your team. Boards show it in your team's place."),
    )
    paper_url = WebAddressField(label=_("Paper"))
    code_url = WebAddressField(label=_("Code"))
    model_url = WebAddressField(label=_("Model"))
    licence = NameField(required=False, max_length=120, help_text=_("For example Apache-2.0."))
    commercial_use = OptionalBooleanField(
        label=_("Commercial use"), help_text=_("Whether the licence permits it.")
    )
    open_weights = OptionalBooleanField(
        label=_("Open weights"), help_text=_("Whether anyone may have the model.")
    )
    closed_api = CheckboxField(
        label=_("Runs behind somebody's paid API"),
        help_text=_("Nobody can repeat it then, so it is ranked apart."),
    )
    parameters = ParametersField(
        required=False,
        max_length=5000,
        widget=forms.Textarea(attrs={"rows": 3, "spellcheck": "false"}),
        help_text=_("A JSON object, or key=value, one a line."),
    )
    training_datasets = forms.CharField(
        label=_("Trained on"),
        required=False,
        max_length=2000,
        widget=forms.Textarea(attrs={"rows": 2}),
        help_text=_("Names or slugs of datasets, separated by commas. Boards mark in-domain results with ‡."),
    )
    training_none = forms.BooleanField(
        label=_("Not trained on any of these datasets (zero-shot)"), required=False
    )
    adapted_to = forms.CharField(
        label=_("Adapted to"),
        required=False,
        max_length=2000,
        help_text=_(
            "Datasets here whose corpus it saw, without labels: names or slugs, separated by commas."
        ),
    )
    variant_of = forms.CharField(
        label=_("Variant of"),
        required=False,
        max_length=120,
        help_text=_("The slug of a system here: what its page's address ends in."),
    )
    backbone = NameField(required=False, max_length=120, help_text=_("For example bert-base-uncased."))
    training_compute = NameField(
        label=_("Training compute"),
        required=False,
        max_length=120,
        help_text=_("For example 8 A100, 3 days."),
    )
    authors = NameField(
        required=False,
        max_length=500,
        help_text=_("As in BibTeX: names joined by “and”. For example Ada Lovelace and Grace Hopper."),
    )
    year = forms.IntegerField(required=False, min_value=FIRST_YEAR, help_text=_("When it came out."))
    bibtex = TextField(label=_("BibTeX"), rows=3, required=False, max_length=5000)

    def __init__(self, *arguments: Any, system: System | None = None, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.system = system
        self.settlement = latest_settlement(system) if system is not None else None
        if system is not None and self.settlement is not None:
            self._settle(system, self.settlement)

    def _settle(self, system: System, settlement: Challenge) -> None:
        """Show what a challenge corrected as settled: it is not read, whatever is sent."""
        said = self.initial_of(system)
        for name in _OF_TRAINING:
            field = self.fields[name]
            field.disabled, self.initial[name] = True, said[name]
            field.help_text = format_html(
                'Settled by <a href="{}#challenge-{}">a challenge that was upheld</a>. Only a curator changes it.',
                system.get_absolute_url(),
                settlement.pk,
            )

    def clean_participant(self) -> str:
        """Who made the runs. Raises ValidationError for the name of a team here, which speaks for itself."""
        name: str = self.cleaned_data["participant"]
        said_before = self.system is not None and self.system.participant == name
        if name and not said_before and Team.objects.filter(name__iexact=name).exists():
            raise ValidationError(
                f"“{name}” is a team here: it submits its own runs. Leave it out where it is your team, or ask a "
                "curator to import the runs."
            )
        return name

    def clean_year(self) -> int | None:
        """Return the year. Raises ValidationError for one that is yet to come."""
        year: int | None = self.cleaned_data["year"]
        latest = timezone.now().year + 1
        if year is not None and year > latest:
            raise ValidationError(f"A year from {FIRST_YEAR} to {latest}.")
        return year

    def clean_bibtex(self) -> str:
        """BibTeX. Raises ValidationError for commands that no reference needs: others compile it."""
        text: str = self.cleaned_data["bibtex"]
        if command := find_forbidden_command(text):
            raise ValidationError(
                f"“{command}” cannot be part of it: a reference only sets type. Type it without."
            )
        return text

    def clean_adapted_to(self) -> list[str]:
        """Slugs of datasets. Raises ValidationError for what is no dataset here."""
        if self.system is not None and self.settlement is not None:
            return self.system.adapted_to
        names = canonical_datasets(_names(self.cleaned_data["adapted_to"]))
        known = set(Dataset.objects.listed().filter(slug__in=names).values_list("slug", flat=True))
        if unknown := [name for name in names if name not in known]:
            raise ValidationError(
                f"No dataset here is called {' or '.join(f'“{name}”' for name in unknown)}."
            )
        return names

    def clean_variant_of(self) -> int | None:
        """Return the key of a system that has a page. Raises ValidationError if there is none."""
        slug = self.cleaned_data["variant_of"].strip().rstrip("/").rpartition("/")[2]
        if not slug:
            return None
        found = seen_systems().filter(slug=slug).first()
        if found is None:
            raise ValidationError(f"No system here has the slug “{slug}” and a public result.")
        if found == self.system:
            raise ValidationError("A system is no variant of itself.")
        return found.pk

    def clean(self) -> dict[str, Any]:
        """Training data: named, or declared to be none, not both."""
        cleaned = super().clean() or self.cleaned_data
        text = cleaned.get("training_datasets", "")
        names = _names(text)
        try:  # they need not be datasets here, but pages and boards show what they are called
            for name in names:
                validate_name(name)
        except ValidationError as error:
            self.add_error("training_datasets", error)
        if text.strip().casefold() in NONE_WORDS:
            cleaned["training_none"] = True
        if names and cleaned.get("training_none"):
            self.add_error("training_none", "Either name the training datasets, or say that there are none.")
        cleaned["training_names"] = names
        if self.system is not None and self.settlement is not None:
            self._refuse_undoing(self.system)
        return cleaned

    def _refuse_undoing(self, system: System) -> None:
        """Add an error for settled fields that were sent with another value, as from a page opened before."""
        settled = {"training_datasets": system.training_datasets, "adapted_to": system.adapted_to}
        for name, value in settled.items():
            sent = self.data.get(self.add_prefix(name))
            if sent is not None and set(canonical_datasets(_names(sent))) != set(canonical_datasets(value)):
                stays = ", ".join(value) or "none"
                self.add_error(
                    name, f"A challenge settled it: it stays “{stays}”. Leave it out, or ask a curator."
                )
        ticked = self.data.get(self.add_prefix("training_none")) not in (None, "", "false", "False")
        if ticked and not self.initial["training_none"]:
            self.add_error("training_none", "A challenge settled it. Leave it out, or ask a curator.")

    @staticmethod
    def initial_of(system: System) -> dict[str, Any]:
        """Return the values that the form shows for an existing system."""
        values = {name: getattr(system, name) for name in SystemForm.base_fields if name != "training_none"}
        return {
            **values,
            "parameters": json.dumps(system.parameters, ensure_ascii=False, indent=2)
            if system.parameters
            else "",
            "training_datasets": ", ".join(system.training_datasets),
            "training_none": system.training_declared and not system.training_datasets,
            "adapted_to": ", ".join(system.adapted_to),
            "variant_of": system.variant_of.slug if system.variant_of else "",
        }

    def fields_of_system(self) -> SystemFields:
        """Return the cleaned values as the domain takes them."""
        values = {
            COLUMNS.get(name, name): self.cleaned_data[name]
            for name in self.fields
            if name not in _NOT_COLUMNS
        }
        names = canonical_datasets(self.cleaned_data["training_names"])
        declared = bool(names) or self.cleaned_data["training_none"]
        values.update(training_datasets=names, training_declared=declared)
        if self.system is not None and self.settlement is not None:
            values.update({name: getattr(self.system, name) for name in CLAIMS})
        return SystemFields(**values)


SystemForm.base_fields.update(
    {
        each.name: forms.IntegerField(
            label=each.label, required=False, min_value=1, max_value=each.greatest, help_text=each.hint
        )
        for each in DECLARED_NUMBERS
    }
)
_NOT_COLUMNS = {"training_datasets", "training_none"}
#: What a challenge that is upheld may settle.
_OF_TRAINING = ("training_datasets", "training_none", "adapted_to")
#: Fields of the form that are columns under another name.
COLUMNS = {"variant_of": "variant_of_id"}


def _names(text: str) -> list[str]:
    """Names on lines, or separated by commas; none where the one word says so."""
    names = [name.strip() for name in re.split(r"[\n,;]", text) if name.strip()]
    return [] if len(names) == 1 and names[0].casefold() in NONE_WORDS else names
