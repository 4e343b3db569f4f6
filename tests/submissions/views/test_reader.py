"""What a reader does with a board, from the first filter to a table in their paper and an address that lasts."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect
from pylatexenc.latexwalker import LatexEnvironmentNode, LatexWalker

from leaderboard.models import Dataset
from submissions.queue.queue import create_requested_jobs
from tests.submissions.clients import Api
from tests.submissions.collections import run_text
from tests.submissions.workers import work

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]

#: Name, architecture, and how many of the first documents its run leaves out.
SYSTEMS = (("Alpha", "dense", 0), ("Beta", "dense", 1), ("Gamma", "dense", 2), ("Omega", "fusion", 0))


@pytest.fixture
def board(demo: Dataset, baseline: None, api: Api) -> Dataset:
    """Four systems beside BM25, and what was found of them."""
    for name, architecture, skip in SYSTEMS:
        answer = api.submit(run_text(skip=skip, tag=name), system=name, architecture=architecture)
        assert answer.status == 201, answer.body
    found_out()
    return demo


def found_out() -> None:
    """Do what waits, and what that asks for."""
    for _ in range(2):
        work()
        create_requested_jobs()
    work()


def names(page: Page) -> list[str]:
    """The systems of the board, in its order."""
    return [cell.strip() for cell in page.locator("table.board tbody th.name a[href^='/systems/']").all_inner_texts()]


def figures(page: Page) -> list[str]:
    """The text of each row of the board, less what a reader can do with it."""
    return [re.sub(r"\s+", " ", row) for row in page.locator("table.board tbody tr:not(.figure-row)").all_inner_texts()]


def test_a_reader_goes_from_a_filter_to_a_citation(
    board: Dataset, api: Api, page: Page, live_server: Any, tmp_path: Path
) -> None:
    page.goto("/datasets/demo/")
    assert len(names(page)) == 5

    page.locator("#board-filters").click()
    page.get_by_role("checkbox", name=re.compile("^dense")).check()
    expect(page.get_by_text("3 of 5", exact=True)).to_be_visible()
    assert sorted(names(page)) == ["Alpha", "Beta", "Gamma"]

    page.get_by_role("link", name=re.compile("^R@100")).first.click()
    page.wait_for_url(re.compile(r"sort=R@100"))
    expect(page.locator("[aria-sort]")).to_contain_text("R@100")  # the address changes before the board does
    page.locator("#then-by").select_option("system")
    page.wait_for_url(re.compile(r"sort=R(@|%40)100.*&sort=system"))
    assert page.locator("[aria-sort]").count() == 1
    # Alpha and Beta find all that is relevant or the same part of it, so that the name decides between equals.
    in_order = names(page)
    assert in_order.index("Alpha") < in_order.index("Gamma")

    for name in ("Gamma", "Beta"):
        page.get_by_role("button", name=f"Pin {name}").click()
        expect(page.get_by_role("link", name=f"Unpin {name}")).to_be_visible()
    assert names(page)[:2] == ["Gamma", "Beta"]

    check_latex(page, tmp_path)
    permalink = page.get_by_role("link", name="Permalink").get_attribute("href")
    assert permalink is not None
    address = page.url
    then = figures(page)

    page.get_by_role("link", name="Compare pinned").click()
    page.wait_for_url(re.compile(r"/compare/\?.*system=gamma.*system=beta"))
    for name in ("Gamma", "Beta"):
        expect(page.get_by_role("columnheader", name=name).first).to_be_visible()

    assert api.submit(run_text(depth=10, tag="late"), system="Late", architecture="dense").status == 201
    found_out()
    page.goto(address)
    assert "Late" in names(page)
    page.goto(permalink)
    assert "Late" not in names(page)
    old = [stripped(row) for row in figures(page)]
    assert old == [stripped(row) for row in then]
    assert old


def stripped(row: str) -> str:
    """A row without the buttons of a board that lives."""
    return row.replace("Unpin", "").replace("Pin", "").strip()


def check_latex(page: Page, folder: Path) -> None:
    """The view as LaTeX has its rows, and compiles where there is a TeX, else it parses."""
    address = page.get_by_role("link", name="LaTeX").get_attribute("href")
    assert address is not None
    text = page.request.get(address).text()
    table = text[text.index(r"\begin{table}") :]
    for needed in (
        r"\toprule",
        r"\midrule",
        r"\bottomrule",
        r"\caption",
        "Gamma",
        "Beta",
        "Alpha",
        "randomization",
    ):
        assert needed in table, text
    assert "Omega" not in table, "the sentence above is of the whole board"
    compiler = shutil.which("pdflatex") or shutil.which("tectonic")
    if compiler:
        head = "\\documentclass{article}\n\\usepackage{array,booktabs,url}\n"
        (folder / "board.tex").write_text(f"{head}\\begin{{document}}\n{text}\n\\end{{document}}\n")
        subprocess.run([compiler, "board.tex"], cwd=folder, check=True, capture_output=True, stdin=subprocess.DEVNULL)
    nodes, _, _ = LatexWalker(text, tolerant_parsing=False).get_latex_nodes()
    tables = [node for node in nodes if isinstance(node, LatexEnvironmentNode)]
    assert [table.environmentname for table in tables] in (["table"], ["table*"])
