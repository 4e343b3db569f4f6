"""The Django project and everything the public sees: datasets, systems, results, boards."""

import tomllib
from pathlib import Path

from leaderboard.celery import app as celery_app

__all__ = ["VERSION", "celery_app"]

#: The version in `pyproject.toml`; workers report it.
VERSION: str = tomllib.loads(Path(__file__).parents[1].joinpath("pyproject.toml").read_text())["project"]["version"]
