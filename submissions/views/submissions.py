"""Views of submissions (list, status, changes) and of systems (description, anonymity, challenges)."""

from collections.abc import Callable
from functools import wraps
from typing import Any

from django.contrib import messages
from django.contrib.auth.models import AnonymousUser
from django.core.paginator import Paginator
from django.db.models import Count, Min, Q, Window
from django.db.models.functions import Lower
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase, StreamingHttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils import timezone
from django.utils.text import slugify
from django.utils.translation import gettext as _
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from evaluation.engines import AUTO, ENGINES
from leaderboard.boards.state import choice, whole_number
from leaderboard.core.audit import acting
from leaderboard.core.http.downloads import as_attachment, send_unless_unchanged
from leaderboard.core.http.query_parameters import reads
from leaderboard.core.http.site_url import site_address
from leaderboard.core.storage.runs import gzipped_run
from leaderboard.core.text.dates import format_day
from leaderboard.core.text.numbers import parse_number
from leaderboard.models import Challenge, Dataset, Evaluation, System
from leaderboard.systems import anonymity as embargo
from leaderboard.systems import challenges, records
from submissions.accounts import permissions, throttling
from submissions.accounts.authentication import takes_tokens
from submissions.checkpoints.service import remarks_on_prompts
from submissions.core.errors import Refused
from submissions.intake.checkpoints.runs import source_runs
from submissions.intake.forms import AnonymityForm, ChallengeForm, WithdrawalForm
from submissions.intake.rounds import may_reorder
from submissions.intake.system_form import SystemForm, seen_systems
from submissions.jobs import changes
from submissions.models import TERMINAL, Job, State, Submission
from submissions.status.description import SubmissionStatus, describe, describe_with_standing, with_jobs, with_standings

#: Status at which htmx stops polling.
STOP_POLLING = 286
PER_PAGE = 50
#: Job states by value of the `state` parameter.
FILTERS = {"waiting": set(State) - TERMINAL, "done": {State.DONE}, "unscored": TERMINAL - {State.DONE}}
#: First key of the list's order by value of the `sort` parameter. The newest submissions come first otherwise.
ORDERS: Any = {"": "-created_at", "oldest": "created_at", "system": Lower("system__name"), "dataset": "first_dataset"}


@permissions.personal_page("GET", "HEAD")
@reads("page", "state", "dataset", "sort", "q", "system")
def submissions(request: HttpRequest) -> HttpResponse:
    """Show a page of the submissions of the user's teams, filtered by system, and by a job's state and dataset."""
    rows, state = permissions.get_submissions(request.user), choice(request.GET, "state", FILTERS)
    jobs = Job.objects.filter(submission__in=rows).exclude(kind=Job.Kind.SHARD)
    datasets = {row.slug: row for row in Dataset.objects.filter(pk__in=jobs.values("dataset")).order_by("name")}
    dataset = datasets.get(choice(request.GET, "dataset", datasets))
    jobs = jobs.filter(dataset=dataset) if dataset else jobs
    by_state = {name: Q(pk__in=jobs.filter(state__in=FILTERS[name]).values("submission")) for name in FILTERS}
    rows = rows.filter(system__name__icontains=words) if (words := request.GET.get("q", "").strip()) else rows
    rows = rows.filter(system__slug=slug) if (slug := request.GET.get("system", "")) else rows
    rows = rows.filter(pk__in=jobs.values("submission")) if dataset else rows
    counts = rows.aggregate(all=Count("pk"), **{name: Count("pk", filter=by_state[name]) for name in FILTERS})
    rows, order = rows.filter(by_state.get(state, Q())), choice(request.GET, "sort", ORDERS)
    rows = rows.alias(first_dataset=Min(Lower("jobs__dataset__name"))) if order == "dataset" else rows
    rows = rows.annotate(system_submission_count=Window(Count("pk"), partition_by="system"))
    paginator = Paginator(with_jobs(rows.order_by(ORDERS[order], "-created_at")), PER_PAGE)
    paginator.count = counts[state or "all"]
    page = paginator.get_page(whole_number(request.GET, "page", 1))
    statuses = with_standings(describe(row, complete=True, compare=False) for row in page)
    context = {"section": "submissions", "submissions": statuses, "page": page, "state": state, "dataset": dataset}
    return render(request, "submissions/list.html", {**context, "datasets": list(datasets.values()), "counts": counts})


@never_cache
@require_safe
def submission(request: HttpRequest, identifier: str) -> HttpResponse:
    """Show a submission's status. Visitors outside its team see only public facts."""
    return render(request, "submissions/submission.html", _page_context(request, _find_submission(request, identifier)))


@never_cache
@require_safe
def progress(request: HttpRequest, identifier: str) -> HttpResponse:
    """Show the part of the status page that changes.

    The response has status 286, which ends polling, once all jobs have ended.
    """
    context = _page_context(request, _find_submission(request, identifier))
    status: SubmissionStatus = context["status"]
    # Ended submissions cannot be canceled, so replace the buttons.
    context["swap_actions"] = status.ended and status.complete
    return render(request, "submissions/_progress.html", context, status=STOP_POLLING if status.ended else 200)


@require_safe
@takes_tokens
@reads("seed")
def run(request: HttpRequest, identifier: str, dataset: str) -> HttpResponseBase:
    """Send a scored run as gzip; `?seed=` selects a run of a seed set.

    Raises Http404 if the run does not exist or the visitor has no access.
    """
    submission = _find_submission(request, identifier)
    jobs = permissions.downloadable_runs(request.user, submission)
    job = next((job for job in jobs if (job.dataset.slug, job.seed) == (dataset, request.GET.get("seed", ""))), None)
    if job is None:
        raise Http404("This run does not exist, or you have no access to it.")
    evaluations = Evaluation.objects.select_related("run").only("measures", "run__sha256")
    evaluation = get_object_or_404(evaluations, pk=permissions.get_evaluation_key(job))
    sha256, ending = evaluation.run.sha256, "jsonl" if evaluation.is_answer_run else "run"
    # On upload, the first part of the name identifies the dataset and the second the seed.
    slug, slugs = slugify(job.seed), [slugify(each.seed) for each in jobs if each.dataset_id == job.dataset_id]
    seed = f"{slug if slug and slugs.count(slug) == 1 else f'{slug}-{job.pk}'.lstrip('-')}." if job.seed else ""
    name = f"{dataset}.{seed}{submission.system.slug}.{submission.pk}.{ending}.gz"

    def send() -> HttpResponseBase:
        # The run is stored in another form, so a proxy cannot send the file.
        return as_attachment(StreamingHttpResponse(gzipped_run(sha256), content_type="application/gzip"), name)

    is_public = job in permissions.downloadable_runs(AnonymousUser(), submission)
    return send_unless_unchanged(request, sha256, send, public=is_public)


@permissions.personal_page("POST")
def cancel(request: HttpRequest, identifier: str) -> HttpResponse:
    """Cancel the unfinished jobs of a submission."""
    submission = _find_submission(request, identifier, manage=True)
    if changes.cancel(submission, permissions.require_user(request)):
        is_running = submission.jobs.exclude(state__in=TERMINAL).exists()
        messages.success(request, _("Canceled. Running jobs stop within seconds.") if is_running else _("Canceled."))
    else:
        messages.info(request, _("All jobs have already ended."))
    return redirect(submission)


@permissions.personal_page("POST")
def withdraw(request: HttpRequest, identifier: str) -> HttpResponse:
    """Withdraw the submission. The reason remains visible."""
    submission = _find_submission(request, identifier, manage=True)
    form = WithdrawalForm(request.POST)
    if not form.is_valid():
        context = _page_context(request, submission, withdrawal_form=form)
        return render(request, "submissions/submission.html", context, status=400)
    changes.withdraw(submission, form.cleaned_data["reason"], permissions.require_user(request))
    messages.success(request, _("Withdrawn. Boards show your reason in place of the results."))
    return redirect(submission)


def _change_view(change: Callable[[HttpRequest, Submission], None]) -> Callable[..., HttpResponse]:
    """Return a rate-limited POST view that applies `change` to a submission and redirects to its page.

    Only users who may manage the submission can use it. The page shows a message if the change is refused.
    """

    @wraps(change)
    def view(request: HttpRequest, identifier: str) -> HttpResponse:
        """Apply the change, unless the user makes too many, and redirect to the submission's page."""
        submission = _find_submission(request, identifier, manage=True)
        if wait := throttling.seconds_to_wait(throttling.ChangeThrottle(), request):
            messages.warning(request, throttling.throttle_message(wait))
            return render(request, "submissions/submission.html", _page_context(request, submission), status=429)
        try:
            change(request, submission)
        except Refused as refusal:
            messages.error(request, f"{refusal.detail} {refusal.problems[0].hint}")
        return redirect(submission)

    return permissions.personal_page("POST")(view)


@_change_view
def visibility(request: HttpRequest, submission: Submission) -> None:
    """Make the results public or private."""
    is_public = request.POST.get("public") == "yes"
    changes.set_public(submission, is_public, permissions.require_user(request))
    messages.success(request, _("The submission is now public.") if is_public else _("The submission is now private."))


@_change_view
def reusable(request: HttpRequest, submission: Submission) -> None:
    """Allow or forbid others to re-rank and fuse the runs."""
    is_reusable = request.POST.get("reusable") == "yes"
    changes.set_reusable(submission, is_reusable, permissions.require_user(request))
    message = _("Others may now reuse these runs.") if is_reusable else _("Others can no longer reuse these runs.")
    messages.success(request, message)


@_change_view
def retry(request: HttpRequest, submission: Submission) -> None:
    """Queue the jobs again that failed on our side."""
    queued = changes.retry(submission, permissions.require_user(request))
    messages.info(request, _("Queued again.") if queued else _("No jobs can be retried."))


@_change_view
def priority(request: HttpRequest, submission: Submission) -> None:
    """Change the submission's priority among its team's runs in the round."""
    priority_text = request.POST.get("priority", "")
    changes.set_priority(submission, parse_number(priority_text, 9) or 0, permissions.require_user(request))
    messages.success(request, _("The priority is now {priority}.").format(priority=submission.priority))


@permissions.personal_page("GET", "HEAD", "POST")
def edit_system(request: HttpRequest, slug: str) -> HttpResponse:
    """Show or process the form that edits the description of a system. Users without the right to edit it get 404."""
    system = get_object_or_404(permissions.editable_systems(request.user), slug=slug)
    data = request.POST if request.method == "POST" else None
    form = SystemForm(data, system=system, initial=SystemForm.get_initial_values(system), label_suffix="")
    wait = throttling.seconds_to_wait(throttling.ChangeThrottle(), request) if data is not None else 0
    if wait:
        form.add_error(None, throttling.throttle_message(wait))
    elif data is not None and form.is_valid() and _save_description(request, system, form):
        messages.success(request, _("Saved. Boards now show the changes."))
        return redirect(system)
    # A form shown after a conflict is based on the current version, because the user was informed of the change.
    context = {"section": "submissions", "system": system, "form": form}
    context["rendered_from"] = records.history_version(system)
    return render(request, "submissions/system.html", context, status=429 if wait else 400 if form.errors else 200)


def _save_description(request: HttpRequest, system: System, form: SystemForm) -> bool:
    """Save the description and return True, or add an error to the form and return False.

    It is not saved if the form is based on an outdated version, the name is taken, or a challenge settled changed
    fields.
    """
    seen_version = parse_number(request.POST.get("rendered_from", ""))
    if seen_version is None:
        form.add_error(None, "The form does not state its version of the description. Check the values and save again.")
        return False
    try:
        with acting(permissions.require_user(request), "description changed"):
            records.update_system(system, form.build_system_fields(), seen_version=seen_version)
    except records.NameTaken as error:
        form.add_error("name", f"{str(error)[0].upper()}{str(error)[1:]}.")
    except records.ConcurrentSystemChange as error:
        form.add_error(
            None, f"Not saved: {error}. Your input is below. Check it and save again to replace the other version."
        )
    except records.ClaimsSettled:
        form.add_error(None, "Not saved: a challenge has just settled the training data. Reload the page.")
    else:
        return True
    return False


@permissions.personal_page("GET", "HEAD", "POST")
def anonymity(request: HttpRequest, slug: str) -> HttpResponse:
    """Show or process the form that makes a system anonymous until a date, changes the date, or ends the anonymity."""
    system = get_object_or_404(permissions.editable_systems(request.user), slug=slug)
    is_post = request.method == "POST"
    form = AnonymityForm(request.POST if is_post else None, system=system, label_suffix="")
    wait = throttling.seconds_to_wait(throttling.ChangeThrottle(), request) if is_post else 0
    if wait:
        form.add_error(None, throttling.throttle_message(wait))
    elif request.POST.get("action") == "lift":
        with acting(permissions.require_user(request)):
            embargo.end_anonymity(system)
        messages.success(request, _("The system is no longer anonymous."))
        return redirect("system-anonymity", slug=slug)
    elif is_post and form.is_valid():
        end_date = form.cleaned_data["anonymous_until"]
        try:
            with acting(permissions.require_user(request)):
                embargo.make_anonymous(system, end_date)
            messages.success(request, _("Anonymous until {until}.").format(until=format_day(end_date)))
            return redirect("system-anonymity", slug=slug)
        except embargo.EmbargoRefused as error:
            form.add_error("anonymous_until", str(error))
    context = {
        "section": "submissions",
        "system": system,
        "form": form,
        "possible": embargo.may_be_anonymous(system),
        "latest": embargo.latest_end(system, timezone.now()),
        "advice": embargo.ADVICE,
    }
    status = 429 if wait else 400 if form.errors else 200
    return render(request, "submissions/anonymity.html", context, status=status)


@permissions.personal_page("GET", "HEAD", "POST")
def challenge(request: HttpRequest, slug: str) -> HttpResponse:
    """Show or process the form that challenges a claim of a system."""
    system, person = get_object_or_404(seen_systems(), slug=slug), permissions.require_user(request)
    data = request.POST if request.method == "POST" else None
    form = ChallengeForm(data, datasets=challenges.challengeable_datasets(system), label_suffix="")
    status = 200
    if data is not None:
        _challenge, status = throttling.save_within_limit(
            form,
            throttling.ChallengeThrottle(),
            request,
            lambda values: challenges.raise_challenge(system, person, **values),
            challenges.ChallengeRefused,
        )
        if not form.errors:
            messages.success(request, _("Your challenge is on the system's page. A curator will decide it."))
            return redirect(f"{system.get_absolute_url()}#challenges")
    open_challenges = Challenge.objects.filter(system=system, raised_by=person, state=Challenge.State.OPEN)
    open_ids = set(open_challenges.values_list("pk", flat=True))
    context = {
        "section": "leaderboards",
        "system": system,
        "form": form,
        "may": not permissions.get_systems(person).filter(pk=system.pk).exists(),  # members correct the system instead
        "mine": [challenge for challenge in challenges.public_challenges(system.pk) if challenge.key in open_ids],
        "shown_as": person.name,
    }
    return render(request, "submissions/challenge.html", context, status=status)


@permissions.personal_page("POST")
def retract(request: HttpRequest, slug: str, key: int) -> HttpResponse:
    """Retract one of the user's own challenges, or show why this is refused."""
    system, person = get_object_or_404(seen_systems(), slug=slug), permissions.require_user(request)
    challenge = get_object_or_404(Challenge, system=system, pk=key, raised_by=person)
    try:
        challenges.retract_challenge(challenge, person)
        messages.success(request, _("Your challenge was retracted and remains on record as retracted."))
    except challenges.ChallengeRefused as error:
        messages.error(request, str(error))
    return redirect("system-challenge", slug=slug)


def _find_submission(request: HttpRequest, identifier: str, *, manage: bool = False) -> Submission:
    """Return the submission if the visitor may see it. Raises the exceptions of `visible_submission`."""
    return permissions.visible_submission(request.user, with_jobs(Submission.objects.all()), identifier, manage=manage)


def _page_context(request: HttpRequest, submission: Submission, **values: Any) -> dict[str, Any]:
    """Return the template context of a submission's page.

    `values` override context values, such as a form with errors. The context contains private facts only for users
    who may manage the submission.
    """
    status = describe_with_standing(submission, complete=permissions.may_manage(request.user, submission))
    engine = ENGINES.get(submission.engine)
    defaults = engine.complete({}) if engine else {}
    model, remarks = submission.checkpoint, []
    # Neither parameters nor datasets override the prompts.
    has_default_prompts = submission.parameters.get("query_prompt") == AUTO
    if status.complete and model is not None and has_default_prompts and "kind" in model.description:
        remarks = remarks_on_prompts(model.description, model.file_name)
    return {
        "section": "submissions" if status.complete else "",
        "status": status,
        "submission": submission,
        "runs": {job.pk for job in permissions.downloadable_runs(request.user, submission)},
        "withdrawal_form": WithdrawalForm(),
        "may_reorder": may_reorder(submission),
        "may_retry": status.complete and bool(changes.retriable_jobs(submission)),
        "site_address": site_address(request),
        "engine_label": engine.label if engine else submission.engine,
        "changed_parameters": {
            name: value for name, value in submission.parameters.items() if value != defaults.get(name)
        },
        "credits": source_runs(submission, complete=status.complete) if submission.engine else [],
        "prompt_remarks": remarks,
        **values,
    }
