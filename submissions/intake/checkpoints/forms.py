"""Forms of the model page: engine parameters, prompts, model, datasets, and runs."""

from collections.abc import Iterable
from typing import Any

from django import forms
from django.http import QueryDict
from django.utils.html import escape
from django.utils.translation import gettext_lazy as _

from evaluation.engines import AUTO, EngineDescription, InvalidParameter, Parameter
from leaderboard.core.text.dates import format_day
from leaderboard.models import Benchmark, Dataset
from leaderboard.templatetags.runboard import size
from submissions.intake.checkpoints.intake import LONGEST_PROMPT, POOLINGS, prompt_parameters
from submissions.intake.checkpoints.runs import RunSource
from submissions.models import Checkpoint


class ParametersForm(forms.Form):
    """Form with one field per engine parameter, filled with the defaults.

    Prompts preserve all spaces and may be empty. Other empty fields get the default.
    """

    def __init__(self, engine: EngineDescription, data: QueryDict | None, **options: Any) -> None:
        """Create the fields of the engine's parameters. Parameters missing from `data` get their defaults."""
        values: dict[str, str] | None = None
        if data is not None:
            values = {}
            for parameter in engine.parameters:
                name = f"{options.get('prefix', '')}-{parameter.name}"
                entered: str | None = data.get(name)
                # Empty texts are preserved.
                if entered is None or (not entered and not parameter.is_text):
                    entered = _format_value(parameter.default)
                values[name] = entered
        super().__init__(values, **options)
        self.engine = engine
        for parameter in engine.parameters:
            self.fields[parameter.name] = _build_field(parameter)

    def clean(self) -> dict[str, Any]:
        """Return the values converted to the parameters' types, adding an error to each invalid field."""
        values = super().clean() or self.cleaned_data
        for parameter in self.engine.parameters:
            value = values.get(parameter.name, "")
            is_entered = value != "" or parameter.is_text
            try:
                values[parameter.name] = parameter.parse(value) if is_entered else parameter.default
            except InvalidParameter as error:
                self.add_error(parameter.name, str(error))
        return values


class PromptsForm(forms.Form):
    """Form with the prompts of each dataset. Empty fields use the prompts for all datasets."""

    def __init__(
        self, engine: EngineDescription, datasets: Iterable[Dataset], data: QueryDict | None, **options: Any
    ) -> None:
        """Create a field for each pair of a dataset and a prompt of the engine."""
        super().__init__(data, **options)
        self.engine = engine
        self.slugs = [dataset.slug for dataset in datasets]
        for slug in self.slugs:
            for parameter in prompt_parameters(engine):
                field = _build_field(parameter)
                field.initial, field.help_text = "", ""
                field.widget.attrs["placeholder"] = "as for all datasets"
                self.fields[f"{slug}-{parameter.name}"] = field

    def get_dataset_fields(self, slug: str) -> list[forms.BoundField]:
        return [self[f"{slug}-{parameter.name}"] for parameter in prompt_parameters(self.engine)]

    def get_prompts(self, slugs: Iterable[str]) -> dict[str, dict[str, str]]:
        """Return the prompts entered for these datasets, by slug and parameter.

        Datasets without prompts are omitted.
        """
        prompts_by_slug = {
            slug: {
                parameter.name: text
                for parameter in prompt_parameters(self.engine)
                if (text := self.cleaned_data.get(f"{slug}-{parameter.name}", ""))
            }
            for slug in slugs
        }
        return {slug: prompts for slug, prompts in prompts_by_slug.items() if prompts}


def _build_field(parameter: Parameter) -> forms.Field:
    """Build the form field of a parameter, which is a choice, a prompt, a text, or a number, with its default."""
    default, text = _format_value(parameter.default), parameter.description
    choices = ("true", "false") if isinstance(parameter.default, bool) else parameter.choices
    # Capitalize the description unless it starts with a name such as “pq:”.
    sentence = text if text.split()[0].endswith(":") else text[0].upper() + text[1:]
    options: dict[str, Any] = {
        "label": parameter_label(parameter.name),
        "required": not parameter.is_text,
        "initial": default,
        "help_text": f"{escape(sentence.rstrip('.'))}. Default: {escape(default) or 'empty'}.",
    }
    if choices:
        return forms.ChoiceField(choices=[(choice, choice) for choice in choices], **options)
    if parameter.keeps_blanks:
        # Prompts may contain line breaks, which a single-line field would silently remove.
        lines = forms.Textarea(attrs={"rows": 1, "spellcheck": "false"})
        options["help_text"] += " Used exactly as entered, including trailing spaces. Leave empty for no prompt."
        return _PromptField(max_length=LONGEST_PROMPT, strip=False, widget=lines, **options)
    if parameter.is_text:
        return forms.CharField(max_length=LONGEST_PROMPT, **options)
    is_integer = isinstance(parameter.default, int)
    bounds = {"min": parameter.minimum, "max": parameter.maximum, "step": 1 if is_integer else "any"}
    attributes = {name: _format_value(value) for name, value in bounds.items() if value is not None}
    widget = forms.TextInput() if parameter.default == AUTO else forms.NumberInput(attributes)
    return forms.CharField(max_length=40, widget=widget, **options)


def parameter_label(name: str) -> str:
    return name.replace("_", " ").capitalize()


class _PromptField(forms.CharField):
    """Text field that preserves spaces and normalizes line endings to line feeds, as used in training."""

    def to_python(self, value: Any) -> str:
        """Return the text with line feeds. Browsers send carriage returns as well."""
        return (super().to_python(value) or "").replace("\r\n", "\n")


class ModelForm(forms.Form):
    """Form for the model, its datasets, and its input runs. The intake validates the combination."""

    checkpoint_id = forms.ChoiceField(label=_("Checkpoint of your team"), required=False)
    pooling = forms.ChoiceField(
        label=_("Pooling, if the files do not specify it"),
        required=False,
        choices=[("", _("Specified by the files")), *((method, method) for method in POOLINGS)],
        help_text=_("Method that combines token outputs, such as mean or cls. SPLADE: max or sum. SPARTA: sparta."),
    )
    hub_model = forms.CharField(
        label=_("Model on the Hugging Face Hub"),
        required=False,
        max_length=200,
        help_text=_("Enter owner/name, such as intfloat/e5-base-v2."),
    )
    hub_commit = forms.CharField(
        label=_("Commit"),
        required=False,
        max_length=40,
        help_text=_("All 40 hexadecimal digits, because branches can change."),
    )
    image = forms.CharField(
        label=_("Image in a registry"),
        required=False,
        max_length=300,
        help_text=_("Enter REGISTRY/NAME@sha256:DIGEST, such as ghcr.io/owner/name@sha256:…, because tags can change."),
    )
    dataset = forms.MultipleChoiceField(label=_("Datasets"), required=False, widget=forms.CheckboxSelectMultiple)
    benchmark = forms.ChoiceField(label=_("Or a whole benchmark"), required=False)
    run = forms.MultipleChoiceField(required=False, widget=forms.CheckboxSelectMultiple)
    device = forms.ChoiceField(
        label=_("Run on"),
        required=False,
        choices=[("auto", _("GPU if available, otherwise CPU")), ("cpu", _("CPU")), ("gpu", _("GPU"))],
        help_text=_("Timings are only compared within a hardware class."),
    )

    def __init__(
        self,
        *arguments: Any,
        checkpoints: Iterable[Checkpoint],
        datasets: Iterable[Dataset],
        benchmarks: Iterable[Benchmark],
        sources: Iterable[RunSource],
        **options: Any,
    ) -> None:
        """Offer these checkpoints, datasets, benchmarks, and input runs as choices."""
        super().__init__(*arguments, **options)
        choices: dict[str, list[tuple[str, str]]] = {
            "checkpoint_id": [("", "No stored checkpoint")],
            "dataset": [(dataset.slug, dataset.name) for dataset in datasets],
            "benchmark": [("", "Datasets chosen above"), *((row.slug, row.name) for row in benchmarks)],
            "run": [],
        }
        for row in checkpoints:
            choice_label = f"{row.file_name} · {row.kind} · {size(row.size)} · {format_day(row.created_at)}"
            choices["checkpoint_id"].append((str(row.pk), choice_label))
        for source in sources:
            label = f" ({source.configuration})" if source.configuration else ""
            source_label = f"{source.system}{label}, {source.owner}: {', '.join(source.datasets)}"
            choices["run"].append((source.reference, source_label))
        for name, field_choices in choices.items():
            field = self.fields[name]
            if isinstance(field, forms.ChoiceField):
                field.choices = field_choices


def _format_value(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)
