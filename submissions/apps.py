"""Configuration of the submissions application."""

from django.apps import AppConfig
from django.core.checks import register


class SubmissionsConfig(AppConfig):
    """Application for submitting, running, and scoring, with accounts and teams."""

    name = "submissions"
    verbose_name = "Submissions"

    def ready(self) -> None:
        """Register signal handlers and the check of engines."""
        from submissions.accounts import access  # noqa: F401
        from submissions.core.checks import check_engines

        register(check_engines)
