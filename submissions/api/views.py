"""Calls about checks, submissions, quotas, and challenges. Each makes one call of the domain."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from django.shortcuts import get_object_or_404
from drf_spectacular.utils import OpenApiParameter
from rest_framework import status
from rest_framework.parsers import MultiPartParser
from rest_framework.permissions import IsAuthenticated, IsAuthenticatedOrReadOnly
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.throttling import BaseThrottle
from rest_framework.views import APIView

from evaluation.core.problems import ProblemCode
from leaderboard.core.http.api_errors import ApiError, problem
from leaderboard.core.http.choices import UnknownChoice
from leaderboard.core.http.query_parameters import reads
from leaderboard.models import Dataset, System
from leaderboard.systems.challenges import ChallengeRefused, public_challenges, raise_challenge
from submissions.accounts import permissions
from submissions.accounts.throttling import ChallengeThrottle, ChangeThrottle, CheckThrottle, SubmitThrottle
from submissions.api import requests, serializers
from submissions.api.schema import call
from submissions.api.submission_requests import CheckRequest, SubmissionRequest
from submissions.checkpoints.service import check_checkpoint
from submissions.core.errors import Refused
from submissions.intake.checkpoints.intake import accept_model
from submissions.intake.files import TOO_LARGE_TO_CHECK_AT_ONCE
from submissions.intake.runs import accept_submission, check_only
from submissions.intake.system_form import seen_systems
from submissions.jobs import changes
from submissions.models import Scope, Submission
from submissions.quotas.counting import quotas_for
from submissions.quotas.ledger import count_refusals
from submissions.status.description import (
    describe,
    describe_with_standing,
    load_jobs,
    with_jobs,
    with_standings,
)

ONE_FILE = ProblemCode("one_file", "Several files were sent to be checked.", "The API checks one file at a "
    "time.")  # fmt: skip

_IDENTIFIER = OpenApiParameter("identifier", str, OpenApiParameter.PATH, description="The submission's id.")
_BUSY = {429: "Too many requests, or checkpoints at once; `Retry-After` says when to send."}


class CheckView(APIView):
    """Is this file a run that can be scored, or a checkpoint that can be run?"""

    required_scope = Scope.SUBMIT
    permission_classes = [IsAuthenticated]
    parser_classes = [MultiPartParser]
    throttle_classes = [CheckThrottle]

    @call(
        "submissions", "Check a run file or a checkpoint", {200: serializers.ReportSerializer}, 400, 401, 413,
        remarks=_BUSY,
        request={"multipart/form-data": CheckRequest},
        extensions={"x-curl": "-F dataset=SLUG -F file=@run.txt.gz"},
    )  # fmt: skip
    def post(self, request: Request) -> Response:
        """Validate one run file against a dataset, or with `kind=model` one checkpoint, for an `engine` if one is said.

        Nothing is stored; an invalid file is answered with 200 too.
        """
        try:
            sent = CheckRequest.read(request)
            if "checkpoint" in sent:
                return Response(serializers.ReportSerializer(check_checkpoint(*sent["checkpoint"])).data)
            reports = check_only(**sent)
        except Refused as refusal:
            if refusal.files and not refusal.problems:
                return Response(serializers.ReportSerializer(refusal.files[0]).data)
            raise serializers.refused(refusal) from refusal
        if len(reports) != 1:
            raise ApiError(ONE_FILE, "Send one file at a time to be checked.")
        found = reports[0].report.problems
        large = next((each for each in found if each.code == TOO_LARGE_TO_CHECK_AT_ONCE), None)
        if large is not None:
            raise ApiError(
                large.code,
                f"{large.message[0].upper()}{large.message[1:]}. {large.hint}",
                status_code=status.HTTP_413_REQUEST_ENTITY_TOO_LARGE,
                problems=[replace(large, severity="error")],
            )
        return Response(serializers.ReportSerializer(reports[0]).data)


@reads("limit", "offset")
class SubmissionsView(APIView):
    """Submit, and list one's own."""

    required_scope = {"GET": Scope.READ, "POST": Scope.SUBMIT}
    permission_classes = [IsAuthenticated]
    parser_classes = [MultiPartParser]

    def get_throttles(self) -> list[SubmitThrottle]:  # type: ignore[override]
        """Only what is sent is counted."""
        return [SubmitThrottle()] if self.request.method == "POST" else []

    @call(
        "submissions", "My submissions", {200: serializers.SubmissionPageSerializer}, 401,
        operation_id="submissions_list", parameters=requests.PAGE_PARAMETERS,
    )  # fmt: skip
    def get(self, request: Request) -> Response:
        """Your submissions and your teams', newest first, in pages (`limit`, `offset`)."""
        rows = with_jobs(permissions.submissions_of(request.user))
        pagination = requests.Pages()
        page = pagination.paginate_queryset(rows, request, view=self) or []
        statuses = with_standings(describe(row, complete=True, compare=False) for row in page)
        return pagination.get_paginated_response(serializers.submission_answers(statuses, request, own=True))

    @call(
        "submissions", "Submit runs, or a model", {201: serializers.SubmissionSerializer}, 400, 401,
        remarks=_BUSY,
        request={"multipart/form-data": SubmissionRequest},
        extensions={"x-curl": '-F system="My system" -F architecture=dense -F dataset=SLUG -F file=@run.txt.gz'},
    )  # fmt: skip
    def post(self, request: Request) -> Response:
        """Submit one or several run files for one system, or with `kind=model` a model that is run here.

        On 400 nothing was stored and nothing counted.
        """
        try:
            sent = SubmissionRequest.read(request)
            accept = accept_model if "request" in sent else accept_submission
            accepted = accept(permissions.signed_in(request), **sent)
        except Refused as refusal:
            raise serializers.refused(refusal) from refusal
        load_jobs(accepted)
        (answer,) = serializers.submission_answers([describe(accepted, complete=True)], request)
        return Response(answer, status=status.HTTP_201_CREATED, headers={"Location": answer["url"]})


class _OneSubmission(APIView):
    """A call about one submission, which exists only for those who may see it."""

    def find(self, request: Request, identifier: str, *, manage: bool = False) -> Submission:
        """Return the submission, with `manage` one that may be changed. Raises Http404 or PermissionDenied."""
        submissions = with_jobs(Submission.objects.all())
        return permissions.visible_submission(request.user, submissions, identifier, manage=manage)

    def answer(self, request: Request, found: Submission) -> Response:
        """Return the submission as it is now."""
        fresh = with_jobs(Submission.objects.filter(pk=found.pk)).get()
        complete = permissions.may_manage(request.user, fresh)
        (answer,) = serializers.submission_answers(
            [describe_with_standing(fresh, complete=complete)], request
        )
        return Response(answer)


class SubmissionView(_OneSubmission):
    """A submission's state."""

    required_scope = Scope.READ

    @call(
        "submissions", "A submission", {200: serializers.SubmissionSerializer}, 404,
        operation_id="submissions_retrieve", parameters=[_IDENTIFIER],
    )  # fmt: skip
    def get(self, request: Request, identifier: str) -> Response:
        """State, queue position, log, report and scores; for others than its team only what boards show."""
        return self.answer(request, self.find(request, identifier))


def _changes(
    summary: str, request: type[requests.RequestSerializer] | None, *, throttled: bool = False
) -> Any:
    """Return the schema of a call that changes one submission."""
    codes = (403, 404) if request is None else (400, 403, 404)
    remarks = requests.TOO_MANY_CHANGES if throttled else None
    options: dict[str, Any] = {"parameters": [_IDENTIFIER], "request": request, "remarks": remarks}
    return call("submissions", summary, {200: serializers.SubmissionSerializer}, *codes, **options)


class _Change(_OneSubmission):
    """A change of one submission."""

    required_scope = Scope.MANAGE
    permission_classes = [IsAuthenticated]

    def change(
        self,
        request: Request,
        identifier: str,
        act: Callable[..., object],
        fields: type[requests.RequestSerializer] | None = None,
    ) -> Response:
        """Call `act` with the submission, the value that was sent, and the person. Raises ApiError."""
        found = self.find(request, identifier, manage=True)
        values = fields.read(request).values() if fields is not None else ()
        try:
            act(found, *values, permissions.signed_in(request))
        except Refused as refusal:
            raise serializers.refused(refusal) from refusal
        return self.answer(request, found)


class _ThrottledChange(_Change):
    """A change that scripts might make over and over."""

    throttle_classes = [ChangeThrottle]


class CancelView(_Change):
    """Stop a submission."""

    required_scope = Scope.SUBMIT

    @_changes("Cancel a submission", None)
    def post(self, request: Request, identifier: str) -> Response:
        """Stop every job that has not ended: at once where it waits, within seconds where it runs."""
        return self.change(request, identifier, changes.cancel)


class WithdrawView(_Change):
    """Take a submission back."""

    @_changes("Withdraw a submission", requests.WithdrawRequest)
    def post(self, request: Request, identifier: str) -> Response:
        """Take the results off every board. A line with the reason stays where they were."""
        return self.change(request, identifier, changes.withdraw, requests.WithdrawRequest)


class VisibilityView(_ThrottledChange):
    """Show or keep back a submission."""

    @_changes("Show a submission to everyone, or keep it private", requests.VisibilityRequest, throttled=True)
    def post(self, request: Request, identifier: str) -> Response:
        """Set `public` to true or false."""
        return self.change(request, identifier, changes.set_public, requests.VisibilityRequest)


class PriorityView(_ThrottledChange):
    """Change the order of a team's runs in a round."""

    @_changes("Give a submission another priority in its round", requests.PriorityRequest, throttled=True)
    def post(self, request: Request, identifier: str) -> Response:
        """Set `priority`, until the round closes. The team's run that has it gets the old one."""
        return self.change(request, identifier, changes.set_priority, requests.PriorityRequest)


class ReusableView(_ThrottledChange):
    """Let others build on a submission's runs, or not."""

    @_changes(
        "Let others re-rank and fuse a submission's runs, or no longer",
        requests.ReusableRequest,
        throttled=True,
    )
    def post(self, request: Request, identifier: str) -> Response:
        """Set `reusable` to true or false. What was built on the runs before stays, with its credit."""
        return self.change(request, identifier, changes.set_reusable, requests.ReusableRequest)


@reads("dataset")
class QuotasView(APIView):
    """How often one may still submit."""

    required_scope = Scope.READ
    permission_classes = [IsAuthenticated]

    @call(
        "submissions", "My quotas", {200: serializers.QuotasSerializer}, 401, operation_id="quotas_list",
        parameters=[OpenApiParameter("dataset", str, description="Slug: of this dataset alone.")],
    )  # fmt: skip
    def get(self, request: Request) -> Response:
        """How many submissions you and your teams have used, and have left, where judgements are hidden.

        Counted by day and calendar month, UTC. Datasets that are not limited are not listed.
        """
        person = permissions.signed_in(request)
        datasets = Dataset.objects.open_for_runs().filter(hidden=True)
        if wanted := request.query_params.get("dataset"):
            known = Dataset.objects.open_for_runs().values_list("slug", flat=True)
            if wanted not in known:
                raise UnknownChoice("dataset", wanted, known.order_by("slug"))
            datasets = datasets.filter(slug=wanted)
        found = quotas_for(person, list(permissions.teams_of(person)), datasets)
        answer = {
            "quotas": [each for quotas in found.values() for each in quotas],
            "refusals": count_refusals(person),
        }
        return Response(serializers.QuotasSerializer(answer).data)


CHALLENGE_REFUSED = ProblemCode("challenge_refused", "The system cannot be challenged so: it was already, or by its "
    "own team, or the text is missing.", "The message says what would be right.")  # fmt: skip

_SLUG = OpenApiParameter("slug", str, OpenApiParameter.PATH, description="As in the address of its page.")


class ChallengesView(APIView):
    """The challenges of a system."""

    required_scope = {"GET": Scope.READ, "POST": Scope.MANAGE}
    permission_classes = [IsAuthenticatedOrReadOnly]

    def get_throttles(self) -> list[BaseThrottle]:
        """Only raising one counts."""
        return [ChallengeThrottle()] if self.request.method == "POST" else []

    @call(
        "systems", "What is doubted of a system", {200: serializers.ChallengesSerializer}, 404, parameters=[_SLUG]
    )  # fmt: skip
    def get(self, request: Request, slug: str) -> Response:
        """Every challenge on record, the newest first, with its decision."""
        return Response(_answer(get_object_or_404(seen_systems(), slug=slug)))

    @call(
        "systems", "Challenge a system", {201: serializers.ChallengesSerializer}, 400, 401, 404,
        remarks={429: "Too many challenges; `Retry-After` says when to send."},
        parameters=[_SLUG], request=requests.ChallengeRequest,
    )  # fmt: skip
    def post(self, request: Request, slug: str) -> Response:
        """Doubt what the system says of itself. A curator settles it; until then boards mark the system."""
        system = get_object_or_404(seen_systems(), slug=slug)
        person = permissions.signed_in(request)
        try:
            raise_challenge(system, person, **requests.ChallengeRequest.read(request))
        except ChallengeRefused as error:
            raise ApiError(
                CHALLENGE_REFUSED, str(error), problems=[problem(CHALLENGE_REFUSED, str(error))]
            ) from error
        return Response(_answer(system), status=status.HTTP_201_CREATED)


def _answer(system: System) -> dict[str, Any]:
    return serializers.ChallengesSerializer({"challenges": public_challenges(system.pk)}).data
