"""A system's results as Every Eval Ever collects them: the aggregate record of one model, schema 0.3.0."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from evaluation.measures.registry import parse_measure
from leaderboard import VERSION
from leaderboard.boards.exchange.mteb import model_name
from leaderboard.boards.exchange.results import ExchangedResult
from leaderboard.models import Entry, System

SCHEMA = "0.3.0"
_AVAILABLE = {True: "open_weights", False: "closed_weights", None: "unknown"}


def describe(
    system: System,
    results: Sequence[ExchangedResult],
    site: str,
    url: str,
    address_of: Callable[[ExchangedResult], str],
) -> dict[str, Any]:
    """The record. `url` is the system's page on the `site`, `address_of` says where a result's dataset is.

    It changes with the results alone: its time is that of the newest.
    """
    model = "/".join(model_name(system))
    newest = str(int(max(each.published_at for each in results).timestamp()))
    reported = all(each.provenance == Entry.Provenance.REPORTED for each in results)
    return {
        "schema_version": SCHEMA,
        "evaluation_id": f"runboard/{model.replace('/', '_')}/{newest}",
        "retrieved_timestamp": newest,
        "source_metadata": {
            "source_name": site,
            "source_type": "documentation" if reported else "evaluation_run",
            "source_organization_name": site,
            "source_organization_url": url,
            "evaluator_relationship": "other" if reported else "third_party",
        },
        "eval_library": {"name": "runboard", "version": VERSION},
        "model_info": {
            "name": system.name,
            "id": model,
            "developer": model.partition("/")[0],
            "additional_details": {
                "deployment_type": _deployment(system, results),
                "model_availability": _AVAILABLE[system.open_weights],
                "architecture": system.architecture,
            },
        },
        "evaluation_results": [
            _result(each, measure, value, address_of(each))
            for each in results
            for measure, value in each.scores.items()
        ],
    }


def _deployment(system: System, results: Sequence[ExchangedResult]) -> str:
    if system.closed_api:
        return "externally_managed"
    ran_here = any(each.provenance == Entry.Provenance.MEASURED for each in results)
    return "self_deployed" if ran_here else "unknown"


def _result(result: ExchangedResult, measure: str, value: float, address: str) -> dict[str, Any]:
    details = {
        "provenance": result.provenance,
        "configuration": result.configuration,
        "training": result.training,
    }
    return {
        "evaluation_result_id": f"{result.dataset_slug}/{result.configuration}/{result.provenance}/{measure}",
        "evaluation_name": result.dataset,
        "source_data": {
            "dataset_name": result.dataset,
            "source_type": "url",
            "url": [address],
            "additional_details": {"split": result.split, "language": result.language},
        },
        "evaluation_timestamp": result.published_at.isoformat(),
        "metric_config": {
            "metric_id": f"ir_measures.{measure}",
            "metric_name": measure,
            "metric_unit": "proportion",
            "lower_is_better": not parse_measure(measure).family.higher_is_better,
            "score_type": "continuous",
            "min_score": 0.0,
            "max_score": 1.0,
        },
        "score_details": {
            "score": value,
            "details": {name: text for name, text in details.items() if text},
        },
    }
