"""The account page: name, team, API tokens."""

from __future__ import annotations

from typing import Any

from allauth.account.decorators import reauthentication_required
from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from leaderboard.core.http.site_url import absolute
from leaderboard.models import User
from submissions.accounts.forms import ProfileForm, TeamForm, TokenForm
from submissions.accounts.membership import TeamRefused, create_team, memberships_of
from submissions.accounts.permissions import is_owner, signed_in
from submissions.accounts.profile import set_profile
from submissions.accounts.teams import personal_team
from submissions.accounts.throttling import ChangeThrottle, TokenThrottle, seconds_to_wait, slow_down
from submissions.accounts.tokens import LIFETIME, LIMIT, TokenRefused, make_token, revoke_token
from submissions.models import ApiToken

#: Where a session keeps what token is wanted.
_WANTED = "wanted_token"


@login_required
@never_cache
@require_safe
def account(request: HttpRequest) -> HttpResponse:
    """The signed-in person's own page."""
    return _page(request)


@login_required
@never_cache
@require_POST
def save_profile(request: HttpRequest) -> HttpResponse:
    """Change the person's name and, for its owner, the team's."""
    form = _profile_form(signed_in(request), request.POST)
    if not form.is_valid():
        return _page(request, status=400, profile_form=form)
    if wait := seconds_to_wait(ChangeThrottle(), request):
        form.add_error(None, slow_down(wait))
        return _page(request, status=429, profile_form=form)
    set_profile(signed_in(request), form.cleaned_data["name"], form.cleaned_data["team"])
    messages.success(request, "Saved.")
    return redirect("account")


@login_required
@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
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
    return _made(request)


@reauthentication_required
def _made(request: HttpRequest) -> HttpResponse:
    form = TokenForm(request.session.pop(_WANTED))
    form.full_clean()
    asked = form.cleaned_data
    if wait := seconds_to_wait(TokenThrottle(), request):
        form.add_error(None, slow_down(wait))
        return _page(request, status=429, token_form=form)
    try:
        text = make_token(signed_in(request), asked["name"], scopes=asked["scopes"], days=asked["days"])
    except TokenRefused as error:
        form.add_error(None, str(error))
        return _page(request, status=400, token_form=form)
    return _page(request, new_token=text, new_token_name=asked["name"])


@login_required
@require_POST
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


@login_required
@never_cache
@require_POST
def new_team(request: HttpRequest) -> HttpResponse:
    """Make a team that the person owns."""
    form = TeamForm(request.POST)
    if form.is_valid():
        if wait := seconds_to_wait(ChangeThrottle(), request):
            form.add_error(None, slow_down(wait))
            return _page(request, status=429, team_form=form)
        try:
            team = create_team(form.cleaned_data["name"], signed_in(request))
        except TeamRefused as error:
            form.add_error(None, str(error))
        else:
            messages.success(request, f"The team “{team.name}” is made. Invite people to it below.")
            return redirect("team-manage", slug=team.slug)
    return _page(request, status=400, team_form=form)


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
