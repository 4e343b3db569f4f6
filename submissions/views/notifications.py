"""Views of the inbox, notification preferences, and webhooks."""

from collections.abc import Callable
from typing import Any

from django.conf import settings
from django.contrib import messages
from django.core.paginator import Paginator
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.utils.http import url_has_allowed_host_and_scheme
from django.utils.translation import gettext_lazy as _

from leaderboard.boards.state import whole_number
from leaderboard.core.http.query_parameters import reads
from leaderboard.core.text.numbers import parse_number
from leaderboard.models import Team
from submissions.accounts import throttling
from submissions.accounts.permissions import owned_team, personal_page, require_user
from submissions.models import Delivery, Webhook
from submissions.models.notifications import LOG_LINES
from submissions.notifications import webhooks as hooks
from submissions.notifications.inbox import get_inbox, get_preferences, mark_read, set_preferences, unread_count

PER_PAGE = 25


@personal_page("GET", "HEAD")
@reads("page")
def inbox(request: HttpRequest) -> HttpResponse:
    """Show a page of the user's notices, newest first."""
    person = require_user(request)
    page = Paginator(get_inbox(person), PER_PAGE).get_page(whole_number(request.GET, "page", 1))
    context = {"section": "inbox", "page": page, "unread": unread_count(person)}
    return render(request, "submissions/inbox.html", context)


@personal_page("POST")
def read(request: HttpRequest) -> HttpResponse:
    """Mark the notice with the id `notice` as read, or all notices if the field is empty, and redirect to the inbox.

    If `open` is set, redirect to the notice's page. Raises Http404 for a notice of another user.
    """
    person = require_user(request)
    identifier = request.POST.get("notice", "")
    if (key := parse_number(identifier)) is not None:
        notice = get_object_or_404(get_inbox(person), pk=key)
        mark_read(person, [notice.pk])
        if request.POST.get("open") and url_has_allowed_host_and_scheme(notice.path, allowed_hosts=None):
            return redirect(notice.path)
    elif not identifier:
        mark_read(person)
    page = request.POST.get("page", "")
    return redirect(reverse("inbox") + (f"?page={page}" if page.isdigit() else ""))


@personal_page("GET", "HEAD", "POST")
def preferences(request: HttpRequest) -> HttpResponse:
    """Show or change the user's notification preferences."""
    person = require_user(request)
    if request.method == "POST":
        set_preferences(person, set(request.POST))
        messages.success(request, _("Saved."))
        return redirect("notice-preferences")
    teams = Team.objects.filter(memberships__user=person, memberships__owner=True).order_by("name")
    context = {"section": "inbox", "preferences": get_preferences(person), "owned_teams": teams}
    return render(request, "submissions/notice_preferences.html", context)


@personal_page("GET", "HEAD", "POST")
def webhooks(request: HttpRequest, slug: str) -> HttpResponse:
    """Show the team's webhooks and deliveries to its owners. A POST adds a webhook and shows its secret once."""
    team, person = owned_team(request.user, slug), require_user(request)
    if request.method != "POST":
        return _webhooks_page(request, team)
    form = hooks.WebhookForm(request.POST)
    webhook, status = throttling.save_within_limit(
        form, throttling.ChangeThrottle(), request, lambda values: hooks.add_webhook(team, values["url"], person)
    )
    if webhook is None:
        return _webhooks_page(request, team, status=status, form=form)
    return _webhooks_page(request, team, new_secret=webhook.secret, changed_webhook=webhook)


@personal_page("POST")
def change_webhook(request: HttpRequest, slug: str, identifier: int) -> HttpResponse:
    """Apply the form's `action` to a webhook: test, rotate the secret, activate, deactivate, or remove.

    A new secret is shown once; other actions redirect to the webhooks' page. Only for owners of the team.
    """
    team = owned_team(request.user, slug)
    webhook = get_object_or_404(Webhook, pk=identifier, team=team)
    if wait := throttling.seconds_to_wait(throttling.ChangeThrottle(), request):
        messages.error(request, throttling.throttle_message(wait))
        return redirect("webhooks", slug=slug)
    action = request.POST.get("action", "")
    if action == "rotate":
        return _webhooks_page(request, team, new_secret=hooks.rotate_secret(webhook), changed_webhook=webhook)
    if action in _WEBHOOK_ACTIONS:
        act, message = _WEBHOOK_ACTIONS[action]
        act(webhook)
        messages.success(request, message)
    return redirect("webhooks", slug=slug)


#: Functions and success messages by action.
_WEBHOOK_ACTIONS: dict[str, tuple[Callable[[Webhook], object], Any]] = {
    "test": (hooks.send_test, _("A test event was queued. Reload this page to see the result.")),
    "switch-on": (hooks.switch_on, _("The webhook was activated. Events from the meantime are not sent.")),
    "switch-off": (hooks.switch_off, _("The webhook was deactivated.")),
    "remove": (Webhook.delete, _("The webhook was removed.")),
}


def _webhooks_page(request: HttpRequest, team: Team, status: int = 200, **changes: Any) -> HttpResponse:
    """Render the team's webhooks and latest deliveries. `changes` replaces values of the template context."""
    context = {
        "section": "account",
        "team": team,
        "webhooks": Webhook.objects.filter(team=team),
        "deliveries": Delivery.objects.filter(webhook__team=team).select_related("webhook")[:LOG_LINES],
        "form": hooks.WebhookForm(),
        "limit": hooks.LIMIT,
        "attempts": hooks.ATTEMPTS,
        "enabled": settings.WEBHOOKS_ENABLED,
        **changes,
    }
    return render(request, "submissions/webhooks.html", context, status=status)
