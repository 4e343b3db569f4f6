"""Reference of supported models, from the registries: kinds, engines, model types, prompts, and limits."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from django.conf import settings

from evaluation.checkpoints.configuration import library_models
from evaluation.checkpoints.description import MODEL_KINDS, CheckpointKind
from evaluation.engines import ENGINES
from evaluation.engines.base import LONGEST_TEXT, OWN_LENGTH_LIMIT
from submissions.checkpoints.service import KIND_NAMES

#: Well-known models by kind.
EXAMPLES: Mapping[CheckpointKind, str] = {
    CheckpointKind.SENTENCE_ENCODER: "sentence-transformers/all-MiniLM-L6-v2",
    CheckpointKind.STATIC_EMBEDDINGS: "minishlab/potion-base-8M",
    CheckpointKind.SPARSE_ENCODER: "naver/splade-v3",
    CheckpointKind.MULTI_VECTOR: "answerdotai/answerai-colbert-small-v1",
    CheckpointKind.CROSS_ENCODER: "cross-encoder/ms-marco-MiniLM-L6-v2",
    CheckpointKind.SEQ2SEQ: "castorini/doc2query-t5-base-msmarco",
    CheckpointKind.TERM_WEIGHTING: "custom DeepCT model",
    CheckpointKind.QUERY_AUGMENTATION: "custom",
}


def kinds() -> list[dict[str, Any]]:
    """Return all checkpoint kinds with an example, the engines that run them, and their model types.

    Engines that accept every kind only read tokenizers and are not listed.
    """
    specific_engines = [engine for engine in ENGINES.values() if 0 < len(engine.checkpoints) < len(MODEL_KINDS)]
    return [
        {
            "kind": kind.value,
            "words": KIND_NAMES[kind],
            "example": EXAMPLES[kind],
            "address": f"https://huggingface.co/{EXAMPLES[kind]}" if "/" in EXAMPLES[kind] else "",
            "engines": [engine for engine in specific_engines if kind in engine.checkpoints],
            "model_types": library_models().get_types(kind),
        }
        for kind in MODEL_KINDS
    ]


class ModelLimit(NamedTuple):
    """A limit with its API name, description, value, and unit."""

    name: str
    words: str
    value: int
    unit: str


def limits() -> list[ModelLimit]:
    """Return the limits on models and their jobs."""
    return [
        ModelLimit("weights_bytes", "Model weights", settings.CHECKPOINT_WEIGHTS_BYTES, "bytes"),
        ModelLimit("request_bytes", "Archive uploaded in one request", settings.CHECKPOINT_LIMIT_BYTES, "bytes"),
        ModelLimit(
            "largest_bytes",
            "Archive from a resumable upload, or model from the Hugging Face Hub",
            settings.CHECKPOINT_PIECES_LIMIT_BYTES,
            "bytes",
        ),
        ModelLimit("image_bytes", "Image from a resumable upload or a registry", settings.IMAGE_BYTES, "bytes"),
        ModelLimit("length", "Tokens per text, if requested", LONGEST_TEXT, "tokens"),
        ModelLimit("own_length", "Tokens per text, by default", OWN_LENGTH_LIMIT, "tokens"),
        ModelLimit("datasets_per_day", "Datasets that a team's models run on", settings.MODEL_JOBS_PER_DAY, "per day"),
        ModelLimit("seconds", "Time on one dataset", settings.MODEL_WALL_CLOCK_SECONDS, "seconds"),
        ModelLimit("output_bytes", "Index, embeddings, and run on disk", settings.MODEL_OUTPUT_BYTES, "bytes"),
    ]
