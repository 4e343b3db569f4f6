"""The account page (name, team, API tokens) and the page of sessions."""

from __future__ import annotations

from typing import Any

from allauth.account.decorators import reauthentication_required
from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils import timezone

from leaderboard.core.http.site_url import absolute
from leaderboard.core.text.numbers import parse_number
from leaderboard.models import User
from submissions.accounts.forms import ProfileForm, TeamForm, TokenForm
from submissions.accounts.membership import create_team, memberships_of
from submissions.accounts.permissions import is_owner, personal_page, signed_in
from submissions.accounts.sessions import end_session, end_sessions, sessions_of
from submissions.accounts.teams import personal_team, set_profile
from submissions.accounts.throttling import ChangeThrottle, TokenThrottle, limit
from submissions.accounts.tokens import LIFETIME, LIMIT, make_token, revoke_token
from submissions.core.errors import ChangeRefused
from submissions.models import ApiToken

#: Where a session keeps what token is wanted.
_WANTED = "wanted_token"


@personal_page("GET", "HEAD")
def account(request: HttpRequest) -> HttpResponse:
    """The signed-in person's own page."""
    return _page(request)


@personal_page("POST")
def save_profile(request: HttpRequest) -> HttpResponse:
    """Change the person's name and, for its owner, the team's."""
    form = _profile_form(signed_in(request), request.POST)
    if not form.is_valid():
        return _page(request, status=400, profile_form=form)
    try:
        limit(ChangeThrottle(), request)
    except ChangeRefused as error:
        form.add_error(None, str(error))
        return _page(request, status=error.status, profile_form=form)
    set_profile(signed_in(request), form.cleaned_data["name"], form.cleaned_data["team"])
    messages.success(request, "Saved.")
    return redirect("account")


@personal_page("GET", "HEAD", "POST")
def create_token(request: HttpRequest) -> HttpResponse:
    """Note what token is wanted, then make it and show it, this once: to who has just shown who they are.

    What was sent waits in the session while that is asked, and is gone when the token is made: the page that shows it
    has an address of its own, where reloading makes no other.
    """
    if request.method == "POST":
        form = TokenForm(request.POST)
        if not form.is_valid():
            return _page(request, status=400, token_form=form)
        request.session[_WANTED] = form.cleaned_data
        return redirect("account-token-create")
    if _WANTED not in request.session or request.method == "HEAD":
        return redirect(reverse("account") + "#tokens")
    return _show_new_token(request)


@reauthentication_required
def _show_new_token(request: HttpRequest) -> HttpResponse:
    form = TokenForm(request.session.pop(_WANTED))
    form.full_clean()
    wanted = form.cleaned_data
    try:
        limit(TokenThrottle(), request)
        text = make_token(signed_in(request), wanted["name"], scopes=wanted["scopes"], days=wanted["days"])
    except ChangeRefused as error:
        form.add_error(None, str(error))
        return _page(request, status=error.status, token_form=form)
    return _page(request, new_token=text, new_token_name=wanted["name"])


@personal_page("POST")
def delete_token(request: HttpRequest) -> HttpResponse:
    """End one of the person's tokens."""
    if revoke_token(signed_in(request), request.POST.get("digest", "").replace("\0", "")):
        messages.success(request, "The token is revoked. Scripts that use it are refused from now on.")
    else:
        messages.info(request, "There was no such token; it may have been revoked already.")
    return redirect("account")


def _profile_form(person: User, data: Any = None) -> ProfileForm:
    team = personal_team(person)
    form = ProfileForm(data, initial={"name": person.name, "team": team.name})
    form.fields["team"].disabled = not is_owner(person, team)
    return form


@personal_page("POST")
def new_team(request: HttpRequest) -> HttpResponse:
    """Make a team that the person owns."""
    form = TeamForm(request.POST)
    if not form.is_valid():
        return _page(request, status=400, team_form=form)
    try:
        limit(ChangeThrottle(), request)
        team = create_team(form.cleaned_data["name"], signed_in(request))
    except ChangeRefused as error:
        form.add_error(None, str(error))
        return _page(request, status=error.status, team_form=form)
    messages.success(request, f"The team “{team.name}” is made. Invite people to it below.")
    return redirect("team-manage", slug=team.slug)


def _page(request: HttpRequest, status: int = 200, **changes: Any) -> HttpResponse:
    person = signed_in(request)
    context = {
        "profile_form": _profile_form(person),
        "memberships": memberships_of(person),
        "team_form": TeamForm(),
        "token_form": TokenForm(),
        "tokens": ApiToken.objects.filter(user=person),
        "now": timezone.now(),
        "token_days": LIFETIME.days,
        "token_limit": LIMIT,
        "api_address": absolute(request, "/api/v1/"),
        **changes,
    }
    return render(request, "submissions/account.html", context, status=status)


@personal_page("GET", "HEAD")
def sessions(request: HttpRequest) -> HttpResponse:
    """Every session of the signed-in person: device, place, when it was last used."""
    return render(request, "account/sessions.html", {"sessions": sessions_of(signed_in(request))})


@personal_page("POST")
def sign_out_elsewhere(request: HttpRequest) -> HttpResponse:
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
