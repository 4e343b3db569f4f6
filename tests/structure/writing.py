"""Find sentences that the style guide in CONTRIBUTING.md rules out.

    .venv/bin/python tests/structure/writing.py [PATH ...]

Prints `path:line: finding: sentence` for docstrings, comments, messages, templates, scripts, and documentation below
the paths (default: all), and ends with status 1 if there are any.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
WRITTEN = (
    *("evaluation", "leaderboard", "submissions", "client/runboard", "docker", "examples"),
    *("templates", "static/js", "docs", "README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md"),
    *("Makefile", "pyproject.toml"),
)
SUFFIXES = {".py", ".html", ".txt", ".js", ".md", ".toml", ""}

#: Words that open a clause without a subject, unless the sentence is a question or one of the usual phrases.
OPENING = re.compile(
    r"(?:What|Who|Whoever|Whose|Whom|Those|That of|How|Where|Which|Of|By|As|So many|Nobody|Somebody|Beside)\b"
    r"(?! default\b| of (?:…|version|today)| query on\b| changed\b| to\b)"
)
#: Phrases that hide who acts, or that replace a plain verb.
PHRASE = re.compile(
    r"\b(?:nobody|somebody|whoever|whomever|so many|(?:is|are|was|were|be|been) (?:told|passed over|taken off)"
    r"|(?:is|are|was|were) made of|of its own accord|want of|has (?:left|gone) for)\b",
    re.IGNORECASE,
)
SENTENCE = re.compile(r"[^.!?]+(?:[.!?](?!\s|$)[^.!?]*)*[.!?]?")
MARKUP = re.compile(r"{%.*?%}|{{.*?}}|{#.*?#}|<(script|style)\b.*?</\1>|<[^>]*>", re.DOTALL)
CODE = re.compile(r"^```.*?^```|^ {4}.*?$|`[^`\n]*`|<!--.*?-->", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Finding:
    """A sentence that needs rewriting."""

    path: Path
    line: int
    kind: str
    sentence: str

    def __str__(self) -> str:
        return f"{self.path.relative_to(ROOT)}:{self.line}: {self.kind}: {self.sentence}"


def findings(paths: Sequence[Path]) -> Iterator[Finding]:
    """Yield the findings in the files at and below the paths."""
    for path in paths:
        files = [path] if path.is_file() else sorted(path.rglob("*"))
        for file in files:
            if file.is_file() and file.suffix in SUFFIXES and "migrations" not in file.parts:
                for line, text in _texts(file):
                    yield from _check(file, line, text)


def _check(path: Path, line: int, text: str) -> Iterator[Finding]:
    for match in SENTENCE.finditer(text):
        sentence = " ".join(match[0].split())
        first = line + text[: match.start()].count("\n")
        opening = OPENING.match(sentence)
        if opening and not sentence.endswith("?") and len(sentence.split()) > 2:
            yield Finding(path, first, f"opens with {opening[0]}", sentence)
        if phrase := PHRASE.search(sentence):
            yield Finding(path, first, f"says {phrase[0]}", sentence)


def _texts(path: Path) -> Iterator[tuple[int, str]]:
    """Yield each text of a file with its first line; code and markup are blanked out."""
    content = path.read_text(encoding="utf-8")
    if path.suffix == ".py":
        yield from _python_texts(content)
    elif path.suffix in (".html", ".txt"):
        yield from _blocks(MARKUP.sub(_blank, content))
    elif path.suffix == ".md":
        yield from _blocks(CODE.sub(_blank, content))
    elif path.suffix == ".js":
        for number, line in enumerate(content.splitlines(), 1):
            if comment := re.search(r"(?:^|\s)//\s*(.*)|^\s*/?\*+\s*(.*)", line):
                yield number, comment[1] or comment[2] or ""
            else:
                yield from ((number, text) for text in re.findall(r"[\"'`]([A-Z][^\"'`]* [^\"'`]*)[\"'`]", line))
    else:
        comments = re.compile(r"##? (.*)")
        for number, line in enumerate(content.splitlines(), 1):
            if comment := comments.search(line):
                yield number, comment[1]


def _python_texts(content: str) -> Iterator[tuple[int, str]]:
    """Yield docstrings, comments (adjacent lines joined), and string constants of several words."""
    for node in ast.walk(ast.parse(content)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
            yield node.lineno, node.value
    comments: list[tuple[int, str]] = []
    for token in tokenize.generate_tokens(io.StringIO(content).readline):
        if token.type == tokenize.COMMENT:
            text = token.string.lstrip("#: ")
            if comments and comments[-1][0] + comments[-1][1].count("\n") == token.start[0] - 1:
                comments[-1] = comments[-1][0], f"{comments[-1][1]}\n{text}"
            else:
                comments.append((token.start[0], text))
    yield from comments


def _blocks(text: str) -> Iterator[tuple[int, str]]:
    """Yield paragraphs, list items, and table cells, without headings."""
    for match in re.finditer(r"(?:^(?!\s*$|#).*\n?)+", text, re.MULTILINE):
        first = text[: match.start()].count("\n") + 1
        for part in re.finditer(
            r"(?:^\s*[-*] |^\s*\d+\. |\|)?((?:(?!^\s*[-*] |^\s*\d+\. |\|).|\n)+)", match[0], re.MULTILINE
        ):
            yield first + match[0][: part.start(1)].count("\n"), part[1].strip(" *_|")


def _blank(match: re.Match[str]) -> str:
    """Replace markup or code by a placeholder with the same line ends."""
    return "\n" * match[0].count("\n") if "\n" in match[0] else "…" if match[0].startswith(("`", "{{")) else " "


def main(arguments: Sequence[str]) -> int:
    """Print the findings and return the exit status."""
    result = list(findings([ROOT / path for path in arguments or WRITTEN]))
    print(*result, sep="\n")
    return 1 if result else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
