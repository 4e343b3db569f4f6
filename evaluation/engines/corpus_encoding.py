"""Encoding of a corpus in shards, which are stored in a folder and reused.

A search can be divided into parts: parts of the shards if the score of a document depends only on that document
(`base.DividedEngine`), otherwise parts of the queries. Parts of shards share data learned from all shards, such as
centroids.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import KW_ONLY, dataclass, field
from functools import partial
from hashlib import sha256
from itertools import islice
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple, Self

from evaluation.checkpoints.description import CheckpointDescription
from evaluation.collections.beir import Document, corpus_fingerprint, count_documents, read_corpus
from evaluation.core.writing import describe_damage, make_folder, open_atomically
from evaluation.engines.base import (
    SHARD_SIZE,
    DividedEngine,
    InvalidParameter,
    Resources,
    ShardedEngine,
    StageProgress,
    shard_name,
)
from evaluation.engines.registry import describe
from evaluation.engines.run_writing import refusal

#: File with the inputs of a folder's shards, see `claim_shards`.
_INPUTS_FILE = "made-from.json"
#: Version of the shard format. Increase it when any engine changes its shards, so that old ones are no longer used.
SHARD_FORMAT = 1


@dataclass(frozen=True, slots=True)
class Part:
    """Part `number` (from 1) of `count` parts of about equal size."""

    number: int
    count: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse a part such as "2/8". Raises InvalidParameter."""
        match = re.fullmatch(r"(\d{1,6})/(\d{1,6})", text)
        number, count = map(int, match.groups()) if match else (0, 0)
        if not 1 <= number <= count:
            raise InvalidParameter(f"The part {text!r} is not valid. Write the second of eight parts as 2/8.")
        return cls(number, count)

    def select_range(self, total: int, noun: str) -> range:
        """Return the range of indices that this part covers among `total` items.

        Raises InvalidParameter if there are fewer items than parts.
        """
        if total < self.count:
            raise InvalidParameter(f"{total:,} {noun} are too few for {self.count:,} parts.")
        return range((self.number - 1) * total // self.count, self.number * total // self.count)


@dataclass(frozen=True, slots=True)
class EncodingTask:
    """An engine with its parameters and resources, and the corpus, or `part` of its shards, to encode.

    Existing shards in the folder `shards` are reused and missing ones are stored there. Without the folder, shards
    are temporary. The folder records the inputs of its shards and is rejected for different inputs.
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
    """The encoded shards in corpus order, with the number of newly encoded documents and the seconds that this took.

    If only a part was encoded, `folders` lists the shards of that part. `shards` is the number of shards of the whole
    corpus.
    """

    folders: list[Path]
    documents: int
    seconds: float
    shards: int


def claim_shards(task: EncodingTask, folder: Path) -> None:
    """Record the inputs of the shards in their folder, or check that they equal the recorded ones.

    Raises InvalidParameter if an input differs or the engine does not encode shards. Shards without a record, such
    as copied ones, are used without a check.
    """
    description, resources = describe(task.engine), task.resources
    if description.encoding_parameters is None:
        raise InvalidParameter(f"{description.name} does not encode shards; omit the folder of shards.")
    note = folder / _INPUTS_FILE
    if not note.exists() and any(folder.glob("[0-9]*")):
        return
    parameters = description.complete(task.parameters)
    inputs = {
        "format": SHARD_FORMAT,
        "engine": description.name,
        "checkpoint": CheckpointDescription.read(resources.model).sha256 if resources.checkpoint else "",
        "corpus": corpus_fingerprint(task.corpus),
        "device": resources.device.partition(":")[0],
        "shard_size": task.shard_size,
        **{name: parameters[name] for name in description.encoding_parameters},
    }
    if note.exists():
        recorded_inputs = json.loads(note.read_text("utf-8"))
        if differences := ", ".join(sorted(name for name in inputs if recorded_inputs.get(name) != inputs[name])):
            raise InvalidParameter(f"The shards in {folder} were made with another {differences}; choose a new folder.")
    else:
        folder.mkdir(parents=True, exist_ok=True)
        with open_atomically(note) as file:
            json.dump(inputs, file, indent=1)


def encode_corpus(engine: ShardedEngine, task: EncodingTask, folder: Path, report: StageProgress) -> EncodedCorpus:
    """Encode the task's shards that are missing in `folder`, and return all shards of the task.

    Shards are created atomically, and progress is passed to `report`. Raises InvalidContent if files of an existing
    shard are truncated.
    """
    folder.mkdir(exist_ok=True)
    report("encoding", 0.0)
    size, total = task.shard_size, max(count_documents(task.corpus), 1)
    shards = -(-total // size)
    numbers = task.part.select_range(shards, "shards") if task.part else range(shards)
    folders = [folder / shard_name(number) for number in numbers]
    check_intact(folders)
    encoded_count, seconds = 0, 0.0
    reading: Iterator[Document] = iter(())
    position = -1  # number of the next document in the stream
    for first_document, shard in zip(range(numbers.start * size, numbers.stop * size, size), folders, strict=True):
        if not shard.exists():
            if position != first_document:
                reading = read_corpus(task.corpus, first_document=first_document)
            documents = list(islice(reading, size))
            position = first_document + len(documents)

            def fill(folder: Path, first_document: int = first_document, documents: list[Document] = documents) -> None:
                """Encode the documents into a shard's folder, reporting progress over the whole corpus."""
                engine.encode_shard(
                    documents,
                    folder,
                    lambda share: report("encoding", (first_document + share * len(documents)) / total),
                )

            start = perf_counter()
            make_folder(shard, fill)
            seconds += perf_counter() - start
            encoded_count += len(documents)
        report("encoding", min((first_document + size) / total, 1.0))
    return EncodedCorpus(folders, encoded_count, seconds, shards)


def get_learned_folder(
    engine: DividedEngine, shards: Path, count: int, parameters: dict[str, Any], empty_folder: Path
) -> Path:
    """Return the folder of the learned data that all parts share, creating it if it does not exist.

    Args:
        engine: Engine that learns. An engine without learned data gets the new folder `empty_folder`.
        shards: Folder of the shards, in which the learned data is stored.
        count: Number of shards of the whole corpus.
        parameters: Full set of the engine's parameters.
        empty_folder: Path of a folder that does not exist yet.

    Raises:
        InvalidParameter: Shards of other parts are missing.
    """
    if not engine.learns:
        empty_folder.mkdir()
        return empty_folder
    note = shards / _INPUTS_FILE
    shard_inputs = note.read_text("utf-8") if note.exists() else ""
    name = sha256(json.dumps([parameters, count, shard_inputs], sort_keys=True).encode()).hexdigest()[:16]
    learned_folder = shards / f"learned-{name}"
    if not learned_folder.is_dir():
        folders = [shards / shard_name(number) for number in range(count)]
        if missing_shards := [folder.name for folder in folders if not folder.exists()]:
            raise InvalidParameter(
                f"{len(missing_shards):,} of {count:,} shards are not in {shards} yet, the first is "
                f"{missing_shards[0]}. This index is learned from all of them. Run `encode` for each part first."
            )
        check_intact(folders)
        make_folder(learned_folder, partial(engine.learn, folders))
    check_intact([learned_folder])
    return learned_folder


def check_intact(folders: Iterable[Path]) -> None:
    """Raise InvalidContent if files of existing folders are truncated."""
    if damaged := [f"{folder} ({damage})" for folder in folders if (damage := describe_damage(folder))]:
        hint = "Remove these folders and run the same command again. It creates the missing ones."
        raise refusal("damaged_folder", f"incomplete: {', '.join(damaged)}", hint)


def encode(task: EncodingTask, progress: StageProgress | None = None) -> EncodedCorpus:
    """Encode the corpus into the task's folder of shards, for use by `retrieve`. Existing shards are reused.

    Raises InvalidParameter, InvalidContent, and ModelFailure like `retrieve`.
    """
    assert task.shards is not None
    description = describe(task.engine)
    description.check(task.resources)
    claim_shards(task, task.shards)
    engine = description.create(description.complete(task.parameters), task.resources)
    assert isinstance(engine, ShardedEngine)
    return encode_corpus(engine, task, task.shards, progress or (lambda stage, share: None))
