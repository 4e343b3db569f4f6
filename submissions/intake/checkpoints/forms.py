"""The forms of the page for models: an engine's parameters, and which model, datasets and runs."""

from collections.abc import Iterable
from typing import Any

from django import forms
from django.http import QueryDict
from django.utils.html import escape
from django.utils.translation import gettext_lazy as _

from evaluation.engines import EngineDescription, InvalidParameter, Parameter
from evaluation.engines.base import AUTO
from leaderboard.models import Benchmark, Dataset
from leaderboard.templatetags.runboard import size
from submissions.intake.checkpoints.intake import LONGEST_PROMPT, POOLINGS, prompt_parameters
from submissions.intake.checkpoints.runs import RunSource
from submissions.models import Checkpoint


class ParametersForm(forms.Form):
    """One field for each of an engine's parameters, with its default in it.

    A prompt is taken to the last blank, and an empty text is empty; a number or choice left empty is the default.
    """

    def __init__(self, engine: EngineDescription, data: QueryDict | None, **options: Any) -> None:
        prefix = options.get("prefix", "")
        super().__init__(None if data is None else _filled(engine, data, prefix), **options)
        self.engine = engine
        for parameter in engine.parameters:
            self.fields[parameter.name] = _field(parameter)

    def clean(self) -> dict[str, Any]:
        """Each value in its parameter's type. Adds the error of each that does not fit."""
        cleaned = super().clean() or self.cleaned_data
        for parameter in self.engine.parameters:
            value = cleaned.get(parameter.name, "")
            taken = value != "" or parameter.is_text
            try:
                cleaned[parameter.name] = parameter.parse(value) if taken else parameter.default
            except InvalidParameter as error:
                self.add_error(parameter.name, str(error))
        return cleaned


class PromptsForm(forms.Form):
    """The prompts that datasets have for themselves, a field for each of the engine's; empty: as for all datasets."""

    def __init__(
        self, engine: EngineDescription, datasets: Iterable[Dataset], data: QueryDict | None, **options: Any
    ) -> None:
        super().__init__(data, **options)
        self.engine = engine
        self.slugs = [dataset.slug for dataset in datasets]
        for slug in self.slugs:
            for parameter in prompt_parameters(engine):
                field = _field(parameter)
                field.initial, field.help_text = "", ""
                field.widget.attrs["placeholder"] = "as for all datasets"
                self.fields[f"{slug}-{parameter.name}"] = field

    def of(self, slug: str) -> list[forms.BoundField]:
        """Return the fields of a dataset."""
        return [self[f"{slug}-{parameter.name}"] for parameter in prompt_parameters(self.engine)]

    def chosen(self, slugs: Iterable[str]) -> dict[str, dict[str, str]]:
        """Return the prompts entered for these datasets, by slug and parameter."""
        found = {
            slug: {
                parameter.name: text
                for parameter in prompt_parameters(self.engine)
                if (text := self.cleaned_data.get(f"{slug}-{parameter.name}", ""))
            }
            for slug in slugs
        }
        return {slug: prompts for slug, prompts in found.items() if prompts}


def _filled(engine: EngineDescription, data: QueryDict, prefix: str) -> dict[str, str]:
    """Return the entered parameters of the engine, completed with defaults."""
    filled = {}
    for parameter in engine.parameters:
        name = f"{prefix}-{parameter.name}"
        entered: str | None = data.get(name)
        if entered is None or (not entered and not parameter.is_text):
            entered = _text(parameter.default)
        filled[name] = entered
    return filled


def _field(parameter: Parameter) -> forms.Field:
    default, text = _text(parameter.default), parameter.description
    choices = ("true", "false") if isinstance(parameter.default, bool) else parameter.choices
    # A sentence, unless the description begins with a name such as “pq:”.
    sentence = text if text.split()[0].endswith(":") else text[0].upper() + text[1:]
    options: dict[str, Any] = {
        "label": parameter.name.replace("_", " ").capitalize(),
        "required": not parameter.is_text,
        "initial": default,
        "help_text": f"{escape(sentence.rstrip('.'))}. Default: {escape(default) or 'empty'}.",
    }
    if choices:
        return forms.ChoiceField(choices=[(choice, choice) for choice in choices], **options)
    if parameter.keeps_blanks:
        # Prompts may have lines, which a field of one line would join without a word.
        lines = forms.Textarea(attrs={"rows": 1, "spellcheck": "false"})
        options["help_text"] += " Taken as it stands, blanks at its end too; empty for none."
        return _PromptField(max_length=LONGEST_PROMPT, strip=False, widget=lines, **options)
    if parameter.is_text:
        return forms.CharField(max_length=LONGEST_PROMPT, **options)
    whole = isinstance(parameter.default, int)
    bounds = {"min": parameter.least, "max": parameter.most, "step": 1 if whole else "any"}
    attributes = {name: _text(value) for name, value in bounds.items() if value is not None}
    widget = forms.TextInput() if parameter.default == AUTO else forms.NumberInput(attributes)
    return forms.CharField(max_length=40, widget=widget, **options)


class _PromptField(forms.CharField):
    """A text as it stands, with the line ends that models were trained with."""

    def to_python(self, value: Any) -> str:
        """Return the text. Browsers send lines with carriage returns, whatever was typed."""
        return (super().to_python(value) or "").replace("\r\n", "\n")


class ModelForm(forms.Form):
    """Which model, on what. What it means, and whether it is possible, the intake says; this keeps what was chosen."""

    checkpoint_id = forms.ChoiceField(label=_("One that your team sent before"), required=False)
    pooling = forms.ChoiceField(
        label=_("Pooling, if the files do not say it"),
        required=False,
        choices=[("", _("As the files say")), *((each, each) for each in POOLINGS)],
        help_text=_(
            "For a plain encoder: how the outputs of its tokens become one. SPLADE: max or sum; SPARTA: sparta."
        ),
    )
    hub_model = forms.CharField(
        label=_("Model on the hub"), required=False, max_length=200, help_text=_("As owner/name.")
    )
    hub_commit = forms.CharField(
        label=_("Its commit"), required=False, max_length=40, help_text=_("All 40 digits: a branch may move.")
    )
    dataset = forms.MultipleChoiceField(
        label=_("Datasets"), required=False, widget=forms.CheckboxSelectMultiple
    )
    benchmark = forms.ChoiceField(label=_("Or a whole benchmark"), required=False)
    run = forms.MultipleChoiceField(required=False, widget=forms.CheckboxSelectMultiple)
    device = forms.ChoiceField(
        label=_("Run on"),
        required=False,
        choices=[("auto", _("A GPU if there is one, else CPU")), ("cpu", _("CPU")), ("gpu", _("GPU"))],
        help_text=_("Timings are compared within one hardware class."),
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
        super().__init__(*arguments, **options)
        choices: dict[str, list[tuple[str, str]]] = {
            "checkpoint_id": [("", "None of these")],
            "dataset": [(dataset.slug, dataset.name) for dataset in datasets],
            "benchmark": [("", "The datasets chosen above"), *((one.slug, one.name) for one in benchmarks)],
            "run": [],
        }
        for row in checkpoints:
            shown = f"{row.file_name} · {row.kind} · {size(row.size)} · {row.created_at:%-d %B %Y}"
            choices["checkpoint_id"].append((str(row.pk), shown))
        for source in sources:
            label = f" ({source.configuration})" if source.configuration else ""
            named = f"{source.system}{label}, {source.owner}: {', '.join(source.datasets)}"
            choices["run"].append((source.reference, named))
        for name, offered in choices.items():
            field = self.fields[name]
            if isinstance(field, forms.ChoiceField):
                field.choices = offered


def _text(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)
