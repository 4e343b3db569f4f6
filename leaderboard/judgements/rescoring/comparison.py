"""What a rescore found, side by side: each result's numbers, rank and holes on the old judgements and on the new.

All values are published ones, rounded where the judgements are hidden: for curators too, since what they read here
ends in mails and slides. It is computed until the rescore is decided, and kept then.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from leaderboard.core.measures import better
from leaderboard.judgements.rescoring.moves import Move, Stay, moves_of
from leaderboard.models import Entry, Evaluation, Rescore
from leaderboard.results.places import places
from leaderboard.results.values import published_value

HOLE = "Hole@10"
#: The states in which the numbers are kept.
_DECIDED = (Rescore.State.SWITCHED, Rescore.State.DISCARDED)


def comparison_of(rescore: Rescore) -> dict[str, Any]:
    """As it was when the rescore was decided; until then as it is now."""
    if rescore.state in _DECIDED and rescore.comparison:
        return dict(rescore.comparison)
    return compare(rescore, *moves_of(rescore))


def compare(rescore: Rescore, moves: Sequence[Move], stays: Sequence[Stay]) -> dict[str, Any]:
    """Plain values that can be kept: `rows` are the results that move, `stays` those that do not, and why."""
    dataset = rescore.dataset
    rows = [_row(move, hidden=dataset.hidden) for move in moves]
    for measure in dataset.measures:
        _rank(rows, measure, "before")
        _rank(rows, measure, "after")
    return {
        "from": rescore.from_qrels.number,
        "to": rescore.to_qrels.number,
        "hidden": dataset.hidden,
        "measures": list(dataset.measures),
        "primary": dataset.primary_measure,
        "rows": rows,
        "stays": [{**_named(stay.entry), "why": stay.why} for stay in stays],
    }


def among(comparison: Mapping[str, Any], entries: Collection[int]) -> dict[str, Any]:
    """The comparison of these results alone, with ranks among them: none that is missing leaves a gap."""
    rows = [
        {**row, "rank_before": {}, "rank_after": {}} for row in comparison["rows"] if row["entry"] in entries
    ]
    for measure in comparison["measures"]:
        _rank(rows, measure, "before")
        _rank(rows, measure, "after")
    stays = [stay for stay in comparison["stays"] if stay["entry"] in entries]
    return {**comparison, "rows": rows, "stays": stays}


def digest(comparison: Mapping[str, Any]) -> str:
    """What changes whenever a number of the comparison does: whoever decides says which one they looked at."""
    return hashlib.sha256(json.dumps(comparison, sort_keys=True).encode()).hexdigest()[:16]


def _named(entry: Entry) -> dict[str, Any]:
    return {
        "entry": entry.pk,
        "system": entry.system.name,
        "slug": entry.system.slug,
        "closed_api": entry.system.closed_api,
        "configuration": entry.configuration,
        "provenance": entry.provenance,
        "visibility": entry.visibility,
        "is_baseline": entry.is_baseline,
        "seeds": entry.seed_count,
    }


def _row(move: Move, *, hidden: bool) -> dict[str, Any]:
    held = move.entry.visibility == Entry.Visibility.HELD
    return {
        **_named(move.entry),
        "is_baseline": move.is_baseline,
        "before": dict(move.entry.scores),
        "after": dict(move.scores),
        "hole_before": None if held else _hole(move.before, hidden=hidden),
        "hole_after": None if held else _hole(move.after, hidden=hidden),
        "rank_before": {},
        "rank_after": {},
    }


def _hole(evaluations: Sequence[Evaluation], *, hidden: bool) -> float | None:
    """The share of unjudged documents among the first ten; of seeds the mean of their published values."""
    values = [each.means[HOLE] for each in evaluations if HOLE in each.means]
    if len(values) < len(evaluations):
        return None
    published = [published_value(value, hidden=hidden) for value in values]
    return published_value(sum(published) / len(published), hidden=hidden)


def _rank(rows: Sequence[dict[str, Any]], measure: str, when: str) -> None:
    """Places among the public results that move, closed interfaces apart, as on the board."""
    for closed in (False, True):
        peers = [
            row
            for row in rows
            if row["closed_api"] == closed
            and row["visibility"] == Entry.Visibility.PUBLIC
            and measure in row[when]
        ]
        place = places([row[when][measure] for row in peers], lower_is_better=better(measure) == "lower")
        for row in peers:
            row[f"rank_{when}"][measure] = place[row[when][measure]]
