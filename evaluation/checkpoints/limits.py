"""Limits of a checkpoint. Operators change the first one through the environment."""

import os
from pathlib import Path

from evaluation.archives.compression import MIB, describe_bytes

#: Bytes of all weights together: CHECKPOINT_WEIGHTS_BYTES.
MOST_WEIGHTS = int(os.environ.get("CHECKPOINT_WEIGHTS_BYTES", 32 * 1024 * MIB))
#: Bytes that an archive expands to: its weights, and one GiB for all other files.
MOST_EXPANDED = MOST_WEIGHTS + 1024 * MIB
MOST_FILES_IN_ARCHIVE = 64
MOST_SHARDS = 64
MOST_TENSORS = 10_000
MOST_HEADERS = 4 * MIB
MOST_JSON = 80 * MIB
MOST_JSON_FILE = 4 * MIB
MOST_TOKENIZER = 32 * MIB

#: Numbers in configurations.
MOST_LAYERS = 256
MOST_HEADS = 512
MOST_EXPERTS = 1024
#: Experts of all layers together.
MOST_EXPERTS_IN_ALL = 8_192
MOST_WIDTH = 16_384
MOST_INNER_WIDTH = 131_072
MOST_VOCABULARY = 1_048_576
#: Characters of a token.
MOST_TOKEN = 2_000
MOST_POSITIONS = 262_144
MOST_ROPE_THETA = 1e9
LEAST_ROPE_FACTOR, MOST_ROPE_FACTOR = 0.01, 128.0
MOST_LIST = 512
MOST_LABELS = 2
#: Rows of a table of static embeddings, and dimensions of the vectors that modules pass on.
MOST_STATIC_ROWS = 2_000_000
MOST_DIMENSION = 1_048_576


class AllowanceSpent(ValueError):
    """All files together are over a limit, which the text names."""


class WeightsTooLarge(AllowanceSpent):
    """The weights have more bytes than a checkpoint may have."""


class CheckpointAllowance:
    """The amount that may still be parsed of one checkpoint; methods raise AllowanceSpent.

    `without_weights`: files of weights may end after their headers; `left_out` is whether one did.
    """

    def __init__(self, without_weights: bool = False) -> None:
        self.without_weights, self.left_out = without_weights, False
        self._parsed = {"JSON files": 0, "headers of weights": 0}
        self._tensors = 0
        self._weights: dict[Path, int] = {}

    def take_json(self, size: int) -> None:
        """Count the bytes of a JSON file."""
        self._take("JSON files", size, MOST_JSON)

    def take_header(self, size: int) -> None:
        """Count the bytes of the header of a file of weights."""
        self._take("headers of weights", size, MOST_HEADERS)

    def _take(self, files: str, size: int, most: int) -> None:
        self._parsed[files] += size
        if self._parsed[files] > most:
            raise AllowanceSpent(f"all {files} together have over {describe_bytes(most)}")

    def take_tensors(self, path: Path, count: int, size: int) -> None:
        """Count the tensors in a header, and their bytes, which count once however often the file is read."""
        self._tensors += count
        if self._tensors > MOST_TENSORS:
            raise AllowanceSpent(f"all files of weights together have over {MOST_TENSORS:,} tensors")
        self._weights[path] = size
        if sum(self._weights.values()) > MOST_WEIGHTS:
            raise WeightsTooLarge(f"all weights together have over {describe_bytes(MOST_WEIGHTS)}")
