"""A corpus encoded in shards: those that a folder has already, and the others made there.

A part of a search is some of the shards, where the score of a document depends on that document alone
(`base.DividedEngine`), or some of the queries for any other engine. Parts of shards share what is learned from all of
them, such as centroids.
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
from evaluation.core.writing import complete_or_absent, damage_of, make_folder
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
from evaluation.engines.run_writing import unusable

#: What the shards of a folder are made from, see `claim_shards`.
_MADE_FROM = "made-from.json"
#: To be raised by whoever changes what any engine writes into a shard: no older ones are then searched.
SHARD_FORMAT = 1


@dataclass(frozen=True, slots=True)
class Part:
    """Part `number` (from 1) of `count` parts of about the same size."""

    number: int
    count: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the part that a text such as "2/8" names. Raises InvalidParameter."""
        found = re.fullmatch(r"(\d{1,6})/(\d{1,6})", text)
        number, count = map(int, found.groups()) if found else (0, 0)
        if not 1 <= number <= count:
            raise InvalidParameter(f"There is no part {text!r}; the second of eight is 2/8.")
        return cls(number, count)

    def of(self, total: int, what: str) -> range:
        """Which of `total` things are in this part. Raises InvalidParameter where there is none for each part."""
        if total < self.count:
            raise InvalidParameter(f"There are {total:,} {what}, too few for {self.count:,} parts.")
        return range((self.number - 1) * total // self.count, self.number * total // self.count)


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
    note = folder / _MADE_FROM
    if not note.exists() and any(folder.glob("[0-9]*")):
        return
    parameters = description.complete(task.parameters)
    made_from = {
        "format": SHARD_FORMAT,
        "engine": description.name,
        "checkpoint": CheckpointDescription.read(resources.model).sha256 if resources.checkpoint else "",
        "corpus": corpus_fingerprint(task.corpus),
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


def learned_for(
    engine: DividedEngine, shards: Path, count: int, parameters: dict[str, Any], own: Path
) -> Path:
    """Return the folder of what all parts share, kept beside the `count` shards: whichever part comes first makes it.

    An engine that learns nothing gets the new folder `own`. Raises InvalidParameter where shards of other parts are
    not there yet.
    """
    if not engine.learns:
        own.mkdir()
        return own
    note = shards / _MADE_FROM
    made_from = note.read_text("utf-8") if note.exists() else ""
    name = sha256(json.dumps([parameters, count, made_from], sort_keys=True).encode()).hexdigest()[:16]
    kept = shards / f"learned-{name}"
    if not kept.is_dir():
        folders = [shards / shard_name(number) for number in range(count)]
        missing = [folder.name for folder in folders if not folder.exists()]
        if missing:
            raise InvalidParameter(
                f"Of {count:,} shards {len(missing):,} are not in {shards} yet, the first is {missing[0]}: this index "
                "is learned from all of them. Run `encode` for each part before."
            )
        check_whole(folders)
        make_folder(kept, partial(engine.learn, folders))
    check_whole([kept])
    return kept


def check_whole(folders: Iterable[Path]) -> None:
    """Raise InvalidContent where files of these folders, as far as they are there, have lost bytes."""
    damaged = [f"{folder} ({damage})" for folder in folders if (damage := damage_of(folder))]
    if damaged:
        hint = "Remove these folders, and give the same command again: it makes what is not there."
        raise unusable("damaged_folder", f"not whole: {', '.join(damaged)}", hint)


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
