"""The engines, registered as data: adding one is a file, a line here, and a test."""

from __future__ import annotations

from evaluation.engines import (
    bm25,
    bm25_wordpiece,
    cross_encoder,
    dense,
    document_expansion,
    fusion,
    late_interaction,
    learned_sparse,
    query_augmentation,
    query_rewriting,
    rm3,
    term_weighting,
)
from evaluation.engines.base import EngineDescription, InvalidParameter

#: Every engine by its name.
ENGINES: dict[str, EngineDescription] = {
    description.name: description
    for module in (
        bm25,
        rm3,
        bm25_wordpiece,
        dense,
        learned_sparse,
        late_interaction,
        cross_encoder,
        document_expansion,
        term_weighting,
        query_augmentation,
        query_rewriting,
        fusion,
    )
    for description in module.DESCRIPTIONS
}

#: Other names that are understood: what papers and Anserini call an engine.
ALIASES = {"bm25-flat": "bm25"}


def describe(engine: str) -> EngineDescription:
    """The engine's description. Raises InvalidParameter for an unknown name."""
    description = ENGINES.get(ALIASES.get(engine, engine))
    if description is None:
        raise InvalidParameter(f"There is no engine {engine!r}; there are {', '.join(ENGINES)}.")
    return description
