"""Forms of a submission, shared by the page and the API."""

import re
from collections.abc import Collection, Iterable
from typing import Any

from django import forms
from django.forms import ValidationError
from django.utils.text import format_lazy
from django.utils.translation import gettext_lazy as _

from leaderboard.core.text.json import read_json
from leaderboard.core.text.names import validate_name, validate_text
from leaderboard.models import Challenge, Dataset, System, Team
from leaderboard.systems.anonymity import ADVICE, LONGEST_MONTHS
from leaderboard.systems.challenges import LONGEST_TEXT, SHORTEST_TEXT
from submissions.core.names import NameField, TextField
from submissions.intake.rounds import RoundEntry
from submissions.intake.submission import SubmissionOptions


class WebAddressField(forms.URLField):
    """URL field that accepts only http and https."""

    def __init__(self, **options: Any) -> None:
        super().__init__(assume_scheme="https", max_length=200, required=False, **options)

    def clean(self, value: Any) -> str:
        """Return the URL. Raises ValidationError for other schemes."""
        address: str = super().clean(value)
        if address and not address.startswith(("http://", "https://")):
            raise ValidationError("Enter a URL that starts with https:// or http://.")
        return address


class ParametersField(forms.CharField):
    """Field for parameters as a JSON object, or as `key=value` pairs on lines or separated by commas.

    A comma without a following `key=` is part of the value: weights=1,0.5. Values of the parameters in `verbatim`
    are preserved exactly, including spaces, unless they are JSON strings; other values are stripped.
    """

    def __init__(self, *, verbatim: Collection[str] = (), **options: Any) -> None:
        super().__init__(strip=False, **options)
        self.verbatim = frozenset(verbatim)

    def clean(self, value: Any) -> dict[str, Any]:
        """Return the parameters by name, with JSON values parsed.

        Raises ValidationError if a pair, a name, or a text is invalid.
        """
        text = super().clean(value)
        if text.lstrip().startswith("{"):
            try:
                parameters = dict(read_json(text))
            except ValueError as error:
                raise ValidationError(f'Not a JSON object such as {{"k1": 0.9}}: {error}') from None
        else:
            parameters = {}
            parts = (part for line in re.split(r"\r?\n", text) for part in _BETWEEN_PAIRS.split(line))
            for part in parts:
                if not part.strip(_IGNORED_CHARACTERS):
                    continue
                key, equals, value_text = part.partition("=")
                if not equals or not key.strip():
                    raise ValidationError(f"“{part.strip()}” is not key=value, such as k1=0.9.")
                parameters[key.strip()] = self._parse_value(key.strip(), value_text)
        for name in parameters:
            validate_name(name)
        _validate_texts(parameters)
        return parameters

    def _parse_value(self, name: str, text: str) -> Any:
        """Return the text parsed as JSON if possible, otherwise the stripped text.

        Texts of verbatim parameters are returned unchanged, unless they are JSON strings.
        """
        stripped_text = text.strip().rstrip(_IGNORED_CHARACTERS)
        try:
            value = read_json(stripped_text)
        except ValueError:
            value = stripped_text
        if name in self.verbatim and (value == stripped_text or not isinstance(value, str)):
            return text  # here, 1e3 and true are texts, and spaces are significant
        return value


#: Comma or semicolon followed by another `key=`.
_BETWEEN_PAIRS = re.compile(r"[,;](?=[^,;=]*=)")
#: Characters that are ignored after a value.
_IGNORED_CHARACTERS = " \t,;"


def _validate_texts(value: Any) -> None:
    """Raise ValidationError if a text in the value contains characters unsuitable for pages."""
    if isinstance(value, str):
        validate_text(value)
    elif isinstance(value, dict):
        _validate_texts([*value, *value.values()])
    elif isinstance(value, list):
        for item in value:
            _validate_texts(item)


class AnonymityField(forms.DateField):
    """Date until which a system is anonymous."""

    def __init__(self, **options: Any) -> None:
        super().__init__(
            label=_("Anonymous until"),
            required=False,
            widget=forms.DateInput(format="%Y-%m-%d", attrs={"type": "date"}),
            help_text=format_lazy(
                _("For peer review; at most {most} months. Leave empty to show your team. {advice}"),
                most=LONGEST_MONTHS,
                advice=ADVICE,
            ),
            **options,
        )


class SubmissionForm(forms.Form):
    """Form for the fields of one submission."""

    configuration = NameField(
        label=_("Configuration"),
        required=False,
        max_length=80,
        help_text=_("A label to distinguish several runs of the same system, for example “top 200”."),
    )
    seeds = forms.CharField(
        label=_("Seeds"),
        required=False,
        max_length=500,
        help_text=_(
            "Several files for one dataset are seeds, published as mean ± deviation. Enter comma-separated "
            "labels in file order, such as 1, 2, 3. Default: derived from the file names."
        ),
    )
    public = forms.ChoiceField(
        label=_("Visibility"),
        required=False,
        choices=[
            ("yes", _("Public: shown on the board as soon as it is scored")),
            ("no", _("Private: only your team sees it until you make it public")),
        ],
        widget=forms.RadioSelect,
        initial="yes",
    )
    reusable = forms.BooleanField(
        label=_("Allow reuse: others may re-rank or fuse these runs, with credit"),
        required=False,
        help_text=_("Applies once the results are public. Does not publish your run files."),
    )
    run_type = forms.ChoiceField(
        label=_("Type of run"),
        required=False,
        choices=[
            ("", _("Not specified")),
            ("automatic", _("Automatic: no human intervention in queries or ranking")),
            ("manual", _("Manual: human intervention in queries or ranking")),
            ("closed", _("Closed book: answers without retrieval; a reference without a rank")),
            ("gold", _("Gold evidence: answers from the relevant documents; a reference without a rank")),
        ],
    )
    tag = NameField(
        label=_("Run tag"),
        required=False,
        max_length=24,
        help_text=_("Letters, digits, dots, hyphens, and underscores, such as bm25-rm3. Default: the tag in the file."),
    )
    priority = forms.IntegerField(
        label=_("Priority"),
        required=False,
        min_value=1,
        max_value=999,
        help_text=_("Priority of the run for pooling, 1 is highest. Default: the next free number of your team."),
    )
    note = TextField(rows=2, required=False, max_length=2000, help_text=_("Only visible to your team."))

    team = forms.ChoiceField(
        required=False,
        label=_("Team"),
        help_text=_("Team that owns the system. Default: the team of your system, or your first team for a new one."),
    )
    anonymous_until = AnonymityField()

    def __init__(self, *arguments: Any, teams: Iterable[Team] = (), **options: Any) -> None:
        """Offer the teams as choices."""
        super().__init__(*arguments, **options)
        self.teams = {team.slug: team for team in teams}
        team_choices = [("", _("Default")), *((slug, team.name) for slug, team in self.teams.items())]
        self.fields["team"].choices = team_choices  # type: ignore[attr-defined]

    def clean_team(self) -> Team | None:
        return self.teams.get(self.cleaned_data["team"])

    def options(self) -> SubmissionOptions:
        """Return the cleaned values as options of a submission. The form must be valid."""
        values = self.cleaned_data
        option_values = {
            name: values[name] for name in ("configuration", "public", "reusable", "note", "team", "anonymous_until")
        }
        entry = RoundEntry(values["tag"], values["priority"], values["run_type"])
        return SubmissionOptions(round_entry=entry, **option_values)

    def clean_public(self) -> bool:
        return bool(self.cleaned_data["public"] != "no")


class AnonymityForm(forms.Form):
    """Form that changes the date until which a system is anonymous."""

    anonymous_until = AnonymityField()

    def __init__(self, *arguments: Any, system: System, **options: Any) -> None:
        """Require a date; the initial one is that of the system."""
        day = system.anonymous_until.date() if system.anonymous_until else None
        super().__init__(*arguments, **options)
        self.fields["anonymous_until"].initial = day
        self.fields["anonymous_until"].required = True
        self.fields["anonymous_until"].help_text = ""


class ChallengeForm(forms.Form):
    """Form that challenges a system. The system has public results on `datasets`."""

    claim = forms.ChoiceField(label=_("Claim to challenge"), choices=Challenge.Claim.choices)
    dataset = forms.ChoiceField(required=False, help_text=_("Choose a dataset if the challenge concerns only one."))
    text = TextField(
        label=_("Reason"),
        rows=8,
        min_length=SHORTEST_TEXT,
        max_length=LONGEST_TEXT,
        help_text=_(
            "Give evidence that can be checked: a source, a passage, a number. The text is public and sent "
            "to the system's team. Supports Markdown."
        ),
    )

    def __init__(self, *arguments: Any, datasets: Iterable[Dataset], **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.datasets = {dataset.slug: dataset for dataset in datasets}
        choices = [("", "All datasets"), *((slug, dataset.name) for slug, dataset in self.datasets.items())]
        self.fields["dataset"].choices = choices  # type: ignore[attr-defined]

    def clean_dataset(self) -> Dataset | None:
        return self.datasets.get(self.cleaned_data["dataset"])


class WithdrawalForm(forms.Form):
    """Form that withdraws a submission. The reason remains visible on the dataset's page."""

    reason = NameField(
        max_length=300,
        error_messages={"required": _("Enter a reason, such as “wrong index used”. It remains visible.")},
    )
