"""The table of figures in docs/benchmarks.md is generated, and a release needs figures of its own code."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests import result_table
from tests.figures import table
from tests.result_table import MEASUREMENTS, NOT_MEASURED, PAGE, RESULTS, Result, is_current, problems, write

EMPTY_PAGE = "# Speed\n\n<!-- results -->\n<!-- end -->\n\nMore.\n"
MADE = "`make it` · commit {} · 2026-11-30 · A processor, 2 cores · load 0.1 before, 0.2 after · 3 s"


def measurements(bm25: str = "abc", gpu: str = "abc") -> str:
    """Return a page with the places of all results, of which only BM25's and a GPU's have figures."""
    cells = table(["", "BM25", "bm25s", "bound"], [["search, CPU s, median of 10", "1,500.00", "1,000.00", "≤ 2"]])
    texts = {result.program: "*Not run in full yet.*" for result in RESULTS}
    texts["bm25"] = f"{MADE.format(bm25)}\n\n{cells}"
    on_gpu = table(["encoding", "documents a second"], [["ours", "10,532"], ["bare", "3,000"]])
    texts["gpu"] = f"{MADE.format(gpu)}\n\n{on_gpu}" if gpu else texts["gpu"]
    return "".join(
        f"<!-- figures: tests/benchmarks/{name}.py -->\n\n{text}\n\n<!-- end -->\n" for name, text in texts.items()
    )


def test_the_table_has_figures_with_their_ratio_commit_and_date() -> None:
    page = write(EMPTY_PAGE, measurements(), "abc".__eq__)
    row = (
        "| BM25, 1,000 queries on 200,000 documents | 1,500.00 CPU s | bm25s: 1,000.00 | 1.5 | met | abc | 2026-11-30 |"
    )
    assert row in page.splitlines()
    assert "| GPU: encoding documents, batch 1,024 | 10,532 documents a second | sentence-transformers: 3,000 |" in page
    assert page.startswith("# Speed\n")
    assert page.endswith("\n<!-- end -->\n\nMore.\n")
    assert write(page, measurements(), "abc".__eq__) == page
    assert "| missed |" in write(EMPTY_PAGE, measurements().replace("≤ 2", "**≤ 1.2, missed**"), "abc".__eq__)


@pytest.mark.parametrize("gpu", ["", "def", "abc with changes"])
def test_a_gpu_is_not_measured_unless_it_was_by_this_code(gpu: str) -> None:
    page = write(EMPTY_PAGE, measurements(gpu=gpu), "abc".__eq__)
    assert f"| GPU: encoding documents, batch 1,024 | {NOT_MEASURED} |" in page


def test_a_release_needs_figures_of_its_own_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        result_table, "RESULTS", [result for result in RESULTS if result.program in ("bm25", "gpu")][::2]
    )
    text = measurements(gpu="")
    page = write(EMPTY_PAGE, text, "abc".__eq__)
    assert problems(page, text, "abc".__eq__) == []
    (old,) = problems(page, text, "def".__eq__)
    assert old.startswith("BM25, 1,000 queries on 200,000 documents: measured at abc (2026-11-30)")
    assert problems(page.replace("1.5", "1.2"), text, "abc".__eq__) == ["The table differs from docs/measurements."]
    monkeypatch.setattr(result_table, "RESULTS", RESULTS)
    assert "coordinating 64 devices, share of a core: not measured" in problems(page, text, "abc".__eq__)


def test_the_page_has_the_table_of_the_measurements() -> None:
    def rows(page: str) -> list[str]:
        """Return the rows that every machine writes; those of a GPU depend on the present code."""
        return [line for line in page.splitlines() if not line.startswith("| GPU:")]

    assert rows(write(PAGE.read_text(), MEASUREMENTS.read_text())) == rows(PAGE.read_text())


@pytest.mark.parametrize("result", RESULTS, ids=lambda result: result.task)
def test_every_result_names_a_cell_of_its_script(result: Result) -> None:
    text = MEASUREMENTS.read_text()
    (place,) = (found[2] for found in result_table.PLACE.finditer(text) if found[1].endswith(f"/{result.program}.py"))
    cells = result_table.read_cells(place)
    assert result.cell in cells
    assert not result.peer or result.peer_cell in cells


def test_a_commit_is_current_while_the_packages_are_unchanged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def git(*words: str) -> str:
        identity = ("-c", "user.name=A", "-c", "user.email=a@example.org")
        command = ["git", *identity, *words]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True).stdout.strip()

    def commit_file(name: str) -> str:
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(name)
        git("add", name)
        git("commit", "-qm", name)
        return git("rev-parse", "--short=10", "HEAD")

    git("init", "-q")
    monkeypatch.setattr(result_table, "ROOT", tmp_path)
    for package in result_table.PACKAGES:
        first = commit_file(f"{package}/one.py")
    commit_file("docs/page.md")
    assert is_current(first)
    assert not is_current(f"{first} with changes")
    assert not is_current("0123456789")
    commit_file("submissions/two.py")
    assert not is_current(first)
