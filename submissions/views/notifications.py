"""The inbox, the page of preferences, and the page of a team's webhooks."""

from typing import Any

from django.conf import settings
from django.contrib import messages
from django.core.paginator import Paginator
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.utils.http import url_has_allowed_host_and_scheme
from django.utils.translation import gettext as _

from leaderboard.boards.state import whole_number
from leaderboard.core.http.query_parameters import reads
from leaderboard.core.text.numbers import parse_number
from leaderboard.models import Team
from submissions.accounts.permissions import owned_team, personal_page, signed_in
from submissions.accounts.throttling import ChangeThrottle, enforce_limit, seconds_to_wait, throttle_message
from submissions.core.errors import ChangeRefused
from submissions.models import Delivery, Webhook
from submissions.models.notifications import LOG_LINES
from submissions.notifications.inbox import (
    inbox_of,
    mark_read,
    preferences_of,
    set_preferences,
    unread_count,
)
from submissions.notifications.webhooks import (
    ATTEMPTS,
    LIMIT,
    WebhookForm,
    add_webhook,
    rotate_secret,
    send_test,
    switch_off,
    switch_on,
)

PER_PAGE = 25


@personal_page("GET", "HEAD")
@reads("page")
def inbox(request: HttpRequest) -> HttpResponse:
    """Show the person's notices, the newest first."""
    person = signed_in(request)
    page = Paginator(inbox_of(person), PER_PAGE).get_page(whole_number(request.GET, "page", 1))
    context = {"section": "inbox", "page": page, "unread": unread_count(person)}
    return render(request, "submissions/inbox.html", context)


@personal_page("POST")
def read(request: HttpRequest) -> HttpResponse:
    """Note a notice as read, or all of them (without `notice`); with `open=1` go where it leads."""
    person = signed_in(request)
    identifier = request.POST.get("notice", "")
    if (key := parse_number(identifier)) is not None:
        notice = get_object_or_404(inbox_of(person), pk=key)
        mark_read(person, [notice.pk])
        if request.POST.get("open") and url_has_allowed_host_and_scheme(notice.path, allowed_hosts=None):
            return redirect(notice.path)
    elif not identifier:
        mark_read(person)
    page = request.POST.get("page", "")
    return redirect(reverse("inbox") + (f"?page={page}" if page.isdigit() else ""))


@personal_page("GET", "HEAD", "POST")
def preferences(request: HttpRequest) -> HttpResponse:
    """Show or change the person's preferences for notices."""
    person = signed_in(request)
    if request.method == "POST":
        set_preferences(person, set(request.POST))
        messages.success(request, _("Saved."))
        return redirect("notice-preferences")
    teams = Team.objects.filter(memberships__user=person, memberships__owner=True).order_by("name")
    context = {"section": "inbox", "preferences": preferences_of(person), "owned_teams": teams}
    return render(request, "submissions/notice_preferences.html", context)


@personal_page("GET", "HEAD", "POST")
def webhooks(request: HttpRequest, slug: str) -> HttpResponse:
    """Show the team's webhooks and deliveries; POST adds one and shows its secret once."""
    team = owned_team(request.user, slug)
    if request.method != "POST":
        return _webhooks_page(request, team)
    form = WebhookForm(request.POST)
    if not form.is_valid():
        return _webhooks_page(request, team, status=400, form=form)
    try:
        enforce_limit(ChangeThrottle(), request)
        added = add_webhook(team, form.cleaned_data["url"], signed_in(request))
    except ChangeRefused as error:
        form.add_error(None, str(error))
        return _webhooks_page(request, team, status=error.status, form=form)
    return _webhooks_page(request, team, new_secret=added.secret, of_webhook=added)


@personal_page("POST")
def change_webhook(request: HttpRequest, slug: str, identifier: int) -> HttpResponse:
    """Test the webhook, give it a new secret, switch it on or off, or remove it, as `action` says."""
    team = owned_team(request.user, slug)
    webhook = get_object_or_404(Webhook, pk=identifier, team=team)
    if wait := seconds_to_wait(ChangeThrottle(), request):
        messages.error(request, throttle_message(wait))
        return redirect("webhooks", slug=slug)
    action = request.POST.get("action")
    if action == "rotate":
        return _webhooks_page(request, team, new_secret=rotate_secret(webhook), of_webhook=webhook)
    if action == "test":
        send_test(webhook)
        messages.success(request, _("A test is on its way; reload this page to see what came of it."))
    elif action == "switch-on":
        switch_on(webhook)
        messages.success(request, _("The webhook is switched on. What happened meanwhile is not sent."))
    elif action == "switch-off":
        switch_off(webhook)
        messages.success(request, _("The webhook is switched off."))
    elif action == "remove":
        webhook.delete()
        messages.success(request, _("The webhook is removed."))
    return redirect("webhooks", slug=slug)


def _webhooks_page(request: HttpRequest, team: Team, status: int = 200, **changes: Any) -> HttpResponse:
    context = {
        "section": "account",
        "team": team,
        "webhooks": Webhook.objects.filter(team=team),
        "deliveries": Delivery.objects.filter(webhook__team=team).select_related("webhook")[:LOG_LINES],
        "form": WebhookForm(),
        "limit": LIMIT,
        "attempts": ATTEMPTS,
        "enabled": settings.WEBHOOKS_ENABLED,
        **changes,
    }
    return render(request, "submissions/webhooks.html", context, status=status)
