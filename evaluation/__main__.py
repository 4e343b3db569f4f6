"""`python -m evaluation`: retrieve, check and score as the site does, offline.

Exit status: 0 all well, 1 problems in the files, 2 wrong usage.
"""

import argparse
import os
import sys

from evaluation.cli import pack, retrieve, score
from evaluation.core.problems import KernelUnavailable

#: Modules of what the package's extra [neural] brings.
_NEURAL = frozenset(
    {
        "faiss", "huggingface_hub", "safetensors", "scipy", "sentence_transformers", "tokenizers", "torch",
        "transformers",
    }
)  # fmt: skip


def main(words: list[str] | None = None) -> int:
    """Run the command that `words` (by default the process's arguments) name; its exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m evaluation", description="Retrieve, check and score, offline."
    )
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    score.add_parser(commands)
    retrieve.add_parser(commands)
    pack.add_parser(commands)
    arguments = parser.parse_args(words)
    try:
        status: int = arguments.run(arguments)
        sys.stdout.flush()
        return status
    except BrokenPipeError:  # a reader such as `head` has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] not in _NEURAL:
            raise
        print(
            f"error: this needs {error.name}, which the extra [neural] of this package's wheel brings",
            file=sys.stderr,
        )
        return 2
    except KernelUnavailable as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"{error.filename}: {error.strerror}" if error.filename else error, file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
