"""View that submits runs, and base class of the pages that submit runs and models."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from django import forms
from django.conf import settings
from django.contrib.auth.views import redirect_to_login
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import redirect, render
from django.utils import timezone
from django.utils.translation import gettext as _
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods

from evaluation.archives.compression import describe_bytes
from evaluation.core.problems import InvalidContent
from leaderboard.core.http.query_parameters import reads
from leaderboard.core.http.site_url import absolute
from leaderboard.core.storage.disk import DiskFull
from leaderboard.datasets.files import offered_files
from leaderboard.models import DECLARED_NUMBERS, Dataset, DatasetFile, System, Team, User
from leaderboard.rounds.lifecycle import closed_datasets
from leaderboard.systems.records import find_system
from submissions.accounts.approval import due_for_submission
from submissions.accounts.forms import TeamNameField
from submissions.accounts.permissions import get_systems, get_teams, is_owner, require_user
from submissions.accounts.teams import automatic_name, personal_team, rename_team
from submissions.accounts.throttling import CheckThrottle, SubmitThrottle, seconds_to_wait
from submissions.checkpoints.concurrency import TooManyChecks
from submissions.core.errors import FileReport, Refused
from submissions.intake.checkpoints.intake import datasets_with_content
from submissions.intake.files import IncomingFile, incoming_file, incoming_upload, run_files
from submissions.intake.forms import SubmissionForm
from submissions.intake.rounds import round_standings
from submissions.intake.runs import accept_submission, check_only, split_labels
from submissions.intake.system_form import SystemForm
from submissions.models import Job, Submission, Upload
from submissions.queue.workers import workers_alive
from submissions.quotas.counting import Quota, limited_quotas
from submissions.uploads.handler import refuse_oversize
from submissions.uploads.service import discard_upload, get_uploads, keep_file
from submissions.uploads.storage import UploadInUse

#: Name of the file input for zips and files named after their datasets. Others are named `run:<dataset>`.
MULTIPLE_FILES = "several"
#: Prefix of fields that contain ids of resumable uploads, followed by the name of the file input.
UPLOAD_PREFIX = "upload:"
#: Size in bytes above which the page's script uses resumable uploads.
LARGE_FILE_BYTES = 8 * 1024 * 1024
#: Optional fields of a new system, by group. Groups are collapsed unless they contain errors.
OPTIONAL_FIELDS = {
    "Links and license": (
        "paper_url", "code_url", "model_url", "licence", "commercial_use", "open_weights", "closed_api",
    ),
    "Model": (
        "parameters", "backbone", *(number.name for number in DECLARED_NUMBERS), "training_compute", "adapted_to",
        "variant_of",
    ),
    "Authors and citation": ("participant", "authors", "year", "bibtex"),
}  # fmt: skip
#: Kinds of dataset files that are sample runs.
SAMPLE_RUNS = (DatasetFile.Kind.EXAMPLE_RUN, DatasetFile.Kind.BROKEN_RUN)
#: Form prefix of a system's fields: `new-<field>`.
PREFIX = "new"
#: Fields that are always visible. All others are in the section “More details”.
VISIBLE_FIELDS = frozenset({"name", "architecture", "run_type", "tag", "public", "priority"})


class TeamChoiceForm(forms.Form):
    """Form for the name of the user's team."""

    team_name = TeamNameField(required=False)


def is_check(request: HttpRequest) -> bool:
    """Return whether the form only checks files, possibly as runs on the suggested dataset `use`."""
    return request.POST.get("action") == "check" or "use" in request.POST


class SubmissionPage:
    """Base of the pages that submit runs and models.

    `architecture` limits the systems on the page; if empty, the submitter chooses it.
    """

    template: str
    kind: Upload.Kind
    #: Queues whose workers the page counts.
    queues: tuple[Job.Queue, ...]

    def __init__(self, request: HttpRequest, architecture: str = "") -> None:
        """Create the forms with the user's systems and teams. Entered data is validated only for a submission."""
        self.request, self.person, self.architecture = request, request.user, architecture
        self.teams = list(get_teams(self.person))
        self.team = self.teams[0] if self.teams else None
        self.system = self._find_system()
        self.checking = request.method == "POST" and is_check(request)
        data = self._form_data() if request.method == "POST" and not self.checking else None
        self.form = SubmissionForm(data, teams=self.teams, initial=self._initial_values(), label_suffix="")
        self.system_form = SystemForm(data, prefix=PREFIX, initial=self._initial_values(f"{PREFIX}-"), label_suffix="")
        name_field = self.system_form.fields["name"]
        name_field.label, name_field.widget.attrs["list"] = _("System name"), "own-systems"
        if self.teams:
            name_field.help_text = _("Enter a new name, or choose one of your systems.")
        self.team_form = self._team_form(data)

    def answer(self) -> HttpResponse:
        """Return the form, the reports of checked files (`action=check`), or a redirect to the new submission.

        If the submission is refused or a form has errors, the form shows the reasons with status 400; with 429 for too
        many requests.
        """
        if self.request.method != "POST":
            return self.show()
        if wait := seconds_to_wait(CheckThrottle() if self.checking else SubmitThrottle(), self.request):
            return self.show(429, slow_down=wait)
        try:
            refuse_oversize(self.request)  # check the size first, because fields of a truncated request are misleading
            if self.checking:
                return self.check()
            if not self.is_valid():
                return self.show_errors()
            submission = self.submit()
            self.name_team()
        except TooManyChecks as busy:
            answer = self.show(429, refusal=busy)
            answer["Retry-After"] = str(busy.seconds)
            return answer
        except Refused as refusal:
            return self.show(400, refusal=refusal)
        return redirect(submission)

    def show(self, status: int = 200, **changes: Any) -> HttpResponse:
        return render(self.request, self.template, self.context(**changes), status=status)

    def show_errors(self) -> HttpResponse:
        return self.show(400)

    def check(self) -> HttpResponse:
        raise NotImplementedError

    def submit(self) -> Submission:
        raise NotImplementedError

    def stored_uploads(self, refused_names: Collection[str], *, store: bool) -> Any:
        """Return the user's uploads for the page.

        If `store` is true, files that were just sent are first stored as uploads, except refused ones.
        """
        raise NotImplementedError

    @property
    def user(self) -> User:
        """The signed-in user. Raises PermissionDenied for visitors without an account."""
        return require_user(self.request)

    @property
    def chosen_team(self) -> Team | None:
        """Team that a submission with the entered values belongs to; None if the submission creates its team."""
        if self.system is not None and self.system.team is not None:
            return self.system.team
        return self.form.teams.get(self.form["team"].value() or "", self.team)

    def _find_system(self) -> System | None:
        """Return the user's system with the entered name in the chosen team, or else in any of the user's teams."""
        post = self.request.POST
        teams = [team for team in self.teams if post.get("team") in (None, "", team.slug)]
        return find_system(teams, post.get(f"{PREFIX}-name", self.request.GET.get("system", "")).strip())

    def _form_data(self) -> QueryDict:
        """Return the posted data with the architecture of the page's engine, or else of the existing system."""
        entered, name = self.request.POST.copy(), f"{PREFIX}-architecture"
        default = self.system.architecture if self.system else ""
        entered[name] = self.architecture or entered.get(name) or default
        return entered

    def _team_form(self, data: QueryDict | None) -> TeamChoiceForm | None:
        """Return a form that names the team, or None if it has a chosen name or belongs to another owner.

        Users without a team get the form if they have no name that their team could get.
        """
        team = self.team
        if not isinstance(self.person, User) or (team is None and self.person.name):
            return None
        default = automatic_name(self.person)
        if team is not None and (team.name != default or not is_owner(self.person, team)):
            return None
        form = TeamChoiceForm(data, initial=self._initial_values(), label_suffix="")
        help_text = f"Boards show it beside your systems. Default: “{default}”. You can change it on your account page."
        form.fields["team_name"].help_text = help_text
        return form

    def name_team(self) -> None:
        if name := self.team_form.cleaned_data["team_name"] if self.team_form else "":
            rename_team(personal_team(self.user), name)

    def _initial_values(self, prefix: str = "") -> dict[str, Any]:
        """Return initial form values: `?system=` on the first visit, otherwise the entered values with this prefix."""
        if self.request.method != "POST":
            system = self.system if prefix else None
            return {"name": system.name, "architecture": system.architecture} if system else {"public": "yes"}
        entered = self.request.POST.items()
        return {name.removeprefix(prefix): value for name, value in entered if name.startswith(prefix)}

    def is_valid(self) -> bool:
        """Return whether the forms are valid and do not change an existing system. Its own page is for changes."""
        forms = [form for form in (self.form, self.team_form, self.system_form) if form is not None]
        if self.system is not None and all(form.is_valid() for form in forms):
            self._refuse_changes(self.system)
        return all(form.is_valid() for form in forms)

    def _refuse_changes(self, system: System) -> None:
        """Add an error to each field whose entered value differs from the existing system's value."""
        message = _("“{name}” is one of your systems and has another value. Clear the field, or enter a new name.")
        names = [field.name for field in self.system_form if field.value() and field.name != "name"]
        if "training_none" in names:
            names.append("training_datasets")
        for name in self.system_form.differing_fields(system, names):
            is_shown = name != "architecture" or not self.architecture
            self.system_form.add_error(name if is_shown else "name", message.format(name=system.name))
        if self.form.options().changes_anonymity(system):
            self.form.add_error("anonymous_until", message.format(name=system.name))

    def submission_arguments(self) -> dict[str, Any]:
        """Return the arguments `system` and `options` of a submission. The forms must be valid."""
        return {"system": self.system or self.system_form.build_system_fields(), "options": self.form.options()}

    def context(
        self, refusal: Refused | None = None, reports: Sequence[FileReport] = (), slow_down: int = 0
    ) -> dict[str, Any]:
        """Return the context shared by both templates: forms, systems, rounds, quotas, uploads, and reports.

        The reports are those of the refusal, if there is one. `slow_down` is the number of seconds to wait after too
        many requests.
        """
        reports = refusal.files if refusal else reports
        refused_names = {report.name.split("/")[0] for report in reports if not report.report.valid}
        file_problems = [problem for report in reports for problem in report.report.problems]
        problems = refusal.all_problems() if refusal else file_problems
        return {
            **(self._own_facts(self.person) if isinstance(self.person, User) else {}),
            "section": "submit",
            "form": self.form,
            "system_form": self.system_form,
            "optional_groups": list(self._optional_groups()),
            "more_open": self._has_details(),
            "architecture": self.architecture,
            "team_form": self.team_form,
            "kept": self.stored_uploads(refused_names, store=not slow_down) if self.person.is_authenticated else [],
            "refusal": refusal,
            "reports": reports,
            "checked": bool(reports) and refusal is None,
            "checking": self.checking,
            "severities": Counter(problem.severity for problem in problems),
            "refused_names": sorted(refused_names),
            "slow_down": slow_down,
            "workers": {queue: workers_alive(queue) for queue in self.queues},
            # Only accounts have resumable uploads.
            "large": LARGE_FILE_BYTES if self.person.is_authenticated else settings.UPLOAD_LIMIT_BYTES,
            "api_address": absolute(self.request, "/api/v1/"),
            "site_address": absolute(self.request, "/").rstrip("/"),
        }

    def _own_facts(self, user: User) -> dict[str, Any]:
        """Return the part of the context about the signed-in user: systems, rounds, agreements, quotas, and uploads.

        Quotas are those of the team that the submission would belong to.
        """
        rounds = round_standings(user, self.team)
        open_datasets = Dataset.objects.open_for_runs()
        systems, team = get_systems(user), self.chosen_team
        return {
            "standings": rounds,
            "takes_round_runs": any(row.takes_runs for row in rounds),
            "systems": systems.filter(architecture=self.architecture) if self.architecture else systems,
            "pending_agreements": due_for_submission(user, open_datasets),
            "quota_team": team if len(self.teams) > 1 else None,
            "dataset_quotas": limited_quotas(user, [team] if team else [], open_datasets.filter(hidden=True)),
            "unfinished": get_uploads(user).filter(kind=self.kind, completed_at=None, offset__gt=0),
        }

    def _has_details(self) -> bool:
        """Return whether a field under “More details” has an error, or a value other than its default."""
        fields = [field for field in (*self.form, *self.system_form) if field.name not in VISIBLE_FIELDS]
        return any(field.errors or field.value() not in (None, "", False, field.field.initial) for field in fields)

    def store_uploads(self, files: Iterable[IncomingFile], refused_names: Collection[str]) -> list[str]:
        """Store files sent with the form as uploads, except refused ones, and return the ids of the uploads.

        Files beyond the user's limit are not stored.
        """
        upload_ids = []
        with suppress(Refused, DiskFull):
            for file in files:
                if not file.upload and file.name not in refused_names:
                    upload_ids.append(keep_file(self.user, file.path, file.sha256 or "", file.name, self.kind).pk)
        return upload_ids

    def complete_uploads(self) -> QuerySet[Upload]:
        """Return the user's complete uploads that no submission has used."""
        return get_uploads(self.user).filter(kind=self.kind).exclude(completed_at=None)

    def _optional_groups(self) -> Iterator[dict[str, Any]]:
        """Yield groups of optional fields of a new system, expanded if they contain errors.

        On an engine's page, parameters are omitted because the page has its own form for them.
        """
        omitted_names = {"parameters"} if self.architecture else set()
        for label, names in OPTIONAL_FIELDS.items():
            fields = [self.system_form[name] for name in names if name not in omitted_names]
            yield {"label": label, "fields": fields, "open": any(field.errors for field in fields)}


class SubmitPage(SubmissionPage):
    """Page that submits runs."""

    template = "submissions/submit.html"
    kind = Upload.Kind.RUN
    queues = (Job.Queue.SCORE,)

    def check(self) -> HttpResponse:
        return self.show(reports=check_only(self.person, self.files(), self._seeds()))

    def show_errors(self) -> HttpResponse:
        """Return the page with the errors of the forms and the reports of the files.

        Users can then correct both at once. Raises Refused.
        """
        return self.show(400, reports=check_only(self.person, self.files(), self._seeds()))

    def submit(self) -> Submission:
        return accept_submission(self.user, files=self.files(), seeds=self._seeds(), **self.submission_arguments())

    def _seeds(self) -> list[str]:
        return split_labels(self.request.POST.getlist("seeds"))

    @property
    def _posted_dataset(self) -> str:
        """Slug of the suggested dataset whose button was used, or of the chosen dataset, or empty."""
        return self.request.POST.get("use") or self.request.POST.get("dataset", "")

    def files(self) -> list[IncomingFile]:
        """Return the sent files and the selected uploads, each with its dataset if one was chosen.

        The dataset is that of the file's own input, of the field next to an upload, or of the field `dataset`.
        """
        post, files = self.request.POST, []
        for field, uploads in self.request.FILES.lists():
            kind, _separator, slug = field.partition(":")
            if (kind == "run" and slug) or field == MULTIPLE_FILES:
                files += [incoming_file(upload, slug or self._posted_dataset) for upload in uploads]
        for field, upload_ids in post.lists():
            kind, _separator, slug = field.removeprefix(UPLOAD_PREFIX).partition(":")
            holds_runs = (kind == "run" and slug) or kind == MULTIPLE_FILES
            if field.startswith(UPLOAD_PREFIX) and holds_runs:
                for key in upload_ids:
                    dataset = slug or post.get(f"dataset:{key}") or self._posted_dataset
                    files.append(incoming_upload(self.user, key, Upload.Kind.RUN, dataset))
        return files

    def context(self, *arguments: Any, **changes: Any) -> dict[str, Any]:
        """Return the template's context.

        `subjects` are the datasets of the checked files, or else the chosen dataset.
        """
        context = super().context(*arguments, **changes)
        datasets = available_first(self._dataset_choices(), context.get("dataset_quotas", {}))
        slugs = {report.dataset for report in context["reports"]}
        samples = [[(row["dataset"], file) for file in row["files"] if file.kind in SAMPLE_RUNS] for row in datasets]
        return {
            **context,
            "datasets": datasets,
            "subjects": [row for row in datasets if row["dataset"].slug in slugs or (not slugs and row["chosen"])],
            "uses_uploads": any(row["chosen"] for row in context["kept"]),
            "samples": max(samples, key=len, default=[]),
            "several": MULTIPLE_FILES,
            "at_once": describe_bytes(settings.VALIDATE_AT_ONCE_BYTES),
            "largest": describe_bytes(settings.UPLOAD_LIMIT_BYTES),
        }

    def stored_uploads(self, refused_names: Collection[str], *, store: bool) -> list[dict[str, Any]]:
        """Return the user's uploads, each with whether it is selected and its chosen or recognized dataset.

        If `store` is true, files that were just sent are first stored as uploads. Files with refused content are
        deleted or not stored.
        """
        chosen_datasets: dict[str, str] = {}
        with suppress(Refused, UploadInUse):
            sent_files = self.files() if store and self.request.method == "POST" else []
            for file in sent_files:
                if file.upload and file.name in refused_names:
                    discard_upload(Upload.objects.get(pk=file.upload))
                    continue
                for upload in [file.upload] if file.upload else self.store_uploads([file], refused_names):
                    chosen_datasets[upload] = file.dataset or self._recognize_dataset(file)
        return [
            {"upload": upload, "chosen": upload.pk in chosen_datasets, "dataset": chosen_datasets.get(upload.pk, "")}
            for upload in self.complete_uploads()
        ]

    @staticmethod
    def _recognize_dataset(file: IncomingFile) -> str:
        """Return the slug of the dataset that matches the file's name or ids; empty for zips and unclear matches."""
        with suppress(Refused, InvalidContent, FileNotFoundError):
            if not file.is_zip:
                with run_files([file]) as runs:
                    return runs[0].dataset.slug
        return ""

    def _dataset_choices(self) -> list[dict[str, Any]]:
        """Return the datasets that accept runs, with the files that a run needs and the visitor may download.

        Each has the reason if it is closed, and whether it was chosen.
        """
        chosen_slug = self._posted_dataset or self.request.GET.get("dataset", "")
        kinds = (DatasetFile.Kind.QUERIES, DatasetFile.Kind.CORPUS, DatasetFile.Kind.DOCUMENT_IDS, *SAMPLE_RUNS)
        datasets = datasets_with_content()
        closed_reasons = closed_datasets((dataset.pk for dataset in datasets), timezone.now())
        return [
            {
                "dataset": dataset,
                "files": [file for file in offered_files(dataset, self.person) if file.kind in kinds],
                "chosen": dataset.slug == chosen_slug,
                "shut": closed_reasons.get(dataset.pk, ""),  # the reason why the dataset is closed
            }
            for dataset in datasets
        ]


def available_first(choices: Iterable[dict[str, Any]], quotas: Mapping[int, Sequence[Quota]]) -> list[dict[str, Any]]:
    """Sort choices of datasets; closed ones and those without remaining quota come last."""
    spent = {pk for pk, team_quotas in quotas.items() if all(quota.spent for quota in team_quotas)}
    return sorted(choices, key=lambda row: bool(row["shut"]) or row["dataset"].pk in spent)


@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
@reads("dataset", "system")
def submit(request: HttpRequest) -> HttpResponse:
    """Show or process the page that submits runs. Visitors without an account can only check a file."""
    if request.method == "POST" and not is_check(request) and not request.user.is_authenticated:
        return redirect_to_login(request.get_full_path())
    return SubmitPage(request).answer()
