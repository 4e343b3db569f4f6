"""A team's own page: who is in it, who is invited, how it is called. Doors: one domain call each."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.utils import timezone

from leaderboard.core.audit import acting
from leaderboard.core.http.site_url import absolute
from leaderboard.models import Invitation, Team, User
from submissions.accounts import invitations, membership
from submissions.accounts.forms import InvitationForm, TeamForm
from submissions.accounts.membership import TeamRefused
from submissions.accounts.permissions import is_owner, personal_page, signed_in, teams_of
from submissions.accounts.teams import rename_team
from submissions.accounts.throttling import ChangeThrottle, InviteThrottle, limit
from submissions.core.errors import ChangeRefused

Changer = Callable[..., HttpResponse]


@personal_page("GET", "HEAD")
def manage(request: HttpRequest, slug: str) -> HttpResponse:
    """Who is in the team; for its owners also what they may change."""
    return _page(request, _team(request, slug))


class _NotOwner(TeamRefused):
    """The person belongs to the team and does not own it."""

    status = 403


def _changes_team(*, owners: bool) -> Callable[[Changer], Changer]:
    """A POST of somebody in the team, or of one of its owners; where it is refused, the team's page says why."""

    def decorate(view: Changer) -> Changer:
        @personal_page("POST")
        @wraps(view)
        def answer(request: HttpRequest, slug: str, **options: Any) -> HttpResponse:
            team = _team(request, slug)
            try:
                limit(ChangeThrottle(), request)
                if owners and not is_owner(request.user, team):
                    raise _NotOwner("Only an owner of the team can do that.")
                return view(request, team, **options)
            except ChangeRefused as error:
                if not teams_of(request.user).filter(pk=team.pk).exists():
                    messages.error(request, str(error))
                    return redirect("account")
                return _page(request, team, status=error.status, refused=str(error))

        return answer

    return decorate


@_changes_team(owners=True)
def rename(request: HttpRequest, team: Team) -> HttpResponse:
    """Call the team otherwise."""
    form = TeamForm(request.POST)
    if not form.is_valid():
        return _page(request, team, status=400, name_form=form)
    with acting(signed_in(request)):
        rename_team(team, form.cleaned_data["name"])
    messages.success(request, "Renamed, on the boards too. The address of the team's page stays.")
    return redirect("team-manage", slug=team.slug)


@_changes_team(owners=True)
def invite(request: HttpRequest, team: Team) -> HttpResponse:
    """Invite somebody, and show the link this once."""
    form = InvitationForm(request.POST)
    if not form.is_valid():
        return _page(request, team, status=400, invitation_form=form)
    limit(InviteThrottle(), request)
    made, secret = invitations.invite(
        team, form.cleaned_data["email"], owner=form.cleaned_data["owner"], by=signed_in(request)
    )
    return _sent(request, team, made, secret)


@_changes_team(owners=True)
def change_invitation(request: HttpRequest, team: Team, key: int) -> HttpResponse:
    """Send it again under a new link, or revoke it."""
    if request.POST.get("action") == "renew":
        limit(InviteThrottle(), request)
        return _sent(request, team, *invitations.renew(team, key, by=signed_in(request)))
    invitations.revoke(team, key, by=signed_in(request))
    messages.success(request, "Revoked: its link lets nobody in.")
    return redirect("team-manage", slug=team.slug)


@_changes_team(owners=True)
def change_member(request: HttpRequest, team: Team, key: int) -> HttpResponse:
    """Another role for a member, or none."""
    action, by = request.POST.get("action"), signed_in(request)
    if action == "transfer":
        name = _called(membership.transfer(team, key, by=by).user)
        messages.success(request, f"{name} owns the team now; you are a member.")
    elif action == "remove":
        name = _called(membership.remove(team, key, by=by))
        messages.success(request, f"{name} is no longer in the team, and sees nothing of it any more.")
    elif action in ("owner", "member"):
        name = _called(membership.set_role(team, key, owner=action == "owner", by=by).user)
        messages.success(request, f"{name} is {'an owner' if action == 'owner' else 'a member'} now.")
    else:
        raise TeamRefused("Choose what to do: owner, member, transfer or remove.")
    if not teams_of(request.user).filter(pk=team.pk).exists():
        return redirect("account")
    return redirect("team-manage", slug=team.slug)


@_changes_team(owners=False)
def leave(request: HttpRequest, team: Team) -> HttpResponse:
    """Leave the team."""
    membership.leave(team, signed_in(request))
    messages.success(request, f"You have left “{team.name}”. What you submitted for it stays there.")
    return redirect("account")


@personal_page("GET", "HEAD", "POST")
def invitation(request: HttpRequest, secret: str) -> HttpResponse:
    """Join the team that the link lets in."""
    found, refused = invitations.find(secret), ""
    person = signed_in(request)
    if found is not None and request.method == "POST":
        try:
            invitations.accept(found, person)
        except TeamRefused as error:
            refused = str(error)
        else:
            messages.success(request, f"You belong to “{found.team.name}” now.")
            return redirect("team-manage", slug=found.team.slug)
    mine = found is not None and invitations.is_for(found, person)
    context = {
        "section": "account",
        "invitation": found if mine else None,
        "for_another": found is not None and not mine,
        "inviter": _called(found.invited_by) if mine and found else "",
        "refused": refused,
    }
    status = 403 if context["for_another"] else 404 if found is None else 400 if refused else 200
    return render(request, "submissions/invitation.html", context, status=status)


def _sent(request: HttpRequest, team: Team, made: Invitation, secret: str) -> HttpResponse:
    link = absolute(request, reverse("invitation", args=[secret]))
    invitations.send(made, link)
    return _page(request, team, sent=made, link=link)


def _team(request: HttpRequest, slug: str) -> Team:
    """The team, for whom it has this page. Raises Http404 for everybody else."""
    return get_object_or_404(teams_of(request.user), slug=slug)


def _called(person: User) -> str:
    """A person to their team: by name, never by address."""
    return person.name or f"Person {person.pk}"


def _page(request: HttpRequest, team: Team, status: int = 200, **changes: Any) -> HttpResponse:
    person = signed_in(request)
    owner = is_owner(person, team)
    rows = team.memberships.select_related("user").order_by("-owner", "pk")
    members = [(each, _called(each.user), each.user_id == person.pk) for each in rows]
    context = {
        "section": "account",
        "team": team,
        "is_owner": owner,
        "members": members,
        "last_owner": owner and sum(each.owner for each, _, _ in members) == 1,
        "invitations": invitations.waiting_invitations(team) if owner else [],
        "invitation_form": InvitationForm(),
        "name_form": TeamForm(initial={"name": team.name}),
        "invitation_days": invitations.LIFETIME.days,
        "now": timezone.now(),
        **changes,
    }
    return render(request, "submissions/team.html", context, status=status)
