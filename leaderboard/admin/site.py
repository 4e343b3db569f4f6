"""The admin site, with pending decisions on its index page and without a login form.

Curators sign in on the site's own pages, with a second factor if staff need one.
"""

from typing import Any

from allauth.account.adapter import get_adapter
from django.conf import settings
from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import redirect
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.http import url_has_allowed_host_and_scheme, urlencode
from django.utils.text import slugify
from django.views.decorators.cache import never_cache

from leaderboard.admin.base import CurationAdmin
from leaderboard.core.permissions import has_second_factor
from leaderboard.models import User

#: Tasks of curators, and model names of their lists. All other lists belong to the last task.
TASKS = {
    "Datasets": (
        "dataset", "benchmark", "round", "pool", "judgementimport", "rescore", "datasetversion", "qrels",
    ),
    "Submissions": (
        "entry", "challenge", "flag", "system", "quotaexception", "source", "measurement", "quotause",
    ),
    "Accounts": ("user", "team", "group", "agreement", "acceptance", "emailaddress"),
    "Operation": ("worker", "switch", "hardwareclass", "price"),
}  # fmt: skip
#: Lists that the index shows in one line, because the site or other tasks write their rows.
RECORDS = frozenset({
    "datasetversion", "qrels", "source", "measurement", "quotause", "acceptance", "emailaddress", "auditrecord",
    "notice", "webhook", "delivery",
})  # fmt: skip


def pending_rows(request: HttpRequest) -> list[dict[str, Any]]:
    """Return the pending decisions that the user may see: `count`, `words`, `address`, `model`, `oldest`, and `since`.

    The address is that of the list, or of the row itself if there is only one. The oldest row has waited since `since`.
    """
    pending = []
    for model, page in admin.site._registry.items():
        if not isinstance(page, CurationAdmin) or page.pending is None:
            continue
        app, name = model._meta.app_label, model._meta.model_name
        field = page.pending_since
        if request.user.has_perm(f"{app}.view_{name}") and (rows := page.pending_rows().order_by(field or "pk")):
            singular, plural, query = page.pending
            words, address = plural, reverse(f"admin:{app}_{name}_changelist") + query
            if len(rows) == 1:
                words, address = singular, reverse(f"admin:{app}_{name}_change", args=[rows[0].pk])
            pending.append({
                "count": len(rows), "words": words, "address": address, "model": model, "oldest": rows[0],
                "since": getattr(rows[0], field) if field else None,
            })  # fmt: skip
    return pending


_django_index, _get_django_app_list = admin.site.index, admin.site.get_app_list


def index(request: HttpRequest, extra_context: dict[str, Any] | None = None) -> TemplateResponse:
    """Show the index page, with all pending decisions, problems and figures of the site, and lists grouped by task."""
    pending, groups = pending_rows(request), task_groups(request)
    problems: list[tuple[str, str]] = []
    figures: list[tuple[str, int, str]] = []
    for group in groups:
        lists = [entry for entry in group["models"] if entry["object_name"].lower() not in RECORDS]
        group |= {"lists": lists, "records": [each for each in group["models"] if each not in lists]}
        group["task_pages"] = []
        for entry in lists:
            page = admin.site._registry[entry["model"]]
            waiting = [row for row in pending if row["model"] is entry["model"]]
            entry |= {"waiting": waiting, "total": entry["model"]._default_manager.count()}
            if isinstance(page, CurationAdmin):
                group["task_pages"] += page.task_links(request)
                sentences, numbers = page.operations()
                problems += [(sentence, entry["admin_url"]) for sentence in sentences]
                figures += [(*number, entry["admin_url"]) for number in numbers]
    context = {"problems": problems, "figures": figures, "waiting": pending, "app_list": groups}
    return _django_index(request, {**(extra_context or {}), **context})


def task_groups(request: HttpRequest, app_label: str | None = None) -> list[dict[str, Any]]:
    """Return the lists that the user may see, grouped by task.

    If `app_label` is given, return Django's lists of that application instead.
    """
    lists = _get_django_app_list(request, app_label)
    if app_label is not None:
        return lists
    tasks = {name: task for task, names in TASKS.items() for name in names}
    positions = {name: number for number, name in enumerate(tasks)}
    entries = [entry for group in lists for entry in group["models"]]
    groups: dict[str, list[Any]] = {task: [] for task in TASKS}
    for entry in sorted(entries, key=lambda entry: positions.get(entry["model"]._meta.model_name, len(positions))):
        groups[tasks.get(entry["model"]._meta.model_name, list(TASKS)[-1])].append(entry)
    return [{"name": task, "app_label": slugify(task), "models": models} for task, models in groups.items() if models]


@never_cache
def login(request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
    """Redirect to the sign-in page, to the second factor, or to the requested page.

    Raises PermissionDenied if the user is not active staff.
    """
    destination = request.GET.get("next") or request.POST.get("next") or ""
    is_own_url = url_has_allowed_host_and_scheme(destination, {request.get_host()}, require_https=request.is_secure())
    if not is_own_url or destination.startswith(reverse("admin:login")):
        destination = reverse("admin:index")
    query = urlencode({"next": destination})
    person = request.user
    if not isinstance(person, User):
        return redirect(f"{reverse('account_login')}?{query}")
    if not (person.is_active and person.is_staff):
        raise PermissionDenied
    if person.curates:
        return HttpResponseRedirect(destination)  # `redirect` would also accept the name of a view.
    if has_second_factor(person):
        return redirect(f"{get_adapter().get_reauthentication_methods(person)[0]['url']}?{query}")
    messages.warning(request, "Curation requires a second factor. Set one up here, then continue.")
    return redirect("mfa_index")


admin.site.site_title = settings.SITE_NAME
admin.site.index_title = "Curation"
admin.site.empty_value_display = "—"
admin.site.index_template = "admin/curation_index.html"
admin.site.index = index  # type: ignore[method-assign]
admin.site.get_app_list = task_groups  # type: ignore[method-assign]
# Use the site's sign-in page, which has rate limits and a second factor.
admin.site.login = login  # type: ignore[method-assign]
admin.site.has_permission = lambda request: getattr(request.user, "curates", False)  # type: ignore[method-assign]
