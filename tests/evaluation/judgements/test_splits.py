"""A competition's parts: stratified, secret, and kept when judgements grow."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaluation.judgements.qrels import Qrels
from evaluation.judgements.splits import (
    draw_parts,
    part_means,
    read_parts,
    relevant_counts,
    stratum,
    write_parts,
)

counts = st.dictionaries(st.text("abcdefgh", min_size=1, max_size=4), st.integers(0, 40), min_size=4, max_size=120)
shares = st.floats(0.2, 0.8)


@given(relevant=counts, share=shares)
def test_every_query_has_a_part_and_the_public_share_is_kept_overall_and_in_each_stratum(
    relevant: dict[str, int], share: float
) -> None:
    parts = draw_parts(relevant, share)
    assert set(parts.public) == set(relevant)
    assert abs(sum(parts.public.values()) - share * len(relevant)) <= 0.5 + 1e-9
    for number in {stratum(count) for count in relevant.values()}:
        members = [query for query, count in relevant.items() if stratum(count) == number]
        assert abs(sum(parts.public[query] for query in members) - share * len(members)) <= 1 + 1e-9


@given(relevant=counts, more=counts, share=shares)
def test_a_query_keeps_its_part_when_judgements_grow(
    relevant: dict[str, int], more: dict[str, int], share: float
) -> None:
    before = draw_parts(relevant, share)
    after = draw_parts({**relevant, **more}, share, before)
    assert all(after.public[query] == public for query, public in before.public.items())
    assert set(after.public) == {*relevant, *more}


def test_a_query_that_is_judged_no_longer_has_its_old_part_when_it_comes_back() -> None:
    first = draw_parts({str(number): 1 for number in range(9)}, 1 / 3)
    second = draw_parts({str(number): 1 for number in range(1, 9)}, 1 / 3, first)
    third = draw_parts({str(number): 1 for number in range(9)}, 1 / 3, second)
    assert third.public == first.public


def test_two_draws_differ_and_the_same_secret_draws_the_same() -> None:
    relevant = {f"q{number}": number % 5 for number in range(100)}
    first, second = draw_parts(relevant, 0.5), draw_parts(relevant, 0.5)
    assert first.public != second.public
    grown = {**relevant, "new": 3}
    assert draw_parts(grown, 0.5, first).public == draw_parts(grown, 0.5, first).public


def test_neither_part_may_be_empty() -> None:
    with pytest.raises(ValueError, match="1 judged queries cannot be split"):
        draw_parts({"q": 1}, 1 / 3)
    with pytest.raises(ValueError, match="between 0 and 1"):
        draw_parts({"q": 1, "r": 1}, 1.0)


def test_parts_are_read_as_they_were_written_and_tell_nothing_of_themselves(tmp_path: Path) -> None:
    parts = draw_parts({f"q{number}": number for number in range(20)}, 1 / 3)
    path = tmp_path / "parts"
    write_parts(parts, path)
    assert read_parts(path) == parts
    assert repr(parts) == "Parts(20 queries)"
    path.write_text("something else\n")
    with pytest.raises(ValueError, match="not a file of query parts"):
        read_parts(path)


def test_relevant_documents_are_counted_from_the_relevance_level_on() -> None:
    qrels = Qrels.from_dict({"a": {"d1": 2, "d2": 1, "d3": 0}, "b": {"d1": 0}, "c": {"d9": -1}})
    assert relevant_counts(qrels) == {"a": 2, "b": 0, "c": 0}
    assert relevant_counts(qrels, 2) == {"a": 1, "b": 0, "c": 0}


def test_part_means_are_the_means_of_their_queries_and_weigh_up_to_the_whole() -> None:
    values = np.array([[0.1, 1.0], [0.2, 0.0], [0.6, 0.5]])
    public = np.array([True, False, True])
    first, second = part_means(values, ["nDCG@10", "R@100"], public)
    assert first == {"nDCG@10": pytest.approx(0.35), "R@100": 0.75}
    assert second == {"nDCG@10": 0.2, "R@100": 0.0}
    assert (2 * first["nDCG@10"] + second["nDCG@10"]) / 3 == pytest.approx(values[:, 0].mean())
    with pytest.raises(ValueError, match="each part needs at least one query"):
        part_means(values, ["nDCG@10", "R@100"], np.ones(3, np.bool_))
