"""The inbox and the page of preferences. Doors: translate in, one domain call, translate out."""

from __future__ import annotations

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.core.paginator import Paginator
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.utils.http import url_has_allowed_host_and_scheme
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from leaderboard.core.text.numbers import parse_number
from leaderboard.models import Team
from submissions.accounts.permissions import signed_in
from submissions.models import NoticeKind
from submissions.notifications.inbox import inbox_of, mark_read, unread_count
from submissions.notifications.preferences import Wish, set_wishes, wishes_of

PER_PAGE = 25


@login_required
@never_cache
@require_safe
def inbox(request: HttpRequest) -> HttpResponse:
    """What the person was told, the newest first."""
    person = signed_in(request)
    page = Paginator(inbox_of(person), PER_PAGE).get_page(request.GET.get("page"))
    return render(
        request,
        "submissions/inbox.html",
        {"section": "inbox", "page": page, "unread": unread_count(person)},
    )


@login_required
@never_cache
@require_POST
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


@login_required
@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
def preferences(request: HttpRequest) -> HttpResponse:
    """What the person wants to be told of, and how."""
    person = signed_in(request)
    if request.method == "POST":
        ticked = set(request.POST)
        set_wishes(
            person,
            [
                Wish(
                    kind, f"{kind}-mail" in ticked, f"{kind}-inbox" in ticked, f"{kind}-everywhere" in ticked
                )
                for kind in NoticeKind
            ],
        )
        messages.success(request, "Saved.")
        return redirect("notice-preferences")
    teams = Team.objects.filter(memberships__user=person, memberships__owner=True).order_by("name")
    context = {"section": "inbox", "wishes": wishes_of(person), "owned_teams": teams}
    return render(request, "submissions/notice_preferences.html", context)
