"""Switches of the site, for who operates it."""

from __future__ import annotations

from django.conf import settings
from django.contrib import admin

from leaderboard.admin.base import CurationAdmin
from submissions.models import Switch


@admin.register(Switch)
class SwitchAdmin(CurationAdmin):
    """What is on or off; no row is off. Variables of the environment may turn the same thing on."""

    list_display = ("__str__", "is_on", "environment", "changed_at")
    readonly_fields = ("environment",)
    may_delete = False

    @admin.display(description="Turned on by the environment")
    def environment(self, switch: Switch) -> str:
        """The variable that has it on whatever the switch says."""
        return "HUB_DOWNLOADS" if settings.HUB_DOWNLOADS else "no"
