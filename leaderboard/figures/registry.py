"""Every figure by its slug. A module with figures is named here, and nowhere else."""

from __future__ import annotations

from leaderboard.figures import query_differences, wins
from leaderboard.figures.model import Figure, Subject

FIGURES: dict[str, Figure] = {figure.slug: figure for figure in (*wins.FIGURES, *query_differences.FIGURES)}


def figures_about(subject: Subject) -> list[Figure]:
    """Those that a page of this kind shows, in the order of the registry."""
    return [figure for figure in FIGURES.values() if subject in figure.subjects]
