"""What the submit page shows and takes: two forms, and one file input for every dataset that takes runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django import forms
from django.conf import settings
from django.http import HttpRequest, QueryDict
from django.utils import timezone

from evaluation.archives.compression import describe_bytes
from leaderboard.core.http.site_url import absolute
from leaderboard.datasets.files import offered_files
from leaderboard.models import DECLARED_NUMBERS, Dataset, DatasetFile, System
from leaderboard.rounds.presentation import closed_datasets
from leaderboard.systems.records import SystemFields
from submissions.accounts.forms import TeamNameField
from submissions.accounts.permissions import is_owner, signed_in, systems_of, teams_of
from submissions.accounts.teams import automatic_name, personal_team, rename_team
from submissions.core.errors import FileReport, Refused
from submissions.intake.files import IncomingFile, incoming_file, incoming_upload
from submissions.intake.forms import SubmissionForm
from submissions.intake.rounds import round_standings
from submissions.intake.runs import check_only
from submissions.intake.seed_labels import split_labels
from submissions.intake.system_form import SystemForm
from submissions.models import Upload
from submissions.quotas.counting import Quota, quotas_for
from submissions.uploads.service import uploads_of
from submissions.uploads.storage import is_identifier
from submissions.views.uploads import unfinished

#: File inputs are named `run:<dataset>`; this one takes zips, and files named after their datasets.
SEVERAL = "several"
#: Fields that name uploads which came in pieces are called like the file input that they stand for, after this.
UPLOADED = "upload:"
#: Larger files, in bytes, are sent in pieces by browsers that run the page's script.
LARGE = 8 * 1024 * 1024
#: What may be said of a new system and mostly is not: folded away until it is asked for, or wrong.
OPTIONAL = {
    "Links and licence": (
        "paper_url",
        "code_url",
        "model_url",
        "licence",
        "commercial_use",
        "open_weights",
        "closed_api",
    ),
    "The model": (
        "parameters",
        "backbone",
        *(each.name for each in DECLARED_NUMBERS),
        "training_compute",
        "adapted_to",
        "variant_of",
    ),
    "Authors and citation": ("participant", "authors", "year", "bibtex"),
}
#: Fields of a new system are named `new-<field>`.
PREFIX = "new"


@dataclass(frozen=True, slots=True)
class DatasetOption:
    """A dataset that takes runs, and what a run for it is made from. `shut` says why it takes none just now."""

    dataset: Dataset
    input_name: str
    files: Sequence[DatasetFile]
    chosen: bool
    kept: Sequence[Upload]
    shut: str = ""


@dataclass(frozen=True, slots=True)
class FieldGroup:
    """Fields that are folded away together."""

    label: str
    fields: Sequence[forms.BoundField]

    @property
    def open(self) -> bool:
        """Whether one of them is wrong."""
        return any(field.errors for field in self.fields)


class TeamChoiceForm(forms.Form):
    """Whom the results will stand under."""

    team_name = TeamNameField(required=False)


class SubmissionPage:
    """What the pages for runs and for models have in common: who submits which system, under which name.

    `architecture` is the one that systems here are of; empty where the submitter says it.
    """

    def __init__(self, request: HttpRequest, architecture: str = "") -> None:
        self.request, self.person, self.architecture = request, signed_in(request), architecture
        self.systems = [
            system
            for system in systems_of(self.person)
            if not architecture or system.architecture == architecture
        ]
        self.checking = request.method == "POST" and request.POST.get("action") == "check"
        data = self._entered() if request.method == "POST" and not self.checking else None
        self.form = SubmissionForm(
            data,
            systems=self.systems,
            teams=teams_of(self.person),
            initial=self._initial(),
            label_suffix="",
        )
        self.system_form = SystemForm(
            data if self._new_system() else None,
            prefix=PREFIX,
            initial=self._initial(f"{PREFIX}-"),
            label_suffix="",
        )
        self.team_form = self._team_form(data)

    def _entered(self) -> QueryDict:
        """What was sent; a system's architecture is not asked for where it is known."""
        if not self.architecture:
            return self.request.POST
        entered = self.request.POST.copy()
        entered[f"{PREFIX}-architecture"] = self.architecture
        return entered

    def _team_form(self, data: QueryDict | None) -> TeamChoiceForm | None:
        """Asks for the team's name while it has the one that it was given."""
        team = teams_of(self.person).first()
        if team is not None and (team.name != automatic_name(self.person) or not is_owner(self.person, team)):
            return None
        if team is None and self.person.name:
            return None
        form = TeamChoiceForm(data, initial=self._initial(), label_suffix="")
        form.fields["team_name"].help_text = (
            "Boards show it beside your systems. Left empty, they say "
            f"“{team.name if team else automatic_name(self.person)}”; your account's page changes it later."
        )
        return form

    def name_team(self) -> None:
        """Give the team the name that was entered, if any was."""
        name = self.team_form.cleaned_data["team_name"] if self.team_form else ""
        if name:
            rename_team(personal_team(self.person), name)

    def _new_system(self) -> bool:
        return self.request.method == "POST" and not self.request.POST.get("system")

    def _initial(self, prefix: str = "") -> dict[str, Any]:
        """What was entered, kept without complaint while files are only checked; `?system=` on a first visit."""
        if self.request.method != "POST":
            return {} if prefix else {"system": self.request.GET.get("system", ""), "public": "yes"}
        entered = self.request.POST.items()
        return {name.removeprefix(prefix): value for name, value in entered if name.startswith(prefix)}

    def is_valid(self) -> bool:
        """Whether the forms are well formed; of the system's, only where a new one is made."""
        needed = [self.form, self.team_form, self.system_form if self._new_system() else None]
        return not any(form.errors for form in needed if form is not None)

    def about(self) -> dict[str, Any]:
        """What every submission has, whatever its kind, from valid forms."""
        values = self.form.cleaned_data
        kept = {name: values[name] for name in ("configuration", "public", "reusable", "note")}
        if not values["system"]:
            kept |= {name: values[name] for name in ("team", "anonymous_until")}
        return {"system": self._system(values["system"]), "round_entry": self.form.round_entry(), **kept}

    def _system(self, slug: str) -> System | SystemFields:
        if not slug:
            return self.system_form.fields_of_system()
        return next(system for system in self.systems if system.slug == slug)

    def shared_context(self) -> dict[str, Any]:
        """What the templates of both pages show."""
        return {
            "section": "submit",
            "form": self.form,
            "system_form": self.system_form,
            "optional_groups": self._optional_groups(),
            "architecture": self.architecture,
            "team_form": self.team_form,
            "standings": round_standings(self.person, teams_of(self.person).first()),
            "systems": self.systems,
            "dataset_quotas": self._quotas(),
            "large": LARGE,
            "files_lost": self.request.method == "POST" and bool(self.request.FILES),
            "api_address": absolute(self.request, "/api/v1/"),
            "site_address": absolute(self.request, "/").rstrip("/"),
        }

    def kept_uploads(self, field: str) -> list[Upload]:
        """The uploads that were named for a file input and are here still, so that nobody sends them again."""
        named = list(filter(is_identifier, self.request.POST.getlist(f"{UPLOADED}{field}")))
        return list(uploads_of(self.person).filter(pk__in=named).exclude(completed_at=None)) if named else []

    def _quotas(self) -> dict[int, list[Quota]]:
        hidden = Dataset.objects.open_for_runs().filter(hidden=True)
        return quotas_for(self.person, list(teams_of(self.person)), hidden)

    def _optional_groups(self) -> list[FieldGroup]:
        """What may be said of a new system; an engine's page asks for its parameters itself."""
        return [
            FieldGroup(
                label,
                [
                    self.system_form[name]
                    for name in names
                    if not (self.architecture and name == "parameters")
                ],
            )
            for label, names in OPTIONAL.items()
        ]


class SubmitPage(SubmissionPage):
    """The page for runs: the forms bound to a request, and the translation of what was sent."""

    def submission(self) -> dict[str, Any]:
        """What `accept_submission` takes, from valid forms."""
        return {**self.about(), "files": self.files(), "seeds": self.seeds()}

    def check(self) -> list[FileReport]:
        """The verdict on the files. Raises Refused."""
        return check_only(self.files(), self.seeds())

    def seeds(self) -> list[str]:
        """The labels of seeds that were entered."""
        return split_labels(self.request.POST.getlist("seeds"))

    def files(self) -> list[IncomingFile]:
        """The files that were chosen, each with the dataset whose input it came through."""
        files = []
        for field, uploads in self.request.FILES.lists():
            kind, _, slug = field.partition(":")
            if (kind == "run" and slug) or field == SEVERAL:
                files += [incoming_file(upload, slug) for upload in uploads]
        for field, named in self.request.POST.lists():
            kind, _, slug = field.removeprefix(UPLOADED).partition(":")
            if field.startswith(UPLOADED) and ((kind == "run" and slug) or kind == SEVERAL):
                files += [incoming_upload(self.person, each, Upload.Kind.RUN, slug) for each in named]
        return files

    def context(
        self,
        refusal: Refused | None = None,
        reports: Sequence[FileReport] = (),
        slow_down: int = 0,
    ) -> dict[str, Any]:
        """What the template shows."""
        return {
            **self.shared_context(),
            "unfinished": unfinished(self.person, Upload.Kind.RUN),
            "datasets": self._datasets(),
            "several": SEVERAL,
            "several_kept": self.kept_uploads(SEVERAL),
            "refusal": refusal,
            "reports": refusal.files if refusal else reports,
            "checked": bool(reports) and refusal is None,
            "slow_down": slow_down,
            "at_once": describe_bytes(settings.VALIDATE_AT_ONCE_BYTES),
            "largest": describe_bytes(settings.UPLOAD_LIMIT_BYTES),
        }

    def _datasets(self) -> list[DatasetOption]:
        """The dataset asked for in the address first, then all others by name."""
        wanted = self.request.GET.get("dataset", "")
        datasets = (
            Dataset.objects.open_for_runs()
            .exclude(current_version=None)
            .select_related("current_version")
            .prefetch_related("current_version__files")
        )
        shut = closed_datasets((dataset.pk for dataset in datasets), timezone.now())
        rows = [
            DatasetOption(
                dataset,
                name,
                self._needed(dataset),
                dataset.slug == wanted,
                self.kept_uploads(name),
                shut.get(dataset.pk, ""),
            )
            for dataset in datasets
            for name in [f"run:{dataset.slug}"]
        ]
        return sorted(rows, key=lambda row: not row.chosen)

    def _needed(self, dataset: Dataset) -> list[DatasetFile]:
        """The files that a run is made from, as far as this person may have them."""
        kinds = (DatasetFile.Kind.QUERIES, DatasetFile.Kind.CORPUS, DatasetFile.Kind.DOCUMENT_IDS)
        return [file for file in offered_files(dataset, self.person) if file.kind in kinds]
