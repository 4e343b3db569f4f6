"""Process that downloads a model from the Hugging Face Hub, without access to secrets.

It is called with NAME COMMIT FOLDER MAX_BYTES and prints a line of JSON: the number of bytes and the skipped heads,
or a code and a message. It requests only files that belong to checkpoints, and checks their total size before the
first download.
"""

import json
import sys
from pathlib import Path
from typing import Any

from evaluation.archives.compression import describe_bytes
from evaluation.archives.hub import NotFetched, Repository, connection_errors
from evaluation.checkpoints.description import PICKLED_HEADS
from evaluation.checkpoints.files import check_file_name
from evaluation.checkpoints.findings import Findings

_MAX_FILES = 64


def fetch(name: str, commit: str, folder: Path, maximum_bytes: int) -> tuple[int, list[str]]:
    """Download the model's files into the empty folder. Return their size in bytes and the skipped pickled heads.

    Weights that execute code when loaded are never requested. Raises NotFetched.
    """
    repository = Repository("models", name, commit)
    if repository.commit != commit:
        raise NotFetched("hub_missing", "the Hugging Face Hub returned a different commit")
    files = repository.files(lambda name: check_file_name(name, Findings()))
    if not 0 < len(files) <= _MAX_FILES:
        raise NotFetched("hub_missing", f"the model has {len(files)} usable files; 1 to {_MAX_FILES} are accepted")
    total = sum(file.size for file in files)
    if total > maximum_bytes:
        raise NotFetched(
            "hub_too_large",
            f"{name} has {describe_bytes(total)}, over the limit of {describe_bytes(maximum_bytes)}",
        )
    for file in files:
        target = folder / file.name
        target.parent.mkdir(parents=True, exist_ok=True)
        repository.download(file, target)
    names = set(repository.names())
    return total, [head for head in PICKLED_HEADS if head in names]


def main() -> int:
    """Download the model named on the command line and print the result. Return 0 if it succeeded, else 1."""
    name, commit, folder, maximum_bytes = sys.argv[1:]
    try:
        with connection_errors():
            total, heads = fetch(name, commit, Path(folder), int(maximum_bytes))
        answer: dict[str, Any] = {"bytes": total, "heads": heads}
    except NotFetched as error:
        answer = {"code": error.code, "message": error.message}
    print(json.dumps(answer))
    return int("code" in answer)


if __name__ == "__main__":
    sys.exit(main())
