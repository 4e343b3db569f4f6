"""What is done to a system on pages of its own: who it is said to be by, and what is doubted of it."""

from __future__ import annotations

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods

from leaderboard.anonymity import ADVICE, EmbargoRefused, latest_end, lift, make_anonymous, may_be_anonymous
from submissions.forms import AnonymityForm
from submissions.permissions import editable_systems
from submissions.throttling import ChangeThrottle, seconds_to_wait, slow_down


@login_required
@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
def anonymity(request: HttpRequest, slug: str) -> HttpResponse:
    """Keep back whose the system is until a day, change the day, or end it."""
    system = get_object_or_404(editable_systems(request.user), slug=slug)
    posted = request.method == "POST"
    form = AnonymityForm(request.POST if posted else None, system=system, label_suffix="")
    status = 200
    if posted and (wait := seconds_to_wait(ChangeThrottle(), request)):
        form.add_error(None, slow_down(wait))
        status = 429
    elif posted and form.is_valid():
        until = form.cleaned_data["anonymous_until"]
        try:
            if until is None:
                lift(system)
                messages.success(request, "Everyone sees whose it is now.")
            else:
                make_anonymous(system, until)
                messages.success(request, f"Anonymous until {until:%-d %B %Y}.")
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
