"""Sets of document ids: exact, streamed to disk, shared by processes."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from evaluation.collections.document_ids import DocumentIds

ids = st.text(st.characters(exclude_categories=["Cs", "Cc", "Zs"]), min_size=1, max_size=40)


@given(st.lists(ids, max_size=60), st.lists(ids, max_size=60))
@settings(
    max_examples=60,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_membership_is_exact(tmp_path: Path, inside: list[str], asked: list[str]) -> None:
    built = DocumentIds.build(iter(inside), tmp_path / "ids")
    assert len(built) == len(set(inside))
    everything = [
        *inside,
        *asked,
        *(name[:-1] for name in inside if len(name) > 1),
        *(f"{name}x" for name in inside),
    ]
    assert built.contain(everything).tolist() == [name in set(inside) for name in everything]


def test_many_ids_of_all_lengths(tmp_path: Path) -> None:
    def names() -> list[str]:
        return [f"{number:0{number % 30 + 6}}" for number in range(150_000)]

    DocumentIds.build(names(), tmp_path / "ids")
    opened = DocumentIds.open(tmp_path / "ids")
    assert len(opened) == 150_000
    assert opened.contain(names()).all()
    assert not opened.contain([f"{name}0" for name in names()]).any()
    assert "000000" in opened
    assert "nothing" not in opened
    assert 7 not in opened


def test_a_set_is_replaced_whole_and_leaves_nothing_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "ids"
    first = DocumentIds.build(["a"], path)
    DocumentIds.build(["b"], path)
    assert "a" in first  # who has it open keeps it
    assert ["a" in DocumentIds.open(path), "b" in DocumentIds.open(path)] == [False, True]
    with pytest.raises(ValueError, match="0 bytes"):
        DocumentIds.build(["c", ""], path)
    assert [file.name for file in tmp_path.iterdir()] == ["ids"]


def test_a_file_that_is_no_set_is_refused(tmp_path: Path) -> None:
    (tmp_path / "ids").write_text("a\nb\n" * 100)
    with pytest.raises(ValueError, match="not a set of document ids"):
        DocumentIds.open(tmp_path / "ids")
