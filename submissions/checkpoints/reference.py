"""What may be brought as a model, from the registries: kinds, engines, types of the library, prompts, limits."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from django.conf import settings

from evaluation.checkpoints.configuration import library_models
from evaluation.checkpoints.description import CheckpointKind
from evaluation.engines import ENGINES
from evaluation.engines.base import LONGEST_TEXT, OWN_LENGTH_LIMIT
from submissions.checkpoints.service import KIND_NAMES

#: A well-known model of each kind.
EXAMPLES: Mapping[CheckpointKind, str] = {
    CheckpointKind.SENTENCE_ENCODER: "sentence-transformers/all-MiniLM-L6-v2",
    CheckpointKind.STATIC_EMBEDDINGS: "minishlab/potion-base-8M",
    CheckpointKind.SPARSE_ENCODER: "naver/splade-v3",
    CheckpointKind.MULTI_VECTOR: "answerdotai/answerai-colbert-small-v1",
    CheckpointKind.CROSS_ENCODER: "cross-encoder/ms-marco-MiniLM-L6-v2",
    CheckpointKind.SEQ2SEQ: "castorini/doc2query-t5-base-msmarco",
    CheckpointKind.TERM_WEIGHTING: "a DeepCT of your own",
    CheckpointKind.QUERY_AUGMENTATION: "one of your own",
}


def kinds() -> list[dict[str, Any]]:
    """Return all kinds: what each is, a model of it, the engines that run it, and the types its network may have.

    An engine that takes every kind reads tokenizers alone, and is not listed.
    """
    made_for = [engine for engine in ENGINES.values() if 0 < len(engine.checkpoints) < len(CheckpointKind)]
    return [
        {
            "kind": kind.value,
            "words": KIND_NAMES[kind],
            "example": EXAMPLES[kind],
            "address": f"https://huggingface.co/{EXAMPLES[kind]}" if "/" in EXAMPLES[kind] else "",
            "engines": [engine for engine in made_for if kind in engine.checkpoints],
            "model_types": library_models().get_types(kind),
        }
        for kind in CheckpointKind
    ]


class ModelLimit(NamedTuple):
    """A limit: its name in answers, what it bounds in words, how much, and of what."""

    name: str
    words: str
    value: int
    unit: str


def limits() -> list[ModelLimit]:
    """What a model, and running it, may take here."""
    return [
        ModelLimit("weights_bytes", "Weights of a model", settings.CHECKPOINT_WEIGHTS_BYTES, "bytes"),
        ModelLimit("request_bytes", "An archive in one request", settings.CHECKPOINT_LIMIT_BYTES, "bytes"),
        ModelLimit(
            "largest_bytes",
            "An archive in pieces, or from the hub",
            settings.CHECKPOINT_PIECES_LIMIT_BYTES,
            "bytes",
        ),
        ModelLimit("length", "Tokens read of a text, where that is asked for", LONGEST_TEXT, "tokens"),
        ModelLimit("own_length", "Tokens read of a text, where nothing is said", OWN_LENGTH_LIMIT, "tokens"),
        ModelLimit(
            "datasets_per_day", "Datasets that a team's models run on", settings.MODEL_JOBS_PER_DAY, "a day"
        ),
        ModelLimit("seconds", "Time on one dataset", settings.MODEL_WALL_CLOCK_SECONDS, "seconds"),
        ModelLimit("output_bytes", "Index, embeddings and run on disk", settings.MODEL_OUTPUT_BYTES, "bytes"),
    ]
