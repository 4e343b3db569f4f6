"""As much of sparse matrices as the sample checkpoint needs, so that the web site needs no library for them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Self

import numpy as np
from numpy.typing import NDArray

_OVERSAMPLING = 16
_ROUNDS = 3


@dataclass(frozen=True, slots=True)
class SparseRows:
    """A matrix by rows, none of them empty: row r has `values[starts[r]:starts[r + 1]]` in `columns` of that slice."""

    starts: NDArray[np.int64]
    columns: NDArray[np.int64]
    values: NDArray[np.float32]
    width: int

    @classmethod
    def of(cls, rows: Iterable[Mapping[int, float]], width: int) -> Self:
        """The matrix of rows given as column → value; empty ones are left out."""
        starts = [0]
        columns: list[int] = []
        values: list[float] = []
        for row in rows:
            if row:
                columns.extend(row)
                values.extend(row.values())
                starts.append(len(columns))
        return cls(np.array(starts), np.array(columns, np.int64), np.array(values, np.float32), width)

    def scaled(self, factors: NDArray[np.float32]) -> Self:
        """Each column times its factor."""
        return replace(self, values=self.values * factors[self.columns])

    def normalised(self) -> Self:
        """Each row divided by its length, where it has one."""
        lengths = np.sqrt(np.add.reduceat(self.values**2, self.starts[:-1]))
        counts = np.diff(self.starts)
        return replace(self, values=self.values / np.repeat(np.where(lengths > 0, lengths, 1), counts))

    def gram_product(self, dense: NDArray[np.float32]) -> NDArray[np.float32]:
        """(self transposed × self) × `dense`: width × k."""
        product = np.zeros_like(dense)
        for start, end in pairwise(self.starts.tolist()):
            columns, values = self.columns[start:end], self.values[start:end]
            product[columns] += np.outer(values, values @ dense[columns])
        return product


def right_singular_vectors(matrix: SparseRows, number: int) -> NDArray[np.float32]:
    """The first right singular vectors as columns, width × (at most) `number`, by subspace iteration.

    N. Halko, P.-G. Martinsson and J. A. Tropp, "Finding structure with randomness", 2011; from a fixed start.
    """
    number = min(number, matrix.width)
    wanted = min(number + _OVERSAMPLING, matrix.width)
    basis = np.linalg.qr(np.random.default_rng(0).standard_normal((matrix.width, wanted), np.float32))[0]
    for _ in range(_ROUNDS):
        basis = np.linalg.qr(matrix.gram_product(basis))[0]
    _, rotation = np.linalg.eigh(basis.T @ matrix.gram_product(basis))
    return basis @ rotation[:, ::-1][:, :number]
