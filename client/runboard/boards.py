"""Boards as pandas data frames."""

from __future__ import annotations

from typing import Any

import pandas as pd

from runboard import answers

#: Numeric columns that replace a text column, such as “0.330–0.424”. They are in every frame, even while the
#: site computes the tests.
_NUMBERS = {
    "interval": ("low", "high"),
    "ranks": ("rank_low", "rank_high"),
    "p-best": ("p-best",),
    "delta-interval": ("delta_low", "delta_high"),
    "p-baseline": ("p-baseline", "p_baseline_corrected"),
    "wins": ("wins", "ties", "losses"),
    "gap-interval": ("gap_low", "gap_high"),
}
_FACTS = (
    "rank", "ranked_among", "system", "slug", "configuration", "baseline", "comparison_group", "missing_queries",
    "doubtful",
)  # fmt: skip
_COUNTS = ("rank", "missing_queries", "rank_low", "rank_high", "wins", "ties", "losses", "coverage")


def as_frame(board: answers.Board) -> pd.DataFrame:
    """Return the rows of a board as a data frame with the columns that `Client.board` describes.

    Columns that the board lacks are empty. Counts are nullable integers, and other columns without text are floats.
    """
    keys = [column["key"] for column in board["columns"] if column["key"] != "system"]
    # Columns that this board lacks are last, so that every board has all columns.
    keys += [key for key in _NUMBERS if key not in keys]
    names_in_order = [name for key in keys for name in _NUMBERS.get(key, (key,))]
    # On a benchmark, each dataset's score may have an interval.
    scores = [column["key"] for column in board["columns"] if column["group_slug"] == "effectiveness"]
    board_keys = (board["measure"], *_NUMBERS)
    dataset_intervals = [f"{key}_{end}" for key in scores if key not in board_keys for end in ("low", "high")]
    names = list(dict.fromkeys([*_FACTS, *names_in_order, *dataset_intervals]))
    frame = pd.DataFrame([_build_record(row) for row in board["rows"]], columns=names)
    for name in frame.columns.difference(["baseline", "doubtful"]):
        if name in _COUNTS:
            frame[name] = frame[name].astype("Int64")
        elif frame[name].map(lambda value: value is None or isinstance(value, int | float)).all():
            frame[name] = frame[name].astype("float64")
    frame.attrs = {name: board[name] for name in ("title", "summary", "permalink", "measure")}
    return frame


def _build_record(row: answers.Row) -> dict[str, Any]:
    """Return a row's values, ranks, tests, and intervals by column name, with the numbers in texts such as “17/18”."""
    values: dict[str, Any] = {**row["values"]}
    if isinstance(values.get("wins"), str):
        values |= zip(("wins", "ties", "losses"), map(int, values["wins"].split("/")), strict=True)
    if isinstance(values.get("coverage"), str):  # Such as 17/18: the row has 17 of 18 datasets.
        values["coverage"] = int(values["coverage"].partition("/")[0])
    gap = row["contamination_gap"]
    return {
        "rank": row["rank"],
        "ranked_among": row["ranked_among"],
        "system": row["system"],
        "slug": row["slug"],
        "configuration": row["configuration"],
        "baseline": row["baseline"],
        "comparison_group": row["comparison_group"],
        "missing_queries": row["missing_queries"],
        "doubtful": row["doubtful"],
        **(row["certainty"] or {}),
        **{f"{key}_{end}": ends[end] for key, ends in row["intervals"].items() for end in ("low", "high")},
        **({"gap_low": gap["low"], "gap_high": gap["high"]} if gap else {}),
        **values,
    }
