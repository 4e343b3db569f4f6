"""Command-line arguments of `retrieve` and `rerank`."""

from __future__ import annotations

import argparse
import json
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from runboard.endpoint import MAX_JOBS
from runboard.providers import PROVIDERS

#: Function that adds a command, given its name, implementation, and description.
AddCommand = Callable[[str, Callable[[argparse.Namespace], int], str], argparse.ArgumentParser]
#: Default number of texts per request, unless the API's limit is lower.
_EMBEDDING_BATCH, _RERANKING_BATCH = 64, 1000
_OPEN_WEIGHTS = re.compile(r"([\w.-]+/[\w.-]+)@([0-9a-f]{40})")


def add_endpoint_commands(add_command: AddCommand) -> None:
    """Add the commands `retrieve` and `rerank`."""
    parser = add_command("retrieve", _retrieve, "create a run with an embedding API")
    parser.set_defaults(default_batch=_EMBEDDING_BATCH)
    _add_endpoint(parser, sorted(PROVIDERS))
    parser.add_argument("--depth", type=_parse_count, default=1000, help="documents per query (default: %(default)s)")
    parser.add_argument("--dimensions", type=_parse_count, help="dimensions of the vectors (default: the model's)")
    parser.add_argument("--query-prefix", default="", help="text to put before each query")
    parser.add_argument("--document-prefix", default="", help="text to put before each document")
    for kind in ("query", "document"):
        _add_extra(parser, f"--{kind}-extra", f'requests for {kind} texts, such as {{"input_type": null}}')
    parser = add_command("rerank", _rerank, "re-rank a run with a reranking API")
    parser.set_defaults(default_batch=_RERANKING_BATCH, dimensions=None)
    _add_endpoint(parser, sorted(name for name, provider in PROVIDERS.items() if provider.reranking))
    parser.add_argument("--run", dest="candidates", required=True, type=Path, help="run with the documents to re-rank")
    depth_help = "documents of each query to re-rank; the others are omitted (default: %(default)s)"
    parser.add_argument("--depth", type=_parse_count, default=100, help=depth_help)
    _add_extra(parser, "--extra", "requests")


def _add_endpoint(parser: argparse.ArgumentParser, formats: list[str]) -> None:
    """Add the arguments that both commands share."""
    parser.set_defaults(interrupted="Finished results are stored. Run the same command again to continue.")
    parser.add_argument("--endpoint", required=True, help="address of the API, such as https://api.example.org")
    variables = ", ".join(f"{PROVIDERS[name].variable} for {name}" for name in formats)
    format_help = f"API (default: %(default)s). The key is read from the environment: {variables}"
    parser.add_argument(
        "--format", choices=formats, default="openai" if "openai" in formats else "vllm", help=format_help
    )
    parser.add_argument("--model", required=True, help="name of the model in the API")
    parser.add_argument("--corpus", required=True, type=Path, help="corpus.jsonl, or .gz")
    parser.add_argument("--queries", required=True, type=Path, help="queries.jsonl, or .gz")
    parser.add_argument("--out", required=True, type=Path, help="output file for the run")
    parser.add_argument("--cache", type=Path, help="folder that stores results for reuse (default: OUT.vectors)")
    parser.add_argument(
        "--batch",
        type=_parse_count,
        help="texts per request (default: 64, or 1000 documents to re-rank, or fewer if the API accepts fewer)",
    )
    parser.add_argument(
        "--jobs", type=_parse_jobs, default=4, metavar="N", help="requests at a time (default: %(default)s)"
    )
    cost = parser.add_mutually_exclusive_group()
    price_help = "US dollars per million tokens, to estimate the cost and to state it in the run"
    cost.add_argument("--price", type=_parse_price, help=price_help)
    per_query_help = "US dollars per 1,000 queries, to state in the run if the API does not bill tokens"
    cost.add_argument("--cost-per-1000-queries", type=_parse_price, metavar="USD", help=per_query_help)
    provenance = parser.add_mutually_exclusive_group()
    open_help = "model on the Hugging Face Hub that the API serves, so that the run is not marked as a closed API"
    provenance.add_argument("--open-weights", type=_parse_open_weights, metavar="MODEL@COMMIT", help=open_help)
    closed_help = "mark the run as a closed API (default: unless the API runs on this machine)"
    provenance.add_argument("--closed-api", action="store_true", help=closed_help)
    parser.add_argument("--yes", action="store_true", help="send requests without asking for consent")


def _add_extra(parser: argparse.ArgumentParser, name: str, target: str) -> None:
    help_text = f"JSON object of fields to add to {target}; null removes a default field"
    parser.add_argument(name, type=_parse_object, default={}, metavar="JSON", help=help_text)


def _retrieve(arguments: argparse.Namespace) -> int:
    from runboard.embeddings import retrieve  # Only these commands and `reproduce` need runboard-eval.

    retrieve(arguments)
    return 0


def _rerank(arguments: argparse.Namespace) -> int:
    from runboard.reranking import rerank

    rerank(arguments)
    return 0


def _parse_count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a whole number of at least 1")
    return int(text)


def _parse_jobs(text: str) -> int:
    if (count := _parse_count(text)) > MAX_JOBS:
        raise argparse.ArgumentTypeError(f"{text} is too many: enter a number from 1 to {MAX_JOBS}")
    return count


def _parse_price(text: str) -> float:
    if not 0 <= (price := float(text)) < math.inf:
        raise argparse.ArgumentTypeError(f"{text} is not a price: enter US dollars, 0 or more")
    return price


def _parse_object(text: str) -> dict[str, Any]:
    """Parse a JSON object. Raises ArgumentTypeError for other texts."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise argparse.ArgumentTypeError('expected a JSON object, such as {"input_type": "query"}')
    return value


def _parse_open_weights(text: str) -> tuple[str, str]:
    """Parse a model on the hub and its commit. Raises ArgumentTypeError for other texts."""
    if (match := _OPEN_WEIGHTS.fullmatch(text)) is None:
        raise argparse.ArgumentTypeError(
            f"{text} is not OWNER/NAME@COMMIT with the 40 hexadecimal digits of the commit"
        )
    return match[1], match[2]
