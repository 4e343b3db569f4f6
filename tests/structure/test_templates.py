"""Templates can be translated: their sentences go through gettext, and their lines are short enough to read."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.structure.measure import TEMPLATE_LIMIT

ROOT = Path(__file__).resolve().parents[2] / "templates"
#: What has its own language or none: programs, what templates compute, and what is translated already.
NO_SENTENCE = re.compile(
    r"""\{%\ comment.*?endcomment\ %\}|\{\#.*?\#\}
    |\{%\ blocktranslate.*?endblocktranslate\ %\}|\{%\ block\ (?:bodyclass|skip_target)\ .*?endblock\b.*?%\}
    |<(pre|code|kbd|script|style|svg)\b.*?</\1\s*>|\{%.*?%\}|\{\{.*?\}\}|&\w+;""",
    re.DOTALL | re.VERBOSE,
)
TAG = re.compile(r"""<[a-zA-Z/!](?:"[^"]*"|'[^']*'|[^>"'])*>""")
READ_ALOUD = re.compile(r"""\b(?:aria-label|title|placeholder|alt|data-copy-label)=["']([^"']*)["']""")
#: Names, which are the same in every language.
NAMES = {"Runboard", "UTC", "API", "BM25", "CSV", "BibTeX", "Croissant", "TREC", "sha256"}
#: An element named by what it is given, so that its tag is no tag yet; it says nothing of its own.
TEMPLATES = sorted(set(ROOT.rglob("*.html")) - {ROOT / "allauth" / "elements" / "button.html"})


def untranslated(text: str) -> list[str]:
    """The words of a template that a reader sees, or hears, and no catalogue could change."""
    rest = NO_SENTENCE.sub(" ", text)
    seen = [*TAG.sub("\n", rest).split("\n"), *READ_ALOUD.findall(rest)]
    words = (re.findall(r"[^\W\d_]\w+", line) for line in seen)
    return [" ".join(line) for line in words if not NAMES.issuperset(line)]


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: str(path.relative_to(ROOT)))
def test_sentences_can_be_translated(path: Path) -> None:
    assert untranslated(path.read_text(encoding="utf-8")) == []


def test_a_bare_sentence_is_found() -> None:
    page = '{% load i18n %}<p title="Which one">{% translate "Said" %} <b>Not said</b></p>'
    assert untranslated(page) == ["Not said", "Which one"]


def test_numbers_choose_whole_sentences() -> None:
    """An ending that a filter adds is no plural in other languages, and hides the number where it takes its name."""
    wrong = [path for path in ROOT.rglob("*.*") if "pluralize" in path.read_text(encoding="utf-8")]
    assert wrong == []


def test_lines_are_short() -> None:
    long = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in TEMPLATES
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if len(line) > TEMPLATE_LIMIT
    ]
    assert long == []
