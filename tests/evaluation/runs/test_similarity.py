"""Signatures of runs: what leaves them as they are, and which walks through a run they give away."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evaluation.collections.beir import read_queries
from evaluation.runs.score import ScoringTarget
from evaluation.runs.similarity import (
    DEPTH,
    RunFingerprints,
    Signature,
    compare,
    fingerprint_run,
    linked_submissions,
)

TOPICS = [f"q{number}" for number in range(60)]
Run = Mapping[str, Sequence[str]]


def honest(seed: int, topics: Sequence[str] = TOPICS, depth: int = 30) -> dict[str, list[str]]:
    """A run of an own system: for each topic other documents of 500."""
    random = np.random.default_rng(seed)
    return {topic: [f"d{each}" for each in random.permutation(500)[:depth]] for topic in topics}


def write(folder: Path, run: Run) -> Path:
    path = folder / "run.txt"
    path.write_text(
        "".join(
            f"{topic} Q0 {document} {rank} {1000 - rank} tag\n"
            for topic, documents in run.items()
            for rank, document in enumerate(documents, 1)
        )
    )
    return path


def sign(folder: Path, run: Run) -> RunFingerprints:
    return fingerprint_run(write(folder, run), ScoringTarget(query_ids=TOPICS))


def changed(run: Run, topics: Sequence[str], step: int) -> dict[str, list[str]]:
    """The run with other documents in front, for these topics."""
    return {
        topic: [f"p{step}-{each}" for each in range(3)] + list(documents) if topic in topics else list(documents)
        for topic, documents in run.items()
    }


def same(one: Signature, other: Signature) -> bool:
    return bool((one.ordered == other.ordered).all() and (one.sets == other.sets).all())


def test_what_is_padded_permuted_or_cut_leaves_the_signature_as_it_is(tmp_path: Path) -> None:
    run = honest(1)
    signature = sign(tmp_path, run).signature
    permuted = {topic: [*documents[:10], *reversed(documents[10:])] for topic, documents in run.items()}
    cut = {topic: documents[:10] for topic, documents in run.items()}
    padded = {**run, **honest(2, [f"junk{number}" for number in range(40)])}
    backwards = dict(reversed(list(run.items())))
    for other in (permuted, cut, padded, backwards):
        assert same(sign(tmp_path, other).signature, signature)


def test_the_first_ten_in_another_order_are_the_same_documents(tmp_path: Path) -> None:
    run = honest(1)
    turned = {topic: [*reversed(documents[:10]), *documents[10:]] for topic, documents in run.items()}
    found = compare(sign(tmp_path, run).signature, sign(tmp_path, turned).signature)
    assert (found.compared, found.same_documents, found.same_order) == (60, 60, 0)
    assert found.is_nearly_same


def test_one_changed_query_is_seen_and_a_run_of_ones_own_is_not(tmp_path: Path) -> None:
    run = honest(1)
    base = sign(tmp_path, run).signature
    probe = compare(base, sign(tmp_path, changed(run, ["q7"], 1)).signature)
    assert (probe.same_documents, probe.is_nearly_same) == (59, True)
    other = compare(base, sign(tmp_path, honest(2)).signature)
    assert (other.share, other.is_nearly_same, other.is_linked) == (0.0, False, False)


def test_queries_that_only_one_run_answers_are_not_compared(tmp_path: Path) -> None:
    run = honest(1)
    half = {topic: documents for topic, documents in run.items() if int(topic[1:]) % 2}
    found = compare(sign(tmp_path, run).signature, sign(tmp_path, changed(half, ["q1"], 1)).signature)
    assert (found.compared, found.same_documents, found.is_nearly_same) == (30, 29, True)
    few = {topic: run[topic] for topic in TOPICS[:4]}
    assert not compare(sign(tmp_path, run).signature, sign(tmp_path, few).signature).is_nearly_same


def test_how_much_a_run_has(tmp_path: Path) -> None:
    few = {topic: documents[:3] for topic, documents in list(honest(1).items())[:15]}
    signed = sign(tmp_path, few)
    assert (signed.answered_share, signed.median_documents) == (0.25, 3)
    # A long list for a few queries does not hide short ones for the others.
    padded = {**few, "q0": honest(1)["q0"]}
    assert sign(tmp_path, padded).median_documents == 3
    assert sign(tmp_path, honest(1)).median_documents == DEPTH


def test_a_document_that_is_its_query_is_none_of_the_first_where_such_are_dropped(tmp_path: Path) -> None:
    run = honest(1)
    with_itself = {topic: [topic, *documents] for topic, documents in run.items()}
    path = write(tmp_path, with_itself)
    dropped = fingerprint_run(path, ScoringTarget(query_ids=TOPICS, drop_self_matches=True)).signature
    assert not same(fingerprint_run(path, ScoringTarget(query_ids=TOPICS)).signature, dropped)
    assert same(sign(tmp_path, run).signature, dropped)


@pytest.mark.parametrize("greedy", [False, True], ids=["around one run", "from step to step"])
@pytest.mark.parametrize("bases", [1, 2, 3])
def test_a_walk_of_a_tenth_of_the_queries_at_a_time_is_one_chain(tmp_path: Path, bases: int, greedy: bool) -> None:
    """Within ten submissions there is a chain of three, also where up to three walks take turns."""
    random = np.random.default_rng(3)
    walks = [honest(number) for number in range(bases)]
    sent: list[list[Signature]] = []
    for step in range(10):
        base = walks[step % bases]
        probe = changed(base, list(random.choice(TOPICS, 6, replace=False)), step)
        newest = [sign(tmp_path, probe).signature]
        if len(linked_submissions(newest, sent)) + 1 >= 3:
            assert step == 2 * bases
            return
        sent.append(newest)
        if greedy:
            walks[step % bases] = probe
    raise AssertionError("no chain was found")


def test_honest_runs_and_seeds_make_no_chain(tmp_path: Path) -> None:
    sent = [[sign(tmp_path, honest(10 * one + seed)).signature for seed in range(5)] for one in range(4)]
    assert linked_submissions(sent[0], sent[1:]) == []


def test_runs_that_groups_sent_to_trec_covid_are_nowhere_near_each_other(shared_folder: Path) -> None:
    folder = shared_folder / "data" / "trec-covid-round1"
    topics = [query.id for query in read_queries(folder / "queries.jsonl")]
    signed = [fingerprint_run(path, ScoringTarget(query_ids=topics)) for path in sorted((folder / "runs").iterdir())]
    assert len(signed) == 18
    assert all(each.answered_share == 1 and each.median_documents == DEPTH for each in signed)
    shares = [compare(one.signature, other.signature).share for one, other in combinations(signed, 2)]
    assert max(shares) < 0.2


fingerprints = st.lists(st.integers(0, 2**64 - 1), min_size=0, max_size=50)


@given(fingerprints)
@settings(max_examples=50, deadline=None)
def test_what_is_packed_comes_back(values: list[int]) -> None:
    signature = Signature(np.array(values, np.uint64), np.array(values[::-1], np.uint64))
    assert same(Signature.unpack(signature.pack()), signature)


@given(fingerprints, fingerprints)
@settings(max_examples=50, deadline=None)
def test_likeness_is_mutual_and_counts_no_more_than_it_compares(one: list[int], other: list[int]) -> None:
    size = min(len(one), len(other))
    first, second = (np.array(each[:size], np.uint64) for each in (one, other))
    some, others = Signature(first, first), Signature(second, second)
    found = compare(some, others)
    assert found == compare(others, some)
    assert 0 <= found.same_order == found.same_documents <= found.compared <= size
    assert compare(some, some).same_documents == compare(some, some).compared


def test_signatures_of_other_topics_are_not_compared() -> None:
    with pytest.raises(ValueError, match="different topics"):
        compare(Signature(*[np.ones(2, np.uint64)] * 2), Signature(*[np.ones(3, np.uint64)] * 2))
