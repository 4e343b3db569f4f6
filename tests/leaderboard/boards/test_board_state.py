"""A board's address says all that a reader chose, and says it one way."""

from __future__ import annotations

import string
from typing import Any

import pytest
from django.http import QueryDict
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from leaderboard.boards.state import FACETS, GROUPS, MAX_PINS, MAX_SORTS, BoardState
from leaderboard.core.http.choices import UnknownChoice

SLUGS = st.text(string.ascii_lowercase + string.digits, min_size=1, max_size=8)
KEYS = st.one_of(SLUGS, st.sampled_from(["nDCG@10", "nDCG(dcg='exp-log2')@10", "R_cap@100", "mean-latency"]))
BOUNDS = st.floats(-1e6, 1e6).map(lambda value: f"{value:.6g}")
FREE = st.text(string.ascii_letters + " &=+?%“é", min_size=1, max_size=12).filter(str.strip)


@st.composite
def queries(draw: Any) -> QueryDict:
    """A query string as somebody may write it: in any order, with values that say nothing."""
    pairs: list[tuple[str, str]] = []
    for name in ("measure", "q", "hardware"):
        pairs += [(name, value) for value in draw(st.lists(FREE, max_size=1))]
    pairs += [("view", value) for value in draw(st.lists(st.sampled_from(["", "score", "delta", "rank"]), max_size=2))]
    for key in draw(st.lists(KEYS, max_size=5)):
        pairs.append(("sort", key + draw(st.sampled_from(["", ":asc", ":desc"]))))
    for name, known in FACETS.items():
        values = st.sampled_from(known) if known else FREE
        pairs += [(name, value) for value in draw(st.lists(values, max_size=2))]
    for bound in ("min", "max"):
        pairs += [(f"{bound}-{key}", draw(BOUNDS)) for key in draw(st.lists(KEYS, max_size=2, unique=True))]
    pairs += [
        ("zero-shot", draw(st.sampled_from(["", "1", "on"]))),
        ("cpu-only", draw(st.sampled_from(["", "1"]))),
    ]
    pairs += [("corpus", draw(st.sampled_from(["", "0", "1,000", "5000000"])))]
    pairs += [("hide", group) for group in draw(st.lists(st.sampled_from(GROUPS), max_size=3))]
    pairs += [("pin", slug) for slug in draw(st.lists(SLUGS, max_size=MAX_PINS + 2))]
    pairs += [
        ("weight-latency", draw(st.sampled_from(["", "0", "2.5"]))),
        ("page", draw(st.sampled_from(["", "0", "7"]))),
    ]
    pairs += [("rows", draw(st.sampled_from(["", "all", "200"]))), ("utm_source", "elsewhere")]
    query = QueryDict(mutable=True)
    for name, value in draw(st.permutations(pairs)):
        query.appendlist(name, value)
    return query


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(queries())
def test_an_address_read_and_written_again_is_the_same_view(query: QueryDict) -> None:
    state = BoardState.from_parameters(query)
    written = state.query_string()
    assert BoardState.from_parameters(QueryDict(written.removeprefix("?"))) == state
    assert BoardState.from_parameters(QueryDict(written.removeprefix("?"))).query_string() == written


def test_the_default_view_has_no_query_string() -> None:
    assert (
        BoardState.from_parameters(
            QueryDict("q=&sort=&architecture=&min-mean=&corpus=&page=1&view=score")
        ).query_string()
        == ""
    )


def test_no_more_columns_decide_and_no_more_systems_are_pinned_than_a_page_can_show() -> None:
    state = BoardState.from_parameters(QueryDict("&".join(f"sort=k{n}&pin=s{n}" for n in range(30))))
    assert (len(state.sorts), len(state.pins)) == (MAX_SORTS, MAX_PINS)


@pytest.mark.parametrize(
    "query",
    [
        "min-mean=a",
        "max-mean=nan",
        "corpus=-1",
        "corpus=many",
        "weight-cost=-1",
        "weight-cost=1e308",
        "view=table",
        "page=x",
    ],
)
def test_a_value_that_says_nothing_sensible_is_refused(query: str) -> None:
    with pytest.raises(UnknownChoice):
        BoardState.from_parameters(QueryDict(query))
