"""System check of retrieval engines, run by `manage.py check`."""

import re
from collections.abc import Iterator, Sequence
from typing import Any

from django.apps import AppConfig
from django.conf import settings
from django.core.checks import CheckMessage, Error

from evaluation.engines import ENGINES, EngineDescription
from leaderboard.models import System
from submissions.models import Submission

_PAGE = "docs/engines.md"


def check_engines(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> list[CheckMessage]:
    """Return an error for each fault in the engine descriptions that pages, the API, and commands read."""
    return [
        Error(
            f"The engine {engine.name!r} of {engine.create.__module__} is incomplete: {fault}.",
            hint=hint,
            id="submissions.E001",
        )
        for engine in ENGINES.values()
        for fault, hint in _find_faults(engine)
    ]


def _find_faults(engine: EngineDescription) -> Iterator[tuple[str, str]]:
    """Yield each fault of an engine with a hint on where to fix it.

    Faults are those of its description, a name or architecture that is too long for its column, and a missing section
    in docs/engines.md.
    """
    for fault in engine.faults():
        yield fault, f"Correct its EngineDescription in {engine.create.__module__}."
    for attribute, column in (
        ("name", Submission._meta.get_field("engine")),
        ("architecture", System._meta.get_field("architecture")),
    ):
        if len(getattr(engine, attribute)) > (max_length := getattr(column, "max_length", 0)):
            yield f"its {attribute} has more than {max_length} characters", f"Shorten it: {column} stores it."
    page = (settings.BASE_DIR / _PAGE).read_text(encoding="utf-8")
    if not re.search(rf"^#+ .*`{re.escape(engine.name)}`", page, re.MULTILINE):
        yield (
            f"{_PAGE} does not describe it",
            f"Add a section to {_PAGE} with `{engine.name}` in its heading.",
        )
