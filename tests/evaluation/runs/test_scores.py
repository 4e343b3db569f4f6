"""The numbers that the reader of runs reads."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from evaluation.core.order import trec_order
from evaluation.judgements.qrels import Qrels
from evaluation.runs.score import ScoringTarget, score_run

written = st.one_of(
    st.floats(-3e38, 3e38).map(repr),
    st.floats(-(2.0**127), 2.0**127, width=32).map(lambda value: f"{value:.17g}"),
    st.from_regex(r"[+-]?[0-9]{1,25}(\.[0-9]{0,25})?([eE][+-]?[0-9]{1,2})?", fullmatch=True),
).filter(lambda text: abs(float(text)) < 3.4e38)


@given(st.lists(written, min_size=2, max_size=12))
@settings(
    max_examples=200,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_scores_are_rounded_as_python_and_then_numpy_round_them(tmp_path: Path, scores: list[str]) -> None:
    """Any two texts compare as float32(float(text)) do: seen from the ranks that they give."""
    names = [f"d{number}" for number in range(len(scores))]
    path = tmp_path / "run"
    path.write_text("".join(f"1 Q0 {name} 1 {score} t\n" for name, score in zip(names, scores, strict=True)))
    order = trec_order(names, np.array([float(score) for score in scores]))
    grades = {names[index]: place + 1 for place, index in enumerate(order.tolist())}
    # rising grades from the best to the worst: nDCG tells every order from every other
    expected = sum(grade / np.log2(grade + 1) for grade in grades.values())
    ideal = sum(grade / np.log2(rank + 2) for rank, grade in enumerate(sorted(grades.values(), reverse=True)))
    scored = score_run(path, ScoringTarget(Qrels.from_dict({"1": grades})), ["nDCG"])
    assert abs(scored.means["nDCG"] - expected / ideal) < 1e-12
