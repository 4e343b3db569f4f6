"""Who may do what is asked in one place for the public site and in one for submissions, and nowhere else."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
#: The two homes; the admin, which asks for its models' rights; where rights are given; and the terminal's commands.
HOMES = (
    "leaderboard/core/permissions.py", "leaderboard/core/permissions.py", "leaderboard/models/accounts.py",
    "leaderboard/admin/", "leaderboard/management/", "submissions/admin/", "submissions/accounts/",
)  # fmt: skip
#: How somebody's rights are asked for past the homes.
ASKED = re.compile(r"\.(curates|is_staff|is_superuser|has_perms?|has_module_perms)\b")


def test_rights_are_asked_for_in_their_homes_alone() -> None:
    elsewhere = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for folder in ("leaderboard", "submissions")
        for path in (ROOT / folder).rglob("*.py")
        if not str(path.relative_to(ROOT)).startswith(HOMES) and "migrations" not in path.parts
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if ASKED.search(line)
    ]
    assert not elsewhere, elsewhere
