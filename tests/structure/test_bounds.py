"""The bounds on the size of the code in pyproject.toml."""

from __future__ import annotations

from pathlib import Path

from tests.structure.measure import PACKAGES, bounded, count_code_lines, exceeded_bounds

MODULE = '''"""A module."""

# a comment
def _helper(a, b, c, d, e, f):
    """Return nothing.

    Two lines more.
    """
    return """text
    of two lines"""


def use():
    return _helper(1, 2, 3, 4, 5, 6)
'''

SETTINGS = """LIMIT = env.int("LIMIT", default=1)
_HIDDEN, (FOLDER, env) = 1, (environ["RUNBOARD_VAR"], None)
"""


def write(root: Path, **bounds: float) -> None:
    for package in PACKAGES:
        (root / package).mkdir(exist_ok=True)
        (root / package / "__init__.py").write_text("")
        (root / package / "module.py").write_text(MODULE)
    (root / "leaderboard" / "settings").mkdir(exist_ok=True)
    (root / "leaderboard" / "settings" / "__init__.py").write_text(SETTINGS)
    lines = "".join(f"{key.replace('_', '-')} = {value}\n" for key, value in bounds.items())
    (root / "pyproject.toml").write_text(f"[tool.runboard.bounds]\n{lines}")


def test_code_lines_are_without_comments_docstrings_and_blank_lines() -> None:
    assert count_code_lines(MODULE) == 5


def test_figures_above_their_bounds_are_named(tmp_path: Path) -> None:
    bounds = {
        "evaluation_code_lines": 5, "submissions_code_lines": 5, "leaderboard_code_lines": 7, "longest_function": 7,
        "imports_per_file": 0,
        "functions_with_many_parameters": 3, "private_functions_called_once": 0.5, "settings": 2,
        "environment_variables": 2,
    }  # fmt: skip
    write(tmp_path, **bounds)
    assert bounded(tmp_path) == {key.replace("_", "-"): value for key, value in bounds.items()}
    assert exceeded_bounds(tmp_path) == []

    write(tmp_path, **{**bounds, "evaluation_code_lines": 4, "longest_function": 6})
    assert exceeded_bounds(tmp_path) == [
        "evaluation-code-lines is 5, and the bound in pyproject.toml is 4",
        "longest-function is 7, and the bound in pyproject.toml is 6",
    ]

    del bounds["longest_function"]
    write(tmp_path, **bounds, most_wishes=1)
    assert exceeded_bounds(tmp_path) == [
        "longest-function has no bound or no figure",
        "most-wishes has no bound or no figure",
    ]
