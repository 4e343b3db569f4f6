"""Permissions on submissions, used by views and the API."""

from collections.abc import Callable

from django.contrib.auth.decorators import login_required
from django.contrib.auth.models import AnonymousUser
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods
from rest_framework.request import Request

from leaderboard.core.permissions import has_right, may_see
from leaderboard.models import Entry, System, Team, User
from submissions.models import Checkpoint, Job, Submission

Person = User | AnonymousUser
View = Callable[..., HttpResponse]


def personal_page(*methods: str) -> Callable[[View], View]:
    """Return a decorator for views that require sign-in, allow only these methods, and are never cached."""
    return lambda view: login_required(never_cache(require_http_methods(methods)(view)))


def require_user(request: HttpRequest | Request) -> User:
    """Return the signed-in user. Raises PermissionDenied for anonymous users."""
    if not isinstance(request.user, User):
        raise PermissionDenied
    return request.user


def get_teams(person: Person) -> QuerySet[Team]:
    """Return the user's teams, in the order in which they joined."""
    if not isinstance(person, User):
        return Team.objects.none()
    return Team.objects.filter(memberships__user=person).order_by("memberships__pk")


def get_systems(person: Person) -> QuerySet[System]:
    return System.objects.filter(team__in=get_teams(person))


def editable_systems(person: Person) -> QuerySet[System]:
    """Return the systems that the user may edit: systems of their teams, or all systems for curators."""
    if has_right(person, "leaderboard.change_system"):
        return System.objects.exclude(team=None)
    return get_systems(person)


def get_submissions(person: Person) -> QuerySet[Submission]:
    return Submission.objects.filter(team__in=get_teams(person))


def get_checkpoints(person: Person) -> QuerySet[Checkpoint]:
    return Checkpoint.objects.filter(team__in=get_teams(person))


def may_manage(person: Person, submission: Submission) -> bool:
    """Return whether the user may see all details of the submission and cancel, withdraw, publish, or hide it."""
    # Moderators of entries can see and manage all submissions.
    is_moderator = has_right(person, "leaderboard.moderate_entry")
    return is_moderator or get_submissions(person).filter(pk=submission.pk).exists()


def may_go_unprotected(person: Person, *, local: bool) -> bool:
    """Return whether the user's models may run without a sandbox: only for curators on the machine itself."""
    return local and isinstance(person, User) and person.curates


def may_see_facts(submission: Submission) -> bool:
    """Return whether everyone may see the submission's public facts, because it is on a board or has a tombstone."""
    if not submission.public:
        return False
    visibilities = [Entry.Visibility.PUBLIC, Entry.Visibility.WITHDRAWN, Entry.Visibility.SUPERSEDED]
    return Entry.objects.filter(submission_reference=submission.pk, visibility__in=visibilities).exists()


def visible_submission(
    person: Person, submissions: QuerySet[Submission], identifier: str, *, manage: bool = False
) -> Submission:
    """Return the submission with this id, if the user may see it. Raises Http404 otherwise.

    If `manage` is true, raises PermissionDenied if the user may see the submission but not change it.
    """
    submission = submissions.filter(pk=identifier).first()
    is_manager = submission is not None and may_manage(person, submission)
    if submission is None or not (is_manager or may_see_facts(submission)):
        raise Http404("This submission does not exist or is private.")
    if manage and not is_manager:
        raise PermissionDenied("Only members of its team can change this submission.")
    return submission


def downloadable_runs(person: Person, submission: Submission, *, is_own: bool | None = None) -> list[Job]:
    """Return the submission's scored jobs whose runs the user may download.

    Teams may download their own runs. Exceptions are runs of models over hidden judgments or restricted texts,
    because a model could copy hidden data into its run. All other users, curators included, may download runs of public
    results if the dataset's settings allow it, but none over hidden judgments: many runs with scores would reveal the
    judgments.

    `is_own` states whether the submission belongs to the user or their teams; None looks it up.
    """
    scored_jobs = [
        job for job in submission.jobs.all() if get_evaluation_key(job) is not None and not run_stays_private(job)
    ]
    if is_own is None:
        is_own = bool(scored_jobs) and get_submissions(person).filter(pk=submission.pk).exists()
    if is_own:
        return scored_jobs
    return [
        job
        for job in scored_jobs
        if job.entry is not None
        and job.entry.visibility == Entry.Visibility.PUBLIC
        and not job.dataset.hidden
        and submission.system.anonymous_until is None  # the run tag may identify the team
        and may_see(person, job.dataset, job.dataset.runs_visibility)
    ]


def get_evaluation_key(job: Job) -> int | None:
    """Return the primary key of the evaluation of the job's seed or, for other jobs, of its entry."""
    return job.evaluation_id or (job.entry.evaluation_id if job.entry is not None else None)


def run_stays_private(job: Job) -> bool:
    """Return whether a model made the run with access to restricted texts, or over hidden judgments."""
    is_open = not job.dataset.hidden and job.dataset.has_public_texts
    return job.kind == Job.Kind.MODEL and not is_open


def is_owner(person: Person, team: Team) -> bool:
    return isinstance(person, User) and team.memberships.filter(user=person, owner=True).exists()


def owned_team(person: Person, slug: str) -> Team:
    """Return a team that the user owns. Raises Http404 otherwise."""
    team = Team.objects.filter(Team.has_address(slug)).first()
    if team is None or not is_owner(person, team):
        raise Http404("This team does not exist, or you are not one of its owners.")
    return team
