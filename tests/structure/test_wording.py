"""Texts use the words of the field: phrases that once stood in their place do not come back."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
#: By what a writer should say, what none says.
PHRASES = {
    "Methodology": "How numbers are made",
    "Efficiency protocol": "How costs are measured",
    "Export view": "This view as",
    "Columns": "Columns to leave out",
    "ranked separately": "ranked apart from",
    "Next query": "Query after →",
    "unjudged": "not judged: a hole",
    "closed API": "behind a closed interface",
    "significance": "whether differences are real",
    "Overlap of the top 10": "What they find first",
    "Configuration": "Made here with",
    "Other facts": "Beside the scores",
    "Cite and export": "Take it away",
    "Similar collections": "Nearest collections",
    "Load the data": "Load it</h2>",
    "Open and upcoming": "On and announced",
    "Submissions so far": "So far</h2>",
    "is under review": "somebody doubts what",
    "Missing queries score 0": "queries that a run misses score",
    "accepted and flagged for review": "Runs that look like probes are taken",
    "You don't have access": "This is not yours to see",
    "This link has expired": "This link works no longer",
    "Check your e-mail": "Look into your mail",
    "Registration is closed": "Nobody can sign up now",
    "Notification settings": "What I am told of",
    "Allow reuse": "Let others build on it",
    "This page updates automatically": "This page follows it to the end",
    "Upload run files": "Bring TREC run files",
    "Estimated time": "Probably takes",
    "Resume upload": "Go on with an upload",
    "Latest results": "Newest results",
    "Failures in the last day": "Ended badly",
}  # fmt: skip
WRITTEN = (
    *ROOT.joinpath("templates").rglob("*.html"),
    *ROOT.joinpath("templates").rglob("*.txt"),
    *(file for folder in ("leaderboard", "submissions", "evaluation") for file in ROOT.joinpath(folder).rglob("*.py")),
    *ROOT.joinpath("static/js").glob("*.js"),
    *ROOT.joinpath("docs").glob("*.md"),
    ROOT / "README.md",
)


@pytest.mark.parametrize(("better", "phrase"), PHRASES.items())
def test_no_text_says_what_has_a_better_word(better: str, phrase: str) -> None:
    lines = {file: re.sub(r'"\s*f?"', "", " ".join(file.read_text(encoding="utf-8").split())) for file in WRITTEN}
    found = [str(file.relative_to(ROOT)) for file, text in lines.items() if phrase in text]
    assert not found, f"say “{better}”"
