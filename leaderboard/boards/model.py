"""What a board is made of, whichever page or export shows it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

Kind = Literal["score", "delta", "relative", "figure", "count", "text", "date"]
Value = float | str | None

#: Column groups, in the order of the page.
EFFECTIVENESS = "Effectiveness"
EFFICIENCY = "Efficiency"
REPORTED_BESIDE = "Also reported"
ABOUT = "About"


@dataclass(frozen=True, slots=True)
class Column:
    """One column: `key` names it in `?sort=` and in exports; `better` says which way is good, if any.

    Values of a `score` are shares (0 to 1), of a `relative` column ratios (0.1 is +10 %), of a `figure` in `unit`.
    """

    key: str
    label: str
    group: str
    kind: Kind
    better: Literal["higher", "lower", ""] = ""
    unit: str = ""
    note: str = ""
    #: Whether its head says which way is good; the group's head may say it for all.
    arrow: bool = True

    @property
    def numeric(self) -> bool:
        """Whether its cells are aligned as numbers."""
        return self.kind not in ("text", "date")

    @property
    def first_order(self) -> Literal["asc", "desc"]:
        """The order that one click gives: best first, newest first, else alphabetical."""
        if self.better == "lower" or self.kind == "text":
            return "asc"
        return "desc"


#: The first column of every board.
SYSTEM_COLUMN = Column("system", "System", "", "text")


@dataclass(slots=True)
class Row:
    """One row. `values` has one place per column: None is missing, sorts last and is never 0.

    `shown` replaces the text of a cell (a doubtful figure as printed), `marks` follow it (in-domain ‡).
    `ranked_in` names whom the row is ranked among: rows of different kinds are never ranked together.
    """

    system: str
    slug: str
    ranked_in: str
    is_baseline: bool = False
    configuration: str = ""
    provenance: str = ""
    architecture: str = ""
    training: str = ""
    comparison_group: str = ""
    team: str = ""
    team_slug: str = ""
    submission: str = ""
    source: str = ""
    missing_queries: int = 0
    rank: int | None = None
    decimals: int = 3
    values: list[Value] = field(default_factory=list)
    shown: dict[int, str] = field(default_factory=dict)
    marks: dict[int, str] = field(default_factory=dict)

    @property
    def rank_label(self) -> str:
        """The rank as the page writes it: `r 3` among reported figures, empty where there is none."""
        if self.rank is None:
            return ""
        return f"r {self.rank}" if self.ranked_in == REPORTED else str(self.rank)


#: Values of `Row.ranked_in`.
REPORTED = "reported"
SCORED = "scored"
STALE = "stale"


@dataclass(slots=True)
class Board:
    """Columns, rows in the order of the page, and what a reader has to know to read them.

    `best` and `second` hold, by column and by `ranked_in`, the two best distinct values of the whole board:
    filters hide rows, but move neither these nor the ranks.
    """

    title: str
    columns: list[Column]
    rows: list[Row]
    sort: str
    order: Literal["asc", "desc"]
    measure: str
    total: int
    measures: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    best: dict[tuple[int, str], float] = field(default_factory=dict)
    second: dict[tuple[int, str], float] = field(default_factory=dict)

    def index(self, key: str) -> int:
        """The place of a column. Raises KeyError for one that the board does not have."""
        for place, column in enumerate(self.columns):
            if column.key == key:
                return place
        raise KeyError(key)
