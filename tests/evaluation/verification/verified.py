"""Runs that are scored and then verified, as a job does it."""

from __future__ import annotations

import atexit
import io
import json
import random
import shutil
import tempfile
from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from evaluation.judgements.answers import read_answers
from evaluation.judgements.labels import read_labels
from evaluation.judgements.qrels import read_qrels
from evaluation.judgements.subtopics import read_subtopics
from evaluation.runs.forms import read_responses
from evaluation.runs.score import ScoredRun, ScoringTarget, score_run
from evaluation.verification.comparing import (
    ClaimedScores,
    Judgements,
    ScoringRules,
    StatedResponses,
    verify,
)
from evaluation.verification.references import AnswerTexts, read_records

#: Every family of the registry, with and without what it may be cut and parametrised by.
MEASURES = (
    "nDCG", "nDCG@2", "nDCG@10", "nDCG(dcg='exp-log2')", "nDCG(dcg='exp-log2')@3", "AP", "AP@3", "RR", "RR@1", "RR@3",
    "P@1", "P@5", "P(rel=2)@3", "R@3", "R(rel=2)@10", "R_cap@2", "R_cap(rel=3)@5", "Success@1", "Success@7", "Rprec",
    "Rprec(rel=2)", "Bpref", "Judged@3", "Judged@10", "Hole@3", "Hole@10", "Hole(beir)@3", "Hole(beir)@10",
    "F1@1", "F1@5", "F1(rel=2)@3",
    "Answer@1", "Answer@4", "R@1kt", "R@2kt",
    "ERR", "ERR@2", "ERR@10", "IPrec@0", "IPrec@0.1", "IPrec@0.55", "IPrec(rel=2)@0.3",
    "SetP", "SetP(rel=2)", "SetR", "SetF", "SetAP", "SetRelP", "Upper(RBP)@3",
    "RBP(p=0.8)", "RBP(p=0.8)@3", "RBP(p=0.5,rel=2)", "Upper(nDCG)@3", "Upper(nDCG)@10", "Upper(P)@5", "Upper(R)@3",
    "Upper(R,rel=2)@10", "Upper(R_cap)@2", "Upper(RR)@3", "Upper(Success)@2",
    "infAP", "infAP(rel=2)", "alpha_nDCG@2", "alpha_nDCG@10", "alpha_nDCG(rel=2)@5", "alpha_DCG@5", "ERR_IA@1",
    "ERR_IA@10", "nERR_IA@3", "NRBP", "nNRBP", "nNRBP(rel=2)", "P_IA@3", "AP_IA", "AP_IA(rel=2)", "StRecall@3",
)  # fmt: skip
#: The same for answer runs.
RESPONSE_MEASURES = (
    "EM", "AnswerF1", "AnswerIn", "ECE", "CiteP", "CiteP(rel=2)", "CiteR", "CiteR(rel=3)", "SearchCalls", "Tokens",
    "Seconds", "Cost", "Correct(judge='name')", "NuggetR(judge='name')", "VitalR(judge='name')",
)  # fmt: skip
QUERIES = ("1", "2", "10", "q-é", "a-query-id-of-more-than-thirty-two-bytes", "7", "missing", "unjudged")


@cache
def labels() -> bytes:
    """Return random labels of all answers of `answer_run` by a judge called “name”."""
    chance = random.Random(1)
    nuggets = [{"id": name, "text": name, "vital": name < "c"} for name in "abc"]
    records: list[dict[str, Any]] = [{"query_id": query, "nuggets": nuggets} for query in QUERIES]
    for query, answer in product(QUERIES, ("Alpha2 - beta?", "gamma", *(f"the ALPHA{n}: Beta" for n in range(5)))):
        support = {name: chance.choice(["support", "partial_support", "not_support"]) for name in "abc"}
        label = {"judge": "name", "kind": "person", "query_id": query, "answer": answer}
        records.append({**label, "correct": chance.random(), "nuggets": support})
    return "".join(f"{json.dumps(record)}\n" for record in records).encode()


@cache
def texts() -> AnswerTexts:
    """Answers and texts of every query and document of collections by chance; every fifth text ends with an answer."""
    folder = Path(tempfile.mkdtemp())
    atexit.register(shutil.rmtree, folder)
    names = [
        *(f"d{number}" for number in range(60)),
        *(f"{'long-' * 5}{number}" for number in range(5)),
        "é",
        "7",
    ]
    documents = [
        {"_id": name, "text": f"{'Füller, ' * (number * 37 % 300)} Alpha{number % 5}-Beta and more"}
        for number, name in enumerate(names)
    ]
    answers = [{"_id": query, "answers": [f"ALPHA{len(query) % 5} - beta"]} for query in QUERIES]
    for name, lines in (("corpus", documents), ("answers", answers)):
        (folder / name).write_text("".join(f"{json.dumps(line)}\n" for line in lines), "utf-8")
    return AnswerTexts(folder / "answers", folder / "corpus")


def write_subtopic_qrels(qrels: Path) -> Path:
    """Write judgments by subtopic beside the qrels: a document has its grade for up to two of three subtopics."""
    path = qrels.with_name(f"{qrels.name}-subtopics")
    lines = []
    for query, document, grade in read_qrels(qrels).judgements():
        first = sum(document.encode()) % 3
        lines += [f"{query} {first} {document} {grade}\n", f"{query} {(first + 1) % 3} {document} {grade - 1}\n"]
    path.write_text("".join(lines), "utf-8")
    return path


RULES = ScoringRules(relevance_level=1, drop_self_matches=True, maximum_depth=12)


def scored_of(
    run: Path,
    qrels: Path,
    measures: Iterable[str] = MEASURES,
    rules: ScoringRules = RULES,
    answers: AnswerTexts | None = None,
) -> ScoredRun:
    """Return the scores of a run by the kernel and the formulas."""
    judged = read_qrels(qrels)
    target = ScoringTarget(
        judged,
        hidden=False,
        relevance_level=rules.relevance_level,
        drop_self_matches=rules.drop_self_matches,
        maximum_depth=rules.maximum_depth,
        answers=read_answers((answers or texts()).answers, try_patterns=False),
        labels=read_labels(labels()),
        corpus=texts().corpus,
        subtopics=read_subtopics(write_subtopic_qrels(qrels)),
    )
    return score_run(run, target, measures)


def claimed_of(scored: ScoredRun) -> ClaimedScores:
    """The scores as they are to be verified, in arrays that a test may change."""
    claimed = scored.as_claimed_scores()
    return replace(claimed, per_query=np.array(claimed.per_query), means=dict(claimed.means))


def verified(
    run: Path,
    qrels: Path,
    claimed: ClaimedScores,
    rules: ScoringRules = RULES,
    sha256: str = "00",
    answers: AnswerTexts | None = None,
) -> None:
    """Verify the scores. Raises ScoresDiffer."""
    text, stated = run.read_bytes(), None
    if (responses := read_responses(run)) is not None:
        text, (cited, _) = responses.trec_lines()[0], responses.trec_lines(cited=True)
        stated = StatedResponses(responses.responses, io.BytesIO(cited), read_records(labels()))
    judged = Judgements(qrels.read_bytes(), write_subtopic_qrels(qrels).read_bytes())
    verify(io.BytesIO(text), judged, claimed, rules, sha256, texts=answers or texts(), stated_responses=stated)
