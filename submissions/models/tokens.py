"""API tokens and their scopes."""

from __future__ import annotations

from django.db import models
from knox.models import AbstractAuthToken


class Scope(models.TextChoices):
    """Permissions of a token. Scopes are independent; none includes another."""

    READ = "read", "read your private data"
    SUBMIT = "submit", "check files, submit, and cancel"
    MANAGE = "manage", "withdraw, publish, and hide results; challenges and webhooks"


def every_scope() -> list[str]:
    """Return the scopes of tokens that were created without choosing scopes."""
    return list(Scope.values)


class ApiToken(AbstractAuthToken):
    """API token. Knox stores its hash, expiry, and owner; this table adds its name, scopes, and last use."""

    name = models.CharField(max_length=80, blank=True)
    scopes = models.JSONField(default=every_scope)
    last_used_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["-created"]
