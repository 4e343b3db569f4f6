"""The submissions' Django application."""

from django.apps import AppConfig


class SubmissionsConfig(AppConfig):
    """Intake, queue, people."""

    name = "submissions"
    verbose_name = "Submissions"

    def ready(self) -> None:
        """Connect what follows from signing in."""
        from submissions.accounts import signals  # noqa: F401
