"""Where one is signed in, and signing out elsewhere."""

from __future__ import annotations

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_POST, require_safe

from leaderboard.core.text.numbers import parse_number
from submissions.accounts.permissions import signed_in
from submissions.accounts.sessions import end_session, end_sessions, sessions_of


@login_required
@never_cache
@require_safe
def sessions(request: HttpRequest) -> HttpResponse:
    """Every session of the signed-in person: device, place, when it was last used."""
    found = sessions_of(signed_in(request), request.session.session_key)
    return render(request, "account/sessions.html", {"sessions": found})


@login_required
@require_POST
def end(request: HttpRequest) -> HttpResponse:
    """Sign out one other session by its number, or all others."""
    person = signed_in(request)
    asked = request.POST.get("session", "")
    if asked == "others":
        ended = end_sessions(person, keep=request.session.session_key)
        messages.success(request, f"Signed out elsewhere: {ended} session{'s' * (ended != 1)}.")
    elif (number := parse_number(asked)) is not None and end_session(person, number):
        messages.success(request, "That session is signed out.")
    else:
        messages.info(request, "There was no such session; it may have ended already.")
    return redirect("account-sessions")
