"""The notebook `score_a_run`: its cells run, and its run is one that the site scores alike."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


def test_the_notebook_scores_runs_as_runboard_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    notebook = json.loads((ROOT / "examples/score_a_run.ipynb").read_text(encoding="utf-8"))
    monkeypatch.chdir(tmp_path)
    variables: dict[str, Any] = {}
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            exec("".join(cell["source"]), variables)
    assert not variables["pt"].java.started()
    table = variables["table"].set_index("name")
    assert table.loc["fused", "nDCG@10"] > table.loc["BM25", "nDCG@10"]
    names = [str(measure) for measure in variables["measures"]]
    for system, file in (("BM25", "bm25.txt"), ("fused", "fused.txt")):
        command = [sys.executable, "-m", "evaluation", "score", "--json", "--measures", ",".join(names)]
        command += ["--qrels", str(tmp_path / "qrels.txt"), "--run", str(tmp_path / file)]
        output = subprocess.run(command, check=True, capture_output=True, timeout=120, cwd=ROOT)
        assert json.loads(output.stdout)["means"] == pytest.approx(dict(table.loc[system, names]), abs=1e-9)
    theirs = {str(measure): value for measure, value in variables["scores"].items()}
    assert theirs == pytest.approx(dict(table.loc["BM25", names]), abs=1e-9)
