"""The tokens people drive the site with."""

from __future__ import annotations

from django.db import models
from knox.models import AbstractAuthToken


class ApiToken(AbstractAuthToken):
    """A token for the API: knox keeps its hash, its expiry and whose it is; we keep what it is called and its use."""

    name = models.CharField(max_length=80, blank=True)
    last_used_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["-created"]
