"""Only the sandboxed child imports the libraries of models, and only the web server imports the pages."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from submissions.sandbox import running

LIBRARIES = ("torch", "transformers", "sentence_transformers", "faiss", "numba")
#: All that web, worker and beat import at their start, in one process: what it lacks, each of them lacks.
PARENTS = """
import leaderboard.wsgi
from django.urls import get_resolver
get_resolver().url_patterns
from leaderboard.celery import app
app.loader.import_default_modules()
app.finalize()
import celery.apps.beat, celery.apps.worker, celery.beat
import submissions.tasks, submissions.jobs.runner
from submissions.sandbox import backend
backend()
"""


#: Imports of a Celery process at its start.
WORKER = "from leaderboard.celery import app\napp.loader.import_default_modules()"


def imported(code: str, modules: tuple[str, ...], state: Path) -> str:
    """Return which of the modules this code imports, as the printed list, or the error."""
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\nimport sys\nprint(sorted(set({modules!r}) & set(sys.modules)))"],
        cwd=Path(running.__file__).parents[2],
        env={"DJANGO_SETTINGS_MODULE": "leaderboard.settings", "RUNBOARD_VAR": str(state), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )
    return (done.stdout.splitlines() or [done.stderr])[-1]


def test_no_parent_imports_the_libraries_of_models(tmp_path: Path) -> None:
    """Neither at the start nor when a sandbox is looked for."""
    assert imported(PARENTS, LIBRARIES, tmp_path) == "[]"


def test_workers_do_not_import_the_pages(tmp_path: Path) -> None:
    """Each of the four Celery processes would take 25 MB more for them."""
    assert imported(WORKER, ("leaderboard.urls", "leaderboard.views", "submissions.tasks"), tmp_path) == (
        "['submissions.tasks']"
    )
