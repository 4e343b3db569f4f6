"""Registry of all figures by slug."""

from collections.abc import Mapping
from typing import Any

from leaderboard.figures import benchmarks, collections, differences, pareto, queries, ranks, scores, throughput
from leaderboard.figures.model import Figure, Subject

#: Figures by slug, in the order in which pages show them: first those on the questions of a board's summary.
FIGURES: dict[str, Figure] = {
    figure.slug: figure
    for figure in (
        benchmarks.WIN_COUNTS,
        differences.DELTAS,
        ranks.RANK_RANGES,
        pareto.PARETO,
        throughput.THROUGHPUT,
        benchmarks.HEAD_TO_HEAD,
        benchmarks.MEANS_BY_TASK,
        benchmarks.MEANS_BY_DOMAIN,
        scores.IN_DOMAIN,
        scores.PROGRESS,
        queries.DIFFICULTY,
        queries.HEATMAP,
        collections.DOCUMENT_LENGTHS,
        collections.RELEVANCE_BY_LENGTH,
        collections.OVERLAP,
        queries.QUERY_DIFFERENCES,
    )
}


def figures_about(subject: Subject, dataset: Mapping[str, Any] | None = None) -> list[Figure]:
    """Return the figures for a kind of page in registry order; with `dataset`, only those that fit this dataset."""
    figures = [figure for figure in FIGURES.values() if subject in figure.subjects]
    return figures if dataset is None else [figure for figure in figures if figure.fits(dataset)]
