"""Tests of the statements about certainty that boards, lists, and notices share."""

from leaderboard.boards.wording import significance_text
from leaderboard.results.significance.statements import Statement


def test_a_difference_that_correction_loses_is_called_significant_only_before_correction() -> None:
    lost = Statement(better=False, worse=True, p=0.015, p_corrected=0.137, comparisons=17)
    assert significance_text(lost, -0.1, "nDCG@10") == (
        "significant only before correction: p = 0.015, Holm-corrected p = 0.137"
    )
    holds = Statement(better=True, worse=False, p=0.001, p_corrected=0.017, comparisons=17)
    assert significance_text(holds, 0.1, "nDCG@10") == "significant: p = 0.001, Holm-corrected p = 0.017"
    same = Statement(better=True, worse=False, p=0.0001, p_corrected=0.0006, comparisons=6)
    assert significance_text(same, 0.1, "nDCG@10") == "significant: p < 0.001 before and after Holm correction"
    close = Statement(better=True, worse=False, p=0.0484, p_corrected=0.0496, comparisons=17)
    assert significance_text(close, 0.1, "nDCG@10") == "significant: p = 0.048, Holm-corrected p just below 0.05"
    beyond = Statement(better=True, worse=False, p=0.049996, p_corrected=0.0503, comparisons=17)
    assert significance_text(beyond, 0.1, "nDCG@10").endswith(": p just below 0.05, Holm-corrected p = 0.050")
    few = Statement(better=True, p=0.031, p_corrected=0.156, comparisons=5, least_p=0.156, sample="6 datasets")
    least = "p = 0.031, Holm-corrected p = 0.156; the smallest possible with 6 datasets"
    assert significance_text(few, 0.1, "nDCG@10") == f"significant only before correction: {least}"
    single = Statement(better=True, worse=False, p=0.001, p_corrected=0.001, comparisons=1)
    assert significance_text(single, 0.1, "nDCG@10") == "significant: p = 0.001"
    assert significance_text(Statement(better=False, worse=False), 0.1, "nDCG@10") == "not significant"
