"""API views of submissions, quotas, and challenges."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from django.shortcuts import get_object_or_404
from drf_spectacular.utils import OpenApiParameter
from rest_framework import status
from rest_framework.parsers import MultiPartParser
from rest_framework.permissions import AllowAny, IsAuthenticated, IsAuthenticatedOrReadOnly
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
from submissions.core.errors import Refused
from submissions.intake.checkpoints.intake import accept_model, check_model
from submissions.intake.files import TOO_LARGE_TO_CHECK_AT_ONCE
from submissions.intake.runs import ONE_FILE, accept_submission, check_only
from submissions.intake.system_form import seen_systems
from submissions.jobs import changes
from submissions.models import Scope, Submission
from submissions.quotas.counting import limited_quotas
from submissions.quotas.ledger import count_refusals
from submissions.status.description import (
    describe,
    describe_with_standing,
    load_jobs,
    with_jobs,
    with_standings,
)

_IDENTIFIER = OpenApiParameter("identifier", str, OpenApiParameter.PATH, description="The submission's id.")
_BUSY = {429: "Too many requests or concurrent checkpoints; try again after `Retry-After` seconds."}


class CheckView(APIView):
    """API view that validates a run file or a checkpoint without submitting it."""

    required_scope = Scope.SUBMIT
    permission_classes = [AllowAny]
    parser_classes = [MultiPartParser]
    throttle_classes = [CheckThrottle]

    @call(
        "submissions",
        "Check a run file or a checkpoint",
        {200: serializers.ReportSerializer},
        400,
        401,
        413,
        remarks=_BUSY,
        request={"multipart/form-data": CheckRequest},
        extensions={"x-curl": "-F dataset=SLUG -F file=@run.txt.gz"},
    )
    def post(self, request: Request) -> Response:
        """Validate a run file against a dataset, or, with `kind=model`, a checkpoint, optionally for an `engine`.

        The file is not stored. Invalid files also get status 200. Without an account, you can check one run file that
        is not a zip, against datasets whose queries and documents are public.
        """
        try:
            arguments = CheckRequest.read(request)
            if "checkpoint" in arguments:
                return Response(serializers.ReportSerializer(check_model(request.user, *arguments["checkpoint"])).data)
            reports = check_only(request.user, **arguments)
        except Refused as refusal:
            if refusal.files and not refusal.problems:
                return Response(serializers.ReportSerializer(refusal.files[0]).data)
            raise serializers.build_refusal_error(refusal) from refusal
        if len(reports) != 1:
            raise ApiError(ONE_FILE, "Several files were sent. Send one file at a time.")
        problems = reports[0].report.problems
        size_problem = next((problem for problem in problems if problem.code == TOO_LARGE_TO_CHECK_AT_ONCE), None)
        if size_problem is not None:
            raise ApiError(
                size_problem.code,
                f"{size_problem.message[0].upper()}{size_problem.message[1:]}. {size_problem.hint}",
                status_code=status.HTTP_413_REQUEST_ENTITY_TOO_LARGE,
                problems=[replace(size_problem, severity="error")],
            )
        return Response(serializers.ReportSerializer(reports[0]).data)


@reads("limit", "offset")
class SubmissionsView(APIView):
    """API view that creates and lists submissions."""

    required_scope = {"GET": Scope.READ, "POST": Scope.SUBMIT}
    permission_classes = [IsAuthenticated]
    parser_classes = [MultiPartParser]

    def get_throttles(self) -> list[SubmitThrottle]:  # type: ignore[override]
        return [SubmitThrottle()] if self.request.method == "POST" else []

    @call(
        "submissions",
        "My submissions",
        {200: serializers.SubmissionPageSerializer},
        401,
        operation_id="submissions_list",
        parameters=requests.PAGE_PARAMETERS,
    )
    def get(self, request: Request) -> Response:
        """List your submissions and those of your teams, newest first, in pages (`limit`, `offset`)."""
        rows = with_jobs(permissions.get_submissions(request.user))
        pagination = requests.Pages()
        page = pagination.paginate_queryset(rows, request, view=self) or []
        statuses = with_standings(describe(row, complete=True, compare=False) for row in page)
        return pagination.get_paginated_response(serializers.submission_answers(statuses, request, is_own=True))

    @call(
        "submissions",
        "Submit runs, or a model",
        {201: serializers.SubmissionSerializer},
        400,
        401,
        remarks=_BUSY,
        request={"multipart/form-data": SubmissionRequest},
        extensions={"x-curl": '-F system="My system" -F architecture=dense -F dataset=SLUG -F file=@run.txt.gz'},
    )
    def post(self, request: Request) -> Response:
        """Submit one or more run files for a system, or, with `kind=model`, a model that Runboard runs.

        If the status is 400, no submission was stored and no quota was used.
        """
        try:
            arguments = SubmissionRequest.read(request)
            accept = accept_model if "request" in arguments else accept_submission
            submission = accept(permissions.require_user(request), **arguments)
        except Refused as refusal:
            raise serializers.build_refusal_error(refusal) from refusal
        load_jobs(submission)
        (answer,) = serializers.submission_answers([describe(submission, complete=True)], request)
        return Response(answer, status=status.HTTP_201_CREATED, headers={"Location": answer["url"]})


class _OneSubmission(APIView):
    """Base of views of a single submission. They respond with 404 to users who may not see it."""

    def find(self, request: Request, identifier: str, *, manage: bool = False) -> Submission:
        """Return a submission that the user may see.

        Raises Http404 if there is none. Raises PermissionDenied if `manage` is true and the user may not change it.
        """
        submissions = with_jobs(Submission.objects.all())
        return permissions.visible_submission(request.user, submissions, identifier, manage=manage)

    def answer(self, request: Request, submission: Submission) -> Response:
        """Return a response with the submission's current state, which is complete for users who may manage it."""
        current_submission = with_jobs(Submission.objects.filter(pk=submission.pk)).get()
        complete = permissions.may_manage(request.user, current_submission)
        (answer,) = serializers.submission_answers(
            [describe_with_standing(current_submission, complete=complete)], request
        )
        return Response(answer)


class SubmissionView(_OneSubmission):
    """API view of a submission's state."""

    required_scope = Scope.READ

    @call(
        "submissions",
        "A submission",
        {200: serializers.SubmissionSerializer},
        404,
        operation_id="submissions_retrieve",
        parameters=[_IDENTIFIER],
    )
    def get(self, request: Request, identifier: str) -> Response:
        """Return state, queue position, log, report, and scores. Other users see only public facts."""
        return self.answer(request, self.find(request, identifier))


def _change_call(summary: str, request: type[requests.RequestSerializer] | None, *, throttled: bool = False) -> Any:
    """Return the schema decorator of a call that changes one submission.

    `request` is None if the call has no fields.
    """
    codes = (403, 404) if request is None else (400, 403, 404)
    remarks = requests.TOO_MANY_CHANGES if throttled else None
    options: dict[str, Any] = {"parameters": [_IDENTIFIER], "request": request, "remarks": remarks}
    return call("submissions", summary, {200: serializers.SubmissionSerializer}, *codes, **options)


class _SubmissionChangeView(_OneSubmission):
    """Base of views that change a submission."""

    required_scope = Scope.MANAGE
    permission_classes = [IsAuthenticated]

    def change(
        self,
        request: Request,
        identifier: str,
        act: Callable[..., object],
        fields: type[requests.RequestSerializer] | None = None,
    ) -> Response:
        """Call `act` with the submission, the values of `fields`, and the user; return the submission's new state.

        `fields` parses the request; None means that the call has no fields. Raises ApiError if a field is invalid or
        the change is refused, and the exceptions of `find`.
        """
        submission = self.find(request, identifier, manage=True)
        values = fields.read(request).values() if fields is not None else ()
        try:
            act(submission, *values, permissions.require_user(request))
        except Refused as refusal:
            raise serializers.build_refusal_error(refusal) from refusal
        return self.answer(request, submission)


class _ThrottledSubmissionChangeView(_SubmissionChangeView):
    """Base of changes that scripts might repeat."""

    throttle_classes = [ChangeThrottle]


class CancelView(_SubmissionChangeView):
    """API view that cancels a submission."""

    required_scope = Scope.SUBMIT

    @_change_call("Cancel a submission", None)
    def post(self, request: Request, identifier: str) -> Response:
        """Stop all unfinished jobs: waiting jobs immediately, running jobs within seconds."""
        return self.change(request, identifier, changes.cancel)


class WithdrawView(_SubmissionChangeView):
    """API view that withdraws a submission."""

    @_change_call("Withdraw a submission", requests.WithdrawRequest)
    def post(self, request: Request, identifier: str) -> Response:
        """Remove the results from all boards. A line with the reason remains in their place."""
        return self.change(request, identifier, changes.withdraw, requests.WithdrawRequest)


class VisibilityView(_ThrottledSubmissionChangeView):
    """API view that changes a submission's visibility."""

    @_change_call("Make a submission public or private", requests.VisibilityRequest, throttled=True)
    def post(self, request: Request, identifier: str) -> Response:
        """Set `public` to true or false."""
        return self.change(request, identifier, changes.set_public, requests.VisibilityRequest)


class PriorityView(_ThrottledSubmissionChangeView):
    """API view that changes the priority of a run in a round."""

    @_change_call("Change a submission's priority in its round", requests.PriorityRequest, throttled=True)
    def post(self, request: Request, identifier: str) -> Response:
        """Set `priority` while the round is open. If another run of the team has this priority, the two are swapped."""
        return self.change(request, identifier, changes.set_priority, requests.PriorityRequest)


class ReusableView(_ThrottledSubmissionChangeView):
    """API view that changes whether others may re-rank or fuse a submission's runs."""

    @_change_call("Allow or forbid re-ranking and fusing a submission's runs", requests.ReusableRequest, throttled=True)
    def post(self, request: Request, identifier: str) -> Response:
        """Set `reusable` to true or false. Systems already built on the runs remain and still credit them."""
        return self.change(request, identifier, changes.set_reusable, requests.ReusableRequest)


@reads("dataset")
class QuotasView(APIView):
    """API view of remaining submissions."""

    required_scope = Scope.READ
    permission_classes = [IsAuthenticated]

    @call(
        "submissions",
        "My quotas",
        {200: serializers.QuotasSerializer},
        401,
        operation_id="quotas_list",
        parameters=[OpenApiParameter("dataset", str, description="Slug of a dataset; return only its quotas.")],
    )
    def get(self, request: Request) -> Response:
        """Return used and remaining submissions to hidden datasets, for you and your teams.

        Counts are per day and calendar month (UTC). Unlimited datasets are not listed.
        """
        person = permissions.require_user(request)
        datasets = Dataset.objects.open_for_runs().filter(hidden=True)
        if slug := request.query_params.get("dataset"):
            known_slugs = Dataset.objects.open_for_runs().values_list("slug", flat=True)
            if slug not in known_slugs:
                raise UnknownChoice("dataset", slug, known_slugs.order_by("slug"))
            datasets = datasets.filter(slug=slug)
        quotas_by_dataset = limited_quotas(person, list(permissions.get_teams(person)), datasets)
        answer = {
            "quotas": [quota for quotas in quotas_by_dataset.values() for quota in quotas],
            "refusals": count_refusals(person),
        }
        return Response(serializers.QuotasSerializer(answer).data)


CHALLENGE_REFUSED = ProblemCode(
    "challenge_refused",
    "The challenge is not possible: it already exists, is from the system's own team, or has no text.",
    "Follow the hint in the message.",
)

_SLUG = OpenApiParameter("slug", str, OpenApiParameter.PATH, description="Slug in the URL of the system's page.")


class ChallengesView(APIView):
    """API view of a system's challenges."""

    required_scope = {"GET": Scope.READ, "POST": Scope.MANAGE}
    permission_classes = [IsAuthenticatedOrReadOnly]

    def get_throttles(self) -> list[BaseThrottle]:
        return [ChallengeThrottle()] if self.request.method == "POST" else []

    @call("systems", "Challenges of a system", {200: serializers.ChallengesSerializer}, 404, parameters=[_SLUG])
    def get(self, request: Request, slug: str) -> Response:
        """List all challenges and their decisions, newest first."""
        return Response(_serialize_challenges(get_object_or_404(seen_systems(), slug=slug)))

    @call(
        "systems",
        "Challenge a system",
        {201: serializers.ChallengesSerializer},
        400,
        401,
        404,
        remarks={429: "Too many challenges; try again after `Retry-After` seconds."},
        parameters=[_SLUG],
        request=requests.ChallengeRequest,
    )
    def post(self, request: Request, slug: str) -> Response:
        """Challenge a claim of the system. Boards mark the system until a curator decides."""
        system = get_object_or_404(seen_systems(), slug=slug)
        person = permissions.require_user(request)
        try:
            raise_challenge(system, person, **requests.ChallengeRequest.read(request))
        except ChallengeRefused as error:
            raise ApiError(CHALLENGE_REFUSED, str(error), problems=[problem(CHALLENGE_REFUSED, str(error))]) from error
        return Response(_serialize_challenges(system), status=status.HTTP_201_CREATED)


def _serialize_challenges(system: System) -> dict[str, Any]:
    return serializers.ChallengesSerializer({"challenges": public_challenges(system.pk)}).data
