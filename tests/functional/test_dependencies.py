"""Libraries of models are for the sandboxed child alone: no process that serves, dispatches or scores loads them.

Nor does any of these load a client of S3, which only workers that run models need.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
OF_MODELS = {
    "torch",
    "transformers",
    "sentence_transformers",
    "sentence-transformers",
    "tokenizers",
    "safetensors",
}
OF_MODELS |= {"faiss", "faiss-cpu", "huggingface_hub", "huggingface-hub"}
OF_STORAGE = {"boto3", "botocore", "storages", "django-storages"}

SITE = """import leaderboard.wsgi, leaderboard.urls, submissions.urls, leaderboard.celery
leaderboard.celery.app.loader.import_default_modules()
import submissions.tasks
leaderboard.celery.app.Beat()"""
EVALUATION = """import importlib, pkgutil, evaluation.efficiency, evaluation.engines, evaluation.checkpoints as package
for module in pkgutil.iter_modules(package.__path__): importlib.import_module(f"{package.__name__}.{module.name}")"""


def requirements(path: Path) -> set[str]:
    """The names of what a file of requirements asks for, without what it includes."""
    lines = (line.partition("#")[0].strip() for line in path.read_text().splitlines())
    return {line.partition("==")[0].partition("[")[0].lower() for line in lines if line and line[0] != "-"}


@pytest.mark.parametrize(
    "imports", [SITE, EVALUATION], ids=["web, worker and beat", "engines and checkpoints"]
)
def test_a_fresh_process_loads_no_library_of_models(imports: str, tmp_path: Path) -> None:
    program = f"import json, sys\nsys.path.insert(0, '.')\n{imports}\nprint(json.dumps(sorted(sys.modules)))"
    environment = {
        **os.environ,
        "DJANGO_SETTINGS_MODULE": "leaderboard.settings",
        "RUNBOARD_VAR": str(tmp_path),
        "EMBEDDINGS_STORAGE": "s3://bucket/prefix",
    }
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    loaded = set(json.loads(done.stdout.splitlines()[-1]))
    assert not loaded & (OF_MODELS | OF_STORAGE)


def test_what_the_web_needs_is_part_of_what_everything_needs_and_has_no_models() -> None:
    assert "-r docker/requirements-web.txt" in (ROOT / "requirements.txt").read_text().splitlines()
    web, everything = (
        requirements(ROOT / name) for name in ("docker/requirements-web.txt", "requirements.txt")
    )
    assert not web & (OF_MODELS | OF_STORAGE)
    assert {"torch", "sentence-transformers", "transformers"} <= everything
    assert not web & everything, "each version is written once"
