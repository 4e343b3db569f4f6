"""What a child process is asked to do, and what it leaves: the contract between worker and sandbox, as JSON.

The child writes into its output folder alone: `run.txt` (and one file a variant beside it), `result.json`, for a shard
the folder `shard`, for an index `index`, and `failure.json` instead of all of them. On standard output it writes lines
of JSON: progress (`Progress`), `ASK_TO_MEASURE`, after which it waits for a line on standard input before it times
anything (its run and a result without figures are there by then), `MEASURED` once its figures are there, too, and
`SHARD_DONE`, after which it waits for the number of the next shard.
Whoever reads what it left treats it as a stranger's.
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
#: Where the child keeps what only it needs, such as an index; part of its output folder, and gone when it ends well.
WORK_FOLDER = "work"
#: The line that asks whether the machine is free for measuring, the answer that starts it, and the one that says that
#: the job ends without figures. While it waits the child is stopped.
ASK_TO_MEASURE = '{"ask": "measure"}'
ANSWER_GO = "go"
ANSWER_SKIP = "skip"
#: The line that says that nothing is timed any more: the child works on, and others may work beside it.
MEASURED = '{"done": "measuring"}'
#: The line that says that a shard and its result are there. Whoever takes them removes them.
SHARD_DONE = '{"done": "shard"}'

#: How the child ends: beside 0, the ways that it can tell apart. Anything else is a crash.
EXIT_MODEL_FAILED = 3
EXIT_OUT_OF_MEMORY = 4
EXIT_DISK_FULL = 5

Task = Literal["retrieve", "encode_shards", "measure", "check", "index"]


@dataclass(frozen=True, slots=True)
class Progress:
    """Where a child is: the stage, and its share done (0 to 1). The note is the parent's, never the child's."""

    stage: str
    share: float
    note: str = ""

    def to_json(self) -> str:
        """The progress as one line, without the note."""
        return json.dumps({"stage": self.stage, "share": self.share})


@dataclass(frozen=True, slots=True)
class ExecutionJob:
    """One piece of work for a child. All paths are as the child sees them.

    "retrieve" makes a run, and measures if asked to; "encode_shards" encodes one shard of the corpus after another,
    whose numbers come as lines on standard input until that ends (`shard` is the one whose result is read); "measure"
    builds the engine and measures it, without keeping a run (BM25 beside a model); "check" has the library say whether
    it takes the checkpoint, and sees nothing else: no corpus, no queries; "index" leaves BM25's index of the corpus.
    `index` is such an index, which the engine opens instead of building its own, and `index_seconds` and `index_memory`
    are what that had taken: the parent adds them to what the child tells of building.
    `shards` is a folder with encoded shards, complete or not, which only "retrieve" adds to. `rankings` is one where
    "retrieve" keeps what it has found of this very work, to go on behind it; `resumes`: something lies there already,
    and what that took is no time of this child's. `documents` is how many the corpus has, where that is known: the
    parent takes no result over fewer or more. `excluded` names documents that are left out of the rankings of single
    queries.
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
    device: str = "cpu"
    threads: int = 1
    measure: bool = True

    @property
    def shard_documents(self) -> int | None:
        """How many documents the shard has; None where that is not known."""
        if self.documents is None or self.shard is None:
            return None
        return min(max(self.documents - self.shard * self.shard_size, 0), self.shard_size)

    def to_json(self) -> str:
        """The job as the text that `from_json` reads."""
        return json.dumps(asdict(self), default=str)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """The job that `to_json` wrote."""
        values = json.loads(text)
        for name in ("out", "corpus", "queries", "excluded", "checkpoint", "shards", "rankings", "index"):
            if values[name] is not None:
                values[name] = Path(values[name])
        return cls(**{**values, "runs": tuple(Path(run) for run in values["runs"])})
