"""Faults put into the parser, the order and each formula: the verification notices all of them, and nothing else."""

from __future__ import annotations

import ast
import json
import random
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from evaluation.core.order import trec_order
from evaluation.kernel import building
from evaluation.kernel.library import library
from evaluation.measures.formulas import f1, precision
from evaluation.measures.registry import FAMILIES, Family, parse_measure
from evaluation.runs.forms import trec_text
from evaluation.verification import comparing, references
from evaluation.verification.comparing import Judgements, ScoresDiffer, best_first, read_rankings
from evaluation.verification.references import PytrecEval
from tests.evaluation.verification.faults import FAULTS
from tests.evaluation.verification.verified import MEASURES, RESPONSE_MEASURES, claimed_of, scored_of, verified

QUIET = settings(
    max_examples=25,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
QUERIES = ["1", "2", "10", "q-é", "a-query-id-of-more-than-thirty-two-bytes", "7", "missing", "unjudged"]
DOCUMENTS = [
    *(f"d{number}" for number in range(30)),
    *(f"{'long-' * 5}{number}" for number in range(5)),
    "é",
    "7",
]
# ties, ties in single precision alone, signs, exponents, digits without a point
SCORES = [
    "3",
    "3.0",
    "0.1",
    "0.100000001",
    "-2.5",
    "-.5",
    "1e-3",
    "25",
    "16777216",
    "16777217",
    "2.25",
    "7.5",
]


def collection(folder: Path, seed: int = 1) -> tuple[Path, Path]:
    """A run and judgements by chance: graded, some negative; one judged query is missing, one is not judged."""
    chance = random.Random(seed)
    lines, judged = [], ["query-id\tcorpus-id\tscore\n"]
    for query in QUERIES:
        chosen = chance.sample(DOCUMENTS, 24)
        if query == "7":
            chosen = ["7", *(each for each in chosen if each != "7")]
        if query != "missing":
            lines += [f"{query} Q0 {each} 1 {chance.choice(SCORES)} test\n" for each in chosen]
        if query != "unjudged":
            grades = {each: chance.choice([-1, 0, 0, 1, 2, 3]) for each in chance.sample(DOCUMENTS, 20)}
            grades |= {"7": 3} if query == "7" else {}
            judged += [f"{query}\t{each}\t{grade}\n" for each, grade in grades.items()]
    run, qrels = folder / "run.txt", folder / "qrels.tsv"
    run.write_text("".join(lines))
    qrels.write_text("".join(judged))
    return run, qrels


def answer_run(folder: Path, seed: int = 1) -> Path:
    """Write a random answer run for the queries of the collection, with rankings and citations."""
    chance = random.Random(seed)
    records = [
        {
            "query_id": query,
            "answer": chance.choice([f"the ALPHA{len(query) % 5}: Beta", "Alpha2 - beta?", "gamma", ""]),
            "citations": chance.sample(DOCUMENTS, chance.randrange(9)), "ranking": chance.sample(DOCUMENTS, 12),
            "confidence": chance.random(), "search_calls": chance.randrange(9), "tokens": chance.randrange(99),
            "seconds": chance.random(), "cost": chance.random(),
        }
        for query in QUERIES if query != "missing"
    ]  # fmt: skip
    run = folder / "answers.jsonl"
    run.write_text("".join(f"{json.dumps(record)}\n" for record in records))
    return run


# --- what is right passes


@given(st.integers(0, 2**32), st.integers(0, 3), st.booleans(), st.integers(1, 30))
@QUIET
def test_right_scores_pass(tmp_path: Path, seed: int, level: int, drop: bool, depth: int) -> None:
    run, qrels = collection(tmp_path, seed)
    rules = comparing.ScoringRules(level, drop, depth)
    verified(run, qrels, claimed_of(scored_of(run, qrels, MEASURES, rules)), rules)


@given(st.integers(0, 2**32), st.integers(0, 3), st.booleans(), st.integers(1, 30))
@QUIET
def test_right_scores_of_answer_runs_pass(tmp_path: Path, seed: int, level: int, drop: bool, depth: int) -> None:
    _, qrels = collection(tmp_path, seed)
    run, rules = answer_run(tmp_path, seed), comparing.ScoringRules(level, drop, depth)
    measures = [*RESPONSE_MEASURES, *MEASURES]
    verified(run, qrels, claimed_of(scored_of(run, qrels, measures, rules)), rules)


def test_every_measure_of_the_site_is_verified_here() -> None:
    named = {parse_measure(name).family.key for name in (*MEASURES, *RESPONSE_MEASURES)}
    assert set(FAMILIES) <= named, "give the new measure its place in MEASURES"


@pytest.mark.parametrize(
    ("verifier", "cutoff"),
    [(None, "required"), (PytrecEval("ndcg"), "required"), (PytrecEval("ndcg"), "optional"),
     (PytrecEval(at_cutoff="P_{k}"), "none")],
)  # fmt: skip
def test_a_measure_that_cannot_be_verified_is_not_registered(
    verifier: Any, cutoff: Literal["required", "optional", "none"]
) -> None:
    with pytest.raises(ValueError, match=r"the measure unheard\(\) has no verifier"):
        Family("Unheard", precision, verifier, "", "", "", cutoff)


def test_the_registration_of_a_measure_demands_its_verifier() -> None:
    with pytest.raises(TypeError, match="verifier"):
        Family(name="Unheard", formula=precision, description="", definition="", source="", cutoff="none")  # type: ignore[call-arg]


def test_a_registered_measure_is_scored_and_verified(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One entry of the registry is all that a measure needs."""
    family = Family("Unheard", f1, references.f1, "", "", "", "required")
    monkeypatch.setitem(FAMILIES, family.key, family)
    run, qrels = collection(tmp_path)
    claimed = claimed_of(scored_of(run, qrels, ["Unheard@5"]))
    verified(run, qrels, claimed)
    claimed.per_query[0, 0] += 1
    assert noticed(run, qrels, claimed)


# --- formulas


@pytest.mark.parametrize("name", [*MEASURES, *RESPONSE_MEASURES])
def test_a_fault_in_a_formula_is_noticed(name: str, tmp_path: Path) -> None:
    """Wherever it changes a value, as a deeper cutoff does not where the first relevant document stands above both."""
    run, qrels = collection(tmp_path)
    measure = parse_measure(name)
    run = answer_run(tmp_path) if measure.family.reads_responses else run
    right = claimed_of(scored_of(run, qrels, [measure]))
    verified(run, qrels, right)
    felt = 0
    for fault in FAULTS:
        faulty = replace(measure, family=replace(measure.family, formula=fault(measure.family.formula)))
        wrong = claimed_of(scored_of(run, qrels, [faulty]))
        if (np.abs(wrong.per_query - right.per_query) > 1e-9).any():
            assert noticed(run, qrels, wrong), fault.__name__
            felt += 1
    # Faults in ranks and grades change no value that is computed from the responses.
    assert felt >= (2 if measure.family.reads_responses else 3)


def noticed(run: Path, qrels: Path, claimed: comparing.ClaimedScores) -> bool:
    try:
        verified(run, qrels, claimed)
    except ScoresDiffer:
        return True
    return False


# --- the parser and the order of ties: the kernel is compiled with a fault in its source

KERNEL_FAULTS = {
    "ties in ascending order": ("ranks.h", "other->length) > 0;", "other->length) < 0;"),
    "scores in ascending order": (
        "ranks.h", "        return score[number] > score[other_number];",
        "        return score[number] < score[other_number];",
    ),
    "the point one digit too far": (
        "scores.h", "(int64_t)point + 1 - (int64_t)end", "(int64_t)point + 2 - (int64_t)end",
    ),
    "the sign lost": ("scores.h", "*score = -*score;", "*score = *score;"),
    "the score from the rank's column": (
        "run_reader.c", "read_score(reading->text, fields->score, fields->score_end, score)",
        "read_score(reading->text, fields->rank, fields->rank_end, score)",
    ),
    "grades one too high": ("ranks.h", "= judged->grades[number];", "= judged->grades[number] + 1;"),
    "self matches kept": ("run_reader.c", "reading->self_match = (int64_t)lines->count;", "reading->self_match = -1;"),
    "one document too deep": ("ranks.h", "if (rank > (grade", "if (rank - 1 > (grade"),
    "every line but the last": (
        "ranks.h", "    find_ties(reading);\n", "    find_ties(reading);\n    lines->count--;\n",
    ),
}  # fmt: skip
#: The others are marked long: each is compiled.
IN_EVERY_RUN = ("ties in ascending order", "the point one digit too far")


@pytest.fixture
def faulty_kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    """Compile the kernel with a fault in its source, and use it for the rest of the test."""

    def use(fault: str) -> None:
        name, right, wrong = KERNEL_FAULTS[fault]
        sources = tmp_path / "kernel"
        shutil.copytree(building.SOURCES, sources)
        text = (sources / name).read_text()
        assert text.count(right) == 1, "the source has changed: change the fault as well"
        (sources / name).write_text(text.replace(right, wrong))
        monkeypatch.setattr(building, "SOURCES", sources)
        monkeypatch.setattr(building, "MAIN_SOURCE", sources / building.MAIN_SOURCE.name)
        monkeypatch.setattr(building, "FLAGS", ("-O0", *(flag for flag in building.FLAGS if flag != "-O2")))
        monkeypatch.setenv("RUNBOARD_KERNEL_CACHE", str(tmp_path / "cache"))
        library.cache_clear()

    yield use
    monkeypatch.undo()
    library.cache_clear()


@pytest.mark.parametrize(
    "fault",
    [pytest.param(each, marks=() if each in IN_EVERY_RUN else pytest.mark.long) for each in KERNEL_FAULTS],
)
def test_a_fault_in_the_kernel_is_noticed(fault: str, faulty_kernel: Callable[[str], None], tmp_path: Path) -> None:
    run, qrels = collection(tmp_path)
    faulty_kernel(fault)
    with pytest.raises(ScoresDiffer, match="is correct"):
        verified(run, qrels, claimed_of(scored_of(run, qrels)))


# --- what comes around them


def test_judgements_that_were_read_wrong_are_noticed(tmp_path: Path) -> None:
    run, qrels = collection(tmp_path)
    lines = qrels.read_text().splitlines(keepends=True)
    relevant = next(place for place, line in enumerate(lines) if line.endswith("\t3\n"))
    for name, changed in {"left out": "", "another grade": lines[relevant].replace("\t3\n", "\t1\n")}.items():
        other = tmp_path / "other.tsv"
        other.write_text("".join([*lines[:relevant], changed, *lines[relevant + 1 :]]))
        assert noticed(run, qrels, claimed_of(scored_of(run, other))), name


def test_wrong_means_queries_and_counts_are_noticed(tmp_path: Path) -> None:
    run, qrels = collection(tmp_path)
    right = claimed_of(scored_of(run, qrels))
    not_a_number = right.per_query.copy()
    not_a_number[0, 0] = np.nan
    for wrong in (
        replace(right, means={**right.means, "AP": right.means["AP"] + 2e-9}),
        replace(right, query_ids=right.query_ids[:-1]),
        replace(right, query_ids=(right.query_ids[1], right.query_ids[0], *right.query_ids[2:])),
        replace(right, missing_queries=right.missing_queries + 1),
        replace(right, per_query=not_a_number),
    ):
        assert noticed(run, qrels, wrong)
    verified(run, qrels, right)


def test_text_that_is_no_run_is_a_difference(tmp_path: Path) -> None:
    run, qrels = collection(tmp_path)
    right, text = claimed_of(scored_of(run, qrels)), run.read_bytes()
    first = text.split(b"\n")[0] + b"\n"
    for wrong in (
        first + text,
        b"1 Q0 d1 1 0.5\n" + text,
        b"1 Q0 \xff 1 0.5 t\n",
        b"1 Q0 x 1 nan t\n",
        b"1 Q0 x 1 1e39 t\n",
    ):
        run.write_bytes(wrong)
        assert noticed(run, qrels, right), wrong[:20]


def test_the_message_has_both_values_and_no_id(tmp_path: Path) -> None:
    run, qrels = collection(tmp_path)
    right = claimed_of(scored_of(run, qrels, ["P@1"]))
    row = list(right.query_ids).index("a-query-id-of-more-than-thirty-two-bytes")
    value = float(right.per_query[row, 0])
    right.per_query[row, 0] = value + 0.25
    with pytest.raises(ScoresDiffer) as raised:
        verified(run, qrels, right)
    said = str(raised.value)
    assert f"P@1 of judged query {row + 1} of 7: {value + 0.25!r} was scored, {value!r} is correct; 1 of 7" in said
    assert right.query_ids[row] not in said


# --- reading


@given(st.integers(0, 2**32), st.integers(20, 300))
@QUIET
def test_lines_of_some_queries_are_found_wherever_they_stand(seed: int, block: int) -> None:
    """Among those of ids that begin alike, in any order, with any white space, cut into blocks anywhere."""
    chance = random.Random(seed)
    stem = chance.choice(["", "query-", "a-stem-of-twenty-bytes"])
    names = [f"{stem}{number}" for number in (1, 2, 11, 12, 112, 1112, 9)] + [stem + "é", stem + "\x01"]
    lines = [(query, f"d{number}", chance.random()) for query in names for number in range(9)]
    chance.shuffle(lines)
    space, ends = [" ", "\t", "  ", " \v"], ["\n", "\r\n", "\n\n"]
    text = "".join(
        f"{chance.choice(['', ' '])}{query}{chance.choice(space)}Q0 {document}{chance.choice(space)}1 {score!r} t"
        f"{chance.choice(ends)}"
        for query, document, score in lines
    ).rstrip(chance.choice(["", "\r\n"]))
    wanted = chance.sample(names, 3)
    expected = {query: {each[1]: each[2] for each in lines if each[0] == query} for query in wanted}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(comparing, "_BLOCK", block)
        patch.setattr(comparing, "_FILTERED_BLOCK", block)
        for few in (False, True):
            assert rankings(("\ufeff# ours\n#\n" + text).encode(), wanted, few) == expected


def rankings(text: bytes, queries: list[str], few: bool = False, depth: int = 100) -> comparing.Rankings:
    with trec_text(text) as (_, lines):
        return read_rankings(lines, queries, comparing.ScoringRules(maximum_depth=depth), few_queries=few)


def test_predictions_are_read(tmp_path: Path) -> None:
    scores = '{"1": {"d1": 0.5, "d2": 2}, "2": {"d1": 1}}'
    for text in (
        f'{{"mteb_model_meta": {{"a": {{}}}}, "default": {{"test": {scores}}}}}',
        f' {{"en": {{"dev": {{}}, "test": {scores}}}}}',
    ):
        assert rankings(text.encode(), ["1", "3"]) == {"1": {"d1": 0.5, "d2": 2.0}, "3": {}}


@given(
    st.dictionaries(st.text("aAé9\U0001d4b3z", min_size=1, max_size=3), st.sampled_from(SCORES), max_size=9),
    st.integers(1, 9),
)
@QUIET
def test_the_order_is_the_sites(ranked: dict[str, str], count: int) -> None:
    scores = {name: float(score) for name, score in ranked.items()}
    names = list(scores)
    right = [names[place] for place in trec_order(names, list(scores.values()))]
    assert best_first(scores, count) == right[:count]


def test_a_deep_query_does_not_fill_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the best documents of each block are kept, and they are correct."""
    monkeypatch.setattr(comparing, "_BLOCK", 200)
    most = 0
    cut = comparing.best_first

    def watched(ranked: dict[str, float], count: int) -> list[str]:
        nonlocal most
        most = max(most, len(ranked))
        return cut(ranked, count)

    monkeypatch.setattr(comparing, "best_first", watched)
    numbers = list(range(2000))
    random.Random(1).shuffle(numbers)
    text = "".join(f"1 Q0 d{number} 1 {number} t\n" for number in numbers)
    assert set(rankings(text.encode(), ["1"], depth=10)["1"]) == {f"d{number}" for number in range(1990, 2000)}
    assert most < 100


# --- long runs


def long_run(folder: Path, queries: int, depth: int) -> tuple[Path, Path]:
    chance = random.Random(3)
    run, qrels = folder / "run.txt", folder / "qrels.txt"
    names = [f"q{number}" for number in range(queries)]
    with run.open("w") as lines, qrels.open("w") as judged:
        for query in names:
            for rank, document in enumerate(chance.sample(range(10 * depth), depth), 1):
                lines.write(f"{query} Q0 d{document} {rank} {chance.choice((1, -1)) / rank:.4f} t\n")
                if rank % 3 == 0:
                    judged.write(f"{query} 0 d{document} {chance.choice((0, 1, 2))}\n")
    return run, qrels


@pytest.mark.parametrize(
    ("queries", "depth", "whole_lines", "drawn"),
    [
        (245, 5, 1_224, 25),
        pytest.param(2_010, 100, comparing.WHOLE_LINES, 200, marks=pytest.mark.long),
    ],
)
def test_of_a_long_run_a_tenth_of_the_queries_is_verified(
    queries: int, depth: int, whole_lines: int, drawn: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others for another run, the same for the same one; the memory of lines not drawn is not needed."""
    monkeypatch.setattr(comparing, "WHOLE_LINES", whole_lines)
    run, qrels = long_run(tmp_path, queries, depth)
    right = claimed_of(scored_of(run, qrels, ["nDCG@10", "RR@10", "Hole@10"]))
    verified(run, qrels, right)

    def noticed_at(sha256: str) -> set[int]:
        found = set()
        every = comparing._draw(list(right.query_ids), sha256)
        for row in (right.query_ids.index(query) for query in (*every[:3], *right.query_ids[:9])):
            wrong = right.per_query.copy()
            wrong[row] += 0.5
            means = {one.name: float(each.mean()) for one, each in zip(right.measures, wrong.T, strict=True)}
            try:
                verified(run, qrels, replace(right, per_query=wrong, means=means), sha256=sha256)
            except ScoresDiffer:
                found.add(row)
        assert len(every) == drawn
        assert {right.query_ids.index(query) for query in every[:3]} <= found
        assert {right.query_ids[row] for row in found} <= set(every)
        return found

    assert noticed_at("aa") == noticed_at("aa") != noticed_at("bb")


def test_up_to_200_000_lines_every_query_is_verified(tmp_path: Path) -> None:
    run, qrels = collection(tmp_path)
    right = replace(claimed_of(scored_of(run, qrels)), lines=comparing.WHOLE_LINES)
    for row in range(len(right.query_ids)):
        wrong = right.per_query.copy()
        wrong[row, 0] += 1e-6
        assert noticed(run, qrels, replace(right, per_query=wrong))


# --- independence


def test_nothing_is_shared_with_what_is_verified() -> None:
    """The package imports numpy, pytrec_eval, regex and Python's own library; of ours itself alone."""
    folder = Path(comparing.__file__).parent
    allowed = {"numpy", "pytrec_eval", "regex", *sys.stdlib_module_names}
    for path in folder.glob("**/*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [each.name for each in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                assert node.level == 0
                names = [node.module or ""]
            for name in names:
                assert name.split(".")[0] in allowed or name.startswith("evaluation.verification"), (
                    path,
                    name,
                )


def test_judgements_are_read_in_every_form() -> None:
    expected = {"1": {"a": 1}, "10": {}, "9": {"a": 0, "b": 2}}
    beir = b"query-id\tcorpus-id\tscore\n9\ta\t0\n9\tb\t2\n1\ta\t1\r\n10\ta\t-1\n"
    for text in (
        beir,
        b"\xef\xbb\xbf" + beir,
        beir.split(b"\n", 1)[1],
        b"9 0 b 2\n\n1 0 a 1\n 9 Q0 a 0\n10 0 a -1",
    ):
        judgements = Judgements(text)
        assert judgements.graded == expected
        assert list(judgements.graded) == sorted(expected)
    with pytest.raises(ValueError, match="invalid literal"):
        Judgements(b"1 0 a one\n")
