"""Pages of an account, its data, its sessions, and its teams."""

from collections.abc import Callable
from functools import wraps
from typing import Any

from allauth.account.decorators import reauthentication_required
from django.conf import settings
from django.contrib import messages
from django.contrib.auth import logout
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from leaderboard.core.audit import acting
from leaderboard.core.http.site_url import absolute
from leaderboard.core.text.numbers import parse_number
from leaderboard.models import Invitation, Team, User
from submissions.accounts import access, teams, throttling
from submissions.accounts.forms import InvitationForm, ProfileForm, TeamForm, TokenForm
from submissions.accounts.permissions import View, is_owner, personal_page, signed_in, teams_of
from submissions.accounts.personal_data import check_can_close, close_account, personal_data
from submissions.core.errors import ChangeRefused, Refused
from submissions.models import ApiToken
from submissions.uploads import service
from submissions.uploads.storage import UploadInUse

#: Where a session keeps what token is wanted.
_WANTED = "wanted_token"


@personal_page("GET", "HEAD")
def account(request: HttpRequest) -> HttpResponse:
    """Show the signed-in person's own page."""
    return _account_page(request)


@personal_page("POST")
def save_profile(request: HttpRequest) -> HttpResponse:
    """Change the person's name and, for its owner, the team's."""
    person = signed_in(request)
    form = _profile_form(person, request.POST)
    _saved, status = throttling.save_within_limit(
        form,
        throttling.ChangeThrottle(),
        request,
        lambda values: teams.set_profile(person, values["name"], values["team"]),
    )
    if form.errors:
        return _account_page(request, status=status, profile_form=form)
    messages.success(request, _("Saved."))
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
            return _account_page(request, status=400, token_form=form)
        request.session[_WANTED] = form.cleaned_data
        return redirect("account-token-create")
    if _WANTED not in request.session or request.method == "HEAD":
        return redirect(reverse("account") + "#tokens")
    return _show_new_token(request)


@reauthentication_required
def _show_new_token(request: HttpRequest) -> HttpResponse:
    form, person = TokenForm(request.session.pop(_WANTED)), signed_in(request)
    text, status = throttling.save_within_limit(
        form, throttling.TokenThrottle(), request, lambda values: access.make_token(person, **values)
    )
    if text is None:
        return _account_page(request, status=status, token_form=form)
    return _account_page(request, new_token=text, new_token_name=form.cleaned_data["name"])


@personal_page("POST")
def delete_token(request: HttpRequest) -> HttpResponse:
    """End one of the person's tokens."""
    if access.revoke_token(signed_in(request), request.POST.get("digest", "").replace("\0", "")):
        messages.success(request, _("The token is revoked. Scripts that use it are refused from now on."))
    else:
        messages.info(request, _("There was no such token; it may have been revoked already."))
    return redirect("account")


def _profile_form(person: User, data: Any = None) -> ProfileForm:
    team = teams.personal_team(person)
    form = ProfileForm(data, initial={"name": person.name, "team": team.name})
    form.fields["team"].disabled = not is_owner(person, team)
    return form


@personal_page("POST")
def new_team(request: HttpRequest) -> HttpResponse:
    """Make a team that the person owns."""
    form, person = TeamForm(request.POST), signed_in(request)
    team, status = throttling.save_within_limit(
        form, throttling.ChangeThrottle(), request, lambda values: teams.create_team(values["name"], person)
    )
    if team is None:
        return _account_page(request, status=status, team_form=form)
    messages.success(
        request, _("The team “{name}” is made. Invite people to it below.").format(name=team.name)
    )
    return redirect("team-manage", slug=team.slug)


def _account_page(request: HttpRequest, status: int = 200, **changes: Any) -> HttpResponse:
    person = signed_in(request)
    context = {
        "profile_form": _profile_form(person),
        "memberships": teams.memberships_of(person),
        "team_form": TeamForm(),
        "token_form": TokenForm(),
        "tokens": ApiToken.objects.filter(user=person),
        "now": timezone.now(),
        "token_days": access.LIFETIME.days,
        "token_limit": access.LIMIT,
        "services": bool(settings.SOCIALACCOUNT_PROVIDERS),
        "api_address": absolute(request, "/api/v1/"),
        **changes,
    }
    return render(request, "submissions/account.html", context, status=status)


@personal_page("GET", "HEAD")
def sessions(request: HttpRequest) -> HttpResponse:
    """Every session of the signed-in person: device, place, when it was last used."""
    return render(request, "account/sessions.html", {"sessions": access.sessions_of(signed_in(request))})


@personal_page("POST")
def sign_out_elsewhere(request: HttpRequest) -> HttpResponse:
    """Sign out one other session by its number, or all others."""
    person = signed_in(request)
    chosen = request.POST.get("session", "")
    if chosen == "others":
        ended = access.end_sessions(person, keep=request.session.session_key)
        told = ngettext("Signed out elsewhere: {n} session.", "Signed out elsewhere: {n} sessions.", ended)
        messages.success(request, told.format(n=ended))
    elif (number := parse_number(chosen)) is not None and access.end_session(person, number):
        messages.success(request, _("That session is signed out."))
    else:
        messages.info(request, _("There was no such session; it may have ended already."))
    return redirect("account-sessions")


@personal_page("GET", "HEAD")
def manage(request: HttpRequest, slug: str) -> HttpResponse:
    """Who is in the team; for its owners also what they may change."""
    return _team_page(request, _get_team(request, slug))


class _NotOwner(teams.TeamRefused):
    """The person belongs to the team and does not own it."""

    status = 403


def _changes_team(*, owners: bool) -> Callable[[View], View]:
    """Accept a POST of a member, or of an owner, of the team; the team's page shows a refusal."""

    def decorate(view: View) -> View:
        @personal_page("POST")
        @wraps(view)
        def answer(request: HttpRequest, slug: str, **options: Any) -> HttpResponse:
            team = _get_team(request, slug)
            try:
                throttling.enforce_limit(throttling.ChangeThrottle(), request)
                if owners and not is_owner(request.user, team):
                    raise _NotOwner("Only an owner of the team can do that.")
                return view(request, team, **options)
            except ChangeRefused as error:
                if not teams_of(request.user).filter(pk=team.pk).exists():
                    messages.error(request, str(error))
                    return redirect("account")
                return _team_page(request, team, status=error.status, refused=str(error))

        return answer

    return decorate


@_changes_team(owners=True)
def rename(request: HttpRequest, team: Team) -> HttpResponse:
    """Call the team otherwise."""
    form = TeamForm(request.POST)
    if not form.is_valid():
        return _team_page(request, team, status=400, name_form=form)
    with acting(signed_in(request)):
        teams.rename_team(team, form.cleaned_data["name"])
    messages.success(
        request, _("Renamed, on the boards too. The earlier address of its page leads to the new one.")
    )
    return redirect("team-manage", slug=team.slug)


@_changes_team(owners=True)
def invite(request: HttpRequest, team: Team) -> HttpResponse:
    """Invite somebody, and show the link this once."""
    form = InvitationForm(request.POST)
    if not form.is_valid():
        return _team_page(request, team, status=400, invitation_form=form)
    throttling.enforce_limit(throttling.InviteThrottle(), request)
    invitation, secret = teams.invite(
        team, form.cleaned_data["email"], owner=form.cleaned_data["owner"], by=signed_in(request)
    )
    return _show_link(request, team, invitation, secret)


@_changes_team(owners=True)
def change_invitation(request: HttpRequest, team: Team, key: int) -> HttpResponse:
    """Send it again under a new link, or revoke it."""
    if request.POST.get("action") == "renew":
        throttling.enforce_limit(throttling.InviteThrottle(), request)
        return _show_link(request, team, *teams.renew_invitation(team, key, by=signed_in(request)))
    teams.revoke_invitation(team, key, by=signed_in(request))
    messages.success(request, _("Revoked: its link lets nobody in."))
    return redirect("team-manage", slug=team.slug)


@_changes_team(owners=True)
def change_member(request: HttpRequest, team: Team, key: int) -> HttpResponse:
    """Another role for a member, or none."""
    action, by = request.POST.get("action"), signed_in(request)
    if action == "transfer":
        person = teams.transfer_team(team, key, by=by).user
        told = _("{name} owns the team now; you are a member.")
    elif action == "remove":
        person = teams.remove_member(team, key, by=by)
        told = _("{name} is no longer in the team, and sees nothing of it any more.")
    elif action in ("owner", "member"):
        person = teams.set_role(team, key, owner=action == "owner", by=by).user
        told = _("{name} is an owner now.") if action == "owner" else _("{name} is a member now.")
    else:
        raise teams.TeamRefused("Choose what to do: owner, member, transfer or remove.")
    messages.success(request, told.format(name=_display_name(person)))
    if not teams_of(request.user).filter(pk=team.pk).exists():
        return redirect("account")
    return redirect("team-manage", slug=team.slug)


@_changes_team(owners=False)
def leave(request: HttpRequest, team: Team) -> HttpResponse:
    """Leave the team."""
    teams.leave_team(team, signed_in(request))
    messages.success(
        request, _("You have left “{name}”. What you submitted for it stays there.").format(name=team.name)
    )
    return redirect("account")


@personal_page("GET", "HEAD", "POST")
def invitation(request: HttpRequest, secret: str) -> HttpResponse:
    """Join the team that the link lets in."""
    offer, refused = teams.find_invitation(secret), ""
    person = signed_in(request)
    if offer is not None and request.method == "POST":
        try:
            teams.accept_invitation(offer, person)
        except teams.TeamRefused as error:
            refused = str(error)
        else:
            messages.success(request, _("You belong to “{name}” now.").format(name=offer.team.name))
            return redirect("team-manage", slug=offer.team.slug)
    is_theirs = offer is not None and teams.is_invited(offer, person)
    context = {
        "section": "account",
        "invitation": offer if is_theirs else None,
        "for_another": offer is not None and not is_theirs,
        "inviter": _display_name(offer.invited_by) if is_theirs and offer else "",
        "refused": refused,
    }
    status = 403 if context["for_another"] else 404 if offer is None else 400 if refused else 200
    return render(request, "submissions/invitation.html", context, status=status)


def _show_link(request: HttpRequest, team: Team, invitation: Invitation, secret: str) -> HttpResponse:
    link = absolute(request, reverse("invitation", args=[secret]))
    teams.send_invitation(invitation, link)
    return _team_page(request, team, sent=invitation, link=link)


def _get_team(request: HttpRequest, slug: str) -> Team:
    """Return the person's team. Raises Http404 for other teams."""
    return get_object_or_404(teams_of(request.user), Team.has_address(slug))


def _display_name(person: User) -> str:
    """Return the name of a person for their team, never the address."""
    return person.name or f"Person {person.pk}"


def _team_page(request: HttpRequest, team: Team, status: int = 200, **changes: Any) -> HttpResponse:
    person = signed_in(request)
    owner = is_owner(person, team)
    rows = team.memberships.select_related("user").order_by("-owner", "pk")
    waiting = Invitation.objects.waiting().filter(team=team)
    members = [(each, _display_name(each.user), each.user_id == person.pk) for each in rows]
    context = {
        "section": "account",
        "team": team,
        "is_owner": owner,
        "members": members,
        "last_owner": owner and sum(each.owner for each, _, _ in members) == 1,
        "invitations": waiting.select_related("invited_by") if owner else [],
        "invitation_form": InvitationForm(),
        "name_form": TeamForm(initial={"name": team.name}),
        "invitation_days": teams.INVITATION_LIFETIME.days,
        "now": timezone.now(),
        **changes,
    }
    return render(request, "submissions/team.html", context, status=status)


@personal_page("GET", "HEAD")
@reauthentication_required
def download(request: HttpRequest) -> HttpResponse:
    """Send the zip after reauthentication."""
    headers = {"Content-Disposition": 'attachment; filename="account.zip"'}
    return HttpResponse(personal_data(signed_in(request)), content_type="application/zip", headers=headers)


@personal_page("GET", "HEAD", "POST")
@reauthentication_required
def close(request: HttpRequest) -> HttpResponse:
    """Say what goes and what stays; then do it, for who has typed the address of the account."""
    person = signed_in(request)
    refused = ""
    try:
        check_can_close(person)
        if request.method == "POST":
            if request.POST.get("email", "").strip().lower() != person.email:
                raise ChangeRefused("Type the e-mail address of this account to confirm.")
            close_account(person)
            logout(request)
            messages.success(request, _("The account is closed."))
            return redirect("home")
    except ChangeRefused as error:
        refused = str(error)
    status = 400 if refused and request.method == "POST" else 200
    return render(request, "submissions/close_account.html", {"refused": refused}, status=status)


@personal_page("GET", "HEAD")
def uploads(request: HttpRequest) -> HttpResponse:
    """List the person's uploads, and how much room there is."""
    kept = list(service.get_uploads(signed_in(request)))
    context = {
        "uploads": kept,
        "used": sum(each.length for each in kept),
        "allowed": service.UPLOAD_BYTES_PER_PERSON,
        "most": service.UPLOADS_PER_PERSON,
        "hours": service.UPLOAD_LIFETIME_SECONDS // 3600,
    }
    return render(request, "submissions/uploads.html", context)


@personal_page("POST")
def delete_upload(request: HttpRequest) -> HttpResponse:
    """Throw one away, whole or not."""
    told = _("There was no such file; it may have expired.")
    try:
        upload = service.find_upload(signed_in(request), request.POST.get("upload", ""))
        if upload is not None:
            service.discard_upload(upload)
            told = _("{name} is deleted.").format(name=upload.file_name or "The file")
    except UploadInUse:
        in_use = (
            "That file is just being sent, or taken by a submission or a backup of the site. Try again later."
        )
        messages.error(request, _(in_use))
        return redirect("account-uploads")
    except Refused:
        pass
    messages.success(request, told)
    return redirect("account-uploads")
