"""Retrieval configurations that Runboard runs itself: BM25 for every dataset, and the demo's other rows."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from evaluation.text import analyser_for
from evaluation.text.languages import known_language_code
from leaderboard.core.audit import record
from leaderboard.core.work_requests import request_work
from leaderboard.models import Architecture, Dataset, System, WorkRequest
from leaderboard.systems.records import house_system


@dataclass(frozen=True)
class EngineConfiguration:
    """An engine with its parameters, and the system that shows its results."""

    slug: str
    name: str
    description: str
    engine: str = "bm25"
    parameters: Mapping[str, Any] = field(default_factory=dict)


#: Parameters of the baseline, which are the engine's defaults.
BM25_SETTINGS = "k1 = 0.9, b = 0.4"
BM25 = EngineConfiguration(
    "bm25",
    "BM25",
    "Lucene's BM25 with k1 = 0.9 and b = 0.4, Porter stemming and English stop words, title and text in one "
    "field. The baseline of all differences.",
)

#: Initial rows of the demo's board besides the baseline.
DEMO_ROWS = (
    EngineConfiguration(
        "bm25-k1-1-2-b-0-75",
        "BM25 (k1 = 1.2, b = 0.75)",
        "The same analysis with the default parameters of Lucene and Elasticsearch.",
        parameters={"k1": 1.2, "b": 0.75},
    ),
    EngineConfiguration(
        "bm25-titles",
        "BM25 (titles only)",
        "The same BM25 over titles only.",
        parameters={"fields": "title"},
    ),
    EngineConfiguration(
        "bm25-no-stemming",
        "BM25 (no stemming)",
        "The same BM25 without stemming.",
        parameters={"stemming": False},
    ),
)

CONFIGURATIONS: Mapping[str, EngineConfiguration] = {row.slug: row for row in (BM25, *DEMO_ROWS)}


def describe_bm25(language: str) -> str:
    """Return a sentence about the site's BM25 for datasets of this language: parameters, stemming, and stop words."""
    analyser = analyser_for(language)
    if (code := known_language_code(language)) != language:
        # An earlier version stored this unknown spelling, and retrieved without an analyzer.
        return (
            f"BM25: k1 = 0.9, b = 0.4, title and text in one field. The dataset's language is stored as “{language}”, "
            f"and words may not have been stemmed: a curator can set the language to {code}, which rebuilds BM25."
        )
    if analyser.remark:
        return f"BM25: k1 = 0.9, b = 0.4, title and text in one field. {analyser.remark}"
    spoken, _, method = analyser.name.rpartition(", ")
    if spoken == "English":
        words = f"{method} stemming, English stop words"
    else:
        steps = f"{method} stemming" if analyser.stem else method
        words = f"{steps} for {spoken}, {len(analyser.stop_words) or 'no'} stop words"
    return f"BM25: k1 = 0.9, b = 0.4, {words}, title and text in one field."


def configuration_system(configuration: EngineConfiguration) -> System:
    """Return the system of a configuration, creating it if necessary."""
    return house_system(
        slug=configuration.slug,
        name=configuration.name,
        architecture=Architecture.LEXICAL,
        description=configuration.description,
        parameters={"engine": configuration.engine, **configuration.parameters},
    )


def request_baseline(dataset: Dataset) -> None:
    """Request BM25 for the dataset; the dataset is published when it is done."""
    request_work(WorkRequest.Kind.BASELINE, dataset, {"configuration": BM25.slug})


def request_baseline_again(dataset: Dataset) -> bool:
    """Request another BM25 run, and record the request in the audit log.

    Return False, without a request, if documents or judgments are missing.
    """
    if dataset.current_qrels_id is None or dataset.runs_only:
        return False
    request_baseline(dataset)
    record("baseline requested", dataset, dataset=dataset)
    return True


def request_demo_rows(dataset: Dataset) -> None:
    for configuration in DEMO_ROWS:
        request_work(WorkRequest.Kind.RETRIEVE, dataset, {"configuration": configuration.slug})


def request_sample_model(dataset: Dataset) -> None:
    """Request the creation, run, and measurement of the demo's model, after all earlier requests."""
    request_work(WorkRequest.Kind.SAMPLE_MODEL, dataset)
