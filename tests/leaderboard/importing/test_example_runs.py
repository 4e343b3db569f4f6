"""The example runs: small, the same every time, and what they say of themselves."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from django.conf import settings

from leaderboard.core.storage.store import Area, path_of
from leaderboard.datasets.files import StoredFile
from leaderboard.importing.examples import EXAMPLE_DEPTH, store_example_runs, truncate_run
from leaderboard.models import Dataset


def write_run(path: Path, queries: int, depth: int, query: str = "q", document: str = "d") -> Path:
    """A run of so many queries and documents a query."""
    path.write_text(
        "".join(
            f"{query}{number} Q0 {document}{rank} {rank} {depth - rank}.123456 bm25\n"
            for number in range(queries)
            for rank in range(1, depth + 1)
        )
    )
    return path


def content(kept: StoredFile) -> bytes:
    """The bytes of a stored file."""
    return path_of(Area.FILES, kept.sha256).read_bytes()


def test_the_example_is_the_baseline_cut_to_its_first_documents(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run.txt", 3, EXAMPLE_DEPTH + 20)
    (example,) = store_example_runs(Dataset(slug="tiny"), run, tmp_path)
    assert (example.kind, example.name) == ("example_run", "tiny.bm25.run.txt.gz")
    assert "100 documents per query" in example.description
    expected = [line for line in run.read_text().splitlines() if int(line.split()[3]) <= EXAMPLE_DEPTH]
    assert gzip.decompress(content(example.stored_file)).decode().splitlines() == expected
    assert len(expected) == 3 * EXAMPLE_DEPTH


def test_the_same_run_makes_the_same_bytes_without_a_time(tmp_path: Path) -> None:
    for name in ("1", "2"):
        (tmp_path / name).mkdir()
    kept = [
        store_example_runs(Dataset(slug="tiny"), write_run(tmp_path / name / "r", 2, 120), tmp_path / name)[
            0
        ].stored_file
        for name in ("1", "2")
    ]
    assert kept[0] == kept[1]
    assert content(kept[0])[4:8] == bytes(4)


def test_three_hundred_queries_with_the_longest_ids_are_checked_at_once(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run.txt", 300, EXAMPLE_DEPTH + 1, "q" * 253, "d" * 253)
    size = truncate_run(run, tmp_path / "cut.txt", EXAMPLE_DEPTH).stat().st_size
    assert 15 * 2**20 < size <= settings.VALIDATE_AT_ONCE_BYTES


@pytest.mark.parametrize(
    ("slug", "kinds"), [("tiny", ["example_run"]), ("stdlibsearch", ["example_run", "broken_run"])]
)
def test_the_demo_alone_has_a_broken_run(tmp_path: Path, slug: str, kinds: list[str]) -> None:
    examples = store_example_runs(Dataset(slug=slug), write_run(tmp_path / "run.txt", 2, 60), tmp_path)
    assert [example.kind for example in examples] == kinds
    for example in examples[1:]:
        assert example.name == "stdlibsearch.broken.run.txt"
        assert len(content(example.stored_file).splitlines()) == 40
