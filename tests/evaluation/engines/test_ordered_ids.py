"""Ids in the order that breaks ties, without a list of them in memory."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evaluation.core.problems import InvalidContent
from evaluation.engines.index import ordered_ids
from evaluation.engines.index.ordered_ids import OrderedIds, write_ordered_ids

#: No white space and no control characters, as ids are.
IDS = st.text(st.characters(min_codepoint=0x21, exclude_categories=("Cs",)), min_size=1, max_size=12)


@settings(max_examples=80, deadline=None)
@given(st.lists(IDS, unique=True, max_size=40), st.integers(1, 7), st.sampled_from((0, 128 << 20)))
def test_descending_order_of_bytes(
    tmp_path_factory: pytest.TempPathFactory, ids: list[str], at_once: int, max_cached_bytes: int
) -> None:
    folder = tmp_path_factory.mktemp("ids")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ordered_ids, "_BATCH_SIZE", at_once)
        patch.setattr(ordered_ids, "_MAX_CACHED_BYTES", max_cached_bytes)
        assert write_ordered_ids(folder, iter(ids)) == len(ids)
        found = OrderedIds(folder)
    expected = sorted(ids, key=str.encode, reverse=True)
    assert found.get_ids_at(np.arange(len(ids))) == expected
    assert found.get_ids(np.arange(len(ids))) == ids
    assert [found.find(identifier) for identifier in ids] == list(range(len(ids)))
    assert sorted(path.name for path in folder.iterdir()) == ["ids.bin", "ids_offsets.npy", "ranks.npy"]


@pytest.mark.parametrize("at_once", [1, 2, 3, 100])
def test_repeated_ids_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at_once: int) -> None:
    """Wherever they stand, and however many are looked at at a time."""
    monkeypatch.setattr(ordered_ids, "_BATCH_SIZE", at_once)
    with pytest.raises(InvalidContent) as caught:
        write_ordered_ids(tmp_path, ["b", "a", "c", "a", "b", "a"])
    (problem,) = caught.value.report.problems
    assert (problem.code, problem.count) == ("duplicate_id", 3)


def test_memory_is_a_few_bytes_for_each_id(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A list of these would take some 80 bytes each, and sorting it 40 more."""
    monkeypatch.setattr(ordered_ids, "_BATCH_SIZE", 4_096)
    count = 200_000
    tracemalloc.start()
    write_ordered_ids(tmp_path, (f"collection-passage-{number * 7919 % count:012d}" for number in range(count)))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 60 * count
