"""The admin site: its first page with what waits for a curator, and its way in.

The way in is the site's own sign-in, and the second factor where staff need one: curation has no form of its own.
"""

from typing import Any

from allauth.mfa.models import Authenticator
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
from leaderboard.models import User

#: What curators come for, and the lists for it, by the names of their models. What none names is under the last.
TASKS = {
    "Datasets and judgements": (
        "dataset", "datasetversion", "benchmark", "qrels", "pool", "judgementimport", "rescore",
    ),
    "Results and flags": ("entry", "challenge", "flag", "system", "source", "measurement"),
    "Rounds and agreements": ("round", "agreement", "acceptance"),
    "People and teams": ("user", "team", "quotaexception", "quotause", "emailaddress", "group"),
    "System": (),
}  # fmt: skip


def pending_rows(request: HttpRequest) -> list[dict[str, Any]]:
    """Return what waits for a decision of this person: number, words, address, and `model`."""
    waiting = []
    for model, page in admin.site._registry.items():
        if not isinstance(page, CurationAdmin) or page.pending is None:
            continue
        app, name = model._meta.app_label, model._meta.model_name
        if request.user.has_perm(f"{app}.view_{name}") and (count := page.pending_rows().count()):
            one, several, query = page.pending
            address = reverse(f"admin:{app}_{name}_changelist") + query
            words = one if count == 1 else several
            waiting.append({"count": count, "words": words, "address": address, "model": model})
    return waiting


_index, _lists = admin.site.index, admin.site.get_app_list


def index(request: HttpRequest, extra_context: dict[str, Any] | None = None) -> TemplateResponse:
    """Show the admin's first page with everything that waits for a decision."""
    waiting, groups = pending_rows(request), task_groups(request)
    for each in (each for group in groups for each in group["models"]):
        each["waiting"] = [row for row in waiting if row["model"] is each["model"]]
    return _index(request, {**(extra_context or {}), "waiting": waiting, "app_list": groups})


def task_groups(request: HttpRequest, app_label: str | None = None) -> list[dict[str, Any]]:
    """Return the lists that this person may see, grouped by task instead of by application."""
    lists = _lists(request, app_label)
    if app_label is not None:
        return lists
    *tasks, last = TASKS
    place = {name: (task, number) for task in tasks for number, name in enumerate(TASKS[task])}
    groups: dict[str, list[Any]] = {task: [] for task in TASKS}
    for each in (each for group in lists for each in group["models"]):
        groups[place.get(each["model"]._meta.model_name, (last, 0))[0]].append(each)
    return [
        {
            "name": task,
            "app_label": slugify(task),
            "app_url": f"{reverse('admin:index')}#{slugify(task)}",
            "models": sorted(found, key=lambda each: place.get(each["model"]._meta.model_name, (last, 0))[1]),
        }
        for task, found in groups.items()
        if found
    ]


@never_cache
def login(request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
    """Send on: to sign in, to set up or show a second factor, or to where somebody wanted to go."""
    destination = request.GET.get("next") or request.POST.get("next") or ""
    own = url_has_allowed_host_and_scheme(
        destination, {request.get_host()}, require_https=request.is_secure()
    )
    if not own or destination.startswith(reverse("admin:login")):
        destination = reverse("admin:index")
    query = urlencode({"next": destination})
    person = request.user
    if not isinstance(person, User):
        return redirect(f"{reverse('account_login')}?{query}")
    if not (person.is_active and person.is_staff):
        raise PermissionDenied
    if person.curates:
        return HttpResponseRedirect(destination)  # an address, and no name of a view
    if Authenticator.objects.filter(user=person, type=Authenticator.Type.TOTP).exists():
        return redirect(f"{reverse('mfa_reauthenticate')}?{query}")
    messages.warning(request, "Curation needs a second factor. Set one up here, then go on.")
    return redirect("mfa_activate_totp")


admin.site.site_header = f"{settings.SITE_NAME} curation"
admin.site.site_title = settings.SITE_NAME
admin.site.index_title = "Curation"
admin.site.index_template = "admin/curation_index.html"
admin.site.index = index  # type: ignore[method-assign]
admin.site.get_app_list = task_groups  # type: ignore[method-assign]
# One sign-in page, with its limits on attempts and its second factor.
admin.site.login = login  # type: ignore[method-assign]
admin.site.has_permission = lambda request: getattr(request.user, "curates", False)  # type: ignore[method-assign]
