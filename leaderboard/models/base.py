"""Base classes of database models."""

from typing import Any

from django.db import models


class AppendOnly(models.Model):
    """Abstract model whose rows cannot be changed or deleted through instances."""

    class Meta:
        abstract = True

    def save(self, *args: Any, **kwargs: Any) -> None:
        """Save a new row. Raises TypeError for an existing one."""
        if not self._state.adding:
            raise TypeError(f"{self._meta.verbose_name_plural} are append-only")
        super().save(*args, **kwargs)

    def delete(self, *args: Any, **kwargs: Any) -> tuple[int, dict[str, int]]:
        """Raise TypeError, because the table is append-only."""
        raise TypeError(f"{self._meta.verbose_name_plural} are append-only")
