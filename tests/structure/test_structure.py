"""Where modules and tests may lie. Which sub-package may import which is checked by `make lint` (import-linter)."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.structure.measure import PACKAGES, components, imports, modules

ROOT = Path(__file__).resolve().parents[2]
#: Modules that may lie in a package's root: Django and Celery look for them there.
MAX_LOOSE = 6


@pytest.mark.parametrize("package", PACKAGES)
def test_a_root_has_few_loose_modules(package: str) -> None:
    loose = [path.name for path in (ROOT / package).glob("*.py") if not path.name.startswith("__")]
    assert len(loose) <= MAX_LOOSE, loose


def test_settings_are_four_files_at_most() -> None:
    assert len(list((ROOT / "leaderboard" / "settings").glob("*.py"))) <= 4


def test_no_files_import_each_other_in_a_circle() -> None:
    assert components(imports(ROOT)) == []


def test_every_module_says_what_it_is_for() -> None:
    silent = [
        str(path.relative_to(ROOT))
        for package in PACKAGES
        for path in modules(ROOT, package).values()
        if ast.get_docstring(ast.parse(path.read_text())) is None and "management/commands" not in str(path)
    ]
    assert silent == []


@pytest.mark.parametrize("package", PACKAGES)
def test_tests_lie_in_the_folder_of_a_sub_package(package: str) -> None:
    folder = ROOT / "tests" / package
    assert [path.name for path in folder.glob("test_*.py")] == []
    mirrored = {path.parent.relative_to(folder).parts[0] for path in folder.rglob("test_*.py")}
    assert mirrored <= {path.name for path in (ROOT / package).iterdir() if path.is_dir()}


def test_no_test_imports_a_conftest() -> None:
    importing = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in sorted((ROOT / "tests").rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, (ast.Import, ast.ImportFrom)) and "conftest" in ast.unparse(node)
    ]
    assert importing == []
