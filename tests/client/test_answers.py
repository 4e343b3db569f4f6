"""The types of what the site answers: they follow the API's schema, and the client follows them."""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command

from packages.client_answers import ROOT, TARGET, generate_answers


def schema() -> dict[str, Any]:
    printed = io.StringIO()
    call_command("spectacular", format="openapi-json", stdout=printed)
    found: dict[str, Any] = json.loads(printed.getvalue())
    return found


def test_the_types_are_those_of_the_schema() -> None:
    told = "The API's answers have changed: run `python packages/client_answers.py`."
    assert generate_answers(schema()) == TARGET.read_text(), told


def test_a_type_that_is_not_known_is_no_type() -> None:
    changed = schema()
    changed["components"]["schemas"]["Submission"]["properties"]["state"]["type"] = "decimal"
    with pytest.raises(KeyError, match="decimal"):
        generate_answers(changed)


@pytest.mark.long
def test_a_field_of_another_name_is_noticed(tmp_path: Path) -> None:
    renamed = (("Submission", "state"), ("Upload", "offset"), ("Recipe", "run_sha256"), ("Row", "rank"))
    shutil.copytree(TARGET.parent, tmp_path / "runboard", ignore=shutil.ignore_patterns("__pycache__"))
    changed = schema()
    for name, field in renamed:
        properties = changed["components"]["schemas"][name]["properties"]
        properties["renamed"] = properties.pop(field)
    (tmp_path / "runboard/answers.py").write_text(generate_answers(changed))
    checked = [sys.executable, "-m", "mypy", "--strict", "--config-file", ROOT / "pyproject.toml"]
    done = subprocess.run(
        [*checked, "--cache-dir", tmp_path / "cache", tmp_path / "runboard"],
        cwd=tmp_path, env={**os.environ, "MYPYPATH": str(ROOT)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 1, done.stdout + done.stderr
    for name, field in renamed:
        assert f'TypedDict "{name}" has no key "{field}"' in done.stdout
