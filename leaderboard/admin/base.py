"""What the admin pages have in common."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.db import models
from django.http import HttpRequest


class CurationAdmin(admin.ModelAdmin):
    """Pages that curators edit."""

    formfield_overrides = {models.URLField: {"assume_scheme": "https"}}


class ReadOnlyAdmin(CurationAdmin):
    """Rows that only the site itself writes."""

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Never by hand."""
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Never by hand."""
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Never by hand."""
        return False
