"""How sure a system's results are: what each dataset's own board says of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from leaderboard.boards.system.result import Result
from leaderboard.models import Entry
from leaderboard.results import significance


def with_certainty(results: Sequence[tuple[Mapping[str, Any], Result]]) -> list[Result]:
    """The results, each given with its entry's row, and with what was found of its primary measure.

    Nothing is added over hidden judgements, to reported figures, and where nothing was found yet. As many queries as
    `certainty.read` makes, none where no result was scored.
    """
    scored = {
        row["dataset_id"]
        for row, _ in results
        if row["provenance"] != Entry.Provenance.REPORTED and not row["dataset__hidden"]
    }
    boards = significance.read(scored) if scored else {}
    found = []
    for row, result in results:
        board = boards.get(row["dataset_id"])
        of_measure = board.of(result.measure) if board is not None else None
        sure = of_measure.of(row["pk"]) if of_measure is not None else None
        found.append(result if sure is None else result._replace(certainty=sure))
    return found
