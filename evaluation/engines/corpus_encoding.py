"""A corpus encoded in shards: those that a folder has already, and the others made there."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import KW_ONLY, dataclass, field
from itertools import islice
from pathlib import Path
from time import perf_counter
from typing import NamedTuple

from evaluation.checkpoints.description import CheckpointDescription
from evaluation.collections.beir import Document, count_documents, fingerprint_of, read_corpus
from evaluation.core.writing import complete_or_absent, make_folder
from evaluation.engines.base import (
    SHARD_SIZE,
    InvalidParameter,
    Resources,
    ShardedEngine,
    StageProgress,
    shard_name,
)
from evaluation.engines.parts import MADE_FROM, Part, check_whole
from evaluation.engines.registry import describe

#: To be raised by whoever changes what any engine writes into a shard: no older ones are then searched.
SHARD_FORMAT = 1


@dataclass(frozen=True, slots=True)
class EncodingTask:
    """An engine with its parameters and resources, and the corpus that it encodes, or a `part` of its shards.

    Encoded shards are found in the folder `shards`, and those that are missing are left there; without it they are
    temporary. The folder notes what its shards are made from, and is refused for anything else.
    """

    engine: str
    corpus: Path
    _: KW_ONLY
    parameters: Mapping[str, object] = field(default_factory=dict)
    resources: Resources = field(default_factory=Resources)
    shards: Path | None = None
    shard_size: int = SHARD_SIZE
    part: Part | None = None


class EncodedCorpus(NamedTuple):
    """All encoded shards in corpus order; how many documents were encoded just now, and in how many wall seconds.

    Of a part they are those of its shards; `shards` is how many the corpus has.
    """

    folders: list[Path]
    documents: int
    seconds: float
    shards: int


def claim_shards(task: EncodingTask, folder: Path) -> None:
    """Note in the folder what its shards are made from. Raises InvalidParameter where they are made from another.

    Shards without a note are taken as they are: whoever put them there answers for them.
    """
    description, resources = describe(task.engine), task.resources
    if description.encoding_parameters is None:
        raise InvalidParameter(f"{description.name} encodes no shards; leave them out.")
    note = folder / MADE_FROM
    if not note.exists() and any(folder.glob("[0-9]*")):
        return
    parameters = description.complete(task.parameters)
    made_from = {
        "format": SHARD_FORMAT,
        "engine": description.name,
        "checkpoint": CheckpointDescription.read(resources.model).sha256 if resources.checkpoint else "",
        "corpus": fingerprint_of(task.corpus),
        "device": resources.device.partition(":")[0],
        "shard_size": task.shard_size,
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
    engine: ShardedEngine, task: EncodingTask, folder: Path, report: StageProgress
) -> EncodedCorpus:
    """Return the encoded shards of the task: those that `folder` has already, and the others made there.

    A shard takes its name only once it is whole. Raises InvalidContent where one has lost bytes since.
    """
    folder.mkdir(exist_ok=True)
    report("encoding", 0.0)
    size, total = task.shard_size, max(count_documents(task.corpus), 1)
    shards = -(-total // size)
    wanted = task.part.of(shards, "shards") if task.part else range(shards)
    folders = [folder / shard_name(number) for number in wanted]
    check_whole(folders)
    encoded, seconds = 0, 0.0
    reading: Iterator[Document] = iter(())
    position = -1  # the number of the document that is read next
    for first, shard in zip(range(wanted.start * size, wanted.stop * size, size), folders, strict=True):
        if not shard.exists():
            if position != first:
                reading = read_corpus(task.corpus, first=first)
            documents = list(islice(reading, size))
            position = first + len(documents)

            def make(folder: Path, first: int = first, documents: list[Document] = documents) -> None:
                engine.encode_shard(
                    documents,
                    folder,
                    lambda share: report("encoding", (first + share * len(documents)) / total),
                )

            started = perf_counter()
            make_folder(shard, make)
            seconds += perf_counter() - started
            encoded += len(documents)
        report("encoding", min((first + size) / total, 1.0))
    return EncodedCorpus(folders, encoded, seconds, shards)


def encode(task: EncodingTask, progress: StageProgress | None = None) -> EncodedCorpus:
    """Encode the corpus into the task's folder of shards, where `retrieve` finds it; shards that are there stay.

    Raises what `retrieve` does.
    """
    assert task.shards is not None
    description = describe(task.engine)
    description.check(task.resources)
    claim_shards(task, task.shards)
    engine = description.create(description.complete(task.parameters), task.resources)
    assert isinstance(engine, ShardedEngine)
    return encode_corpus(engine, task, task.shards, progress or (lambda stage, share: None))
