"""The retrievals that the site makes by itself: every dataset's BM25, and the demo's other rows."""

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
    """An engine with its parameters, and the system under which its results are shown."""

    slug: str
    name: str
    description: str
    engine: str = "bm25"
    parameters: Mapping[str, Any] = field(default_factory=dict)


BM25 = EngineConfiguration(
    "bm25",
    "BM25",
    "Lucene's BM25 with k1 = 0.9 and b = 0.4, Porter stemming and English stop words, title and text in one "
    "field. The baseline that every delta is taken against.",
)

#: What stands beside the baseline on the demo's board from the start.
DEMO_ROWS = (
    EngineConfiguration(
        "bm25-k1-1-2-b-0-75",
        "BM25 (k1 = 1.2, b = 0.75)",
        "The same analysis with the parameters that Lucene and Elasticsearch come with.",
        parameters={"k1": 1.2, "b": 0.75},
    ),
    EngineConfiguration(
        "bm25-titles",
        "BM25 (titles only)",
        "The same BM25 over titles alone: how far a name goes.",
        parameters={"fields": "title"},
    ),
    EngineConfiguration(
        "bm25-no-stemming",
        "BM25 (no stemming)",
        "The same BM25 over unstemmed words.",
        parameters={"stemming": False},
    ),
)

CONFIGURATIONS: Mapping[str, EngineConfiguration] = {each.slug: each for each in (BM25, *DEMO_ROWS)}


def describe_bm25(language: str) -> str:
    """Return the sentences that explain the site's BM25 beside differences from it."""
    analyser = analyser_for(language)
    if (code := known_language_code(language)) != language:
        # Stored by a version that did not know this spelling, and retrieved without an analyzer.
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


def system_of(configuration: EngineConfiguration) -> System:
    """The system under which a configuration's results are shown, made where it is missing."""
    return house_system(
        slug=configuration.slug,
        name=configuration.name,
        architecture=Architecture.LEXICAL,
        description=configuration.description,
        parameters={"engine": configuration.engine, **configuration.parameters},
    )


def request_baseline(dataset: Dataset) -> None:
    """Ask for the dataset's BM25; the dataset is published when it is done."""
    request_work(WorkRequest.Kind.BASELINE, dataset, {"configuration": BM25.slug})


def request_baseline_again(dataset: Dataset) -> bool:
    """Request BM25 for a dataset that has documents and judgments, and record that; return whether it has them."""
    if dataset.current_qrels_id is None or dataset.runs_only:
        return False
    request_baseline(dataset)
    record("baseline requested", dataset, dataset=dataset)
    return True


def request_demo_rows(dataset: Dataset) -> None:
    """Ask for the other rows of the demo."""
    for configuration in DEMO_ROWS:
        request_work(WorkRequest.Kind.RETRIEVE, dataset, {"configuration": configuration.slug})


def request_sample_model(dataset: Dataset) -> None:
    """Ask for the demo's model, to be made, run and measured; whatever was asked for before comes first."""
    request_work(WorkRequest.Kind.SAMPLE_MODEL, dataset)
