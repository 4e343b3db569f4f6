"""Workers and queues, for operators: one page, which follows by itself."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.http import HttpRequest
from django.template.response import TemplateResponse
from django.urls import URLPattern, path
from django.views.decorators.cache import never_cache

from leaderboard.admin.base import ReadOnlyAdmin
from leaderboard.core.permissions import may_operate
from submissions.models import Worker
from submissions.status.overview import overview


@admin.register(Worker)
class WorkerAdmin(ReadOnlyAdmin):
    """Not a list of rows to open, but what they and the jobs' rows tell together."""

    def get_urls(self) -> list[URLPattern]:
        """This page alone."""
        view = self.admin_site.admin_view(never_cache(self.changelist_view))
        return [path("", view, name="submissions_worker_changelist")]

    def has_module_permission(self, request: HttpRequest) -> bool:
        """Whoever may enter the admin."""
        return self.has_view_permission(request)

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Whoever may enter the admin: it tells nothing of judgements or scores."""
        return request.user.is_active and may_operate(request.user)

    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> TemplateResponse:
        """The page."""
        values = {
            **self.admin_site.each_context(request),
            "opts": self.model._meta,
            "title": "Workers and queues",
            "overview": overview(),
        }
        return TemplateResponse(request, "admin/submissions/workers.html", values)
