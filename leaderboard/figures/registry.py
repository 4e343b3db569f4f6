"""Every figure by its slug. A figure is named here, and nowhere else."""

from collections.abc import Mapping
from typing import Any

from leaderboard.figures import collections, differences, pareto, queries, scores, tasks, wins
from leaderboard.figures.model import Figure, Subject

#: By slug, in the order of the pages.
FIGURES: dict[str, Figure] = {
    figure.slug: figure
    for figure in (
        pareto.PARETO,
        pareto.THROUGHPUT,
        wins.WIN_COUNTS,
        scores.IN_DOMAIN,
        differences.DELTAS,
        wins.HEAD_TO_HEAD,
        tasks.MEANS_BY_TASK,
        tasks.MEANS_BY_DOMAIN,
        scores.PROGRESS,
        tasks.SIZES,
        queries.DIFFICULTY,
        collections.DOCUMENT_LENGTHS,
        collections.RELEVANCE_BY_LENGTH,
        collections.OVERLAP,
        differences.SYSTEM_DELTAS,
        queries.QUERY_DIFFERENCES,
    )
}


def figures_about(subject: Subject, dataset: Mapping[str, Any] | None = None) -> list[Figure]:
    """Those that a page of this kind shows, or the page of this dataset, in the order of the registry."""
    about = [figure for figure in FIGURES.values() if subject in figure.subjects]
    return about if dataset is None else [figure for figure in about if figure.fits(dataset)]
