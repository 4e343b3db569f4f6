"""What reading one shard of a large corpus costs, by its place: the first, the middle and the last of many.

    python tests/benchmarks/corpus_shards.py [--documents 2000000] [--shard-size 11300] [--rounds 3]

The corpus is that of `large_corpus.py`: passages of 55 words. It is written once, in blocks as an import stores it,
beside the same lines as ordinary gzip, zstd and Parquet, and read as a worker does: one shard, parsed. *ordinary gzip*
is read from its beginning, as corpora were before they were in blocks, and its last shard is left out (its cost grows
with its place). *zstd* has a frame for each block and a table in memory, *Parquet* row groups of a block's documents:
these two are read by their libraries alone, without any check. Figures are CPU seconds of the reading thread, medians
of the rounds; bytes are on disk. The bound is the ratio of the middle and the last shard of blocks to the first: at
most 1.10.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from pathlib import Path

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import zstandard
from isal import igzip

sys.path.insert(0, str(Path(__file__).parents[2]))

from evaluation.collections.beir import BLOCK_BYTES, COMPRESSION_LEVEL, Document, read_corpus, write_blocks
from tests.benchmarks.large_corpus import WORDS, make_collection
from tests.figures import Figures, add_option

MOST = 1.10


def write_zstd(plain: Path, target: Path) -> list[tuple[int, int]]:
    """A frame for each block; where each begins, and the number of its first document."""
    places, offset, documents = [], 0, 0
    compressor = zstandard.ZstdCompressor(level=3)
    with plain.open("rb") as source, target.open("wb") as file:
        while block := source.readlines(BLOCK_BYTES):
            places.append((offset, documents))
            offset += file.write(compressor.compress(b"".join(block)))
            documents += len(block)
    return places


def write_parquet(plain: Path, target: Path, rows: int) -> None:
    """Row groups of so many documents, compressed by zstd."""
    schema = pa.schema([("_id", pa.string()), ("title", pa.string()), ("text", pa.string())])
    with plain.open("rb") as source, pq.ParquetWriter(target, schema, compression="zstd") as writer:
        while some := [orjson.loads(line) for line in islice(source, rows)]:
            writer.write_table(pa.Table.from_pylist(some, schema))


def read_zstd(path: Path, places: list[tuple[int, int]], first: int, count: int) -> list[Document]:
    """The documents of a shard."""
    offset, at = max(place for place in places if place[1] <= first)
    with path.open("rb") as file:
        file.seek(offset)
        reader = zstandard.ZstdDecompressor().stream_reader(file, read_across_frames=True)
        rows = map(orjson.loads, islice(iter_lines(reader), first - at, first - at + count))
        return [Document(row["_id"], row["title"], row["text"]) for row in rows]


def iter_lines(reader: zstandard.ZstdDecompressionReader) -> Iterator[bytes]:
    """The lines of a stream that has none of its own."""
    rest = b""
    while block := reader.read(BLOCK_BYTES):
        *whole, rest = (rest + block).split(b"\n")
        yield from whole


def read_parquet(path: Path, rows: int, first: int, count: int) -> list[Document]:
    """The documents of a shard, whose row groups are read whole."""
    groups = range(first // rows, -(-(first + count) // rows))
    file = pq.ParquetFile(path)
    table = file.read_row_groups([group for group in groups if group < file.num_row_groups])
    columns = [table.column(name).slice(first - groups[0] * rows, count).to_pylist() for name in table.column_names]
    return [Document(*row) for row in zip(*columns, strict=True)]


def seconds(read: Callable[[], list[Document]], rounds: int) -> tuple[float, list[Document]]:
    """The median CPU seconds, and what was read."""
    taken = []
    for _ in range(rounds):
        started = time.thread_time()
        found = read()
        taken.append(time.thread_time() - started)
    return statistics.median(taken), found


def compare(folder: Path, documents: int, size: int, rounds: int, figures: Figures) -> None:
    """Write the corpus in all ways, read its shards, and make the table."""
    plain, blocks, whole = folder / "corpus.jsonl", folder / "blocks.gz", folder / "whole.gz"
    make_collection(folder, documents)
    with plain.open("rb") as source:
        write_blocks(source, blocks)
    with plain.open("rb") as source, igzip.open(whole, "wb", compresslevel=COMPRESSION_LEVEL) as target:
        shutil.copyfileobj(source, target, 1 << 20)
    places = write_zstd(plain, folder / "blocks.zst")
    rows = places[1][1] if len(places) > 1 else documents
    write_parquet(plain, folder / "blocks.parquet", rows)
    shards = -(-documents // size)
    readers: dict[str, Callable[[int], list[Document]]] = {
        "blocks.gz": lambda first: list(islice(read_corpus(blocks, first_document=first), size)),
        "blocks.zst": lambda first: read_zstd(folder / "blocks.zst", places, first, size),
        "blocks.parquet": lambda first: read_parquet(folder / "blocks.parquet", rows, first, size),
        "whole.gz": lambda first: list(islice(read_corpus(whole), first, first + size)),
    }
    wanted = {"first": 0, "middle": shards // 2, "last": documents // size - 1}
    table = []
    for name, read in readers.items():
        found = {}
        for place, number in wanted.items():
            if name == "whole.gz" and place == "last":
                continue
            found[place], got = seconds(partial(read, number * size), rounds)
            assert (got[0].id, len(got)) == (f"p{number * size}", size)
        apart = max(found.values()) / found["first"]
        bound = figures.bound(name, apart, MOST, " × the first") if name == "blocks.gz" else ""
        cells = [f"{found[place]:.3f}" if place in found else "–" for place in wanted]
        table.append([name, *cells, f"{apart:.2f}", bound, f"{(folder / name).stat().st_size / 2**20:,.0f}"])
    figures.say(f"{documents:,} documents of {WORDS} words, {shards} shards of {size:,}; medians of {rounds} rounds.")
    figures.table(["", "first, CPU s", "middle", "last", "× the first", "bound", "MiB"], table)


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--documents", type=int, default=2_000_000)
    parser.add_argument("--shard-size", type=int, default=11_300)
    parser.add_argument("--rounds", type=int, default=3)
    add_option(parser)
    arguments = parser.parse_args()
    figures = Figures(__file__)
    with tempfile.TemporaryDirectory() as name:
        compare(Path(name), arguments.documents, arguments.shard_size, arguments.rounds, figures)
    sys.exit(figures.finish(arguments.write))


if __name__ == "__main__":
    main()
