"""Figures in docs/ are written by what measured them, and a missed bound is a failure."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pytest

from tests import figures
from tests.benchmarks import __main__ as benchmarks
from tests.figures import PLACE, ROOT, Figures

PAGES = tuple(f"docs/measurements/{name}.md" for name in ("speed", "load", "attack", "reliability"))
PROGRAM = "tests/benchmarks/small_run.py"
PAGE = f"""# Speed

Before.

<!-- figures: {PROGRAM} -->

old

<!-- end -->

Between.

<!-- figures: tests/benchmarks/board.py -->

another's

<!-- end -->
"""


@pytest.fixture
def page(tmp_path: Path) -> Path:
    path = tmp_path / "page.md"
    path.write_text(PAGE)
    return path


def test_a_table_takes_its_own_place_and_leaves_the_rest(page: Path) -> None:
    measured = Figures(str(ROOT / PROGRAM), "make it")
    measured.table(["", "CPU ms", "bound"], [["ours", "2.0", measured.bound("ours", 2.0, 3, " ms")]])
    assert measured.finish(page) == 0
    text = page.read_text()
    assert "old" not in text
    assert "|  | CPU ms | bound |\n|---|--:|--:|\n| ours | 2.0 | ≤ 3 ms |\n" in text
    assert PLACE.sub("", text) == PLACE.sub("", PAGE)
    assert [found[1] for found in PLACE.finditer(text)] == [found[1] for found in PLACE.finditer(PAGE)]
    assert "\nanother's\n" in text
    machine = r".+, \d+ cores · load \d+\.\d before, \d+\.\d after"
    made = rf"`make it` · commit \S+( with changes)? · \d{{4}}-\d\d-\d\d · {machine} · \d+ s\n"
    assert re.search(made, text)
    measured.finish(page)
    assert page.read_text().count("| ours |") == 1


@pytest.mark.parametrize("found", [3.1, math.nan])
def test_a_missed_bound_fails_and_is_named(found: float, page: Path, capsys: pytest.CaptureFixture[str]) -> None:
    measured = Figures(str(ROOT / PROGRAM))
    assert measured.bound("ours", found, 3, " ms") == "**≤ 3 ms, missed**"
    assert measured.finish(page) == 1
    assert f"{figures.MISSED}{PROGRAM}: ours: {found:.3g} ms, bound ≤ 3 ms\n" in capsys.readouterr().out
    assert f"- ours: {found:.3g} ms, bound ≤ 3 ms\n" in page.read_text()


def test_a_page_without_the_place_is_refused(page: Path) -> None:
    before = page.read_text()
    with pytest.raises(ValueError, match=r"0 places for tests/benchmarks/dense\.py"):
        Figures(str(ROOT / "tests/benchmarks/dense.py")).finish(page)
    assert page.read_text() == before


def test_all_benchmarks_are_run_and_each_missed_bound_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    texts = {
        "missing": f"print('{figures.MISSED}one'); print('{figures.MISSED}two'); raise SystemExit(1)",
        "failing": "raise SystemExit(3)",
        "without": f"print('{figures.SKIPPED}no device')",
        "good": "import sys; assert sys.argv[1] == '--write'; print('a table')",
    }
    for name, text in texts.items():
        (tmp_path / f"{name}.py").write_text(text)
    assert benchmarks.main([tmp_path / f"{name}.py" for name in texts]) == 1
    said = capsys.readouterr().out
    assert "a table" in said
    assert said.endswith(
        "== 0 minutes, 3 bounds missed, or scripts failed:\none\ntwo\nfailing.py ended with 3\n"
        "not measured: without.py, no device\n"
    )
    assert benchmarks.main([tmp_path / "good.py"]) == 0


def test_every_program_has_its_place_and_every_place_its_program() -> None:
    places = [(found[1], page) for page in PAGES for found in PLACE.finditer((ROOT / page).read_text())]
    scripts = {str(script.relative_to(ROOT)) for script in benchmarks.scripts()}
    assert len(scripts) > 5
    assert {program for program, page in places if program.startswith("tests/benchmarks/")} == scripts
    assert len(places) == len(dict(places))
    makefile = (ROOT / "Makefile").read_text()
    for program, page in places:
        assert "Figures(__file__" in (ROOT / program).read_text(), program
        if program in scripts:
            assert page == str(benchmarks.PAGE.relative_to(ROOT))
        elif program == "tests/faults/conftest.py":
            assert f"RUNBOARD_FAULTS_PAGE={page} " in makefile
        else:
            assert re.search(rf"{re.escape(program)}.* --write {page}\n", makefile), program


def test_every_place_is_closed() -> None:
    for page in PAGES:
        text = (ROOT / page).read_text()
        assert len(PLACE.findall(text)) == text.count("<!-- figures:") == text.count("<!-- end -->"), page
