"""The page of a team's webhooks, for its owners. Doors: translate in, one domain call, translate out."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_POST

from leaderboard.models import Team
from submissions.accounts.permissions import is_owner, signed_in
from submissions.accounts.throttling import ChangeThrottle, seconds_to_wait, slow_down
from submissions.models import Delivery, Webhook
from submissions.models.notifications import LOG_LINES
from submissions.notifications.deliveries import ATTEMPTS, send_test
from submissions.notifications.forms import WebhookForm
from submissions.notifications.webhooks import (
    LIMIT,
    TooManyWebhooks,
    add_webhook,
    remove_webhook,
    rotate_secret,
    switch_off,
    switch_on,
)


@login_required
@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
def webhooks(request: HttpRequest, slug: str) -> HttpResponse:
    """The team's webhooks and what was sent to them; POST adds one and shows its secret, this once."""
    team = owned_team(request.user, slug)
    if request.method != "POST":
        return _page(request, team)
    form = WebhookForm(request.POST)
    if not form.is_valid():
        return _page(request, team, status=400, form=form)
    if wait := seconds_to_wait(ChangeThrottle(), request):
        form.add_error(None, slow_down(wait))
        return _page(request, team, status=429, form=form)
    try:
        added = add_webhook(team, form.cleaned_data["url"], signed_in(request))
    except TooManyWebhooks as error:
        form.add_error(None, str(error))
        return _page(request, team, status=400, form=form)
    return _page(request, team, new_secret=added.secret, of_webhook=added)


@login_required
@never_cache
@require_POST
def change_webhook(request: HttpRequest, slug: str, identifier: int) -> HttpResponse:
    """Test the webhook, give it a new secret, switch it on or off, or remove it, as `action` says."""
    team = owned_team(request.user, slug)
    webhook = get_object_or_404(Webhook, pk=identifier, team=team)
    if wait := seconds_to_wait(ChangeThrottle(), request):
        messages.error(request, slow_down(wait))
        return redirect("webhooks", slug=slug)
    action = request.POST.get("action")
    if action == "rotate":
        return _page(request, team, new_secret=rotate_secret(webhook), of_webhook=webhook)
    if action == "test":
        send_test(webhook)
        messages.success(request, "A test is on its way; reload this page to see what came of it.")
    elif action == "switch-on":
        switch_on(webhook)
        messages.success(request, "The webhook is switched on. What happened meanwhile is not sent.")
    elif action == "switch-off":
        switch_off(webhook)
        messages.success(request, "The webhook is switched off.")
    elif action == "remove":
        remove_webhook(webhook)
        messages.success(request, "The webhook is removed.")
    return redirect("webhooks", slug=slug)


def owned_team(person: Any, slug: str) -> Team:
    """A team that the person owns. Raises Http404: for everybody else its webhooks do not exist."""
    team = Team.objects.filter(slug=slug).first()
    if team is None or not is_owner(person, team):
        raise Http404("There is no such team, or you are not an owner of it.")
    return team


def _page(request: HttpRequest, team: Team, status: int = 200, **changes: Any) -> HttpResponse:
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
