"""A corpus encoded in shards: those that a folder has already, and the others made there."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from time import perf_counter
from typing import NamedTuple

from evaluation.checkpoints.description import CheckpointDescription
from evaluation.collections.beir import Document, count_documents, read_corpus
from evaluation.collections.blocks import fingerprint_of
from evaluation.core.writing import complete_or_absent, make_folder
from evaluation.engines.base import (
    SHARD_SIZE,
    EngineDescription,
    InvalidParameter,
    ParameterValue,
    Resources,
    ShardedEngine,
    StageProgress,
    shard_name,
)
from evaluation.engines.parts import MADE_FROM, Part, check_whole
from evaluation.engines.registry import describe

#: To be raised by whoever changes what any engine writes into a shard: no older ones are then searched.
SHARD_FORMAT = 1


class EncodedCorpus(NamedTuple):
    """All encoded shards in corpus order; how many documents were encoded just now, and in how many wall seconds.

    Of a part they are those of its shards; `shards` is how many the corpus has.
    """

    folders: list[Path]
    documents: int
    seconds: float
    shards: int


def claim_shards(
    folder: Path,
    description: EngineDescription,
    parameters: Mapping[str, ParameterValue],
    resources: Resources,
    corpus: Path,
    shard_size: int,
) -> None:
    """Note in the folder what its shards are made from. Raises InvalidParameter where they are made from another.

    Shards without a note are taken as they are: whoever put them there answers for them.
    """
    if description.encoding_parameters is None:
        raise InvalidParameter(f"{description.name} encodes no shards; leave them out.")
    note = folder / MADE_FROM
    if not note.exists() and any(folder.glob("[0-9]*")):
        return
    made_from = {
        "format": SHARD_FORMAT,
        "engine": description.name,
        "checkpoint": CheckpointDescription.read(resources.model).sha256 if resources.checkpoint else "",
        "corpus": fingerprint_of(corpus),
        "device": resources.device.partition(":")[0],
        "shard_size": shard_size,
        **{name: parameters[name] for name in description.encoding_parameters},
    }
    if note.exists():
        before = json.loads(note.read_text("utf-8"))
        other = ", ".join(sorted(name for name in made_from if before.get(name) != made_from[name]))
        if other:
            raise InvalidParameter(f"The shards in {folder} are of another {other}; name a new folder.")
    else:
        folder.mkdir(parents=True, exist_ok=True)
        with complete_or_absent(note) as file:
            json.dump(made_from, file, indent=1)


def encode_corpus(
    engine: ShardedEngine,
    corpus: Path,
    folder: Path,
    shard_size: int,
    report: StageProgress,
    part: Part | None = None,
) -> EncodedCorpus:
    """All encoded shards of the corpus, or of a part: those that `folder` has already, and the others made there.

    A shard takes its name only once it is whole. Raises InvalidContent where one has lost bytes since.
    """
    folder.mkdir(exist_ok=True)
    report("encoding", 0.0)
    total = max(count_documents(corpus), 1)
    shards = -(-total // shard_size)
    wanted = part.of(shards, "shards") if part else range(shards)
    folders = [folder / shard_name(number) for number in wanted]
    check_whole(folders)
    encoded, seconds = 0, 0.0
    reading: Iterator[Document] = iter(())
    at = -1  # the number of the document that is read next
    for number, shard in zip(wanted, folders, strict=True):
        first = number * shard_size
        if not shard.exists():
            if at != first:
                reading = read_corpus(corpus, first=first)
            documents = list(islice(reading, shard_size))
            at = first + len(documents)
            started = perf_counter()
            _encode_shard(engine, documents, shard, first, total, report)
            seconds += perf_counter() - started
            encoded += len(documents)
        report("encoding", min((first + shard_size) / total, 1.0))
    return EncodedCorpus(folders, encoded, seconds, shards)


def _encode_shard(
    engine: ShardedEngine,
    documents: Sequence[Document],
    shard: Path,
    before: int,
    total: int,
    report: StageProgress,
) -> None:
    def tell(share: float) -> None:
        report("encoding", (before + share * len(documents)) / total)

    make_folder(shard, lambda folder: engine.encode_shard(documents, folder, tell))


def encode(
    engine: str,
    corpus: Path,
    shards: Path,
    parameters: Mapping[str, object],
    resources: Resources,
    part: Part | None = None,
    progress: StageProgress | None = None,
    shard_size: int = SHARD_SIZE,
) -> EncodedCorpus:
    """Encode the corpus, or a part of its shards, into the folder `shards`, where `retrieve` finds them.

    Shards that are there already stay. Raises what `retrieve` does.
    """
    description = describe(engine)
    description.check(resources)
    complete = description.complete(parameters)
    claim_shards(shards, description, complete, resources, corpus, shard_size)
    made = description.create(complete, resources)
    assert isinstance(made, ShardedEngine)
    return encode_corpus(made, corpus, shards, shard_size, progress or (lambda stage, share: None), part)
