"""Header of a run from an API: method, provenance, and self-reported cost."""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Mapping
from typing import Any

from runboard.endpoint import Endpoint
from runboard.terminal import say
from runboard.vectors import Cost

Method = Mapping[str, Any]


def run_header(
    arguments: argparse.Namespace, endpoint: Endpoint, method: Method, costs: tuple[Cost, Cost], queries: int
) -> str:
    """Return the run's ir_metadata as comment lines.

    `costs` contains the cost of the whole run and of its queries alone. US dollar amounts are included if known.
    """
    values = {
        "model": arguments.model,
        "endpoint": endpoint.url,
        "format": arguments.format,
        **_provenance(arguments, endpoint),
    }
    lines = ["ir_metadata.start", "method:", "  retrieval:", f"    - name: {method['name']}"]
    # JSON values are valid YAML. Empty strings and objects are omitted.
    lines += [
        f"      {name}: {json.dumps(value, ensure_ascii=False)}"
        for name, value in {**values, **method}.items()
        if name != "name" and value not in ("", {})
    ]
    total, query_cost = costs
    lines += ["resources:", "  self_reported: true", f"  seconds_waited: {total.seconds:.1f}"]
    if total.tokens is not None and query_cost.tokens is not None:
        lines += [f"  tokens: {total.tokens}", f"  query_tokens: {query_cost.tokens}"]
        if arguments.price is not None:
            per_query = query_cost.tokens * arguments.price / 1e6 / queries
            lines += [
                f"  price_usd_per_million_tokens: {arguments.price:g}",
                f"  cost_usd: {total.tokens * arguments.price / 1e6:.6f}",
                f"  cost_usd_per_1000_queries: {1000 * per_query:.6f}",
            ]
    if arguments.cost_per_1000_queries is not None:
        lines.append(f"  cost_usd_per_1000_queries: {arguments.cost_per_1000_queries:.6f}")
    return "".join(f"# {line}\n" for line in [*lines, "ir_metadata.end"])


def report_run(arguments: argparse.Namespace, content: str, cost: Cost) -> None:
    """Print a summary of the run, and a note if the run does not state its cost."""
    tokens = "an unknown number of" if cost.tokens is None else f"{cost.tokens:,}"
    say(f"{arguments.out}: {content}, {tokens} tokens", file=sys.stderr)
    if cost.tokens is None and arguments.cost_per_1000_queries is None:
        advice = "To state it, use --cost-per-1000-queries."
        say(f"The API does not report tokens, so the run states no cost. {advice}", file=sys.stderr)


def run_tag(model: str) -> str:
    return re.sub(r"[/\s]+", "-", model)


def _provenance(arguments: argparse.Namespace, endpoint: Endpoint) -> dict[str, Any]:
    """Return the fields that state whether others can run the model.

    APIs on this machine are not marked as closed, because they usually serve open weights.
    """
    if arguments.open_weights:
        name, commit = arguments.open_weights
        return {"open_weights": True, "hub_model": name, "hub_commit": commit}
    return {"closed_interface": True} if arguments.closed_api or not endpoint.is_local else {}
