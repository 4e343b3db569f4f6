"""Documents excluded for a query take no rank; the scores are pytrec_eval's of the run without them."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
import pytrec_eval
from hypothesis import given
from hypothesis import strategies as st

from evaluation.__main__ import main
from evaluation.core.problems import InvalidContent
from evaluation.judgements.qrels import Qrels, read_excluded
from evaluation.runs.pooling import draw_pool
from evaluation.runs.score import ScoringTarget, score_run
from evaluation.runs.top_documents import first_documents
from evaluation.verification.comparing import (
    Judgements,
    ScoresDiffer,
    ScoringRules,
    parse_excluded,
    verify,
)
from tests.evaluation.runs.test_score import COMPARED, DOCUMENTS, QUIET, queries, rankings, write_run

judged = st.dictionaries(
    queries, st.dictionaries(st.sampled_from(DOCUMENTS), st.integers(0, 3), min_size=1), min_size=1
)
lists = st.dictionaries(queries, st.sets(st.sampled_from(DOCUMENTS), min_size=1, max_size=6), min_size=1)


def write_excluded(path: Path, excluded: dict[str, set[str]]) -> Path:
    pairs = [f"{query}\t{name}\n" for query, names in excluded.items() for name in sorted(names)]
    path.write_text("query-id\tcorpus-id\n" + "".join(pairs), "utf-8")
    return path


@QUIET
@given(graded=judged, run=rankings, excluded=lists, drop=st.booleans())
def test_scores_are_those_of_the_run_without_the_excluded_documents(
    tmp_path: Path,
    graded: dict[str, dict[str, int]],
    run: dict[str, dict[str, str]],
    excluded: dict[str, set[str]],
    drop: bool,
) -> None:
    path = write_run(tmp_path / "run.txt", run)
    listed = read_excluded(write_excluded(tmp_path / "excluded.tsv", excluded))
    target = ScoringTarget(
        Qrels.from_dict(graded), query_ids=run, hidden=False, drop_self_matches=drop, excluded=listed
    )
    scored = score_run(path, target, list(COMPARED), first_documents=3)

    left = {
        query: {
            name: float(score)
            for name, score in of.items()
            if name not in excluded.get(query, ()) and not (drop and name == query)
        }
        for query, of in run.items()
    }
    wanted = pytrec_eval.RelevanceEvaluator(graded, set(COMPARED.values())).evaluate(
        {query: of for query, of in left.items() if of and query in graded}
    )
    for query, values in zip(scored.query_ids, scored.per_query.tolist(), strict=True):
        for (name, theirs), value in zip(COMPARED.items(), values, strict=True):
            assert value == pytest.approx(wanted.get(query, {}).get(theirs, 0.0), abs=1e-9), (query, name)
    assert scored.missing_queries == sum(not left.get(query) for query in graded)
    first = {line.split("\t")[0]: line.split("\t")[1].split() for line in scored.first_documents.decode().splitlines()}
    assert not any(excluded.get(query, set()).intersection(names) for query, names in first.items())

    claimed = scored.as_claimed_scores()
    text = "".join(f"{query} 0 {name} {grade}\n" for query, of in graded.items() for name, grade in of.items())
    parsed = parse_excluded((tmp_path / "excluded.tsv").read_bytes())
    rules = ScoringRules(drop_self_matches=drop, excluded=parsed)
    verify(io.BytesIO(path.read_bytes()), Judgements(text.encode()), claimed, rules, "00")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_run(tmp_path / "run.txt", {"1": {"a": "9", "b": "8", "c": "7", "d": "6"}, "2": {"a": "2", "b": "1"}})
    (tmp_path / "qrels.txt").write_text("1 0 c 1\n2 0 b 1\n")
    write_excluded(tmp_path / "excluded.tsv", {"1": {"a", "b", "elsewhere"}})
    return tmp_path


def test_ranks_close_up(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--qrels", str(folder / "qrels.txt"), "--run", str(folder / "run.txt"), "--measures", "RR"]
    assert main(["score", *options]) == 0
    assert "0.4167" in capsys.readouterr().out  # (1/3 + 1/2) / 2
    assert main(["score", *options, "--excluded", str(folder / "excluded.tsv")]) == 0
    assert "0.7500" in capsys.readouterr().out  # (1/1 + 1/2) / 2


def test_pools_and_pages_have_none_of_them(folder: Path) -> None:
    excluded = read_excluded(folder / "excluded.tsv")
    assert first_documents(folder / "run.txt", 1, excluded) == {b"1": [b"c"], b"2": [b"a"]}
    pool = draw_pool([folder / "run.txt"], ScoringTarget(excluded=excluded), depth=2, seed=1)
    assert set(pool.pairs) == {("1", "c"), ("1", "d"), ("2", "a"), ("2", "b")}


def test_the_second_computation_finds_scores_made_without_the_list(folder: Path) -> None:
    scored = score_run(folder / "run.txt", ScoringTarget(Qrels.from_dict({"1": {"c": 1}}), hidden=False), ["RR"])
    claimed = scored.as_claimed_scores()
    rules = ScoringRules(excluded={"1": {"a"}})
    with (folder / "run.txt").open("rb") as text, pytest.raises(ScoresDiffer):
        verify(text, Judgements(b"1 0 c 1\n"), claimed, rules, "00")


def test_a_wrong_file_is_refused_with_all_its_lines(tmp_path: Path) -> None:
    path = tmp_path / "excluded.tsv"
    path.write_bytes(b"query-id\tcorpus-id\n1\ta\n1\ta\n1 a\n2\ta b\n3\t\xff\n")
    with pytest.raises(InvalidContent) as caught:
        read_excluded(path)
    found = {problem.code: problem.lines for problem in caught.value.report.problems}
    assert found == {"duplicate": (3,), "fields": (4,), "identifier": (5,), "encoding": (6,)}
    path.write_text("query-id\tcorpus-id\n")
    with pytest.raises(InvalidContent, match="no document"):
        read_excluded(path)
