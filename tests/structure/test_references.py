"""Files that code, comments, and documentation name exist."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
_FOLDERS = "assets|client|docker|docs|evaluation|examples|leaderboard|locks|packages|static|submissions|templates|tests"
_ENDINGS = "cfg|conf|css|csv|html|js|json|md|mjs|py|sh|sha256|sql|template|toml|txt|yaml|yml"
#: A path from the root of the repository, where nothing before it makes it one of another place.
_REFERENCE = re.compile(rf"(?<![\w/.$}}:*-])(?:{_FOLDERS})/[\w./-]*\w\.(?:{_ENDINGS})\b(?![\w*{{/])")
#: Files whose sentences are about the past.
_SKIPPED = {"CHANGELOG.md"}
#: Names that stand for others.
_EXAMPLES = {"leaderboard/core/formats/de/formats.py", "locks/NAME.txt", "docs/page.md", "submissions/two.py"}


def test_every_named_file_is_there() -> None:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout
    files = {name for name in listed.decode().split("\0") if name}
    dead = []
    for name in sorted(files - _SKIPPED):
        path = ROOT / name
        is_text = path.name == "Makefile" or path.suffix.lstrip(".") in _ENDINGS.split("|")
        if not (is_text and path.is_file()):
            continue
        text = path.read_text(encoding="utf-8", errors="ignore")
        dead += [
            f"{name}: {found}"
            for found in dict.fromkeys(_REFERENCE.findall(text))
            if found not in _EXAMPLES
            and not {found, f"templates/{found}", f"static/{found}"} & files
            and not (path.parent / found).exists()
        ]
    assert not dead, "\n".join(dead)
