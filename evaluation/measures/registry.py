"""Registry of measures. To add one, add an entry to `_ALL_FAMILIES`.

The canonical name of a measure is that of ir_measures. Names of trec_eval, ranx, BEIR, and MTEB are accepted.

An entry contains the formula and the verifier that computes every score a second time: pytrec_eval's names, or a
reference of `evaluation.verification.references`. Also add the measure to `MEASURES` in
`tests/evaluation/verification/verified.py`, and test the formula in `tests/evaluation/runs/test_score.py`.

A registered measure is not yet a column. `manage.py set_measures` makes it a column of a dataset. Runs are scored with
`DEFAULT_MEASURES`, which new datasets show, and the dataset's own measures. Earlier results lack the values of a new
measure until they are scored again, for example when their dataset is rescored with new judgments
(`leaderboard.judgements.rescoring`). Set `reveals_judgements` if a measure can reveal hidden judgments.
"""

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from functools import lru_cache, partial
from typing import Literal

from evaluation.judgements.labels import JUDGE_NAME, LABEL_MEASURES, MAX_NAME, label_measure
from evaluation.judgements.responses import STATED_FIGURES
from evaluation.measures import formulas, subtopics
from evaluation.measures.formulas import Formula, JudgedRankings, Values
from evaluation.verification import references
from evaluation.verification import subtopics as subtopic_references
from evaluation.verification.references import PytrecEval, Reference, ResponseReference, VerifiedMeasure, Verifier


@dataclass(frozen=True)
class Family:
    """A measure without cutoff and relevance level.

    `name` is that of ir_measures or, if it has none, of the source, and `parameter` follows it in parentheses.
    `verifier` computes each score a second time. `aliases` are names in trec_eval, ranx, BEIR, and MTEB, where `{k}`
    is the cutoff; aliases without `{k}` have no cutoff. Other notations of the cutoff are accepted too
    (`_NAME`).
    """

    name: str
    formula: Formula
    verifier: Verifier
    description: str
    definition: str
    source: str
    cutoff: Literal["required", "optional", "none"]
    binary: bool = True
    parameter: str = ""
    aliases: tuple[str, ...] = ()
    #: Unit of the cutoff.
    unit: str = ""
    #: Whether the measure requires answers in the documents' texts.
    reads_texts: bool = False
    #: Whether the measure compares the answers of an answer run with correct answers.
    reads_answers: bool = False
    #: Whether the measure requires an answer run. Other runs have no value.
    reads_responses: bool = False
    #: Whether the measure requires judgments by subtopic.
    reads_subtopics: bool = False
    #: Whether documents that are judged only for other queries count as judged.
    looks_elsewhere: bool = False
    #: Whether a query's value depends on other queries. Such measures are not shown for slices or hidden judgments, and
    #: are not tested.
    spans_queries: bool = False
    #: Whether values reveal which documents are judged.
    reveals_judgements: bool = False
    higher_is_better: bool = True
    #: Number of documents that the measure needs if it has no cutoff.
    depth: int = 0

    def __post_init__(self) -> None:
        """Raise ValueError for a measure without verifier, because its scores cannot be published."""
        names = (self.verifier.whole, self.verifier.at_cutoff) if isinstance(self.verifier, PytrecEval) else ()
        is_lacking = {"required": names[1:] == ("",), "none": names[:1] == ("",), "optional": "" in names}
        if is_lacking[self.cutoff] or not (
            names or callable(self.verifier) or isinstance(self.verifier, ResponseReference)
        ):
            raise ValueError(
                f"the measure {self.key} has no verifier: specify a reference that computes its scores again, or "
                f"pytrec_eval's name for each of its forms (cutoff: {self.cutoff})"
            )

    @property
    def label(self) -> str:
        """Name with parameter and the letter k for the cutoff, such as `nDCG@k`."""
        parameter = f"({self.parameter})" if self.parameter else ""
        return self.name + parameter + (f"@k{self.unit[1:]}" if self.cutoff == "required" else "")

    @property
    def key(self) -> str:
        """Name, parameter, and unit in lower case, which identify the family."""
        return f"{self.name}({self.parameter}){self.unit}".lower()


_HIGHEST_CUTOFF = 100_000
#: Negligible change of RBP; documents below a depth change it by at most p^depth. Boards show at most four decimals.
_RBP_RESIDUAL = 0.00005
_JARVELIN = "Järvelin & Kekäläinen, TOIS 20(4), 2002"
_TREC = "Buckley & Voorhees, in TREC: Experiment and Evaluation in Information Retrieval, 2005"
_BEIR = "Thakur et al., BEIR, NeurIPS Datasets and Benchmarks 2021"
_DPR = "Karpukhin et al., EMNLP 2020"


def rank_biased_precision(persistence: float) -> Family:
    """Return the family of RBP with a persistence, which is part of its name as in ir_measures: `RBP(p=0.8)`."""
    return Family(
        "RBP", formulas.RankBiasedPrecision(persistence), references.RankBiasedPrecision(persistence),
        "Rate at which a user finds relevant documents, if the user continues to the next document with probability "
        "p. Write other values as RBP(p=0.95); 0.8 is the default of ir_measures.",
        "(1 − p) Σ_{i≤k} rel_i · p^{i−1}",
        "Moffat & Zobel, TOIS 27(1), 2008", "optional", parameter=f"p={persistence:g}",
        aliases=("RBP@{k}", "RBP") if persistence == 0.8 else (),
        depth=math.ceil(math.log(_RBP_RESIDUAL, persistence)),
    )  # fmt: skip


def interpolated_precision(recall: float) -> Family:
    """Return the family of interpolated precision at a level of recall, which is part of its name as in ir_measures."""
    return Family(
        f"IPrec@{recall:g}", formulas.InterpolatedPrecision(recall), PytrecEval(f"iprec_at_recall_{recall:.2f}"),
        f"Highest precision at any rank with a recall of at least {recall:g}. Write other levels as IPrec@0.5.",
        "max P@i over all i with R@i ≥ the level of recall, rounded as in trec_eval", _TREC, "none",
        depth=_HIGHEST_CUTOFF,
    )  # fmt: skip


#: Names, discount, sum, depth without cutoff, and source of measures of novelty: divided by the highest gain, or by an
#: ideal one.
_NOVELTY = (
    ("alpha_DCG", "alpha_nDCG", "DCG", "G_i / log₂(i + 1)", 0, "Clarke et al., SIGIR 2008"),
    ("ERR_IA", "nERR_IA", "ERR", "G_i / i", 0, "Chapelle et al., CIKM 2009"),
    ("NRBP", "nNRBP", "RBP", "G_i · 0.5^{i−1}", 15, "Clarke, Kolla & Vechtomova, ICTIR 2009"),
)
#: Name, measure of each subtopic, alias, depth without cutoff, and source of means over subtopics.
_INTENT_AWARE = (
    ("P_IA", formulas.precision, subtopic_references.precision, "P-IA@{k}", 0, "Agrawal et al., WSDM 2009"),
    ("AP_IA", formulas.average_precision, subtopic_references.average_precision, "MAP_IA", _HIGHEST_CUTOFF,
     "Agrawal et al., WSDM 2009"),
    ("StRecall", formulas.success, subtopic_references.success, "strec@{k}", 0, "Zhai et al., SIGIR 2003"),
)  # fmt: skip


def subtopic_families() -> Iterator[Family]:
    """Yield the families of measures over subtopics, as in TREC's ndeval.

    The residual of NRBP below a depth d is 1.5 · 0.5^d.
    """
    for *names, discount, gain, depth, source in _NOVELTY:
        for name, ideal in zip(names, ("documents with all subtopics", "the greedy ideal ranking"), strict=True):
            parameters = discount, name == names[1]
            yield Family(
                name, subtopics.NoveltyGain(*parameters), subtopic_references.NoveltyGain(*parameters),
                f"{discount} of the query’s subtopics, as a share of that of {ideal}. Each repeated subtopic gains "
                "half as much (α = 0.5).",
                f"Σ_{{i≤k}} {gain}, divided by that of {ideal}; G_i = Σ 0.5^c over the subtopics of document i, where "
                "c is the number of earlier documents of the subtopic",
                source, "none" if depth else "required", depth=depth, reads_subtopics=True,
                aliases=() if depth else (name.replace("_", "-") + "@{k}",),
            )  # fmt: skip
    for name, formula, reference, alias, depth, source in _INTENT_AWARE:
        measure = {"StRecall": "Success"}.get(name, name.removesuffix("_IA"))
        yield Family(
            name, subtopics.IntentAware(formula), reference, f"{measure}, averaged over the subtopics of the query.",
            f"(1 / S) Σ_t {measure} of subtopic t; S is the number of subtopics with a relevant document",
            source, "none" if depth else "required", depth=depth, reads_subtopics=True, aliases=(alias,),
        )  # fmt: skip


#: Upper bounds and their references, keyed by name of the measure.
BOUNDS: dict[str, tuple[Formula, Reference]] = {
    "nDCG": (formulas.upper_ndcg, references.upper_ndcg),
    "P": (formulas.all_relevant(formulas.precision), references.upper_precision),
    "R": (formulas.all_relevant(formulas.recall), references.upper_recall),
    "R_cap": (formulas.all_relevant(formulas.capped_recall), references.upper_capped_recall),
    "RR": (formulas.all_relevant(formulas.reciprocal_rank), references.upper_reciprocal_rank),
    "Success": (formulas.all_relevant(formulas.success), references.upper_success),
    "RBP": (formulas.all_relevant(formulas.RankBiasedPrecision(0.8)), references.upper_rbp),
}


def upper_bound(measure: str) -> Family:
    """Return the family of a measure's upper bound. Its name contains the measure's name: `Upper(nDCG)`."""
    return Family(
        "Upper", *BOUNDS[measure],
        f"Highest possible {measure}@k over all grades of the unjudged documents among the first k. The measure itself "
        "is the lower end, where none of them is relevant.",
        f"Maximum of {measure}@k over all assignments of grades in use to unjudged documents among the first k",
        "Moffat & Zobel, TOIS 27(1), 2008 (the residual of RBP)", "required", measure != "nDCG", measure,
        reveals_judgements=True,
    )  # fmt: skip


#: Family of measures of responses, and of those that compare them with correct answers.
_ResponseFamily = partial(Family, cutoff="none", binary=False, reads_responses=True)
_AnswerFamily = partial(_ResponseFamily, reads_answers=True)


def _stated_figure_family(name: str, description: str) -> Family:
    """Return the family of a figure that answer runs state for each query."""
    return _ResponseFamily(
        name, formulas.ResponseScore(name), references.stated_figure(STATED_FIGURES[name]),
        f"{description}, as stated in the run. A query without response counts as 0, unless judgments are hidden.",
        "Mean over the judged queries; with hidden judgments, over all responses of the run", "answer run",
        higher_is_better=False,
    )  # fmt: skip


_NUGGETS, _PRADEEP = "(supported + 0.5 · partially supported) / nuggets", "Pradeep et al., AutoNuggetizer, 2024"
#: Description, definition, and source of the measures of judges.
_LABEL_DESCRIPTIONS = {
    "Correct": (
        "Share of answers that the judge labels as correct.",
        "Mean degree of correctness",
        "labels of answers",
    ),
    "NuggetR": ("Share of a query’s nuggets that the answer supports by the labels of the judge.", _NUGGETS, _PRADEEP),
    "VitalR": ("NuggetR over vital nuggets only; 0 for queries without any.", _NUGGETS, _PRADEEP),
}


def label_family(measure: str, judge: str) -> Family:
    """Return the family of a measure of labels by a judge, who is part of its name: `Correct(judge='Ana')`."""
    description, definition, source = _LABEL_DESCRIPTIONS[measure]
    return _ResponseFamily(
        measure, formulas.ResponseScore(label_measure(measure, judge)),
        ResponseReference(references.LabeledAnswers(measure, judge), reads_labels=True),
        f"{description} A query without answer counts as 0. A run has no value unless all answers are labeled.",
        definition, source, parameter=f"judge='{judge}'",
    )  # fmt: skip


_SQUAD = "Rajpurkar et al., EMNLP 2016, section 6.1"
_ALCE = "Gao et al., EMNLP 2023 (ALCE); by qrels as in BrowseComp-Plus"

#: Measures of answer runs.
_RESPONSE_FAMILIES = (
    _AnswerFamily(
        "EM", formulas.ResponseScore("EM"), ResponseReference(references.exact_match),
        "Whether the answer equals a correct answer, ignoring case, ASCII punctuation, and English articles.",
        "1 if the normalized texts are equal, else 0", _SQUAD, aliases=("exact_match",),
    ),
    _AnswerFamily(
        "AnswerF1", formulas.ResponseScore("AnswerF1"), ResponseReference(references.answer_f1),
        "Overlap of the words of the answer and the most similar correct answer, normalized as for EM.",
        "2 · P · R / (P + R) over words; the maximum over correct answers", _SQUAD,
    ),
    _AnswerFamily(
        "AnswerIn", formulas.ResponseScore("AnswerIn"), ResponseReference(references.answer_containment),
        "Whether the answer contains a correct answer, compared by tokens as in Answer@k.",
        "1 if the tokens of a correct answer are consecutive in the answer, else 0", f"{_DPR}, section 5",
    ),
    _AnswerFamily(
        "ECE", formulas.ResponseScore("ECE"), ResponseReference(references.calibration_error),
        "Expected calibration error: difference between stated confidence and share of correct answers (AnswerIn) in "
        "ten bins of confidence. A query without response counts as wrong with confidence 0.",
        "Σ_b (n_b / n) |share correct in bin b − mean confidence in b|; a query’s value is the difference of its bin",
        "Guo et al., ICML 2017, equation 3", higher_is_better=False, spans_queries=True,
    ),
    Family(
        "CiteP", formulas.CitationMeasure(formulas.set_precision), PytrecEval("set_P"),
        "Share of the cited documents that are relevant. Write CiteP(rel=2) for a higher level, such as gold documents "
        "among evidence.",
        "Relevant cited documents / cited documents", _ALCE, "none", reads_responses=True,
    ),
    Family(
        "CiteR", formulas.CitationMeasure(formulas.recall), PytrecEval("set_recall"),
        "Share of the relevant documents that are cited.", "Relevant cited documents / R", _ALCE, "none",
        reads_responses=True,
    ),
    _stated_figure_family("SearchCalls", "Searches per query"),
    _stated_figure_family("Tokens", "Tokens that the model read and wrote per query"),
    _stated_figure_family("Seconds", "Seconds from the query to the answer"),
    _stated_figure_family("Cost", "Price of a query in US dollars"),
)  # fmt: skip

_ALL_FAMILIES = (
    Family(
        "nDCG", formulas.ndcg, PytrecEval("ndcg", "ndcg_cut_{k}"),
        "Share of the best possible discounted gain; depends on grades, and higher ranks count more.",
        "Σ_{i≤k} g_i / log₂(i + 1), divided by the same sum over the ideal ranking; g_i is the grade at rank i",
        _JARVELIN, "optional", binary=False,
        aliases=("ndcg_cut_{k}", "ndcg_cut.{k}", "NDCG@{k}", "ndcg_at_{k}", "ndcg", "NDCG"), depth=_HIGHEST_CUTOFF,
    ),
    Family(
        "nDCG", partial(formulas.ndcg, exponential=True), references.exponential_ndcg,
        "nDCG with exponential gains, as is common in web search.",
        "Σ_{i≤k} (2^{g_i} − 1) / log₂(i + 1), divided by the same sum over the ideal ranking",
        "Burges et al., ICML 2005", "optional", binary=False, parameter="dcg='exp-log2'",
        aliases=("ndcg_burges@{k}", "ndcg_burges"), depth=_HIGHEST_CUTOFF,
    ),
    Family(
        "AP", formulas.average_precision, PytrecEval("map", "map_cut_{k}"),
        "Precision at the rank of every relevant document, averaged over all relevant documents.",
        "(1 / R) Σ_{i≤k} rel_i · P@i; R is the number of relevant documents",
        _TREC, "optional",
        aliases=("map_cut_{k}", "map_cut.{k}", "MAP@{k}", "map_at_{k}", "map", "MAP", "average_precision"),
        depth=_HIGHEST_CUTOFF,
    ),
    Family(
        "RR", formulas.reciprocal_rank, PytrecEval("recip_rank", "recip_rank"),
        "One divided by the rank of the first relevant document, 0 if there is none in the first k.",
        "1 / min{i ≤ k : rel_i}",
        "Voorhees, TREC-8 Question Answering Track, 1999", "optional",
        aliases=("MRR@{k}", "mrr_at_{k}", "recip_rank_cut_{k}", "recip_rank", "MRR", "reciprocal_rank"),
    ),
    Family(
        "P", formulas.precision, PytrecEval(at_cutoff="P_{k}"),
        "Share of relevant documents among the first k.", "(1 / k) Σ_{i≤k} rel_i",
        _TREC, "required",
        aliases=("P_{k}", "P.{k}", "Precision@{k}", "precision_at_{k}"),
    ),
    Family(
        "R", formulas.recall, PytrecEval(at_cutoff="recall_{k}"),
        "Share of the relevant documents that are among the first k.",
        "(1 / R) Σ_{i≤k} rel_i; R is the number of relevant documents", _TREC, "required",
        aliases=("recall_{k}", "recall.{k}", "Recall@{k}", "recall_at_{k}"),
    ),
    Family(
        "R_cap", formulas.capped_recall, references.capped_recall,
        "Recall that can reach 1 even if there are more than k relevant documents.",
        "Σ_{i≤k} rel_i / min(k, R)", f"{_BEIR}, appendix G", "required",
        aliases=("Recall_cap@{k}", "recall_cap_at_{k}", "r_cap_at_{k}"),
    ),
    Family(
        "Success", formulas.success, PytrecEval(at_cutoff="success_{k}"),
        "Whether a relevant document (by the qrels) is among the first k.",
        "1 if Σ_{i≤k} rel_i > 0, else 0", _DPR, "required",
        aliases=("success_{k}", "success.{k}", "hit_rate_at_{k}", "hit_rate@{k}", "hit@{k}"),
    ),
    Family(
        "F1", formulas.f1, references.f1, "The harmonic mean of precision and recall among the first k documents.",
        "2 · P@k · R@k / (P@k + R@k)", "van Rijsbergen, Information Retrieval, 2nd ed., 1979, ch. 7", "required",
        aliases=("F1_{k}", "f1_at_{k}"),
    ),
    Family(
        "Answer", formulas.answer, references.answer,
        "Whether the text of one of the first k documents contains an answer string; called accuracy or top-k "
        "retrieval accuracy in open-domain question answering. Texts and answers are compared by lower-case tokens "
        "(NFD), without titles.",
        "1 if any of the first k texts contains an answer, else 0", f"{_DPR}, section 5; has_answer of its code",
        "required", binary=False, reads_texts=True,
    ),
    Family(
        "R", formulas.answer_within_tokens, references.answer_within_tokens,
        "Whether the first k thousand tokens of the ranking’s texts contain an answer string. Tokens and answers are "
        "those of Answer@k; the authors’ script tokenizes with NLTK, compares characters, and skips yes and no.",
        "1 if an answer ends within the first 1,000 k tokens, read from rank 1 on, else 0",
        "Asai et al., XOR QA, NAACL 2021, section 4.1", "required", binary=False, unit="kt", reads_texts=True,
    ),
    Family(
        "ERR", formulas.expected_reciprocal_rank, references.expected_reciprocal_rank,
        "Expected reciprocal of the rank at which a user stops. The user reads from the top, and each document is "
        "sufficient with a probability that depends on its grade.",
        "Σ_{i≤k} (1 / i) · s_i · Π_{j<i} (1 − s_j), where s = (2^g − 1) / 2^m and m is the highest grade, at least 4",
        "Chapelle et al., CIKM 2009", "optional", binary=False, aliases=("err@{k}",), depth=_HIGHEST_CUTOFF,
    ),
    interpolated_precision(0.1),
    Family(
        "SetP", formulas.set_precision, PytrecEval("set_P"),
        "Share of relevant documents among all retrieved ones.", "Relevant retrieved documents / retrieved documents",
        _TREC, "none", aliases=("set_P",),
    ),
    Family(
        "SetR", formulas.recall, PytrecEval("set_recall"),
        "Share of the relevant documents that are retrieved at any rank.", "Relevant retrieved documents / R",
        _TREC, "none", aliases=("set_recall",),
    ),
    Family(
        "SetF", formulas.set_f1, PytrecEval("set_F"),
        "Harmonic mean of SetP and SetR.", "2 · SetP · SetR / (SetP + SetR)", _TREC, "none", aliases=("set_F",),
    ),
    Family(
        "SetAP", formulas.set_average_precision, PytrecEval("set_map"),
        "Product of SetP and SetR.", "SetP · SetR", _TREC, "none", aliases=("set_map",),
    ),
    Family(
        "SetRelP", formulas.relative_set_precision, PytrecEval("set_relative_P"),
        "Relevant retrieved documents, divided by the highest number possible with as many retrieved documents.",
        "Relevant retrieved documents / min(R, retrieved documents)",
        _TREC, "none", aliases=("set_relative_P", "SetP(relative=True)"),
    ),
    Family(
        "Rprec", formulas.r_precision, PytrecEval("Rprec"),
        "Precision at the number of relevant documents.", "(1 / R) Σ_{i≤R} rel_i",
        _TREC, "none", aliases=("R-prec", "RPrec", "r_precision", "R-precision"),
        depth=_HIGHEST_CUTOFF,
    ),
    Family(
        "Bpref", formulas.bpref, PytrecEval("bpref"),
        "Share of judged non-relevant documents not ranked above relevant ones; unjudged documents are ignored.",
        "(1 / R) Σ_{relevant r retrieved} (1 − min(N above r, R) / min(N, R)); N counts judged non-relevant documents",
        "Buckley & Voorhees, SIGIR 2004", "none", aliases=("bpref",),
        depth=_HIGHEST_CUTOFF,
    ),
    Family(
        "infAP", formulas.inferred_average_precision, PytrecEval("infAP"),
        "AP that is estimated from a judged sample of the pool. Pooled documents without judgment have the grade −1.",
        "(1 / R) Σ_{relevant at rank i} (1 / i + ((i − 1) / i) · (pooled above i / (i − 1)) · (relevant above i + ε) / "
        "(judged above i + 2ε)), with ε = 0.00001",
        "Yilmaz & Aslam, CIKM 2006", "none", depth=_HIGHEST_CUTOFF,
    ),
    rank_biased_precision(0.8),
    *subtopic_families(),
    Family(
        "Judged", formulas.judged, references.judged_share,
        "Share of judged documents among the first k; 0 if nothing was retrieved. Ties are broken as for every measure "
        "here; ir_measures, which defines this measure, sorts them by ascending document id, does not round scores to "
        "single precision, and counts negative grades as judged.",
        "Judged documents among the first min(k, retrieved), divided by min(k, retrieved)",
        "ir_measures", "required", binary=False, aliases=("J@{k}", "judged_at_{k}"), reveals_judgements=True,
    ),
    Family(
        "Hole", formulas.hole, references.hole,
        "Share of unjudged documents among the first k; 0 if nothing was retrieved.",
        "Unjudged documents among the first min(k, retrieved), divided by min(k, retrieved)",
        _BEIR, "required", binary=False, higher_is_better=False, reveals_judgements=True,
    ),
    Family(
        "Hole", formulas.hole_anywhere, references.hole_anywhere,
        "Hole@k as defined by BEIR, where documents judged for any query count as judged.",
        "Documents judged for no query among the first min(k, retrieved), divided by min(k, retrieved)",
        f"{_BEIR}, table 4", "required", binary=False, parameter="beir", aliases=("hole_at_{k}",), looks_elsewhere=True,
        higher_is_better=False, reveals_judgements=True,
    ),
    *_RESPONSE_FAMILIES,
    *(label_family(measure, "name") for measure in LABEL_MEASURES),
    *map(upper_bound, BOUNDS),
)  # fmt: skip

#: Measure families, keyed by `Family.key`.
FAMILIES: dict[str, Family] = {family.key: family for family in _ALL_FAMILIES}
#: Names of measures whose values of a query depend on other queries.
QUERY_SPANNING_MEASURES = frozenset(family.name for family in _ALL_FAMILIES if family.spans_queries)


#: Version of all stored values. Change it with any formula, the order of ties, or the score of missing queries.
SPEC_VERSION = "1"

#: Measures of every dataset; the first is the primary measure.
DEFAULT_MEASURES = (
    "nDCG@10", "nDCG@100", "AP", "RR@10", "R@100", "R@1000", "R_cap@100", "P@10", "Success@5", "Success@20", "Hole@10",
)  # fmt: skip

#: Measures that are computed for every answer run; a dataset selects those shown.
RESPONSE_MEASURES = tuple(family.name for family in _RESPONSE_FAMILIES)

_CUTOFF = r"(?:@|_at_|_cut_|_cut\.|_|\.)"
#: Name, parameters, cutoff, and its unit, as in `P(rel=2)@10`, `P@10(rel=2)`, `precision_at_10`, or `P@10-l2` (ranx).
_NAME = re.compile(
    r"\s*([A-Za-z_]+?[0-9]?(?:-[A-Za-z]+)?)\s*(?:\(([^()]*)\))?"
    rf"\s*(?:{_CUTOFF}\s*([0-9]{{1,6}}|[01]\.[0-9]{{1,2}})\s*(kt)?)?\s*(?:\(([^()]*)\))?(?:-l([0-9]{{1,4}}))?\s*"
)
#: Notations of ranx for RBP(p=0.95), rbp.95, and of trec_eval for IPrec@0.5, iprec_at_recall_0.50.
_RANX_RBP = re.compile(r"rbp\.([0-9]{1,4})(?![0-9])", re.IGNORECASE)
_TREC_IPREC = re.compile("iprec_at_recall_", re.IGNORECASE)
_JUDGE = re.compile(rf"\s*({'|'.join(LABEL_MEASURES)})\(judge=(['\"])({JUDGE_NAME})\2\)\s*", re.IGNORECASE)
_PERSISTENCE = re.compile(r"p=(0?\.[0-9]{1,4})")
#: Default parameters of ir_measures, and the keys of families that accept them.
_DEFAULTS = {
    "dcg='log2'": ("ndcg()",),
    "judged_only=false": (
        "ndcg()", "ndcg(dcg='exp-log2')", "ap()", "rr()", "p()", "r()", "success()", "rprec()", "setp()",
        "alpha_ndcg()", "alpha_dcg()", "err_ia()", "nerr_ia()", "p_ia()", "ap_ia()",
    ),
    "relative=false": ("setp()",),
    "beta=1.0": ("setf()",),
    "alpha=0.5": ("alpha_ndcg()", "alpha_dcg()", "nrbp()", "nnrbp()"),
    "beta=0.5": ("nrbp()", "nnrbp()"),
}  # fmt: skip
_LEVEL = re.compile(r"rel\s*=\s*([0-9]{1,4})")


class UnknownMeasureError(ValueError):
    """A name does not identify a measure."""


@dataclass(frozen=True)
class Measure:
    """A family with a cutoff and, if specified in the name, a relevance level."""

    family: Family
    cutoff: int | None = None
    level: int | None = None

    @property
    def name(self) -> str:
        """Canonical name, such as `nDCG@10`, `P(rel=2)@10`, `nDCG(dcg='exp-log2')@10`, and `IPrec(rel=2)@0.1`."""
        parameters = [self.family.parameter] if self.family.parameter else []
        if self.level is not None:
            parameters.append(f"rel={self.level}")
        brackets = f"({','.join(parameters)})" if parameters else ""
        name, at, recall = self.family.name.partition("@")
        return f"{name}{brackets}{at}{recall}" + (f"@{self.cutoff}{self.family.unit}" if self.cutoff else "")

    def __str__(self) -> str:
        return self.name

    @property
    def depth(self) -> int:
        """Number of documents of a ranking that the measure needs.

        It is 0 if any number is sufficient or the unit is not documents. The depth does not depend on judgments, so
        that warnings about shallow runs reveal nothing about hidden ones.
        """
        return 0 if self.family.unit else self.cutoff or self.family.depth

    @property
    def trec_eval(self) -> str | None:
        """Name of this value in trec_eval (and pytrec_eval), if it has one."""
        verified = self.verified()
        return None if verified.is_cut_here else verified.trec_eval or None

    def verified(self) -> VerifiedMeasure:
        """Return the description of the measure for verification."""
        family = self.family
        by_grades = isinstance(family.verifier, PytrecEval) and not family.binary
        return VerifiedMeasure(
            name=self.name,
            verifier=family.verifier,
            cutoff=self.cutoff,
            level=1 if by_grades else self.level,
            depth=None if family.unit else self.cutoff,
            looks_elsewhere=family.looks_elsewhere,
            reads_texts=family.reads_texts,
            reads_responses=family.reads_responses,
        )

    def values(self, ranking: JudgedRankings) -> Values:
        """Return the values for all judged queries (rows of the qrels) as float64."""
        level = ranking.relevance_level if self.level is None else self.level
        return self.family.formula(ranking, self.cutoff, level)


def parse_measure(text: str) -> Measure:
    """Return the measure with this name in any supported notation. Raises UnknownMeasureError with suggestions."""
    measure = (
        _parse_judge(text)
        or _parse_alias(text.strip())
        or _parse_notation(_TREC_IPREC.sub("IPrec@", _RANX_RBP.sub(r"RBP(p=.\1)", text.replace("α", "alpha"))))
    )
    if measure is None:
        raise UnknownMeasureError(f"{text!r} {_refusal(text)} {_KNOWN_NAMES}")
    if measure.cutoff is None and measure.family.cutoff == "required":
        raise UnknownMeasureError(f"{text!r} needs a cutoff, for example {measure.name}@10")
    if measure.cutoff is not None and not 0 < measure.cutoff <= _HIGHEST_CUTOFF:
        raise UnknownMeasureError(f"the cutoff of {text!r} is not between 1 and {_HIGHEST_CUTOFF:,}")
    return measure


@lru_cache(maxsize=256)
def upper_bound_name(name: str) -> str | None:
    """Return the name of the upper bound of a measure with a cutoff, such as `Upper(nDCG)@10`; None without a bound."""
    try:
        measure = parse_measure(name)
    except UnknownMeasureError:  # a measure that only publications report
        return None
    family = FAMILIES.get(f"upper({measure.family.key.removesuffix('()').removesuffix('(p=0.8)')})")
    return Measure(family, measure.cutoff, measure.level).name if family and measure.cutoff else None


def _parse_notation(text: str) -> Measure | None:
    """Return the measure in the notation of ir_measures or ranx, or None if it is unknown or does not accept an option.

    Names of families may also be aliases without separators.
    """
    match = _NAME.fullmatch(" ".join(text.split()))
    if not match:
        return None
    name, brackets, cutoff, unit, trailing_brackets, ranx_level = match.groups()
    level, parameters = int(ranx_level) if ranx_level else None, []
    for part in filter(None, (piece.strip() for piece in f"{brackets or ''},{trailing_brackets or ''}".split(","))):
        if match_ := _LEVEL.fullmatch(part):
            level = int(match_.group(1))
        else:
            parameters.append(part.replace('"', "'").replace(" ", "").lower())
    defaults = [part for part in parameters if part in _DEFAULTS]
    parameters = [part for part in parameters if part not in _DEFAULTS]
    family = FAMILIES.get(f"{name.lower()}({','.join(parameters)}){unit or ''}")
    if name.lower() == "iprec" and cutoff and float(cutoff) <= 1 and not parameters:
        family, cutoff = interpolated_precision(float(cutoff)), None
    if family is None and name.lower() == "rbp":
        match_ = _PERSISTENCE.fullmatch(",".join(parameters))
        persistence = float(match_[1]) if match_ else 0.0 if parameters else 0.8
        family = rank_biased_precision(persistence) if persistence > 0 else None
    if family is None and not parameters and not unit:
        family = _BY_NAME.get(_strip_separators(name))
    if family is None or "." in (cutoff or "") or any(family.key not in _DEFAULTS[part] for part in defaults):
        return None
    if (cutoff and family.cutoff == "none") or (level is not None and not family.binary):
        return None
    return Measure(family, int(cutoff) if cutoff else None, level)


def _parse_judge(text: str) -> Measure | None:
    """Return the measure with this name of labels by a judge, or None."""
    match = _JUDGE.fullmatch(text)
    names = {name.lower(): name for name in LABEL_MEASURES}
    return Measure(label_family(names[match[1].lower()], match[3])) if match and len(match[3]) <= MAX_NAME else None


def _parse_alias(text: str) -> Measure | None:
    """Return the measure with this name in another tool, with its cutoff, or None."""
    name = text.lower()
    for match in _ALIAS_CUTOFF.finditer(name):
        if family := _ALIASES.get(f"{name[: match.start()]}{{k}}{name[match.end() :]}"):
            return Measure(family, int(match[0]))
    return Measure(_ALIASES[name]) if name in _ALIASES and "{" not in name else None


def _strip_separators(name: str) -> str:
    return re.sub("[-_]", "", name.lower())


#: Families, keyed by aliases in lower case, and the cutoffs that replace `{k}` in them.
_ALIASES = {alias.lower(): family for family in reversed(FAMILIES.values()) for alias in family.aliases}
_ALIAS_CUTOFF = re.compile(r"(?<![0-9])[0-9]{1,6}(?![0-9])")
#: Families, keyed by aliases in lower case without cutoff and separators.
_BY_NAME = {
    _strip_separators(re.sub(_CUTOFF + r"\{k\}", "", alias)): family
    for family in reversed(FAMILIES.values())
    for alias in family.aliases
}
#: Measures of other tools that are not computed here: patterns of their names, reasons, and similar measures.
_NOT_SUPPORTED = (
    (r"nerr(?!_)[0-9]*", "a normalized ERR", ("ERR@{k}", "nDCG@{k}")),
    (r"xinfap|inf_?ndcg|stat_?m?ap|stat_?ndcg", "qrels state no sampling strata or probabilities", ("infAP", "AP")),
    (r"gm_?map|gm_?ap|gm_bpref", "a geometric mean, for which intervals and tests are not valid", ("AP", "Bpref")),
    (r"p_?mrr", "a change between two queries, not a value of one", ("nDCG@{k}", "AP")),
    (r"iprec", "it needs a level of recall from 0 to 1", ("IPrec@0.1", "AP")),
    (r"11pt", "a mean of interpolated precision", ("IPrec@0.1", "AP")),
    (r"set_\w+|set(p|r|f|ap|relp)", "it accepts no cutoff and no parameter except rel", ("SetP", "SetR", "SetF")),
    (r"alpha.?n?dcg|n?nrbp|(m?ap|p|ndcg|n?err).ia|s(ub)?t(opic_)?rec(all)?",
     "another form of a measure over subtopics; α and β are 0.5", ("alpha_nDCG@{k}", "ERR_IA@{k}", "NRBP")),
    (r"hits|num_?(q|ret|rel(_?ret)?)", "a count; a hit rate is Success", ("Success@{k}", "R@{k}", "P@{k}")),
    (r"(\w+_)?accuracy", "defined differently by BEIR and ir_measures; BEIR's is Success", ("Success@{k}",)),
    (r"s?dcg|n?cg|rndcg|ndcg_rel|bing|g", "another kind of gain", ("nDCG@{k}",)),
    (r"rel(ative)?_?p|rprec_mult|utility|bpm|n?inst|insq|compat|map_at_r|nauc", "a measure not computed here",
     ("P@{k}", "AP", "RBP")),
)  # fmt: skip


def _refusal(text: str) -> str:
    """Return the reason why a name is not supported, with similar measures."""
    lowercase_text = text.strip().lower()
    cutoff = next(iter(re.findall(rf"(?<![0-9]){_CUTOFF}([1-9][0-9]{{0,5}})(?![0-9.])", lowercase_text)), "10")
    for pattern, reason, similar in _NOT_SUPPORTED:
        if re.match(rf"({pattern})(?![a-z])", lowercase_text.replace("-", "_")):
            return f"is not supported ({reason}). Close: {', '.join(similar).format(k=cutoff)}."
    name = _strip_separators(re.split(rf"{_CUTOFF}[0-9]|[(@]", lowercase_text)[0].strip())
    families = {_strip_separators(family.name): family for family in reversed(FAMILIES.values())} | _BY_NAME
    names_by_key = {
        key: each.label.split("@k")[0] + ("" if each.cutoff == "none" else f"@{cutoff}")
        for key, each in families.items()
    }
    if name in families and name != "upper":
        cutoff_rules = {"none": "no cutoff", "required": "a cutoff", "optional": "a cutoff or none"}
        level = "rel=2 for a lowest grade" if families[name].binary else "no rel"
        if families[name].parameter.startswith("judge="):
            level = f"needs a judge of at most {MAX_NAME} characters in quotes"
        rule = f"{families[name].name} accepts {cutoff_rules[families[name].cutoff]}, and {level}"
        return f"is not supported: {rule}. Close: {names_by_key[name]}."
    suggestions = dict.fromkeys(names_by_key[key] for key in get_close_matches(name[:100], families, 2, 0.75))
    return "is not a known measure." + (f" Did you mean {' or '.join(suggestions)}?" if suggestions else "")


_KNOWN_NAMES = "Known: " + ", ".join(
    Measure(family).name + ("" if family.cutoff == "none" else f"@k{family.unit[1:]}") for family in FAMILIES.values()
)
