"""The page that submits runs, and what it shares with the page for models."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any

from django import forms
from django.conf import settings
from django.contrib.auth.views import redirect_to_login
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import redirect, render
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods

from evaluation.archives.compression import describe_bytes
from evaluation.core.problems import InvalidContent
from leaderboard.core.http.query_parameters import reads
from leaderboard.core.http.site_url import absolute
from leaderboard.core.storage.disk import DiskFull
from leaderboard.datasets.files import offered_files
from leaderboard.models import DECLARED_NUMBERS, Dataset, DatasetFile
from leaderboard.rounds.lifecycle import closed_datasets
from submissions.accounts.approval import due_for_submission
from submissions.accounts.forms import TeamNameField
from submissions.accounts.permissions import is_owner, signed_in, systems_of, teams_of
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
from submissions.models import Submission, Upload
from submissions.quotas.counting import quotas_for
from submissions.uploads.handler import refuse_oversize
from submissions.uploads.service import discard_upload, get_uploads, keep_file
from submissions.uploads.storage import UploadInUse

#: File inputs are named `run:<dataset>`; this one takes zips, and files named after their datasets.
SEVERAL = "several"
#: Fields that name uploads which came in pieces are called like the file input that they stand for, after this.
UPLOADED = "upload:"
#: Larger files, in bytes, are sent in pieces by browsers that run the page's script.
LARGE = 8 * 1024 * 1024
#: What may be said of a new system and mostly is not: folded away until it is asked for, or wrong.
OPTIONAL = {
    "Links and licence": (
        "paper_url", "code_url", "model_url", "licence", "commercial_use", "open_weights", "closed_api",
    ),
    "The model": (
        "parameters", "backbone", *(each.name for each in DECLARED_NUMBERS), "training_compute", "adapted_to",
        "variant_of",
    ),
    "Authors and citation": ("participant", "authors", "year", "bibtex"),
}  # fmt: skip
#: Fields of a new system are named `new-<field>`.
PREFIX = "new"


class TeamChoiceForm(forms.Form):
    """Whom the results will stand under."""

    team_name = TeamNameField(required=False)


class SubmissionPage:
    """The parts that the pages for runs and for models share: the sender, the system, and the order of an answer.

    `architecture` is that of the systems on the page; empty if the submitter says it.
    """

    template: str
    kind: Upload.Kind

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
            data, systems=self.systems, teams=teams_of(self.person), initial=self._initial(), label_suffix=""
        )
        self.system_form = SystemForm(
            data if self._new_system() else None,
            prefix=PREFIX,
            initial=self._initial(f"{PREFIX}-"),
            label_suffix="",
        )
        self.team_form = self._team_form(data)

    def answer(self) -> HttpResponse:
        """Answer with the form, with the verdict on files (`action=check`), or after a submission with its page."""
        if self.request.method != "POST":
            return self.show()
        if wait := seconds_to_wait(CheckThrottle() if self.checking else SubmitThrottle(), self.request):
            return self.show(429, slow_down=wait)
        try:
            refuse_oversize(self.request)  # first: what a request that was cut off seems to say is misleading
            if self.checking:
                return self.check()
            if not self.is_valid():
                return self.show_errors()
            accepted = self.submit()
            self.name_team()
        except TooManyChecks as busy:
            answer = self.show(429, refusal=busy)
            answer["Retry-After"] = str(busy.seconds)
            return answer
        except Refused as refusal:
            return self.show(400, refusal=refusal)
        return redirect(accepted)

    def show(self, status: int = 200, **changes: Any) -> HttpResponse:
        """Return the page; `changes` are the arguments of `context`."""
        return render(self.request, self.template, self.context(**changes), status=status)

    def show_errors(self) -> HttpResponse:
        """Return the page with the errors of its forms. Raises Refused."""
        return self.show(400)

    def check(self) -> HttpResponse:
        """Return the page with the verdict on the files. Raises Refused."""
        raise NotImplementedError

    def submit(self) -> Submission:
        """Accept the submission, from valid forms. Raises Refused."""
        raise NotImplementedError

    def kept_files(self, refused: Collection[str], *, takes: bool) -> Any:
        """Return the sender's files that are here, and keep those that just came, but for the refused ones."""
        raise NotImplementedError

    def _entered(self) -> QueryDict:
        """Return the form that was sent, with the architecture of the page's engine if it has one."""
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
        """Return the entered values, unchecked while files are only checked; `?system=` on a first visit."""
        if self.request.method != "POST":
            return {} if prefix else {"system": self.request.GET.get("system", ""), "public": "yes"}
        entered = self.request.POST.items()
        return {name.removeprefix(prefix): value for name, value in entered if name.startswith(prefix)}

    def is_valid(self) -> bool:
        """Whether the forms are well formed; of the system's, only where a new one is made."""
        needed = [self.form, self.team_form, self.system_form if self._new_system() else None]
        return not any(form.errors for form in needed if form is not None)

    def about(self) -> dict[str, Any]:
        """Return the system and the options of a submission of any kind, from valid forms."""
        slug = self.form.cleaned_data["system"]
        known = next((system for system in self.systems if system.slug == slug), None)
        return {"system": known or self.system_form.fields_of_system(), "options": self.form.options()}

    def context(
        self, refusal: Refused | None = None, reports: Sequence[FileReport] = (), slow_down: int = 0
    ) -> dict[str, Any]:
        """Return the values that the templates of both pages show."""
        reports = refusal.files if refusal else reports
        refused = {report.name.split("/")[0] for report in reports if not report.report.valid}
        rounds = round_standings(self.person, teams_of(self.person).first())
        taking = Dataset.objects.open_for_runs()
        return {
            "section": "submit",
            "form": self.form,
            "system_form": self.system_form,
            "optional_groups": list(self._optional_groups()),
            "architecture": self.architecture,
            "team_form": self.team_form,
            "standings": rounds,
            "takes_round_runs": any(each.takes_runs for each in rounds),
            "systems": self.systems,
            "pending_agreements": due_for_submission(self.person, taking),
            "dataset_quotas": quotas_for(
                self.person, list(teams_of(self.person)), taking.filter(hidden=True)
            ),
            "unfinished": get_uploads(self.person).filter(kind=self.kind, completed_at=None, offset__gt=0),
            "kept": self.kept_files(refused, takes=not slow_down),
            "refusal": refusal,
            "reports": reports,
            "checked": bool(reports) and refusal is None,
            "slow_down": slow_down,
            "large": LARGE,
            "files_lost": self.request.method == "POST" and bool(self.request.FILES),
            "api_address": absolute(self.request, "/api/v1/"),
            "site_address": absolute(self.request, "/").rstrip("/"),
        }

    def keep(self, files: Iterable[IncomingFile], refused: Collection[str]) -> list[str]:
        """Keep files that came with the form, but for those whose content was refused. Returns the uploads' ids.

        As many as there is room for: a person may have so many uploads.
        """
        kept = []
        with suppress(Refused, DiskFull):
            for file in files:
                if not file.upload and file.name not in refused:
                    upload = keep_file(self.person, file.path, file.sha256 or "", file.name, self.kind)
                    kept.append(upload.pk)
        return kept

    def whole_uploads(self) -> QuerySet[Upload]:
        """Return the files that are here, and that no submission has taken."""
        return get_uploads(self.person).filter(kind=self.kind).exclude(completed_at=None)

    def _optional_groups(self) -> Iterator[dict[str, Any]]:
        """Yield optional fields of a new system, unfolded where one is wrong.

        An engine's page asks for its parameters itself.
        """
        left_out = {"parameters"} if self.architecture else set()
        for label, names in OPTIONAL.items():
            fields = [self.system_form[name] for name in names if name not in left_out]
            yield {"label": label, "fields": fields, "open": any(field.errors for field in fields)}


class SubmitPage(SubmissionPage):
    """The page for runs: the forms bound to a request, and the translation of what was sent."""

    template = "submissions/submit.html"
    kind = Upload.Kind.RUN

    def check(self) -> HttpResponse:
        """Return the page with the verdict on the files. Raises Refused."""
        return self.show(reports=check_only(self.files(), self._seeds()))

    def show_errors(self) -> HttpResponse:
        """Return the page with the errors of its forms and of the files. Raises Refused.

        Who corrects the fields should not learn of the next problem then.
        """
        return self.show(400, reports=check_only(self.files(), self._seeds()))

    def submit(self) -> Submission:
        """Accept the submission, from valid forms. Raises Refused."""
        return accept_submission(self.person, files=self.files(), seeds=self._seeds(), **self.about())

    def _seeds(self) -> list[str]:
        return split_labels(self.request.POST.getlist("seeds"))

    def files(self) -> list[IncomingFile]:
        """Return the chosen files, each with its dataset if its input, or the field beside it, names one."""
        post, files = self.request.POST, []
        common = post.get("dataset", "")
        for field, uploads in self.request.FILES.lists():
            kind, _, slug = field.partition(":")
            if (kind == "run" and slug) or field == SEVERAL:
                files += [incoming_file(upload, slug or common) for upload in uploads]
        for field, named in post.lists():
            kind, _, slug = field.removeprefix(UPLOADED).partition(":")
            if field.startswith(UPLOADED) and ((kind == "run" and slug) or kind == SEVERAL):
                said = [(each, slug or post.get(f"dataset:{each}", common)) for each in named]
                files += [
                    incoming_upload(self.person, each, Upload.Kind.RUN, chosen) for each, chosen in said
                ]
        return files

    def context(self, *arguments: Any, **changes: Any) -> dict[str, Any]:
        """Return the values that the template shows."""
        return {
            **super().context(*arguments, **changes),
            "datasets": self._datasets(),
            "several": SEVERAL,
            "at_once": describe_bytes(settings.VALIDATE_AT_ONCE_BYTES),
            "largest": describe_bytes(settings.UPLOAD_LIMIT_BYTES),
        }

    def kept_files(self, refused: Collection[str], *, takes: bool) -> list[dict[str, Any]]:
        """Return the files that are here, with those that just came, each with the dataset that it seems to be for.

        Those whose content was refused are not kept, however they came.
        """
        chosen: dict[str, str] = {}
        with suppress(Refused, UploadInUse):
            sent = self.files() if takes and self.request.method == "POST" else []
            for file in sent:
                if file.upload and file.name in refused:
                    discard_upload(Upload.objects.get(pk=file.upload))
                    continue
                for upload in [file.upload] if file.upload else self.keep([file], refused):
                    chosen[upload] = file.dataset or self._recognised(file)
        return [
            {"upload": each, "chosen": each.pk in chosen, "dataset": chosen.get(each.pk, "")}
            for each in self.whole_uploads()
        ]

    @staticmethod
    def _recognised(file: IncomingFile) -> str:
        """Return the dataset of the file's name or ids; empty for none, for several, and for zips."""
        with suppress(Refused, InvalidContent, FileNotFoundError):
            if not file.is_zip:
                with run_files([file]) as found:
                    return found[0].dataset.slug
        return ""

    def _datasets(self) -> list[dict[str, Any]]:
        """Return the datasets that take runs, by name; chosen is the one that the address or the form names.

        Each has the files that a run is made from, as far as this person may have them.
        """
        wanted = self.request.POST.get("dataset") or self.request.GET.get("dataset", "")
        kinds = (DatasetFile.Kind.QUERIES, DatasetFile.Kind.CORPUS, DatasetFile.Kind.DOCUMENT_IDS)
        datasets = datasets_with_content()
        shut = closed_datasets((dataset.pk for dataset in datasets), timezone.now())
        return [
            {
                "dataset": each,
                "files": [file for file in offered_files(each, self.person) if file.kind in kinds],
                "chosen": each.slug == wanted,
                "shut": shut.get(each.pk, ""),  # why it takes none just now
            }
            for each in datasets
        ]


@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
@reads("dataset", "system")
def submit(request: HttpRequest) -> HttpResponse:
    """Answer the page for runs; visitors see what to do first."""
    if request.user.is_authenticated:
        return SubmitPage(request).answer()
    if request.method == "POST":
        return redirect_to_login(request.get_full_path())
    return render(request, "submissions/submit_anonymous.html", {"section": "submit"})
