"""Command line of `python -m evaluation`: retrieval, checks, and scoring offline, as on the site.

Exit status: 0 for success, 1 for problems in the files, 2 for wrong usage.
"""

import argparse
import os
import sys

from evaluation.cli import score
from evaluation.core.problems import KernelUnavailable

#: Package extras, keyed by the modules that they install.
_EXTRAS = {
    **dict.fromkeys(("icu4py", "numba", "Stemmer", "whoosh", "zstandard"), "index"),
    **dict.fromkeys(("faiss", "huggingface_hub", "safetensors", "scipy", "sentence_transformers", "tokenizers", "torch",
                     "transformers"), "neural"),
}  # fmt: skip


def main(words: list[str] | None = None) -> int:
    """Run the command in `words` (by default, the process's arguments) and return its exit status."""
    parser = argparse.ArgumentParser(prog="python -m evaluation", description="Retrieve, check, and score offline.")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    score.add_parser(commands)
    words = sys.argv[1:] if words is None else words
    try:
        # The other commands import engines, which takes a second.
        if not words or words[0] not in commands.choices:
            from evaluation.cli import pack, retrieve

            retrieve.add_parser(commands)
            pack.add_parser(commands)
        arguments = parser.parse_args(words)
        status: int = arguments.run(arguments)
        sys.stdout.flush()
        return status
    except BrokenPipeError:  # A reader such as `head` closed the pipe.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except ModuleNotFoundError as error:
        if (extra := _EXTRAS.get((error.name or "").partition(".")[0])) is None:
            raise
        if words and words[0] in ("-h", "--help"):
            parser.print_help()
        message = f"error: {error.name} is not installed. Install this package's wheel with the extra [{extra}]."
    except KernelUnavailable as error:
        message = f"error: {error}"
    except OSError as error:
        message = f"{error.filename}: {error.strerror}" if error.filename else str(error)
    print(message, file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
