"""What each process loads: libraries of models are for the sandboxed child alone, and none is there for nothing.

No process that serves, dispatches or scores loads a library of models, nor a client of S3, which only workers that run
models need. pandas and plotly are loaded for the first figure.
"""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from collections import defaultdict
from collections.abc import Mapping, Set
from functools import cache
from pathlib import Path

import pytest

from tests.reported_boards import load_reported
from tests.servers.processes import on_test_database
from tests.structure.measure import PACKAGES, python_files

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
ON_DEMAND = {"pandas", "plotly"}
#: What the project is said to stand on, as it is imported; and psycopg, which Django imports.
STANDS_ON = ["django", "celery", "redis", "pytrec_eval", "numpy", "pandas", "plotly"]
STANDS_ON += ["sentence_transformers", "torch"]
#: Addresses, and what of `ON_DEMAND` a process has loaded once it has answered them one after the other.
ANSWERS: dict[str, set[str]] = {
    "/benchmarks/beir/": set(),
    "/benchmarks/beir/?view=delta&architecture=dense": set(),
    "/datasets/fiqa/": set(),
    "/figures/": set(),
    "/benchmarks/beir/board.json": set(),
    "/benchmarks/beir/board.csv": set(),
    "/figures/wins.json?benchmark=beir": ON_DEMAND,
}

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


ANSWERING = f"""import json, sys, leaderboard.wsgi
from django.test import Client
from django.test.utils import setup_test_environment
setup_test_environment()
for address in {list(ANSWERS)!r}:
    assert Client().get(address).status_code == 200, address
    print(json.dumps(sorted(sys.modules)))"""


def loaded_by(program: str, **environment: str) -> list[set[str]]:
    """What a fresh process has loaded, each time that it says so."""
    done = subprocess.run(
        [sys.executable, "-c", f"import sys\nsys.path.insert(0, '.')\n{program}"],
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return [set(json.loads(line)) for line in done.stdout.splitlines() if line.startswith("[")]


@pytest.mark.parametrize("imports", [SITE, EVALUATION], ids=["web, worker and beat", "engines and checkpoints"])
def test_a_fresh_process_loads_no_library_of_models(imports: str, tmp_path: Path) -> None:
    program = f"import json, sys\n{imports}\nprint(json.dumps(sorted(sys.modules)))"
    (loaded,) = loaded_by(program, RUNBOARD_VAR=str(tmp_path), STORE_STORAGE="s3://bucket/prefix")
    assert not loaded & (OF_MODELS | OF_STORAGE | ON_DEMAND)


@pytest.mark.django_db(transaction=True)
def test_a_figure_loads_pandas_and_plotly_and_boards_and_their_exports_neither() -> None:
    load_reported()
    loaded = loaded_by(ANSWERING, **on_test_database())
    assert [each & ON_DEMAND for each in loaded] == list(ANSWERS.values())


@cache
def users_of_packages() -> Mapping[str, Set[str]]:
    """Return the files of product and client that import and use each package, not only for its types."""
    users = defaultdict(set)
    for path in (path for each in (*PACKAGES, "client/runboard") for path in python_files(ROOT, each)):
        tree = ast.parse(path.read_text())
        for node in ast.walk(tree):
            if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
                node.body = []
        packages = {}
        used = set()
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    package = alias.name.partition(".")[0]
                    packages[alias.asname or package] = package
            elif isinstance(node, ast.ImportFrom) and node.module:
                package = node.module.partition(".")[0]
                packages |= {alias.asname or alias.name: package for alias in node.names}
            elif isinstance(node, ast.Name):
                used.add(node.id)
        for name in used & packages.keys():
            users[packages[name]].add(str(path.relative_to(ROOT)))
    return users


@pytest.mark.parametrize("package", STANDS_ON)
def test_product_code_works_with_what_the_project_stands_on(package: str) -> None:
    assert users_of_packages()[package]


def test_django_speaks_to_postgresql_through_psycopg(tmp_path: Path) -> None:
    program = "import json, sys, leaderboard.wsgi\nprint(json.dumps(sorted(sys.modules)))"
    url = "postgresql://nobody@localhost/nothing"
    (loaded,) = loaded_by(program, RUNBOARD_VAR=str(tmp_path), DATABASE_URL=url)
    assert "psycopg" in loaded


def test_what_the_web_needs_is_part_of_what_everything_needs_and_has_no_models() -> None:
    assert "-r docker/requirements-web.txt" in (ROOT / "requirements.txt").read_text().splitlines()
    web, everything = (requirements(ROOT / name) for name in ("docker/requirements-web.txt", "requirements.txt"))
    assert not web & OF_MODELS
    assert {"torch", "sentence-transformers", "transformers"} <= everything
    assert not web & everything, "each version is written once"
