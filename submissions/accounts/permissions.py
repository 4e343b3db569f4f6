"""Who may see and do what with a submission. Views and API ask here and nowhere else."""

from collections.abc import Callable

from django.contrib.auth.decorators import login_required
from django.contrib.auth.models import AnonymousUser
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods
from rest_framework.request import Request

from leaderboard.core.permissions import has_right, sees
from leaderboard.models import Entry, System, Team, User, Visibility
from submissions.models import Checkpoint, Job, Submission

Person = User | AnonymousUser
View = Callable[..., HttpResponse]


def personal_page(*methods: str) -> Callable[[View], View]:
    """A decorator: the page answers these methods, to people who are signed in, and no browser or proxy keeps it."""
    return lambda view: login_required(never_cache(require_http_methods(methods)(view)))


def signed_in(request: HttpRequest | Request) -> User:
    """Who asks. Raises PermissionDenied for nobody in particular."""
    if not isinstance(request.user, User):
        raise PermissionDenied
    return request.user


def teams_of(person: Person) -> QuerySet[Team]:
    """Return the teams the person belongs to, their first one first."""
    if not isinstance(person, User):
        return Team.objects.none()
    return Team.objects.filter(memberships__user=person).order_by("memberships__pk")


def systems_of(person: Person) -> QuerySet[System]:
    """Return the systems that the person may submit results for."""
    return System.objects.filter(team__in=teams_of(person))


def editable_systems(person: Person) -> QuerySet[System]:
    """Return the systems whose description the person may change: their teams', and for curators everybody's."""
    if has_right(person, "leaderboard.change_system"):
        return System.objects.exclude(team=None)
    return systems_of(person)


def submissions_of(person: Person) -> QuerySet[Submission]:
    """Return the submissions of the person's present teams, and none of teams that they have left."""
    return Submission.objects.filter(team__in=teams_of(person))


def checkpoints_of(person: Person) -> QuerySet[Checkpoint]:
    """Return the models that the person's teams have sent, newest first."""
    return Checkpoint.objects.filter(team__in=teams_of(person))


def may_manage(person: Person, submission: Submission) -> bool:
    """Return whether the person may see everything of the submission, cancel, withdraw and show or hide it."""
    if not isinstance(person, User):
        return False
    # Who may take any team's results off the boards sees and manages its submissions.
    moderates = has_right(person, "leaderboard.moderate_entry")
    return moderates or submissions_of(person).filter(pk=submission.pk).exists()


def may_go_unprotected(person: Person, *, local: bool) -> bool:
    """Whether the person's models may run without a sandbox: who has the machine itself, at the machine itself."""
    return local and isinstance(person, User) and person.curates


def may_see_facts(submission: Submission) -> bool:
    """Return whether anyone may see the public facts of the submission: those that a board, or a tombstone, shows."""
    if not submission.public:
        return False
    shown = [Entry.Visibility.PUBLIC, Entry.Visibility.WITHDRAWN, Entry.Visibility.SUPERSEDED]
    return Entry.objects.filter(submission_reference=submission.pk, visibility__in=shown).exists()


def visible_submission(
    person: Person, submissions: QuerySet[Submission], identifier: str, *, manage: bool = False
) -> Submission:
    """Return a submission that exists for the person. Raises Http404.

    With `manage`, one that they may change. Raises PermissionDenied.
    """
    submission = submissions.filter(pk=identifier).first()
    manages = submission is not None and may_manage(person, submission)
    if submission is None or not (manages or may_see_facts(submission)):
        raise Http404("There is no such submission, or it is private.")
    if manage and not manages:
        raise PermissionDenied("Only its team may change this submission.")
    return submission


def downloadable_runs(person: Person, submission: Submission, *, own: bool | None = None) -> list[Job]:
    """Return the submission's scored jobs whose run the person may download.

    Its team has its own, but what a model retrieved here only over open judgements and public queries: a model may
    write into its run what it saw. Others, curators among them, have none over hidden judgements, which many runs
    with their scores would give away, and of the rest those of public results, where the dataset's setting names them.
    `own` is whether it is known to be the person's or their teams'; None asks.
    """
    scored = [
        job for job in submission.jobs.all() if evaluation_of(job) is not None and not run_stays_private(job)
    ]
    if own is None:
        own = bool(scored) and submissions_of(person).filter(pk=submission.pk).exists()
    if own:
        return scored
    return [
        job
        for job in scored
        if job.entry is not None
        and job.entry.visibility == Entry.Visibility.PUBLIC
        and not job.dataset.hidden
        and submission.system.anonymous_until is None  # its tag may say whose it is
        and sees(person, job.dataset, job.dataset.runs_visibility)
    ]


def evaluation_of(job: Job) -> int | None:
    """Return the key of the evaluation that the job made: of its own entry, or of its seed, published or not."""
    return job.evaluation_id or (job.entry.evaluation_id if job.entry is not None else None)


def run_stays_private(job: Job) -> bool:
    """Whether the run stays here: a model made it beside hidden judgements, or from queries that not all may see."""
    open_to_all = not job.dataset.hidden and job.dataset.queries_visibility == Visibility.PUBLIC
    return job.kind == Job.Kind.MODEL and not open_to_all


def is_owner(person: Person, team: Team) -> bool:
    """Return whether the person decides for the team: who is in it, in which role, and how it is called."""
    if not isinstance(person, User):
        return False
    return team.memberships.filter(user=person, owner=True).exists()


def owned_team(person: Person, slug: str) -> Team:
    """Return a team that the person owns. Raises Http404 for everybody else."""
    team = Team.objects.filter(Team.has_address(slug)).first()
    if team is None or not is_owner(person, team):
        raise Http404("There is no such team, or you are not an owner of it.")
    return team
