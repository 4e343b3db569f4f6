"""What was found of a board, as pages use it and as the database keeps it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

from evaluation.statistics import CORRECTION, INTERVAL, PERMUTATIONS, RESAMPLES, TEST

#: Counts the changes of how anything here is computed: boards are computed anew under another one.
METHOD = "1"
#: Tests below it are significant, after correction.
ALPHA = 0.05


@dataclass(frozen=True, slots=True)
class Settings:
    """How it was computed: what a caption has to say. The same seed serves every board, so anyone can repeat it."""

    interval: str = INTERVAL
    level: float = 0.95
    resamples: int = RESAMPLES
    test: str = TEST
    permutations: int = PERMUTATIONS
    seed: int = 1
    correction: str = CORRECTION
    alpha: float = ALPHA

    def as_dict(self) -> dict[str, Any]:
        """As plain values."""
        return asdict(self)


class EntryCertainty(NamedTuple):
    """What was found of one entry under one measure.

    `low` and `high` are the ends of the interval of its score. P-values are None for the baseline, or the best, itself;
    `p_baseline` and `p_best` are corrected over the board, those called raw are not. `wins`, `ties` and `losses` are
    numbers of queries against the baseline, None where the board has none. `group` is the letter of its tier: those
    of "a" cannot be separated from the best, "" lies behind the last letter.
    """

    low: float
    high: float
    p_baseline: float | None = None
    p_best: float | None = None
    raw_p_baseline: float | None = None
    raw_p_best: float | None = None
    wins: int | None = None
    ties: int | None = None
    losses: int | None = None
    group: str = ""

    def as_data(self, settings: Settings) -> dict[str, Any]:
        """As plain values for exports, with whether p-values are bounds: below what the permutations can show."""
        least = 1 / (settings.permutations + 1)
        return {
            **self._asdict(),
            "p_best_is_bound": self.raw_p_best is not None and self.raw_p_best < least,
            "p_baseline_is_bound": self.raw_p_baseline is not None and self.raw_p_baseline < least,
        }

    def without_tests(self) -> EntryCertainty:
        """Its interval alone: what still holds when the board has other entries by now."""
        return EntryCertainty(self.low, self.high)


@dataclass(frozen=True, slots=True)
class MeasureCertainty:
    """What was found of one measure: by the ids of the entries.

    `anchors` are the best entries of the tiers, by letter; `best` is that of "a". `queries` are those judged.
    """

    measure: str
    queries: int
    baseline: int | None
    anchors: Mapping[str, int]
    entries: Mapping[int, EntryCertainty]
    #: What boards say of entries, by what they were compared with and by entry: made once, for thousands of cells.
    said: dict[str, dict[int, tuple[EntryCertainty, str, bool]]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    @property
    def best(self) -> int | None:
        """The entry that `p_best` is about."""
        return self.anchors.get("a")

    def of(self, entry: int) -> EntryCertainty | None:
        """What was found of an entry, None where nothing was."""
        return self.entries.get(entry)

    def without_tests(self) -> MeasureCertainty:
        """Intervals alone."""
        entries = {entry: found.without_tests() for entry, found in self.entries.items()}
        return MeasureCertainty(self.measure, self.queries, None, {}, entries)

    def as_dict(self) -> dict[str, Any]:
        """As the database keeps it: a list for each field, one place for each entry."""
        columns = zip(*self.entries.values(), strict=True)
        return {
            "queries": self.queries,
            "baseline": self.baseline,
            "anchors": dict(self.anchors),
            "entries": list(self.entries),
            **{name: list(column) for name, column in zip(EntryCertainty._fields, columns, strict=True)},
        }

    @classmethod
    def from_dict(cls, measure: str, kept: Mapping[str, Any]) -> MeasureCertainty:
        """From what the database keeps."""
        columns = (kept[name] for name in EntryCertainty._fields)
        found = map(EntryCertainty._make, zip(*columns, strict=True))
        return cls(
            measure,
            kept["queries"],
            kept["baseline"],
            kept["anchors"],
            dict(zip(kept["entries"], found, strict=True)),
        )


@dataclass(frozen=True, slots=True)
class BoardCertainty:
    """What was found of a board, by measure.

    Where it is not `current`, the board has other entries by now: tests, groups and counts are left out until those of
    the present board are there, intervals stay.
    """

    dataset: int
    key: str
    comparison_group: str
    from_revision: int
    settings: Settings
    current: bool
    #: Measure → as `MeasureCertainty.as_dict` makes it.
    content: Mapping[str, Mapping[str, Any]] = field(repr=False)
    _read: dict[str, MeasureCertainty] = field(default_factory=dict, init=False, repr=False, compare=False)

    @property
    def measures(self) -> list[str]:
        """Of which measures something was found."""
        return list(self.content)

    def of(self, measure: str) -> MeasureCertainty | None:
        """What was found of a measure, None where nothing was."""
        if measure not in self.content:
            return None
        if measure not in self._read:
            found = MeasureCertainty.from_dict(measure, self.content[measure])
            self._read[measure] = found if self.current else found.without_tests()
        return self._read[measure]
