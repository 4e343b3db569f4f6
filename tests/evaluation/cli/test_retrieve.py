"""`python -m evaluation retrieve` and `engines`: what they print, and how they refuse."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import pytest

from evaluation.cli.retrieve import add_parser


def run_command(*words: str | Path) -> int:
    """Run a command as `python -m evaluation` does, and return its exit status."""
    parser = argparse.ArgumentParser()
    add_parser(parser.add_subparsers())
    arguments = parser.parse_args([str(word) for word in words])
    status: int = arguments.run(arguments)
    return status


@pytest.fixture
def files(tmp_path: Path) -> list[str | Path]:
    corpus, queries = tmp_path / "corpus.jsonl", tmp_path / "queries.jsonl"
    rows = [{"_id": "d1", "title": "", "text": "running dogs"}, {"_id": "d2", "title": "dog", "text": "x"}]
    corpus.write_text("".join(json.dumps(row) + "\n" for row in rows))
    queries.write_text('{"_id": "q1", "text": "dog"}\n')
    return ["--corpus", corpus, "--queries", queries, "--out", tmp_path / "run.txt"]


def test_retrieve_writes_a_run_and_says_what_it_did(
    files: list[str | Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command("retrieve", *files, "--k1", "1.2", "--tag", "mine", "--depth", "5") == 0
    lines = (tmp_path / "run.txt").read_text().splitlines()
    assert [line.split()[2] for line in lines] == ["d1", "d2"]
    assert lines[0].endswith(" mine")
    said = capsys.readouterr().err
    assert "2 lines for 1 of 1 queries over 2 documents" in said
    assert "k1 = 1.2" in said
    assert "English, Porter" in said


def test_options_reach_the_engine(files: list[str | Path], tmp_path: Path) -> None:
    assert run_command("retrieve", *files, "--no-stemming", "--fields", "text", "--engine", "bm25") == 0
    assert (tmp_path / "run.txt").read_text() == ""
    assert run_command("retrieve", *files, "--stemming", "false", "--fields", "text") == 0
    assert (tmp_path / "run.txt").read_text() == ""


def test_spellings_of_a_language_give_the_same_run(files: list[str | Path], tmp_path: Path) -> None:
    runs = set()
    for language in ("en", "eng", "eng-Latn", "English"):
        assert run_command("retrieve", *files, "--language", language) == 0
        runs.add((tmp_path / "run.txt").read_bytes())
    assert len(runs) == 1


def test_help_tells_parameters_of_one_name_apart(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        run_command("retrieve", "--help")
    said = " ".join(capsys.readouterr().out.split())
    assert "default: title+text; bm25" in said
    assert "default: multifield; bm25-multifield)" in said
    assert "--no-stemming" in said


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--engine", "nope"], "no engine 'nope'"),
        (["--b", "7"], "b = '7' is not valid"),
        (
            ["--language", "xx"],
            "language = 'xx' is not valid. “xx” is neither the code nor the English name",
        ),
        (["--tag", "two words"], "tag"),
        (["--depth", "0"], "at least 1"),
        (["--threads", "0"], "at least 1"),
        (["--engine", "dense"], "specify a checkpoint"),
        (["--checkpoint", "."], "bm25 runs no model"),
        (["--runs", "x.txt"], "accepts 0 runs"),
        (["--rrf-k", "60"], "bm25 has no parameter rrf_k"),
        (["--corpus", "/nowhere/corpus.jsonl"], "/nowhere/corpus.jsonl"),
    ],
)
def test_a_wrong_option_is_refused_in_one_line(
    files: list[str | Path], capsys: pytest.CaptureFixture[str], options: list[str], message: str
) -> None:
    assert run_command("retrieve", *files, *options) == 2
    said = capsys.readouterr().err
    assert message in said
    assert len(said.splitlines()) == 1


def test_a_broken_corpus_is_told_by_line(
    files: list[str | Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "corpus.jsonl").write_text('{"_id": "d1", "text": ""}\nbroken\n')
    assert run_command("retrieve", *files) == 1
    assert "corpus.jsonl: 1 line is not a JSON object (line 2)" in capsys.readouterr().err


def test_engines_lists_parameters_and_defaults(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command("engines") == 0
    listing = capsys.readouterr().out
    assert "bm25: " in listing
    assert "k1 = 0.9" in listing
    assert "bm25-multifield: " in listing
