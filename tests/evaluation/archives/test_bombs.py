"""Files of a few bytes to a few MiB, of which a GiB and more would come out, end in a refusal and in little memory."""

from __future__ import annotations

from pathlib import Path

from tests.fuzz.bombs import BOMBS, MAX_MB, judged


def test_every_bomb_is_refused_and_all_of_them_in_little_memory(tmp_path: Path) -> None:
    files = []
    for number, bomb in enumerate(BOMBS.values()):
        path = tmp_path / str(number)
        path.write_bytes(bomb.make())
        files.append((bomb.sent_as, path))

    result = judged(files)

    codes = {name: [code for code, _ in found] for name, found in zip(BOMBS, result["verdicts"], strict=True)}
    assert {name for name, bomb in BOMBS.items() if bomb.code not in codes[name]} == set()
    assert all(len(sentence) < 500 for found in result["verdicts"] for _, sentence in found)
    assert result["peak_mb"] < MAX_MB
