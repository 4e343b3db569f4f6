"""Docstrings, messages, pages, and documentation follow the style guide in CONTRIBUTING.md."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.structure.writing import ROOT, WRITTEN, findings

PRODUCT = ("evaluation", "leaderboard", "submissions", "client/runboard")
Definition = ast.FunctionDef | ast.AsyncFunctionDef
#: Longer public functions need a docstring; shorter ones only where the name and the types do not say it.
LONGEST_WITHOUT_DOCSTRING = 5


@pytest.mark.parametrize("path", WRITTEN)
def test_no_sentence_hides_its_subject(path: str) -> None:
    assert [str(finding) for finding in findings([ROOT / path])] == []


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.py", '"""What the board shows first."""\n'),
        ("a.py", "# The file is read by whoever is asked.\nx = 1\n"),
        ("a.py", 'raise ValueError("The file is fine. Nobody reads it.")\n'),
        ("a.html", "<p>{# Where results are. #}</p><p>Whose results\nare shown here.</p>"),
        ("a.md", "# Which is a heading\n\nThe table is short. Of these rows two are told apart.\n"),
        ("a.js", "// How a figure is drawn.\n"),
    ],
)
def test_openings_and_phrases_are_found(name: str, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.structure.writing.ROOT", tmp_path)
    (tmp_path / name).write_text(text, encoding="utf-8")
    assert list(findings([tmp_path / name]))


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.py", '"""Return the rows. What is missing is None?"""\nx = "By default nothing is shown."\n'),
        ("a.html", "<p>As of {{ day }} the board has two rows. What changed?</p>"),
        ("a.md", "# How boards are ranked\n\n`What it is` stays code.\n\n```\nWho knows.\n```\n"),
    ],
)
def test_questions_headings_and_code_are_left_alone(
    name: str, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.structure.writing.ROOT", tmp_path)
    (tmp_path / name).write_text(text, encoding="utf-8")
    assert [str(finding) for finding in findings([tmp_path / name])] == []


def test_longer_public_functions_and_all_public_classes_have_docstrings() -> None:
    missing = [
        f"{path.relative_to(ROOT)}:{node.lineno}: {node.name}"
        for package in PRODUCT
        for path in sorted((ROOT / package).rglob("*.py"))
        if "migrations" not in path.parts
        for node in _public(ast.parse(path.read_text(encoding="utf-8")), inherits=False)
        if ast.get_docstring(node) is None and _length(node) > LONGEST_WITHOUT_DOCSTRING
    ]
    assert missing == []


def _public(node: ast.AST, inherits: bool) -> Iterator[Definition | ast.ClassDef]:
    """Yield public classes and functions; methods of subclasses are documented by their base class."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.ClassDef) and not child.name.startswith("_") and child.name not in ("Meta", "Command"):
            yield child
            yield from _public(child, inherits=bool(child.bases))
        elif isinstance(child, Definition) and not (inherits or child.name.startswith("_")):
            yield child


def _length(node: Definition | ast.ClassDef) -> int:
    """Return the number of lines of the body."""
    return (node.end_lineno or 0) - node.body[0].lineno + 1
