"""The datasets that a model is run on: named one by one, or as a whole benchmark."""

from __future__ import annotations

from collections.abc import Sequence

from django.db.models import QuerySet

from evaluation.core.problems import ProblemCode
from evaluation.engines import EngineDescription
from leaderboard.models import Benchmark, Dataset
from submissions.core.errors import Refused
from submissions.intake.files import UNKNOWN_DATASET

NO_DATASET = ProblemCode("no_dataset", "No dataset was chosen.", "Choose at least one, or a whole benchmark.")
DATASET_OR_BENCHMARK = ProblemCode("dataset_or_benchmark", "Datasets and a benchmark were both named.",
    "Name either.")  # fmt: skip
EMPTY_BENCHMARK = ProblemCode("empty_benchmark", "No benchmark of this name has a dataset that models can be run on.",
    "The message lists those that have one.")  # fmt: skip
NO_CORPUS = ProblemCode("no_corpus", "The dataset's documents are not kept here, so no model can be run over them.",
    "Run it yourself and submit the run file.")  # fmt: skip


def datasets_for_models() -> QuerySet[Dataset]:
    """The datasets that take submissions and have content here, by name."""
    return (
        Dataset.objects.open_for_runs()
        .exclude(current_version=None)
        .select_related("current_version", "current_qrels")
        .prefetch_related("current_version__files")
    )


def has_corpus(dataset: Dataset) -> bool:
    """Whether the documents are kept here, so that something can be run over them."""
    version = dataset.current_version
    return not dataset.runs_only and version is not None and bool(version.corpus_sha256)


def benchmarks_for_models() -> list[Benchmark]:
    """The benchmarks with at least one dataset that models run on."""
    runnable = [dataset.pk for dataset in datasets_for_models() if has_corpus(dataset)]
    return list(Benchmark.objects.filter(members__dataset__in=runnable).distinct())


def chosen_datasets(slugs: Sequence[str], benchmark: str, engine: EngineDescription) -> list[Dataset]:
    """The datasets asked for, each once. Raises Refused where one is not known, or the engine cannot run on it.

    Of a benchmark those that the engine can run on: not all of its members need to be here.
    """
    if slugs and benchmark:
        raise Refused.of(
            DATASET_OR_BENCHMARK,
            "Datasets and a benchmark were both named.",
            "Name datasets one by one, or one whole benchmark.",
        )
    if not slugs and not benchmark:
        raise Refused.of(
            NO_DATASET, "No dataset was chosen.", "Choose at least one dataset, or one whole benchmark."
        )
    if benchmark:
        return _of_benchmark(benchmark, engine)
    found = {dataset.slug: dataset for dataset in datasets_for_models().filter(slug__in=slugs)}
    for slug in slugs:
        if slug not in found:
            raise _unknown(slug)
        if engine.reads_corpus and not has_corpus(found[slug]):
            raise Refused.of(
                NO_CORPUS,
                f"The documents of {found[slug]} are not kept here, so no model can be run over them.",
                "Run the model yourself and submit the run file; this dataset takes those.",
            )
    return [found[slug] for slug in dict.fromkeys(slugs)]


def _of_benchmark(slug: str, engine: EngineDescription) -> list[Dataset]:
    members = datasets_for_models().filter(memberships__benchmark__slug=slug)
    ordered = members.order_by("memberships__position", "name")
    found = [dataset for dataset in ordered if has_corpus(dataset) or not engine.reads_corpus]
    if not found:
        known = ", ".join(benchmark.slug for benchmark in benchmarks_for_models()) or "none yet"
        raise Refused.of(
            EMPTY_BENCHMARK,
            f"There is no benchmark “{slug}” with a dataset that {engine.label} can be run on here.",
            f"Benchmarks that have one: {known}.",
        )
    return found


def _unknown(slug: str) -> Refused:
    known = ", ".join(dataset.slug for dataset in datasets_for_models()[:20] if has_corpus(dataset))
    return Refused.of(
        UNKNOWN_DATASET,
        f"There is no dataset “{slug}” that models can be run on.",
        f"Datasets that models are run on: {known or 'none yet'}.",
    )
