"""What a checkpoint may have at most. Operators raise or lower the first through the environment."""

from __future__ import annotations

import os

from evaluation.archives.compression import MIB

#: Bytes of all weights together: CHECKPOINT_WEIGHTS_BYTES.
MOST_WEIGHTS = int(os.environ.get("CHECKPOINT_WEIGHTS_BYTES", 32 * 1024 * MIB))
#: What an archive expands to: its weights, and one GiB for what describes them.
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
