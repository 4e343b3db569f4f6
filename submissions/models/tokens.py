"""The tokens people drive the site with."""

from __future__ import annotations

from django.db import models
from knox.models import AbstractAuthToken


class Scope(models.TextChoices):
    """What a token may be used for. Each is a permission of its own: none includes another."""

    READ = "read", "read what only you may see"
    SUBMIT = "submit", "check and submit, cancel"
    MANAGE = "manage", "withdraw, show and hide results, challenges, webhooks"


def every_scope() -> list[str]:
    """The scopes of a token for which none were chosen, as those made before there were any."""
    return list(Scope.values)


class ApiToken(AbstractAuthToken):
    """A token for the API: knox keeps its hash, its expiry and whose it is; we keep what it is called and its use."""

    name = models.CharField(max_length=80, blank=True)
    scopes = models.JSONField(default=every_scope)
    last_used_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["-created"]
