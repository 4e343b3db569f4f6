"""Every figure by its slug. A module with figures is named here, and nowhere else."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from leaderboard.figures import (
    differences,
    difficulty,
    in_domain,
    lengths,
    means,
    overlap,
    pairs,
    pareto,
    progress,
    query_differences,
    tasks,
    wins,
)
from leaderboard.figures.model import Figure, Subject

#: In the order of the pages.
MODULES = (
    *(pareto, wins, in_domain, differences, pairs, means, progress, tasks),
    *(difficulty, lengths, overlap, query_differences),
)

FIGURES: dict[str, Figure] = {figure.slug: figure for module in MODULES for figure in module.FIGURES}


def figures_about(subject: Subject, dataset: Mapping[str, Any] | None = None) -> list[Figure]:
    """Those that a page of this kind shows, or the page of this dataset, in the order of the registry."""
    about = [figure for figure in FIGURES.values() if subject in figure.subjects]
    return about if dataset is None else [figure for figure in about if figure.fits(dataset)]
