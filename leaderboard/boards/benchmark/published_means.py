"""What a paper prints over all of its datasets, beside what follows from the figures that it prints for each."""

from collections.abc import Mapping
from typing import NamedTuple

from leaderboard.boards.benchmark.columns import AVERAGE, MEAN_RELATIVE, WINS
from leaderboard.boards.model import BenchmarkFacts, Board
from leaderboard.core.text.numbers import signed
from leaderboard.importing.reported.tables import PublishedAverage
from leaderboard.results.board_rows.entry_rows import REPORTED


class PublishedMeansRow(NamedTuple):
    """A system's figures as the page writes them, a dash where the paper prints none. `odd`: the wins differ."""

    system: str
    slug: str
    wins: str
    printed_wins: str
    ratio_of_means: str
    mean_of_ratios: str
    printed_average: str
    odd: bool


class PublishedMeans(NamedTuple):
    """The table, over how many datasets, for which measure, and what it comes to in one or two sentences."""

    rows: list[PublishedMeansRow]
    counted: int
    measure: str
    locators: list[str]
    sentence: str


class _Computed(NamedTuple):
    system: str
    slug: str
    wins: int
    ratio: float
    ratios: float
    printed: PublishedAverage


def compare_published_means(
    facts: BenchmarkFacts, ranked: Board, printed: Mapping[str, PublishedAverage]
) -> PublishedMeans | None:
    """Return the comparison with what a publication prints over all datasets, or None if nothing can be compared."""
    found = []
    for row in ranked.rows:
        wins, ratio, ratios = (row.value(key) for key in (WINS, AVERAGE, MEAN_RELATIVE))
        name = row.entry.system
        if (
            row.ranked_in == REPORTED
            and name in printed
            and isinstance(ratio, float)
            and isinstance(ratios, float)
        ):
            # A baseline wins nothing against itself.
            wins = int(wins) if isinstance(wins, float) else 0
            found.append(_Computed(name, row.entry.slug, wins, ratio, ratios, printed[name]))
    if not found:
        return None
    counted = len(facts.counted)
    return PublishedMeans(
        [_row(one) for one in found],
        counted,
        facts.measure,
        sorted({locator for one in found for locator in one.printed.locators}),
        _sentence(found, counted),
    )


def _row(one: _Computed) -> PublishedMeansRow:
    printed = one.printed
    return PublishedMeansRow(
        one.system,
        one.slug,
        str(one.wins),
        "—" if printed.wins is None else str(printed.wins),
        signed(one.ratio, 1, percent=True),
        signed(one.ratios, 1, percent=True),
        "—" if printed.average is None else signed(printed.average, 1),
        printed.wins not in (None, one.wins),
    )


def _sentence(found: list[_Computed], counted: int) -> str:
    """Whether either reading reproduces the printed averages, and which printed wins do not follow."""
    averages = [(one, one.printed.average) for one in found if one.printed.average is not None]
    exact = [
        name
        for name, of in (
            ("the ratio of means", lambda one: one.ratio),
            ("the mean of ratios", lambda one: one.ratios),
        )
        if all(abs(100 * of(one) - printed) < 0.05 for one, printed in averages)
    ]
    if exact:
        said = f"The printed average is {exact[0]}."
    else:
        said = (
            f"Neither reading of “average relative to BM25” over the {counted} datasets reproduces the printed line "
            f"exactly: the ratio of means is off by {_deviation(averages, 'ratio')}, the mean of ratios by "
            f"{_deviation(averages, 'ratios')}."
        )
    for one in found:
        if one.printed.wins not in (None, one.wins):
            said += (
                f" {one.system} wins against BM25 on {one.wins} of {counted} datasets by the paper's own table, not on "
                f"the printed {one.printed.wins}."
            )
    return said


def _deviation(averages: list[tuple[_Computed, float]], name: str) -> str:
    """How far a reading is from the printed line."""
    distances = [abs(100 * getattr(one, name) - printed) for one, printed in averages]
    return f"{sum(distances) / len(distances):.1f} points on average, {max(distances):.1f} at most"
