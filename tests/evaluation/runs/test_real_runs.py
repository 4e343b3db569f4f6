"""Real runs against the scores that were published for them."""

from __future__ import annotations

import csv
import gzip
import os
from pathlib import Path

import pytest
import pytrec_eval

from evaluation.judgements.qrels import read_qrels
from evaluation.runs.pooling import sole_finds
from evaluation.runs.score import ScoringTarget, score_run
from evaluation.runs.top_documents import first_documents
from evaluation.statistics.comparison import kendall_tau

SHARED = Path(os.environ.get("RUNBOARD_SHARED") or Path(__file__).resolve().parents[3].parent / "shared")
ROUND = SHARED / "data" / "trec-covid-round1"
MEASURES = {"nDCG@10": "nDCG@10", "P@5": "P@5", "bpref": "Bpref", "AP": "AP"}


@pytest.mark.skipif(not ROUND.is_dir(), reason=f"no {ROUND} (RUNBOARD_SHARED names the folder of real collections)")
def test_trec_covid_runs_get_their_published_scores() -> None:
    qrels = read_qrels(ROUND / "qrels.txt")
    target = ScoringTarget(qrels, qrels.query_ids, hidden=False)
    with (ROUND / "published.csv").open() as file:
        published = {row["run"]: row for row in csv.DictReader(file)}
    assert published
    for name, row in published.items():
        scored = score_run(ROUND / "runs" / f"{name}.txt.gz", target, MEASURES.values())
        found = {column: f"{scored.means[measure]:.4f}" for column, measure in MEASURES.items()}
        assert found == {column: row[column] for column in MEASURES}, name


@pytest.mark.skipif(not ROUND.is_dir(), reason=f"no {ROUND} (RUNBOARD_SHARED names the folder of real collections)")
def test_one_team_left_out_on_trec_covid_is_pytrec_eval_on_filtered_qrels() -> None:
    """All 18 runs of round 1, each a team of its own but for the two of two teams; the pool's depth was 7."""
    qrels = read_qrels(ROUND / "qrels.txt")
    paths = sorted((ROUND / "runs").glob("*.gz"))
    names = ["BRPHJ" if path.name.startswith("BRPHJ") else path.name.upper()[:7] for path in paths]
    teams = [sorted(set(names)).index(name) for name in names]
    assert len(set(teams)) == 16
    runs = [(team, path, 7) for team, path in zip(teams, paths, strict=True)]
    found, judged = sole_finds(runs, ScoringTarget(qrels)), qrels.as_dict()
    firsts = [first_documents(path, 7) for path in paths]
    for team, path in list(zip(teams, paths, strict=True))[::3]:  # a third of them: pytrec_eval takes a second each
        others = [each for number, each in zip(teams, firsts, strict=True) if number != team]
        own = [each for number, each in zip(teams, firsts, strict=True) if number == team]
        kept = {
            query: {
                document: grade
                for document, grade in graded.items()
                if not any(document.encode() in each.get(query.encode(), ()) for each in own)
                or any(document.encode() in each.get(query.encode(), ()) for each in others)
            }
            for query, graded in judged.items()
        }
        run: dict[str, dict[str, float]] = {}
        with gzip.open(path, "rt") as lines:
            for query, _, document, _, score, _ in map(str.split, lines):
                run.setdefault(query, {})[document] = float(score)
        values = pytrec_eval.RelevanceEvaluator(kept, {"ndcg_cut_10"}).evaluate(run)
        expected = sum(value["ndcg_cut_10"] for value in values.values()) / len(judged)
        target = ScoringTarget(qrels.without_pairs(found.get(team, {})))
        mean = score_run(path, target, ["nDCG@10"]).means["nDCG@10"]
        assert mean == pytest.approx(expected, abs=1e-9), path.name


@pytest.mark.skipif(not ROUND.is_dir(), reason=f"no {ROUND} (RUNBOARD_SHARED names the folder of real collections)")
def test_the_documentation_says_what_the_judging_of_trec_covid_makes_of_its_runs() -> None:
    qrels, paths = read_qrels(ROUND / "qrels.txt"), sorted((ROUND / "runs").glob("*.gz"))
    teams = [path.name.upper()[:5] for path in paths]
    found = sole_finds([(team, path, 7) for team, path in zip(teams, paths, strict=True)], ScoringTarget(qrels))
    text = (Path(__file__).parents[3] / "docs" / "judging.md").read_text("utf-8")
    rows, told = [], 0
    for team, path in zip(teams, paths, strict=True):
        means = score_run(path, ScoringTarget(qrels), ["nDCG@10", "Upper(nDCG)@10", "Hole@10"]).means
        target = ScoringTarget(qrels.without_pairs(found.get(team, {})))
        rows.append([*means.values(), *score_run(path, target, ["nDCG@10"]).means.values()])
        told += f"| {path.name.removesuffix('.txt.gz')} | {' | '.join(f'{each:.3f}' for each in rows[-1])} |" in text
    assert told == 4
    shown, upper, _, without = zip(*rows, strict=True)
    taus = kendall_tau(shown, upper), kendall_tau(shown, without)
    assert f"τ of scores is {taus[0]:.2f} with upper bounds, and {taus[1]:.2f} with scores without the own team" in text
