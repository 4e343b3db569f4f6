"""A map from distances: classical multidimensional scaling (Torgerson 1952)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class PlanarMap:
    """Points of the shape (points, 2), and the share of the distances' spread that the two axes keep, 0 to 1."""

    points: NDArray[np.float64]
    kept: float


def classical_scaling(distances: NDArray[np.float64]) -> PlanarMap:
    """Points in the plane whose distances come as near to `distances` (points × points, symmetric) as two axes let.

    The eigenvectors of the doubly centred squared distances, the longest axis first. Each axis points to where the
    point farthest from the middle lies (of several the first), so the same distances always give the same map.
    Raises ValueError for distances that are not a symmetric square.
    """
    matrix = np.asarray(distances, np.float64)
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or not np.allclose(matrix, matrix.T):
        raise ValueError("distances are a symmetric square")
    count = len(matrix)
    points = np.zeros((count, 2))
    if count < 2:
        return PlanarMap(points, 1.0)
    squares = matrix**2
    centred = -0.5 * (squares - squares.mean(axis=0) - squares.mean(axis=1)[:, np.newaxis] + squares.mean())
    values, vectors = np.linalg.eigh(centred)
    spread = float(np.abs(values).sum())
    for axis, place in enumerate(np.argsort(-values, kind="stable")[:2]):
        if values[place] <= 1e-12 * max(spread, 1e-300):
            continue
        vector = vectors[:, place]
        # Rounding must not decide between points that are equally far out.
        farthest = int(np.argmax(np.abs(vector) > np.abs(vector).max() - 1e-9))
        points[:, axis] = vector * np.sign(vector[farthest]) * np.sqrt(values[place])
    kept = float(np.sort(np.maximum(values, 0))[-2:].sum()) / spread if spread else 1.0
    return PlanarMap(points, kept)
