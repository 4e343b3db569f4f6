"""Command line of `python -m evaluation`: retrieval, checks, and scoring offline, as on the site.

Exit status: 0 for success, 1 for problems in the files, 2 for wrong usage.
"""

import argparse
import os
import sys

import evaluation as package
from evaluation.cli import score
from evaluation.core.problems import KernelUnavailable

#: Package extras, keyed by the modules that they install.
_EXTRAS = {
    **dict.fromkeys(("icu4py", "numba", "Stemmer", "whoosh", "zstandard"), "index"),
    **dict.fromkeys(("faiss", "huggingface_hub", "safetensors", "scipy", "sentence_transformers", "tokenizers", "torch",
                     "transformers"), "neural"),
}  # fmt: skip
#: Commands of `evaluation.cli.retrieve` and `evaluation.cli.pack`, with their help.
_ENGINE_COMMANDS = {
    "fuse": "fuse several runs into one",
    "merge": "merge the runs of all parts into one",
    "retrieve": "index a corpus, search it, and write a run",
    "encode": "encode a corpus, or a part of it, into shards for `retrieve`",
    "engines": "list the engines and their parameters",
    "pack": "build a model archive for upload",
}


def main(words: list[str] | None = None) -> int:
    """Run the command in `words` (by default, the process's arguments) and return its exit status."""
    parser = argparse.ArgumentParser(prog="python -m evaluation", description="Retrieve, check, and score offline.")
    version = getattr(package, "__version__", "(from source)")
    parser.add_argument("--version", action="version", version=f"%(prog)s {version}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    score.add_parser(commands)
    words = sys.argv[1:] if words is None else words
    try:
        # Engines take a second to import, and need the extra [index].
        if next((word for word in words if not word.startswith("-")), "") in _ENGINE_COMMANDS:
            from evaluation.cli import pack, retrieve

            retrieve.add_parser(commands)
            pack.add_parser(commands)
        else:
            for name, help_text in _ENGINE_COMMANDS.items():
                commands.add_parser(name, help=help_text)
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
        message = f"error: {error.name} is not installed. Install this package's wheel with the extra [{extra}]."
    except KernelUnavailable as error:
        message = f"error: {error}"
    except OSError as error:
        message = f"{error.filename}: {error.strerror}" if error.filename else str(error)
    print(message, file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
