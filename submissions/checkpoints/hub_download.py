"""The process that fetches a model from the hub: it is given a name, a commit and a folder, and no secrets.

It is called with NAME COMMIT FOLDER MOST_BYTES, and prints a line of JSON: the bytes fetched and the heads left
there, or a code and a sentence. Only files that a checkpoint is made of are asked for, and their sizes are known, and
added up, before the first is.
"""

import json
import sys
from pathlib import Path
from typing import Any

from evaluation.archives.compression import describe_bytes
from evaluation.archives.hub import NotFetched, Repository, reaching_the_hub
from evaluation.checkpoints.description import PICKLED_HEADS
from evaluation.checkpoints.files import check_file_name
from evaluation.checkpoints.findings import Findings

_MOST_FILES = 64


def fetch(name: str, commit: str, folder: Path, most: int) -> tuple[int, list[str]]:
    """Fetch the model's files into the empty folder; how many bytes, and pickled heads left. Raises NotFetched.

    Weights that run code when they are opened are never asked for.
    """
    repository = Repository("models", name, commit)
    if repository.commit != commit:
        raise NotFetched("hub_missing", "the hub answered with another commit")
    files = repository.files(lambda each: check_file_name(each, Findings()))
    if not 0 < len(files) <= _MOST_FILES:
        message = f"the model has {len(files)} usable files; 1 to {_MOST_FILES} are taken"
        raise NotFetched("hub_missing", message)
    total = sum(file.size for file in files)
    if total > most:
        raise NotFetched(
            "hub_too_large", f"{name} has {describe_bytes(total)}, over the limit of {describe_bytes(most)}"
        )
    for file in files:
        target = folder / file.name
        target.parent.mkdir(parents=True, exist_ok=True)
        repository.download(file, target)
    there = set(repository.names())
    return total, [head for head in PICKLED_HEADS if head in there]


def main() -> int:
    """Fetch what the command line names, and say how it went."""
    name, commit, folder, most = sys.argv[1:]
    try:
        with reaching_the_hub():
            total, heads = fetch(name, commit, Path(folder), int(most))
        answer: dict[str, Any] = {"bytes": total, "heads": heads}
    except NotFetched as error:
        answer = {"code": error.code, "message": error.message}
    print(json.dumps(answer))
    return int("code" in answer)


if __name__ == "__main__":
    sys.exit(main())
