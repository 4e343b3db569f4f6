"""The examples of docs/worked-examples.md have the results that the page states."""

from __future__ import annotations

import doctest
import re
from pathlib import Path

import pytest

from evaluation.__main__ import main

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "worked-examples.md").read_text()
BLOCKS = re.findall(r"(?ms)^```(\w*)\n(.*?)^```$", PAGE)


def test_python_examples_print_the_stated_values() -> None:
    source = "".join(text for language, text in BLOCKS if language == "python")
    example = doctest.DocTestParser().get_doctest(source, {}, "worked-examples", None, None)
    assert len(example.examples) > 8
    assert doctest.DocTestRunner().run(example).failed == 0


def test_the_command_prints_the_stated_score(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    qrels, run = (text for language, text in BLOCKS if not language)
    Path("qrels.txt").write_text(qrels)
    Path("run.txt").write_text(run)
    [(command, output)] = re.findall(r"\$ python -m evaluation (.*)\n(.*)\n", PAGE)
    assert main(command.split()) == 0
    assert capsys.readouterr().out.split() == output.split()
