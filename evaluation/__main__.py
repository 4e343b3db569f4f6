"""Command line of `python -m evaluation`: retrieval, checks, and scoring offline, as on the site.

Exit status: 0 for success, 1 for problems in the files, 2 for wrong usage.
"""

import argparse
import os
import sys

from evaluation.cli import pack, retrieve, score
from evaluation.core.problems import KernelUnavailable

#: Modules installed by the package's extra [neural].
_NEURAL = frozenset(
    {
        "faiss", "huggingface_hub", "safetensors", "scipy", "sentence_transformers", "tokenizers", "torch",
        "transformers",
    }
)  # fmt: skip


def main(words: list[str] | None = None) -> int:
    """Run the command in `words` (by default, the process's arguments) and return its exit status."""
    parser = argparse.ArgumentParser(prog="python -m evaluation", description="Retrieve, check, and score offline.")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    score.add_parser(commands)
    retrieve.add_parser(commands)
    pack.add_parser(commands)
    arguments = parser.parse_args(words)
    try:
        status: int = arguments.run(arguments)
        sys.stdout.flush()
        return status
    except BrokenPipeError:  # A reader such as `head` closed the pipe.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] not in _NEURAL:
            raise
        print(
            f"error: {error.name} is not installed. Install this package's wheel with the extra [neural].",
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
