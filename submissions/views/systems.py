"""What is done to a system on pages of its own: who it is said to be by, and what is doubted of it."""

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils import timezone
from django.utils.translation import gettext as _
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_POST

from leaderboard.core.audit import acting
from leaderboard.models import Challenge
from leaderboard.systems import challenges
from leaderboard.systems.anonymity import (
    ADVICE,
    EmbargoRefused,
    end_anonymity,
    latest_end,
    make_anonymous,
    may_be_anonymous,
)
from submissions.accounts import throttling
from submissions.accounts.permissions import editable_systems, may_challenge, signed_in
from submissions.intake.forms import AnonymityForm, ChallengeForm
from submissions.intake.system_form import seen_systems


@login_required
@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
def anonymity(request: HttpRequest, slug: str) -> HttpResponse:
    """Keep back whose the system is until a day, change the day, or end it."""
    system = get_object_or_404(editable_systems(request.user), slug=slug)
    posted = request.method == "POST"
    lifting = posted and request.POST.get("action") == "lift"
    form = AnonymityForm(request.POST if posted else None, system=system, label_suffix="")
    status = 200
    if posted and (wait := throttling.seconds_to_wait(throttling.ChangeThrottle(), request)):
        form.add_error(None, throttling.throttle_message(wait))
        status = 429
    elif lifting:
        with acting(signed_in(request)):
            end_anonymity(system)
        messages.success(request, _("Everyone sees whose it is now."))
        return redirect("system-anonymity", slug=slug)
    elif posted and form.is_valid():
        until = form.cleaned_data["anonymous_until"]
        try:
            with acting(signed_in(request)):
                make_anonymous(system, until)
            messages.success(request, _("Anonymous until {until:%-d %B %Y}.").format(until=until))
            return redirect("system-anonymity", slug=slug)
        except EmbargoRefused as error:
            form.add_error("anonymous_until", str(error))
    context = {
        "section": "submissions",
        "system": system,
        "form": form,
        "possible": may_be_anonymous(system),
        "latest": latest_end(system, timezone.now()),
        "advice": ADVICE,
    }
    if status == 200 and form.errors:
        status = 400
    return render(request, "submissions/anonymity.html", context, status=status)


@login_required
@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
def challenge(request: HttpRequest, slug: str) -> HttpResponse:
    """Doubt what a system says of itself, or take a doubt back."""
    system, person = get_object_or_404(seen_systems(), slug=slug), signed_in(request)
    posted = request.method == "POST"
    form = ChallengeForm(
        request.POST if posted else None, datasets=challenges.challengeable_datasets(system), label_suffix=""
    )
    status = 200
    if posted and form.is_valid():
        if wait := throttling.seconds_to_wait(throttling.ChallengeThrottle(), request):
            form.add_error(None, throttling.throttle_message(wait))
            status = 429
        else:
            try:
                challenges.raise_challenge(system, person, **form.cleaned_data)
                messages.success(
                    request, _("Your challenge stands on the system's page; a curator will settle it.")
                )
                return redirect(f"{system.get_absolute_url()}#challenges")
            except challenges.ChallengeRefused as error:
                form.add_error(None, str(error))
    if status == 200 and form.errors:
        status = 400
    mine = Challenge.objects.filter(system=system, raised_by=person, state=Challenge.State.OPEN)
    own = set(mine.values_list("pk", flat=True))
    context = {
        "section": "system",
        "system": system,
        "form": form,
        "may": may_challenge(person, system),
        "mine": [each for each in challenges.challenges_of(system.pk) if each.key in own],
        "shown_as": person.name,
    }
    return render(request, "submissions/challenge.html", context, status=status)


@login_required
@never_cache
@require_POST
def retract(request: HttpRequest, slug: str, key: int) -> HttpResponse:
    """Take one's own challenge back."""
    found = get_object_or_404(
        Challenge, system=get_object_or_404(seen_systems(), slug=slug), pk=key, raised_by=signed_in(request)
    )
    try:
        challenges.retract_challenge(found, signed_in(request))
        messages.success(request, _("Taken back. It stays on record as that."))
    except challenges.ChallengeRefused as error:
        messages.error(request, str(error))
    return redirect("system-challenge", slug=slug)
