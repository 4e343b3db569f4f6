"""What reading one shard of a large corpus costs, by its place: the first, the middle and the last of many.

    python tests/benchmarks/corpus_shards.py [--documents 8800000] [--shard-size 50000] [--rounds 3]

The corpus is synthetic: passages of 55 words. It is written once, in blocks as an import stores it, beside the same
lines as ordinary gzip, zstd and Parquet, and read as a worker does: one shard, parsed. *ordinary gzip* is read from its
beginning, as corpora were before they were in blocks, and its last shard is left out (its cost grows with its place).
*zstd* has a frame for each block and a table in memory, *Parquet* row groups of a block's documents: these two are read
by their libraries alone, without any check. Figures are CPU seconds of the reading thread, medians of the rounds; bytes
are on disk. The bound is the ratio of the middle and the last shard of blocks to the first: at most 1.10.
"""

from __future__ import annotations

import argparse
import io
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

import orjson
import zstandard
from isal import igzip

sys.path.insert(0, str(Path(__file__).parents[2]))

from evaluation.collections.beir import read_corpus
from evaluation.collections.blocks import BLOCK_BYTES, COMPRESSION_LEVEL, read_table, write_blocks
from tests.figures import Table, write_tables

_WORDS = 55


def lines(documents: int) -> Iterator[bytes]:
    """Passages of a vocabulary of 200,000 words, which follow each other as Zipf says."""
    noise = random.Random(1)  # noqa: S311
    words = [f"w{noise.randrange(36**5):x}" for _ in range(200_000)]
    drawn = [words[min(int(noise.paretovariate(0.7)), len(words)) - 1] for _ in range(1_000_000)]
    for number in range(documents):
        start = noise.randrange(len(drawn) - _WORDS)
        text = " ".join(drawn[start : start + _WORDS])
        yield b'{"_id": "d%d", "title": "", "text": "%s"}\n' % (number, text.encode())
