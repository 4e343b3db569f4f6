"""Switches that operators change while the site runs."""

from __future__ import annotations

from django.db import models


class Switch(models.Model):
    """A setting that is on or off. Written by the admin, which records who changed it, when, and why."""

    class Name(models.TextChoices):
        """Available switches."""

        HUB_DOWNLOADS = "hub_downloads", "workers download models from the Hugging Face Hub, and images from registries"

    name = models.CharField(max_length=40, unique=True, choices=Name.choices)
    is_on = models.BooleanField("on", default=False)
    changed_at = models.DateTimeField(auto_now=True)

    class Meta:
        ordering = ["name"]
        verbose_name_plural = "switches"

    def __str__(self) -> str:
        return str(self.Name(self.name).label)


def is_on(name: Switch.Name) -> bool:
    return Switch.objects.filter(name=name, is_on=True).exists()
