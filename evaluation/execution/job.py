"""Contract between worker and sandbox: the job of a child process and its results, as JSON.

The child writes only to its output folder: `run.txt` (and one file per variant), `result.json`, the folder `shard`
for a shard or `index` for an index, or only `failure.json`. To standard output it writes lines of JSON:

- progress (`Progress`);
- `ASK_TO_MEASURE`, after which it waits for a line on standard input before timing. Its run and a result without
  figures have been written by then;
- `MEASURED`, after its figures have been written;
- `SHARD_DONE`, after which it waits for the number of the next shard.

The parent must not trust any of these files and lines.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Literal, Self

from evaluation.engines.base import SHARD_SIZE, ParameterValue

RUN_NAME = "run.txt"
RESULT_NAME = "result.json"
FAILURE_NAME = "failure.json"
SHARD_FOLDER = "shard"
INDEX_FOLDER = "index"
#: Folder for the child's temporary files, such as an index. It is in the output folder, and deleted after success.
WORK_FOLDER = "work"
#: Request to measure, and the answers to start or to skip measuring. The child is stopped while it waits.
ASK_TO_MEASURE = '{"ask": "measure"}'
ANSWER_GO = "go"
ANSWER_SKIP = "skip"
#: Message that timing has ended, so that other jobs may run while the child continues.
MEASURED = '{"done": "measuring"}'
#: Message that a shard and its result have been written. The parent removes them after reading.
SHARD_DONE = '{"done": "shard"}'

#: Exit statuses of the child besides 0. All others are crashes.
EXIT_MODEL_FAILED = 3
EXIT_OUT_OF_MEMORY = 4
EXIT_DISK_FULL = 5

Task = Literal["retrieve", "encode_shards", "measure", "check", "index"]


@dataclass(frozen=True, slots=True)
class Progress:
    """Progress of a child: the stage, and its fraction done (0 to 1).

    `note` is set by the parent, never by the child.
    """

    stage: str
    share: float
    note: str = ""


@dataclass(frozen=True, slots=True)
class ExecutionJob:
    """A job of a child. All paths are as seen by the child.

    Tasks:
        retrieve: Write a run, and measure the engine if `measure` is set.
        encode_shards: Encode the shards of the corpus with the numbers on standard input, until its end.
        measure: Build the engine and measure it without a run, for BM25 in a model's job.
        check: Check that the library accepts the checkpoint, without corpus and queries.
        index: Write BM25's index of the corpus.

    Attributes:
        documents: Number of documents of the corpus, if known. The parent rejects results with another number.
        excluded: File of documents to omit from the rankings of single queries.
        shards: Folder with encoded shards, to which "retrieve" adds missing ones.
        rankings: Folder in which "retrieve" stores rankings, so that an interrupted search can continue.
        resumes: Whether `rankings` has content. The search time of this content is not part of this child's time.
        shard: Number of the shard to read the result of.
        index: Prebuilt BM25 index, which the engine opens instead of building its own.
        index_seconds: Seconds for building that index, which the parent adds to the child's build time.
        index_memory: Peak memory in bytes for building that index.
        brief: Whether to measure with the effort of a variant.
        socket: Unix socket of the server in a container image, in a folder of its own.
    """

    task: Task
    engine: str
    out: Path
    corpus: Path | None = None
    documents: int | None = None
    queries: Path | None = None
    excluded: Path | None = None
    parameters: Mapping[str, ParameterValue] = field(default_factory=dict)
    checkpoint: Path | None = None
    runs: tuple[Path, ...] = ()
    shards: Path | None = None
    rankings: Path | None = None
    resumes: bool = False
    shard: int | None = None
    shard_size: int = SHARD_SIZE
    depth: int = 1000
    drop_self_matches: bool = False
    tag: str = "runboard"
    language: str = "en"
    index: Path | None = None
    index_seconds: float = 0.0
    index_memory: int = 0
    socket: Path | None = None
    device: str = "cpu"
    threads: int = 1
    measure: bool = True
    brief: bool = False

    @property
    def shard_documents(self) -> int | None:
        """Number of documents of the shard, or None if it is unknown."""
        if self.documents is None or self.shard is None:
            return None
        return min(max(self.documents - self.shard * self.shard_size, 0), self.shard_size)

    def to_json(self) -> str:
        return json.dumps(asdict(self), default=str)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Parse the output of `to_json`."""
        values = json.loads(text)
        for name in ("out", "corpus", "queries", "excluded", "checkpoint", "shards", "rankings", "index", "socket"):
            if values[name] is not None:
                values[name] = Path(values[name])
        return cls(**{**values, "runs": tuple(Path(run) for run in values["runs"])})
