"""What operators turn on and off while the site runs."""

from __future__ import annotations

from django.db import models


class Switch(models.Model):
    """One thing that is on or off. Written by the admin, which records who, when and why."""

    class Name(models.TextChoices):
        """What there is to be switched."""

        HUB_DOWNLOADS = "hub_downloads", "workers fetch models from the hub"

    name = models.CharField(max_length=40, unique=True, choices=Name.choices)
    is_on = models.BooleanField("on", default=False)
    changed_at = models.DateTimeField(auto_now=True)

    class Meta:
        ordering = ["name"]
        verbose_name_plural = "switches"

    def __str__(self) -> str:
        return str(self.Name(self.name).label)


def is_on(name: Switch.Name) -> bool:
    """Whether it was turned on."""
    return Switch.objects.filter(name=name, is_on=True).exists()
