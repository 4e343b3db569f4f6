"""Only the sandboxed child imports the libraries of models: neither web nor worker nor beat does."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from submissions.sandbox import running

LIBRARIES = ("torch", "transformers", "sentence_transformers", "faiss")
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


def test_no_parent_imports_the_libraries_of_models(tmp_path: Path) -> None:
    """Neither at the start nor when a sandbox is looked for."""
    code = f"{PARENTS}\nimport sys\nprint(sorted(set({LIBRARIES!r}) & set(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=Path(running.__file__).parents[2],
        env={
            "DJANGO_SETTINGS_MODULE": "leaderboard.settings",
            "RUNBOARD_VAR": str(tmp_path),
            "PATH": "/usr/bin:/bin",
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.splitlines()[-1:] == ["[]"], done.stderr
