"""Profiles of corpora and runs: words and their overlap, document lengths, maps."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaluation.collections.profiles import (
    EDGES,
    MAX_WORDS,
    QUANTILES,
    LengthDistribution,
    UnigramCounter,
    Unigrams,
    doublings,
    jaccard_bounds,
    merge_distributions,
    profile_corpus,
    read_document_lengths,
    read_unigrams,
    shares,
    weighted_jaccard,
    write_profile,
)
from evaluation.text.words import words

COUNTS = st.dictionaries(st.text("abcde", min_size=1, max_size=2), st.integers(1, 50), min_size=1, max_size=20)
LENGTHS = st.lists(st.integers(0, 100_000), max_size=200)


def count_unigrams(texts: list[str], most: int = MAX_WORDS) -> Unigrams:
    """The words of all texts."""
    counter = UnigramCounter(most)
    for text in texts:
        counter.add(text)
    return counter.result()


def by_definition(first: dict[str, int], second: dict[str, int]) -> float:
    """Σ min / Σ max, word by word."""
    totals = sum(first.values()), sum(second.values())
    pairs = [(first.get(word, 0) / totals[0], second.get(word, 0) / totals[1]) for word in {*first, *second}]
    return sum(map(min, pairs)) / sum(map(max, pairs))


@given(COUNTS, COUNTS)
def test_overlap_is_the_definition_symmetric_and_one_for_itself(first: dict[str, int], second: dict[str, int]) -> None:
    one, other = Unigrams.from_counts(first), Unigrams.from_counts(second)
    assert weighted_jaccard(one, other) == pytest.approx(by_definition(first, second))
    assert weighted_jaccard(one, other) == weighted_jaccard(other, one)
    assert weighted_jaccard(one, one) == pytest.approx(1)
    assert jaccard_bounds(one, other).low == jaccard_bounds(one, other).high


def test_overlap_with_nothing_is_none() -> None:
    nothing = count_unigrams([])
    assert weighted_jaccard(nothing, count_unigrams(["some words"])) == 0
    assert weighted_jaccard(nothing, nothing) == 0


TEXTS = st.lists(st.text("abcdefgh ", max_size=40), min_size=1, max_size=30)


@given(TEXTS, TEXTS, st.integers(1, 8))
def test_what_is_dropped_of_a_vocabulary_is_counted_and_bounds_the_overlap(
    first: list[str], second: list[str], most: int
) -> None:
    whole = count_unigrams(first), count_unigrams(second)
    kept = count_unigrams(first, most), count_unigrams(second, most)
    for each, pruned in zip(whole, kept, strict=True):
        assert pruned.vocabulary <= most
        assert pruned.total == each.total
        assert int(pruned.counts.sum()) + pruned.dropped == each.total
    low, high = jaccard_bounds(*kept)
    assert low - 1e-9 <= weighted_jaccard(*whole) <= high + 1e-9


def test_words_are_counted_in_lower_case_and_lines_of_underscores_are_none() -> None:
    counted = count_unigrams(["Straße STRASSE straße", "the The ____"])
    assert (counted.total, counted.vocabulary) == (5, 3)


def test_a_stream_counts_what_memory_would(tmp_path: Path) -> None:
    random = np.random.default_rng(7)
    texts = [" ".join(f"w{number}" for number in random.zipf(1.5, size)) for size in random.integers(0, 60, 500)]
    path = tmp_path / "corpus.jsonl"
    path.write_text(
        "".join(json.dumps({"_id": f"d{n}", "title": f"T {n}", "text": text}) + "\n" for n, text in enumerate(texts))
    )
    profile = profile_corpus(path, examples=["d3", "absent"])
    counted = Counter(word for n, text in enumerate(texts) for word in words(f"T {n}\n{text}"))
    expected = Unigrams.from_counts(counted)
    assert np.array_equal(profile.unigrams.keys, expected.keys)
    assert np.array_equal(profile.unigrams.counts, expected.counts)
    assert profile.unigrams.total == counted.total()
    assert profile.lengths.mean == pytest.approx(np.mean([len(text.split()) + 2 for text in texts]))
    assert profile.documents.find(["d9", "no such", "d1"]).tolist() == [
        len(texts[9].split()) + 2,
        len(texts[1].split()) + 2,
    ]
    assert [document.title for document in profile.examples.values()] == ["T 3"]


def test_what_was_written_is_read_again_and_the_same_profile_gives_the_same_bytes(tmp_path: Path) -> None:
    corpus = tmp_path / "corpus.jsonl"
    corpus.write_text('{"_id": "a", "text": ""}\n{"_id": "b", "text": "one two two"}\n')
    profile = profile_corpus(corpus)
    write_profile(profile, tmp_path / "1")
    write_profile(profile_corpus(corpus), tmp_path / "2")
    assert (tmp_path / "1").read_bytes() == (tmp_path / "2").read_bytes()
    read = read_unigrams(tmp_path / "1")
    assert (read.total, read.dropped, sorted(read.counts.tolist())) == (3, 0, [1, 2])
    assert read_document_lengths(tmp_path / "1").find(["b", "a"]).tolist() == [3, 0]
    assert list(profile.examples) == ["b"]  # the first that has a text, where none was asked for


@given(LENGTHS)
def test_a_distribution_keeps_counts_mean_and_quantiles(lengths: list[int]) -> None:
    found = LengthDistribution.from_lengths(lengths)
    assert found.total == len(lengths)
    again = LengthDistribution.from_data(json.loads(json.dumps(found.as_data())))
    assert np.array_equal(again.counts, found.counts)
    assert (again.mean, again.quantiles) == (found.mean, found.quantiles)
    if lengths:
        assert found.quantiles[0] == min(lengths)
        assert found.quantiles[-1] == max(lengths)
        assert found.quantile(0.5) == sorted(lengths)[(len(lengths) - 1) // 2]
        edges = doublings([found])
        assert sum(each.share for each in shares(found, edges)) == pytest.approx(1)


@given(st.lists(LENGTHS, min_size=1, max_size=4))
def test_merged_distributions_are_those_of_all_lengths_but_for_the_width_of_a_bin(
    parts: list[list[int]],
) -> None:
    together = merge_distributions(LengthDistribution.from_lengths(part) for part in parts)
    whole = LengthDistribution.from_lengths([length for part in parts for length in part])
    assert np.array_equal(together.counts, whole.counts)
    assert together.mean == pytest.approx(whole.mean)
    assert len(together.quantiles) == len(whole.quantiles)
    for share, low, exact in zip(QUANTILES, together.quantiles, whole.quantiles, strict=False):
        place = EDGES.index(next(edge for edge in reversed(EDGES) if edge <= exact))
        assert low in (exact, EDGES[place]), share


def test_a_real_collection_and_its_neighbour(shared_folder: Path) -> None:
    profiles = {
        name: profile_corpus(shared_folder / "data" / name / "corpus.jsonl") for name in ("cranfield", "nfcorpus")
    }
    one, other = profiles.values()
    assert len(one.documents.keys) > 900
    assert 0.05 < weighted_jaccard(one.unigrams, other.unigrams) < 0.6
    assert one.unigrams.dropped == other.unigrams.dropped == 0
