"""Names of measures, in every spelling that is understood."""

from __future__ import annotations

from contextlib import suppress

import ir_measures
import pytest

from evaluation.measures.registry import (
    DEFAULT_MEASURES,
    FAMILIES,
    Measure,
    UnknownMeasureError,
    parse_measure,
)


@pytest.mark.parametrize(("spelling", "name"), [
    ("nDCG@10", "nDCG@10"), ("ndcg_cut_10", "nDCG@10"), ("ndcg_cut.10", "nDCG@10"), ("NDCG@10", "nDCG@10"),
    ("ndcg_at_10", "nDCG@10"), ("ndcg", "nDCG"), ("map", "AP"), ("MAP", "AP"), ("map_cut_100", "AP@100"),
    ("MAP@10", "AP@10"),
    ("map_at_10", "AP@10"), ("recip_rank", "RR"), ("MRR@10", "RR@10"), ("mrr_at_10", "RR@10"), ("MRR", "RR"),
    ("P_5", "P@5"), ("precision_at_5", "P@5"), ("recall_100", "R@100"), ("Recall@100", "R@100"),
    ("recall_at_100", "R@100"), ("success_5", "Success@5"), ("hit_rate_at_5", "Success@5"), ("R_cap@100", "R_cap@100"),
    ("bpref", "Bpref"), ("Rprec", "Rprec"), ("Hole@10", "Hole@10"), ("hole_at_10", "Hole(beir)@10"),
    ("Hole(beir)@10", "Hole(beir)@10"), ("P(rel=2)@10", "P(rel=2)@10"), ("AP(rel=2)", "AP(rel=2)"),
    ('nDCG(dcg="exp-log2")@10', "nDCG(dcg='exp-log2')@10"), (" nDCG(dcg='exp-log2') @ 10 ", "nDCG(dcg='exp-log2')@10"),
    ("RBP", "RBP(p=0.8)"), ("rbp(p=.95)@20", "RBP(p=0.95)@20"), ("RBP(rel=2, p=0.50)", "RBP(p=0.5,rel=2)"),
    ("RBP(rel=2)", "RBP(p=0.8,rel=2)"), ("J@10", "Judged@10"),
])  # fmt: skip
def test_spellings(spelling: str, name: str) -> None:
    assert parse_measure(spelling).name == name


@pytest.mark.parametrize("text", [
    "", "nDCG@0", "nDCG@x", "P", "R", "Bpref@10", "nDCG(rel=2)@10", "Accuracy@5", "AP@1000000", "@10",
    "Hole(other)@10", "RBP(p=1)", "RBP(p=1.5)", "RBP(p=0.0)", "RBP(p=-0.5)", "RBP(q=0.5)", "RBP(p=0.12345)",
    "P(p=0.5)@10",
])  # fmt: skip
def test_names_that_are_none(text: str) -> None:
    with pytest.raises(UnknownMeasureError):
        parse_measure(text)


@pytest.mark.parametrize(("spelling", "name"), [
    # ranx
    ("hit_rate@10", "Success@10"), ("mrr@10", "RR@10"), ("map@100", "AP@100"), ("f1@5", "F1@5"), ("bpref", "Bpref"),
    ("r_precision", "Rprec"), ("rbp.95", "RBP(p=0.95)"), ("ndcg_burges@10", "nDCG(dcg='exp-log2')@10"),
    ("precision@10-l2", "P(rel=2)@10"), ("map@100-l2", "AP(rel=2)@100"), ("r_precision-l3", "Rprec(rel=3)"),
    # ir_measures
    ("P@10(rel=2)", "P(rel=2)@10"), ("RR(rel=2)@10", "RR(rel=2)@10"), ("Success(rel=2)@5", "Success(rel=2)@5"),
    ("Judged@10", "Judged@10"), ("RBP(p=0.95)@20", "RBP(p=0.95)@20"), ("nDCG@20", "nDCG@20"), ("RPrec", "Rprec"),
    # trec_eval
    ("ndcg_cut.100", "nDCG@100"), ("map_cut.10", "AP@10"), ("P.5", "P@5"), ("recall.100", "R@100"),
    ("success_1", "Success@1"), ("P_10(rel=2)", "P(rel=2)@10"),
    # MTEB and BEIR
    ("precision_at_1", "P@1"), ("map_at_100", "AP@100"), ("hit_rate_at_10", "Success@10"), ("Recall@100", "R@100"),
    ("recall_cap_at_10", "R_cap@10"),
    # people
    ("hit@10", "Success@10"), ("HitRate@10", "Success@10"), ("ndcg_10", "nDCG@10"), ("MRR_10", "RR@10"),
    ("err@20", "ERR@20"), ("iprec_at_recall_0.50", "IPrec@0.5"), ("IPrec@0.10", "IPrec@0.1"), ("IPrec@1.0", "IPrec@1"),
    ("IPrec(rel=2)@0.3", "IPrec(rel=2)@0.3"), ("set_P", "SetP"), ("set_map", "SetAP"),
    ("ERR-IA@20", "ERR_IA@20"), ("alpha-nDCG@20", "alpha_nDCG@20"), ("α_nDCG@5", "alpha_nDCG@5"), ("MAP_IA", "AP_IA"),
    ("strec@10", "StRecall@10"), ("nNRBP(alpha=0.5,beta=0.5)", "nNRBP"), ("infAP(rel=2)", "infAP(rel=2)"),
    ("SetP(relative=True)", "SetRelP"), ("SetF(beta=1.0)", "SetF"), ("set_recall", "SetR"),
    ("R-precision", "Rprec"), ("average_precision@10", "AP@10"), ("reciprocal_rank", "RR"),
])  # fmt: skip
def test_spellings_of_other_tools(spelling: str, name: str) -> None:
    assert parse_measure(spelling).name == name


@pytest.mark.parametrize(("spelling", "name"), [
    ("nDCG(dcg='log2')@10", "nDCG@10"), ('nDCG(dcg="log2")@10', "nDCG@10"), ("nDCG(dcg='log2')", "nDCG"),
    ("nDCG(judged_only=False, dcg='log2')@10", "nDCG@10"), ("nDCG@10(judged_only=False)", "nDCG@10"),
    ("nDCG(dcg='exp-log2',judged_only=False)@10", "nDCG(dcg='exp-log2')@10"),
    ("AP(judged_only=False)", "AP"), ("MAP(judged_only=False)@100", "AP@100"), ("RR(judged_only=False)@10", "RR@10"),
    ("P(judged_only=False)@5", "P@5"), ("R(judged_only=False)@100", "R@100"), ("Rprec(judged_only=False)", "Rprec"),
    ("Success(judged_only=False)@5", "Success@5"),
    # A dataset may have another level of relevance than 1, the default of ir_measures.
    ("P(judged_only=False,rel=1)@5", "P(rel=1)@5"), ("RR(rel=1)", "RR(rel=1)"),
])  # fmt: skip
def test_default_values_of_ir_measures_may_be_stated(spelling: str, name: str) -> None:
    assert parse_measure(spelling).name == name


@pytest.mark.parametrize("text", [
    "nDCG(judged_only=True)@10", "nDCG(gains={0:0,1:2})@10", "nDCG(gains={0:0,1:2},judged_only=False)@10",
    "AP(dcg='log2')", "nDCG(dcg='log2',dcg='exp-log2')@10", "Bpref(judged_only=False)", "RBP(judged_only=False)",
    "Hole(judged_only=False)@10", "R(judged_only=False)@5kt",
])  # fmt: skip
def test_other_values_and_parameters_of_other_measures_are_refused(text: str) -> None:
    with pytest.raises(UnknownMeasureError, match="is not supported"):
        parse_measure(text)


@pytest.mark.parametrize(("name", "depth"), [
    ("nDCG@10", 10), ("RR@10", 10), ("Hole@20", 20), ("Judged@20", 20), ("Upper(RR)@10", 10),
    # (1 − p) Σ_{i>d} p^{i−1} = p^d is below 0.00005 from this depth on.
    ("RBP", 45), ("RBP(p=0.95)", 194), ("RBP(p=0.95)@20", 20),
    # Σ_{i>d} 0.5^{i−1}, by at most 4/3, is below 0.00005 from this depth on.
    ("NRBP", 15), ("alpha_nDCG@20", 20), ("AP_IA", 100_000), ("infAP", 100_000),
    ("RR", 0), ("R@5kt", 0), ("SetP", 0), ("ERR@20", 20),
    ("nDCG", 100_000), ("nDCG(dcg='exp-log2')", 100_000), ("AP", 100_000), ("Rprec", 100_000), ("Bpref", 100_000),
])  # fmt: skip
def test_how_many_documents_a_measure_needs(name: str, depth: int) -> None:
    assert parse_measure(name).depth == depth


@pytest.mark.parametrize(("name", "close"), [
    ("nERR@20", "ERR@20, nDCG@20"), ("hits@5", "Success@5, R@5, P@5"),
    ("xinfAP", "infAP, AP"), ("infNDCG", "infAP, AP"), ("statMAP", "infAP, AP"), ("p-MRR", "nDCG@10, AP"),
    ("gm_map", "AP, Bpref"), ("SetF@10", "SetP, SetR, SetF"),
    ("SetF(beta=2.0)", "SetP, SetR, SetF"), ("IPrec", "IPrec@0.1, AP"), ("IPrec@1.5", "IPrec@0.1, AP"),
    ("11pt_avg", "IPrec@0.1, AP"),
    ("alpha_nDCG(alpha=0.7)@20", "alpha_nDCG@20, ERR_IA@20, NRBP"), ("NRBP@5", "alpha_nDCG@5, ERR_IA@5, NRBP"),
    ("ERR_IA(judged_only=True)@5", "alpha_nDCG@5, ERR_IA@5, NRBP"),
    ("Accuracy@10", "Success@10"), ("accuracy_at_10", "Success@10"),
    ("dcg@10", "nDCG@10"), ("Rndcg", "nDCG@10"), ("num_rel_ret", "Success@10, R@10, P@10"),
    ("relative_P_5", "P@5, AP, RBP"), ("Bpref@10", "Bpref"), ("nDCG(rel=2)@10", "nDCG@10"),
    ("P(judged_only=True)@5", "P@5"), ("EM@10", "EM"), ("Correct", "Correct(judge='name')"),
    ("nuggetr(judge=Ana)", "NuggetR(judge='name')"), (f"VitalR(judge='{'x' * 41}')", "VitalR(judge='name')"),
])  # fmt: skip
def test_measures_that_are_not_computed_are_refused_with_close_ones(name: str, close: str) -> None:
    with pytest.raises(UnknownMeasureError) as raised:
        parse_measure(name)
    assert f"{name!r} is not supported" in str(raised.value)
    assert f"Close: {close}. Known: nDCG@k" in str(raised.value)


@pytest.mark.parametrize(("name", "meant"), [("ndgc@20", "nDCG@20"), ("recal@100", "R@100"), ("Sucess@5", "Success@5")])
def test_misspelt_measures_are_answered_with_the_likely_one(name: str, meant: str) -> None:
    with pytest.raises(UnknownMeasureError, match=rf"not a known measure\. Did you mean {meant}"):
        parse_measure(name)


def test_an_unknown_name_is_answered_with_the_known_ones() -> None:
    with pytest.raises(UnknownMeasureError, match=r"'quality' is not a known measure. Known: nDCG@k, nDCG\(dcg"):
        parse_measure("quality")


def test_every_measure_describes_itself_and_knows_its_aliases() -> None:
    for family in FAMILIES.values():
        for measure in (Measure(family, None), Measure(family, 10)):
            if (measure.cutoff is None) == (family.cutoff == "required") and family.cutoff != "optional":
                continue
            if family.cutoff == "none" and measure.cutoff:
                continue
            assert parse_measure(measure.name) == measure
            assert measure.family.description.endswith(".")
            assert measure.family.definition
            assert measure.family.source
            for alias in family.aliases:
                if ("{k}" in alias) == bool(measure.cutoff):
                    assert parse_measure(alias.format(k=measure.cutoff)) == measure


def test_the_default_measures() -> None:
    parsed = [parse_measure(name) for name in DEFAULT_MEASURES]
    assert tuple(measure.name for measure in parsed) == DEFAULT_MEASURES
    assert parsed[0].name == "nDCG@10"
    assert [measure.name for measure in parsed if not measure.family.higher_is_better] == ["Hole@10"]
    assert parse_measure("nDCG@10").trec_eval == "ndcg_cut_10"
    assert parse_measure("RR@10").trec_eval is None  # trec_eval has no cutoff for it


def test_rank_biased_precision_is_one_measure_for_one_persistence() -> None:
    assert parse_measure("RBP(p=0.95)") == parse_measure("RBP(p=0.950)")
    assert parse_measure("RBP(p=0.95)") != parse_measure("RBP")
    assert parse_measure("RBP").trec_eval is None


def test_all_measures_of_ir_measures_are_supported_or_refused_with_the_reason() -> None:
    for name, measure in ir_measures.measures.registry.items():
        cutoff = "@0.5" if name == "IPrec" else "@10" if "cutoff" in measure.SUPPORTED_PARAMS else ""
        with suppress(UnknownMeasureError):
            assert parse_measure(name + cutoff)
            continue
        with pytest.raises(UnknownMeasureError, match=r"is not supported \("):
            parse_measure(name + cutoff)
