"""Admin for operators: workers and queues, switches, and delivery of notices.

Texts of notices, addresses, bodies, and secrets are not shown.
"""

from typing import Any

from django.conf import settings
from django.contrib import admin
from django.http import HttpRequest
from django.template.response import TemplateResponse
from django.urls import URLPattern, path
from django.views.decorators.cache import never_cache

from leaderboard.admin.base import CurationAdmin, ReadOnlyAdmin
from leaderboard.core.permissions import may_operate
from submissions.models import Delivery, Notice, Switch, Webhook, Worker
from submissions.status.overview import overview


@admin.register(Worker)
class WorkerAdmin(ReadOnlyAdmin):
    """Overview of workers and queues in place of a change list."""

    def get_urls(self) -> list[URLPattern]:
        view = self.admin_site.admin_view(never_cache(self.changelist_view))
        return [path("", view, name="submissions_worker_changelist")]

    def has_module_permission(self, request: HttpRequest) -> bool:
        return self.has_view_permission(request)

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Allow all users of the admin, because the page contains no judgments or scores."""
        return request.user.is_active and may_operate(request.user)

    def operations(self) -> tuple[list[str], list[tuple[str, int]]]:
        state = overview()
        return state.problems, state.figures

    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> TemplateResponse:
        """Show workers, queues, and running jobs."""
        values = {
            **self.admin_site.each_context(request),
            "opts": self.model._meta,
            "title": "Workers and queues",
            "overview": overview(),
        }
        return TemplateResponse(request, "admin/submissions/workers.html", values)


@admin.register(Switch)
class SwitchAdmin(CurationAdmin):
    """Admin of switches. A missing row means off; environment variables can also enable features."""

    list_display = ("__str__", "is_on", "environment", "changed_at")
    readonly_fields = ("environment",)
    may_delete = False

    @admin.display(description="Enabled by the environment")
    def environment(self, switch: Switch) -> str:
        return "HUB_DOWNLOADS" if settings.HUB_DOWNLOADS else "no"


@admin.register(Notice)
class NoticeAdmin(ReadOnlyAdmin):
    """Admin of notices, without their texts."""

    list_display = ("subject", "kind", "mail_state", "mail_attempts", "created_at")
    list_filter = ("kind", "mail_state", "created_at")
    search_fields = ("subject",)
    fields = ("subject", "kind", "mail_state", "mail_attempts", "not_before", "created_at")


@admin.register(Webhook)
class WebhookAdmin(ReadOnlyAdmin):
    """Admin of webhooks. Only hosts are shown, because URLs can contain keys."""

    list_display = ("team", "host", "active", "created_at")
    list_filter = ("active",)
    list_select_related = ("team",)
    search_fields = ("team__name", "team__slug")
    fields = ("team", "host", "active", "active_since", "created_at")
    readonly_fields = ("host",)


@admin.register(Delivery)
class DeliveryAdmin(ReadOnlyAdmin):
    """Admin of webhook deliveries."""

    list_display = ("event", "team", "host", "state", "attempts", "answer", "created_at", "sent_at")
    list_filter = ("state", "event", "created_at")
    list_select_related = ("webhook__team",)
    search_fields = ("webhook__team__name", "webhook__team__slug")
    fields = ("event", "team", "host", "state", "attempts", "answer", "not_before", "created_at", "sent_at")
    readonly_fields = ("team", "host")

    @admin.display(ordering="webhook__team__name")
    def team(self, delivery: Delivery) -> str:
        return str(delivery.webhook.team)

    @admin.display
    def host(self, delivery: Delivery) -> str:
        return delivery.webhook.host
