"""The submissions' Django application."""

from django.apps import AppConfig
from django.core.checks import register


class SubmissionsConfig(AppConfig):
    """Intake, queue, people."""

    name = "submissions"
    verbose_name = "Submissions"

    def ready(self) -> None:
        """Connect the signals of signing in, and register the check of engines."""
        from submissions.accounts import access  # noqa: F401
        from submissions.core.checks import check_engines

        register(check_engines)
