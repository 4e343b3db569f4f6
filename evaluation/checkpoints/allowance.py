"""What reading one checkpoint may cost, over all of its files: small archives hold much that is slow to read."""

from __future__ import annotations

from pathlib import Path

from evaluation.archives.compression import describe_bytes
from evaluation.checkpoints.limits import MOST_HEADERS, MOST_JSON, MOST_TENSORS, MOST_WEIGHTS


class AllowanceSpent(ValueError):
    """What there is too much of in all files together, in words."""


class WeightsTooLarge(AllowanceSpent):
    """The weights have more bytes than a checkpoint may."""


class CheckpointAllowance:
    """Counts what is parsed of one checkpoint, every time that it is. Takers raise AllowanceSpent.

    `without_weights`: files of weights may end behind their headers; `left_out` is whether one did.
    """

    def __init__(self, without_weights: bool = False) -> None:
        self.without_weights, self.left_out = without_weights, False
        self._json, self._headers, self._tensors = MOST_JSON, MOST_HEADERS, MOST_TENSORS
        self._weights: dict[Path, int] = {}

    def take_json(self, size: int) -> None:
        """So many bytes of JSON files."""
        self._json -= size
        if self._json < 0:
            raise AllowanceSpent(f"all JSON files together have over {describe_bytes(MOST_JSON)}")

    def take_header(self, size: int) -> None:
        """The header of a file of weights."""
        self._headers -= size
        if self._headers < 0:
            raise AllowanceSpent(f"all headers of weights together have over {describe_bytes(MOST_HEADERS)}")

    def take_tensors(self, count: int) -> None:
        """So many tensors that a header describes."""
        self._tensors -= count
        if self._tensors < 0:
            raise AllowanceSpent(f"all files of weights together have over {MOST_TENSORS:,} tensors")

    def take_weights(self, path: Path, size: int) -> None:
        """The bytes of a file's tensors, as its header has them: once, however often it is read."""
        self._weights[path] = size
        if sum(self._weights.values()) > MOST_WEIGHTS:
            raise WeightsTooLarge(f"all weights together have over {describe_bytes(MOST_WEIGHTS)}")
