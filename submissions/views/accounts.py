"""Views of accounts, personal data, sessions, teams, and uploads."""

from collections.abc import Callable
from functools import wraps
from typing import Any

from allauth.account.decorators import reauthentication_required
from allauth.mfa.adapter import get_adapter
from allauth.mfa.webauthn.views import RemoveWebAuthnView
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
from submissions.accounts.permissions import View, get_teams, is_owner, personal_page, require_user
from submissions.accounts.personal_data import check_can_close, close_account, personal_data
from submissions.core.errors import ChangeRefused, Refused
from submissions.models import ApiToken
from submissions.uploads import service
from submissions.uploads.storage import UploadInUse

#: Session key of the requested token.
_REQUEST_KEY = "wanted_token"


@personal_page("GET", "HEAD")
def account(request: HttpRequest) -> HttpResponse:
    return _account_page(request)


@personal_page("POST")
def save_profile(request: HttpRequest) -> HttpResponse:
    """Save the user's name and, if the user owns it, the name of their first team; show the account page."""
    person = require_user(request)
    form = _profile_form(person, request.POST)
    _result, status = throttling.save_within_limit(
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
    """Store the token request in the session, then create the token after reauthentication and show it once.

    The request is removed from the session when the token is created. The page that shows the token has its own URL,
    so that reloading it does not create another token.
    """
    if request.method == "POST":
        form = TokenForm(request.POST)
        if not form.is_valid():
            return _account_page(request, status=400, token_form=form)
        request.session[_REQUEST_KEY] = form.cleaned_data
        return redirect("account-token-create")
    if _REQUEST_KEY not in request.session or request.method == "HEAD":
        return redirect(reverse("account") + "#tokens")
    return _show_new_token(request)


@reauthentication_required
def _show_new_token(request: HttpRequest) -> HttpResponse:
    """Create the requested token and show it once, or show the form's errors."""
    form, person = TokenForm(request.session.pop(_REQUEST_KEY)), require_user(request)
    text, status = throttling.save_within_limit(
        form, throttling.TokenThrottle(), request, lambda values: access.make_token(person, **values)
    )
    if text is None:
        return _account_page(request, status=status, token_form=form)
    return _account_page(request, new_token=text, new_token_name=form.cleaned_data["name"])


@personal_page("POST")
def delete_token(request: HttpRequest) -> HttpResponse:
    """Revoke one of the user's tokens."""
    if access.revoke_token(require_user(request), request.POST.get("digest", "").replace("\0", "")):
        messages.success(request, _("The token was revoked. Scripts that use it no longer have access."))
    else:
        messages.info(request, _("The token does not exist. It may already have been revoked."))
    return redirect("account")


def _profile_form(person: User, data: Any = None) -> ProfileForm:
    """Return the form for the names of the user and their first team, whose name only its owners can change."""
    team = teams.personal_team(person)
    form = ProfileForm(data, initial={"name": person.name, "team": team.name})
    form.fields["team"].disabled = not is_owner(person, team)
    return form


@personal_page("POST")
def new_team(request: HttpRequest) -> HttpResponse:
    """Create a team that the user owns and show its page, or show the form's errors."""
    form, person = TeamForm(request.POST), require_user(request)
    team, status = throttling.save_within_limit(
        form, throttling.ChangeThrottle(), request, lambda values: teams.create_team(values["name"], person)
    )
    if team is None:
        return _account_page(request, status=status, team_form=form)
    messages.success(request, _("The team “{name}” was created. You can invite members below.").format(name=team.name))
    return redirect("team-manage", slug=team.slug)


def _account_page(request: HttpRequest, status: int = 200, **changes: Any) -> HttpResponse:
    """Render the account page. `changes` replaces values of the template context, such as forms with errors."""
    person = require_user(request)
    context = {
        "profile_form": _profile_form(person),
        "memberships": teams.get_memberships(person),
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
    return render(request, "account/sessions.html", {"sessions": access.get_sessions(require_user(request))})


@personal_page("POST")
def sign_out_elsewhere(request: HttpRequest) -> HttpResponse:
    """Sign out the session named in the request, or with “others” all sessions but the current one."""
    person = require_user(request)
    session_choice = request.POST.get("session", "")
    if session_choice == "others":
        session_count = access.end_sessions(person, keep=request.session.session_key)
        message = ngettext("Signed out {n} other session.", "Signed out {n} other sessions.", session_count)
        messages.success(request, message.format(n=session_count))
    elif (number := parse_number(session_choice)) is not None and access.end_session(person, number):
        messages.success(request, _("The session was signed out."))
    else:
        messages.info(request, _("The session does not exist. It may already have ended."))
    return redirect("account-sessions")


@personal_page("GET", "HEAD")
def manage(request: HttpRequest, slug: str) -> HttpResponse:
    """Show the team's members and, for owners, the forms to manage it."""
    return _team_page(request, _get_team(request, slug))


class _NotOwner(teams.TeamRefused):
    """Refusal because the user is a member but not an owner of the team."""

    status = 403


def _team_change(*, owners: bool) -> Callable[[View], View]:
    """Return a decorator that turns a function of request and team into a rate-limited POST view for team members.

    The view finds the user's team by the slug in the URL. If `owners` is true, only owners may use it. If the change is
    refused, the team's page shows the reason, or the account page if the user is no longer a member.
    """

    def as_team_change(view: View) -> View:
        """Return the POST view of a change to a team."""

        @personal_page("POST")
        @wraps(view)
        def answer(request: HttpRequest, slug: str, **options: Any) -> HttpResponse:
            """Apply the change to the user's team, or show on a page why it is refused.

            Raises Http404 for other teams.
            """
            team = _get_team(request, slug)
            try:
                throttling.enforce_limit(throttling.ChangeThrottle(), request)
                if owners and not is_owner(request.user, team):
                    raise _NotOwner("Only team owners can do that.")
                return view(request, team, **options)
            except ChangeRefused as error:
                if not get_teams(request.user).filter(pk=team.pk).exists():
                    messages.error(request, str(error))
                    return redirect("account")
                return _team_page(request, team, status=error.status, refused=str(error))

        return answer

    return as_team_change


@_team_change(owners=True)
def rename(request: HttpRequest, team: Team) -> HttpResponse:
    """Rename the team, or show the form's errors."""
    form = TeamForm(request.POST)
    if not form.is_valid():
        return _team_page(request, team, status=400, name_form=form)
    with acting(require_user(request)):
        teams.rename_team(team, form.cleaned_data["name"])
    messages.success(
        request,
        _("The team was renamed, including on all boards. The previous URL of its page redirects to the new one."),
    )
    return redirect("team-manage", slug=team.slug)


@_team_change(owners=True)
def invite(request: HttpRequest, team: Team) -> HttpResponse:
    """Invite an address to the team, queue the email, and show the link once."""
    form = InvitationForm(request.POST)
    if not form.is_valid():
        return _team_page(request, team, status=400, invitation_form=form)
    throttling.enforce_limit(throttling.InviteThrottle(), request)
    invitation, secret = teams.invite(
        team, form.cleaned_data["email"], owner=form.cleaned_data["owner"], actor=require_user(request)
    )
    return _show_link(request, team, invitation, secret)


@_team_change(owners=True)
def change_invitation(request: HttpRequest, team: Team, key: int) -> HttpResponse:
    """Replace the invitation's link and send it (`action=renew`), or revoke the invitation."""
    if request.POST.get("action") == "renew":
        throttling.enforce_limit(throttling.InviteThrottle(), request)
        return _show_link(request, team, *teams.renew_invitation(team, key, actor=require_user(request)))
    teams.revoke_invitation(team, key, actor=require_user(request))
    messages.success(request, _("The invitation was revoked. Its link no longer works."))
    return redirect("team-manage", slug=team.slug)


@_team_change(owners=True)
def change_member(request: HttpRequest, team: Team, key: int) -> HttpResponse:
    """Change the member's role, transfer the team to the member, or remove the member, as the field `action` says.

    Raises TeamRefused for other actions.
    """
    action, user = request.POST.get("action"), require_user(request)
    if action == "transfer":
        person = teams.transfer_team(team, key, actor=user).user
        message = _("{name} now owns the team. You are a member.")
    elif action == "remove":
        person = teams.remove_member(team, key, actor=user)
        message = _("{name} was removed and no longer has access to the team.")
    elif action in ("owner", "member"):
        person = teams.set_role(team, key, owner=action == "owner", actor=user).user
        message = _("{name} is now an owner.") if action == "owner" else _("{name} is now a member.")
    else:
        raise teams.TeamRefused("Choose one of the actions owner, member, transfer, or remove.")
    messages.success(request, message.format(name=_display_name(person)))
    if not get_teams(request.user).filter(pk=team.pk).exists():
        return redirect("account")
    return redirect("team-manage", slug=team.slug)


@_team_change(owners=False)
def leave(request: HttpRequest, team: Team) -> HttpResponse:
    teams.leave_team(team, require_user(request))
    messages.success(request, _("You left “{name}”. Your submissions remain with the team.").format(name=team.name))
    return redirect("account")


@personal_page("GET", "HEAD", "POST")
def invitation(request: HttpRequest, secret: str) -> HttpResponse:
    """Show an invitation to the invited user; a POST accepts it and redirects to the team.

    The status is 404 for an unknown or expired invitation and 403 for other users.
    """
    offer, refusal = teams.find_invitation(secret), ""
    person = require_user(request)
    if offer is not None and request.method == "POST":
        try:
            teams.accept_invitation(offer, person)
        except teams.TeamRefused as error:
            refusal = str(error)
        else:
            messages.success(request, _("You are now a member of “{name}”.").format(name=offer.team.name))
            return redirect("team-manage", slug=offer.team.slug)
    is_recipient = offer is not None and teams.is_invited(offer, person)
    context = {
        "section": "account",
        "invitation": offer if is_recipient else None,
        "for_another": offer is not None and not is_recipient,
        "inviter": _display_name(offer.invited_by) if is_recipient and offer else "",
        "refused": refusal,
    }
    status = 403 if context["for_another"] else 404 if offer is None else 400 if refusal else 200
    return render(request, "submissions/invitation.html", context, status=status)


def _show_link(request: HttpRequest, team: Team, invitation: Invitation, secret: str) -> HttpResponse:
    """Queue the invitation's email and show the team's page with the link."""
    link = absolute(request, reverse("invitation", args=[secret]))
    teams.send_invitation(invitation, link)
    return _team_page(request, team, sent=invitation, link=link)


def _get_team(request: HttpRequest, slug: str) -> Team:
    return get_object_or_404(get_teams(request.user), Team.has_address(slug))


def _display_name(person: User) -> str:
    """Return the user's name for team members, never the email address."""
    return person.name or f"User {person.pk}"


def _team_page(request: HttpRequest, team: Team, status: int = 200, **changes: Any) -> HttpResponse:
    """Render the team's page. `changes` replaces values of the template context, such as forms with errors."""
    person = require_user(request)
    owner = is_owner(person, team)
    rows = team.memberships.select_related("user").order_by("-owner", "pk")
    invitations = Invitation.objects.waiting().filter(team=team)
    members = [(member, _display_name(member.user), member.user_id == person.pk) for member in rows]
    context = {
        "section": "account",
        "team": team,
        "is_owner": owner,
        "members": members,
        "last_owner": owner and sum(member.owner for member, _, _ in members) == 1,
        "invitations": invitations.select_related("invited_by") if owner else [],
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
    headers = {"Content-Disposition": 'attachment; filename="account.zip"'}
    return HttpResponse(personal_data(require_user(request)), content_type="application/zip", headers=headers)


@personal_page("GET", "HEAD", "POST")
@reauthentication_required
def close(request: HttpRequest) -> HttpResponse:
    """Explain the deletion of the account; a POST with the account's email address closes it.

    Staff and the only owners of teams with other members are refused.
    """
    person = require_user(request)
    refusal = ""
    try:
        check_can_close(person)
        if request.method == "POST":
            if request.POST.get("email", "").strip().lower() != person.email:
                raise ChangeRefused("Enter the email address of this account to confirm.")
            close_account(person)
            logout(request)
            messages.success(request, _("Your account was closed."))
            return redirect("home")
    except ChangeRefused as error:
        refusal = str(error)
    status = 400 if refusal and request.method == "POST" else 200
    return render(request, "submissions/close_account.html", {"refused": refusal}, status=status)


@personal_page("GET", "HEAD")
def uploads(request: HttpRequest) -> HttpResponse:
    """List the user's uploads, the space that they use, and the limits."""
    uploads = list(service.get_uploads(require_user(request)))
    context = {
        "uploads": uploads,
        "used": sum(upload.length for upload in uploads),
        "allowed": service.UPLOAD_BYTES_PER_PERSON,
        "most": service.UPLOADS_PER_PERSON,
        "hours": service.UPLOAD_LIFETIME_SECONDS // 3600,
    }
    return render(request, "submissions/uploads.html", context)


@personal_page("POST")
def delete_upload(request: HttpRequest) -> HttpResponse:
    """Delete one of the user's uploads, unless it is in use, and redirect to the list."""
    message = _("The file does not exist. It may have expired.")
    try:
        upload = service.find_upload(require_user(request), request.POST.get("upload", ""))
        if upload is not None:
            service.discard_upload(upload)
            message = _("{name} was deleted.").format(name=upload.file_name or "The file")
    except UploadInUse:
        in_use = "The file is being uploaded, or is in use by a submission or a backup. Try again later."
        messages.error(request, _(in_use))
        return redirect("account-uploads")
    except Refused:
        pass
    messages.success(request, message)
    return redirect("account-uploads")


class RemovePasskeyView(RemoveWebAuthnView):
    """allauth's page to remove a passkey. Staff cannot remove their last second factor."""

    def post(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        if get_adapter().can_delete_authenticator(self.get_object()):
            return super().post(request, *args, **kwargs)
        return self.get(request, *args, **kwargs)
