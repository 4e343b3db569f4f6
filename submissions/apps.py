"""The submissions' Django application."""

from django.apps import AppConfig


class SubmissionsConfig(AppConfig):
    """Intake, queue, people."""

    name = "submissions"
    verbose_name = "Submissions"
