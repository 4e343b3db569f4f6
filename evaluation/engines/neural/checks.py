"""What a model gives is looked at before it is used: numbers, and not the same ones for everything."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from numpy.typing import NDArray

from evaluation.core.errors import ModelFailure

#: A model that gives the same for so many inputs, no two of them alike to it, does so for all.
_ENOUGH = 8
#: Outputs that differ by less than this share of their size are the same: padding alone makes such differences.
_SAME = 1e-6


class OutputCheck:
    """Watches the batches of a model: raises at once where an output is no number, and knows when all are the same."""

    def __init__(self) -> None:
        self._seen: dict[bytes, NDArray[np.float64]] = {}

    def see(self, inputs: list[bytes], outputs: torch.Tensor) -> None:
        """Look at the outputs (inputs × anything) of a batch. Raises ModelFailure "not_finite_output"."""
        if not bool(torch.isfinite(outputs).all()):
            raise ModelFailure("not_finite_output", "the model gives values that are no finite numbers")
        for place, key in enumerate(inputs):
            if len(self._seen) == _ENOUGH:
                return
            if key not in self._seen:
                self._seen[key] = outputs[place].double().cpu().numpy().reshape(-1)

    def finish(self) -> None:
        """Raise ModelFailure "constant_output" if at least eight different inputs gave the same output."""
        if len(self._seen) < _ENOUGH:
            return
        outputs = np.stack(list(self._seen.values()))
        if np.ptp(outputs, axis=0).max(initial=0.0) <= _SAME * np.abs(outputs).max(initial=0.0):
            raise ModelFailure("constant_output", "the model gives the same output whatever the text")


def input_keys(features: Mapping[str, torch.Tensor]) -> list[bytes]:
    """What tells the texts of a batch apart for the model: their token numbers, without padding."""
    ids, mask = features["input_ids"].cpu().numpy(), features["attention_mask"].cpu().numpy().astype(bool)
    return [row[kept].tobytes() for row, kept in zip(ids, mask, strict=True)]
