"""The account page: name, team, API tokens."""

from __future__ import annotations

from typing import Any

from allauth.account.decorators import reauthentication_required
from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_POST, require_safe

from leaderboard.models import User
from leaderboard.site_address import absolute
from submissions.models import ApiToken
from submissions.people.forms import ProfileForm, TeamForm, TokenForm
from submissions.people.membership import TeamRefused, create_team, memberships_of
from submissions.people.profile import set_profile
from submissions.people.teams import personal_team
from submissions.people.tokens import LIFETIME, LIMIT, TokenRefused, make_token, revoke_token
from submissions.permissions import is_owner
from submissions.throttling import ChangeThrottle, TokenThrottle, seconds_to_wait, slow_down


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
    form = _profile_form(_person(request), request.POST)
    if not form.is_valid():
        return _page(request, status=400, profile_form=form)
    if wait := seconds_to_wait(ChangeThrottle(), request):
        form.add_error(None, slow_down(wait))
        return _page(request, status=429, profile_form=form)
    set_profile(_person(request), form.cleaned_data["name"], form.cleaned_data["team"])
    messages.success(request, "Saved.")
    return redirect("account")


@login_required
@never_cache
@require_POST
@reauthentication_required
def create_token(request: HttpRequest) -> HttpResponse:
    """Make a token and show it, this once. Who has not just shown who they are is asked to."""
    form = TokenForm(request.POST)
    if not form.is_valid():
        return _page(request, status=400, token_form=form)
    if wait := seconds_to_wait(TokenThrottle(), request):
        form.add_error(None, slow_down(wait))
        return _page(request, status=429, token_form=form)
    asked = form.cleaned_data
    try:
        text = make_token(_person(request), asked["name"], scopes=asked["scopes"], days=asked["days"])
    except TokenRefused as error:
        form.add_error(None, str(error))
        return _page(request, status=400, token_form=form)
    return _page(request, new_token=text, new_token_name=asked["name"])


@login_required
@require_POST
def delete_token(request: HttpRequest) -> HttpResponse:
    """End one of the person's tokens."""
    if revoke_token(_person(request), request.POST.get("digest", "").replace("\0", "")):
        messages.success(request, "The token is revoked. Scripts that use it are refused from now on.")
    else:
        messages.info(request, "There was no such token; it may have been revoked already.")
    return redirect("account")


def _person(request: HttpRequest) -> User:
    if not isinstance(request.user, User):
        raise TypeError("only for signed-in people")
    return request.user


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
            team = create_team(form.cleaned_data["name"], _person(request))
        except TeamRefused as error:
            form.add_error(None, str(error))
        else:
            messages.success(request, f"The team “{team.name}” is made. Invite people to it below.")
            return redirect("team-manage", slug=team.slug)
    return _page(request, status=400, team_form=form)


def _page(request: HttpRequest, status: int = 200, **changes: Any) -> HttpResponse:
    person = _person(request)
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
