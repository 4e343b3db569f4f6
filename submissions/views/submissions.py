"""Pages of submissions: the list, the status, and changes; and of systems: the form, anonymity, and challenges."""

from collections.abc import Callable
from functools import wraps
from typing import Any

from django.contrib import messages
from django.contrib.auth.models import AnonymousUser
from django.core.paginator import Paginator
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase, StreamingHttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils import timezone
from django.utils.text import slugify
from django.utils.translation import gettext as _
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from evaluation.engines import ENGINES
from evaluation.engines.base import AUTO
from leaderboard.boards.state import whole_number
from leaderboard.core.audit import acting
from leaderboard.core.http.downloads import as_attachment, send_unless_unchanged
from leaderboard.core.http.query_parameters import reads
from leaderboard.core.http.site_url import site_address
from leaderboard.core.storage.runs import gzipped_run
from leaderboard.core.text.numbers import parse_number
from leaderboard.models import Challenge, Run, System
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
from submissions.models import Submission
from submissions.status.description import (
    SubmissionStatus,
    describe,
    describe_with_standing,
    with_jobs,
    with_standings,
)

#: htmx stops polling at this status.
STOP_POLLING = 286
PER_PAGE = 50


@permissions.personal_page("GET", "HEAD")
@reads("page")
def submissions(request: HttpRequest) -> HttpResponse:
    """List the submissions of the person's teams, newest first."""
    page = Paginator(with_jobs(permissions.submissions_of(request.user)), PER_PAGE).get_page(
        whole_number(request.GET, "page", 1)
    )
    listed = with_standings(describe(row, complete=True, compare=False) for row in page)
    context = {"section": "submissions", "submissions": listed, "page": page}
    return render(request, "submissions/list.html", context)


@never_cache
@require_safe
def submission(request: HttpRequest, identifier: str) -> HttpResponse:
    """Show a submission's status to its team, and to others what boards show."""
    return render(request, "submissions/submission.html", _context(request, _find(request, identifier)))


@never_cache
@require_safe
def progress(request: HttpRequest, identifier: str) -> HttpResponse:
    """Show the part of the status page that changes; its status ends polling once all jobs ended."""
    context = _context(request, _find(request, identifier))
    described: SubmissionStatus = context["status"]
    # What ended cannot be cancelled any more.
    context["swap_actions"] = described.ended and described.complete
    status = STOP_POLLING if described.ended else 200
    return render(request, "submissions/_progress.html", context, status=status)


@require_safe
@takes_tokens
@reads("seed")
def run(request: HttpRequest, identifier: str, dataset: str) -> HttpResponseBase:
    """Send the run that was scored on the dataset, as gzip; 404 if it is missing or not for this visitor.

    Of a seed set `?seed=` says which one.
    """
    found = _find(request, identifier)
    wanted = (dataset, request.GET.get("seed", ""))
    jobs = permissions.downloadable_runs(request.user, found)
    job = next((job for job in jobs if (job.dataset.slug, job.seed) == wanted), None)
    if job is None:
        raise Http404("There is no such run, or it is not offered to you.")
    sha256 = Run.objects.values_list("sha256", flat=True).get(evaluations=permissions.evaluation_of(job))
    # What stands first names the dataset at upload, then the seed.
    seed = f"{slugify(job.seed) or job.pk}." if job.seed else ""
    name = f"{dataset}.{seed}{found.system.slug}.{found.pk}.run.gz"

    def send() -> HttpResponseBase:
        # Kept otherwise than it is sent, so by no proxy.
        return as_attachment(
            StreamingHttpResponse(gzipped_run(sha256), content_type="application/gzip"), name
        )

    return send_unless_unchanged(
        request, sha256, send, public=job in permissions.downloadable_runs(AnonymousUser(), found)
    )


@permissions.personal_page("POST")
def cancel(request: HttpRequest, identifier: str) -> HttpResponse:
    """Stop what has not ended."""
    found = _find(request, identifier, manage=True)
    if changes.cancel(found, permissions.signed_in(request)):
        messages.success(request, _("Cancelled. What is running stops within seconds."))
    else:
        messages.info(request, _("There was nothing left to cancel."))
    return redirect(found)


@permissions.personal_page("POST")
def withdraw(request: HttpRequest, identifier: str) -> HttpResponse:
    """Take the submission off the boards; the reason stays visible."""
    found = _find(request, identifier, manage=True)
    form = WithdrawalForm(request.POST)
    if not form.is_valid():
        context = _context(request, found, withdrawal_form=form)
        return render(request, "submissions/submission.html", context, status=400)
    changes.withdraw(found, form.cleaned_data["reason"], permissions.signed_in(request))
    messages.success(request, _("Withdrawn. A line with your reason stays where the results were."))
    return redirect(found)


def _changes(change: Callable[[HttpRequest, Submission], None]) -> Callable[..., HttpResponse]:
    """Return the view of a change that scripts might make over and over."""

    @wraps(change)
    def view(request: HttpRequest, identifier: str) -> HttpResponse:
        managed = _find(request, identifier, manage=True)
        if wait := throttling.seconds_to_wait(throttling.ChangeThrottle(), request):
            messages.warning(request, throttling.throttle_message(wait))
            return render(request, "submissions/submission.html", _context(request, managed), status=429)
        try:
            change(request, managed)
        except Refused as refusal:
            messages.error(request, f"{refusal.detail} {refusal.problems[0].hint}")
        return redirect(managed)

    return permissions.personal_page("POST")(view)


@_changes
def visibility(request: HttpRequest, managed: Submission) -> None:
    """Show the results to everyone, or keep them with the team."""
    public = request.POST.get("public") == "yes"
    changes.set_public(managed, public, permissions.signed_in(request))
    messages.success(request, _("Everyone sees it now.") if public else _("Only your team sees it now."))


@_changes
def reusable(request: HttpRequest, managed: Submission) -> None:
    """Let others build on the runs, or no longer."""
    allowed = request.POST.get("reusable") == "yes"
    changes.set_reusable(managed, allowed, permissions.signed_in(request))
    messages.success(
        request,
        _("Others may build on its runs now.") if allowed else _("Nobody else can build on its runs now."),
    )


@_changes
def retry(request: HttpRequest, managed: Submission) -> None:
    """Queue again what was lost through our fault."""
    queued = changes.retry(managed, permissions.signed_in(request))
    messages.info(request, _("Queued again.") if queued else _("There is nothing that could be tried again."))


@_changes
def priority(request: HttpRequest, managed: Submission) -> None:
    """Give the submission another place among its team's runs in the round."""
    wanted = request.POST.get("priority", "")
    changes.set_priority(managed, parse_number(wanted, 9) or 0, permissions.signed_in(request))
    messages.success(request, _("Its priority is {priority} now.").format(priority=managed.priority))


@permissions.personal_page("GET", "HEAD", "POST")
def edit_system(request: HttpRequest, slug: str) -> HttpResponse:
    """Change what one of the person's systems says of itself."""
    system = get_object_or_404(permissions.editable_systems(request.user), slug=slug)
    data = request.POST if request.method == "POST" else None
    form = SystemForm(data, system=system, initial=SystemForm.initial_of(system), label_suffix="")
    if data is not None and (wait := throttling.seconds_to_wait(throttling.ChangeThrottle(), request)):
        form.add_error(None, throttling.throttle_message(wait))
        status = 429
    elif data is not None and form.is_valid() and _save_description(request, system, form):
        messages.success(request, _("Saved. The boards show it from now on."))
        return redirect(system)
    else:
        status = 400 if form.errors else 200
    # Shown again, the form is made from what is there now: who saves it then was told of the change.
    context = {
        "section": "submissions",
        "system": system,
        "form": form,
        "rendered_from": records.history_version(system),
    }
    return render(request, "submissions/system.html", context, status=status)


def _save_description(request: HttpRequest, system: System, form: SystemForm) -> bool:
    """Save what a form says; what stands against it is put into the form."""
    seen = parse_number(request.POST.get("rendered_from", ""))
    if seen is None:
        form.add_error(None, "The form does not say what it was made from. Look it over and save it again.")
        return False
    try:
        with acting(permissions.signed_in(request), "described anew"):
            records.update_system(system, form.fields_of_system(), seen_version=seen)
    except records.NameTaken as error:
        form.add_error("name", f"{str(error)[0].upper()}{str(error)[1:]}.")
    except records.ConcurrentSystemChange as error:
        form.add_error(
            None,
            f"Not saved: {error}. What you typed is below. Look it over and save it again; it then replaces that.",
        )
    except records.ClaimsSettled:
        form.add_error(
            None, "Not saved: a challenge just settled what it says of its training. Open the page anew."
        )
    else:
        return True
    return False


@permissions.personal_page("GET", "HEAD", "POST")
def anonymity(request: HttpRequest, slug: str) -> HttpResponse:
    """Keep back whose the system is until a day, change the day, or end it."""
    system = get_object_or_404(permissions.editable_systems(request.user), slug=slug)
    posted = request.method == "POST"
    lifting = posted and request.POST.get("action") == "lift"
    form = AnonymityForm(request.POST if posted else None, system=system, label_suffix="")
    status = 200
    if posted and (wait := throttling.seconds_to_wait(throttling.ChangeThrottle(), request)):
        form.add_error(None, throttling.throttle_message(wait))
        status = 429
    elif lifting:
        with acting(permissions.signed_in(request)):
            embargo.end_anonymity(system)
        messages.success(request, _("Everyone sees whose it is now."))
        return redirect("system-anonymity", slug=slug)
    elif posted and form.is_valid():
        until = form.cleaned_data["anonymous_until"]
        try:
            with acting(permissions.signed_in(request)):
                embargo.make_anonymous(system, until)
            messages.success(request, _("Anonymous until {until:%-d %B %Y}.").format(until=until))
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
    if status == 200 and form.errors:
        status = 400
    return render(request, "submissions/anonymity.html", context, status=status)


@permissions.personal_page("GET", "HEAD", "POST")
def challenge(request: HttpRequest, slug: str) -> HttpResponse:
    """Doubt what a system says of itself, or take a doubt back."""
    system, person = get_object_or_404(seen_systems(), slug=slug), permissions.signed_in(request)
    posted = request.method == "POST"
    form = ChallengeForm(
        request.POST if posted else None, datasets=challenges.challengeable_datasets(system), label_suffix=""
    )
    status = 200
    if posted:
        _raised, status = throttling.save_within_limit(
            form,
            throttling.ChallengeThrottle(),
            request,
            lambda values: challenges.raise_challenge(system, person, **values),
            challenges.ChallengeRefused,
        )
        if not form.errors:
            messages.success(
                request, _("Your challenge stands on the system's page; a curator will settle it.")
            )
            return redirect(f"{system.get_absolute_url()}#challenges")
    mine = Challenge.objects.filter(system=system, raised_by=person, state=Challenge.State.OPEN)
    own = set(mine.values_list("pk", flat=True))
    context = {
        "section": "system",
        "system": system,
        "form": form,
        "may": not permissions.systems_of(person).filter(pk=system.pk).exists(),  # else they can correct it
        "mine": [each for each in challenges.public_challenges(system.pk) if each.key in own],
        "shown_as": person.name,
    }
    return render(request, "submissions/challenge.html", context, status=status)


@permissions.personal_page("POST")
def retract(request: HttpRequest, slug: str, key: int) -> HttpResponse:
    """Take one's own challenge back."""
    found = get_object_or_404(
        Challenge,
        system=get_object_or_404(seen_systems(), slug=slug),
        pk=key,
        raised_by=permissions.signed_in(request),
    )
    try:
        challenges.retract_challenge(found, permissions.signed_in(request))
        messages.success(request, _("Taken back. It stays on record as that."))
    except challenges.ChallengeRefused as error:
        messages.error(request, str(error))
    return redirect("system-challenge", slug=slug)


def _find(request: HttpRequest, identifier: str, *, manage: bool = False) -> Submission:
    submissions = with_jobs(Submission.objects.all())
    return permissions.visible_submission(request.user, submissions, identifier, manage=manage)


def _context(request: HttpRequest, found: Submission, **values: Any) -> dict[str, Any]:
    status = describe_with_standing(found, complete=permissions.may_manage(request.user, found))
    model, remarks = found.checkpoint, []
    own_prompts = found.parameters.get("query_prompt") == AUTO  # no parameter and no dataset has others
    if status.complete and model is not None and own_prompts and "kind" in model.description:
        remarks = remarks_on_prompts(model.description, model.file_name)
    return {
        "section": "submissions" if status.complete else "",
        "status": status,
        "submission": found,
        "runs": {job.pk for job in permissions.downloadable_runs(request.user, found)},
        "withdrawal_form": WithdrawalForm(),
        "may_reorder": may_reorder(found),
        "may_retry": status.complete and bool(changes.retriable_jobs(found)),
        "site_address": site_address(request),
        "engine_label": ENGINES[found.engine].label if found.engine in ENGINES else found.engine,
        "credits": source_runs(found, complete=status.complete) if found.engine else [],
        "prompt_remarks": remarks,
        **values,
    }
