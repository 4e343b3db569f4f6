"""The forms of a submission, used by the page and the API alike: is the request well formed?"""

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
    """A link that pages may show: http or https only."""

    def __init__(self, **options: Any) -> None:
        super().__init__(assume_scheme="https", max_length=200, required=False, **options)

    def clean(self, value: Any) -> str:
        """Return the address. Raises ValidationError for any scheme that is not the web's."""
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
        """Return the parameters. Raises ValidationError saying what would be right."""
        text = super().clean(value)
        if text.lstrip().startswith("{"):
            try:
                found = dict(read_json(text))
            except ValueError as error:
                raise ValidationError(f'Not a JSON object such as {{"k1": 0.9}}: {error}') from None
        else:
            found = {}
            parts = (part for line in re.split(r"\r?\n", text) for part in _BETWEEN_PAIRS.split(line))
            for part in parts:
                if not part.strip(_IGNORED):
                    continue
                key, equals, said = part.partition("=")
                if not equals or not key.strip():
                    raise ValidationError(f"“{part.strip()}” is not key=value, such as k1=0.9.")
                found[key.strip()] = self._value(key.strip(), said)
        for name in found:
            validate_name(name)
        _validate_texts(found)
        return found

    def _value(self, name: str, text: str) -> Any:
        said = text.strip().rstrip(_IGNORED)
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
_IGNORED = " \t,;"


def _validate_texts(value: Any) -> None:
    """Raise ValidationError for characters that no text needs, in any text of a value: pages show it."""
    if isinstance(value, str):
        validate_text(value)
    elif isinstance(value, dict):
        _validate_texts([*value, *value.values()])
    elif isinstance(value, list):
        for each in value:
            _validate_texts(each)


class AnonymityField(forms.DateField):
    """The day until which a system is anonymous."""

    def __init__(self, **options: Any) -> None:
        super().__init__(
            label=_("Anonymous until"),
            required=False,
            widget=forms.DateInput(format="%Y-%m-%d", attrs={"type": "date"}),
            help_text=format_lazy(
                _("For a review, {most} months at most; empty: not at all. {advice}"),
                most=LONGEST_MONTHS,
                advice=ADVICE,
            ),
            **options,
        )


class SubmissionForm(forms.Form):
    """What belongs to this one submission. `system` is the slug of one of the sender's, empty for a new one."""

    system = forms.ChoiceField(required=False)
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
            "Several files for one dataset are seeds of the system, and one result: mean ± deviation. Their "
            "labels in the order of the files, separated by commas; default: taken from file names."
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
        label=_("Others may build on its runs: re-rank or fuse them here, with credit"),
        required=False,
        help_text=_("Once the results are public. This does not publish your run files."),
    )
    run_type = forms.ChoiceField(
        label=_("Type of run"),
        required=False,
        choices=[
            ("", _("Not said")),
            ("automatic", _("Automatic: nobody had a hand in queries or ranking")),
            ("manual", _("Manual: somebody had")),
        ],
    )
    tag = NameField(
        label=_("Run tag"),
        required=False,
        max_length=24,
        help_text=_("Left empty, the one in the file. Letters, digits, dots, hyphens and underscores."),
    )
    priority = forms.IntegerField(
        label=_("Priority"),
        required=False,
        min_value=1,
        max_value=999,
        help_text=_(
            "Your team’s own order of its runs: pools are drawn from 1 first. Left empty, the next that is free."
        ),
    )
    note = TextField(rows=2, required=False, max_length=2000, help_text=_("For your team alone."))

    team = forms.ChoiceField(required=False, label=_("Team"), help_text=_("Whose the new system is."))
    anonymous_until = AnonymityField()

    def __init__(
        self, *arguments: Any, systems: list[System], teams: Iterable[Team] = (), **options: Any
    ) -> None:
        super().__init__(*arguments, **options)
        mine = [(system.slug, system.name) for system in systems]
        self.fields["system"] = forms.ChoiceField(required=False, choices=[("", _("New system")), *mine])
        self.teams = {team.slug: team for team in teams}
        self.fields["team"].choices = [(slug, team.name) for slug, team in self.teams.items()]  # type: ignore[attr-defined]

    def clean_team(self) -> Team | None:
        """One of the sender's teams; None where none was chosen."""
        return self.teams.get(self.cleaned_data["team"])

    def options(self) -> SubmissionOptions:
        """Return the options of the submission, from a valid form."""
        values = self.cleaned_data
        kept = {
            name: values[name]
            for name in ("configuration", "public", "reusable", "note", "team", "anonymous_until")
        }
        entry = RoundEntry(values["tag"], values["priority"], values["run_type"])
        return SubmissionOptions(round_entry=entry, **kept)

    def clean_public(self) -> bool:
        """Public unless said otherwise."""
        return bool(self.cleaned_data["public"] != "no")


class AnonymityForm(forms.Form):
    """Until when a system's team is kept back."""

    anonymous_until = AnonymityField()

    def __init__(self, *arguments: Any, system: System, **options: Any) -> None:
        day = system.anonymous_until.date() if system.anonymous_until else None
        super().__init__(*arguments, **options)
        self.fields["anonymous_until"].initial = day
        self.fields["anonymous_until"].required = True
        self.fields["anonymous_until"].help_text = ""


class ChallengeForm(forms.Form):
    """What is doubted of a system, and why; `datasets` are those that it has public results on."""

    claim = forms.ChoiceField(label=_("What you doubt"), choices=Challenge.Claim.choices)
    dataset = forms.ChoiceField(required=False, help_text=_("Where it is about one dataset."))
    text = TextField(
        label=_("Why"),
        rows=8,
        min_length=SHORTEST_TEXT,
        max_length=LONGEST_TEXT,
        help_text=_(
            "What can be checked: a source, a passage, a number. Public, and sent to the system's team. Markdown "
            "is understood."
        ),
    )

    def __init__(self, *arguments: Any, datasets: Iterable[Dataset], **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.datasets = {dataset.slug: dataset for dataset in datasets}
        choices = [("", "All of them"), *((slug, each.name) for slug, each in self.datasets.items())]
        self.fields["dataset"].choices = choices  # type: ignore[attr-defined]

    def clean_dataset(self) -> Dataset | None:
        """One of the datasets; None where it is about no single one."""
        return self.datasets.get(self.cleaned_data["dataset"])


class WithdrawalForm(forms.Form):
    """Why a submission is withdrawn; the reason stays on the dataset's page."""

    reason = NameField(
        max_length=300,
        error_messages={"required": _("Say why, for example “wrong index used”: the reason stays visible.")},
    )
