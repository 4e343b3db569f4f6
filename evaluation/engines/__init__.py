"""Retrieval engines and the functions that build runs with them."""

from evaluation.engines.base import (
    AUTO,
    Engine,
    EngineDescription,
    InvalidParameter,
    Parameter,
    Resources,
    ShardedEngine,
    Stage,
)
from evaluation.engines.corpus_encoding import EncodingTask, Part, encode
from evaluation.engines.facts import FACTS
from evaluation.engines.registry import ENGINES, describe
from evaluation.engines.retrieval import Retrieval, RetrievalTask, retrieve
from evaluation.engines.run_writing import merge

__all__ = [
    "AUTO",
    "ENGINES",
    "FACTS",
    "EncodingTask",
    "Engine",
    "EngineDescription",
    "InvalidParameter",
    "Parameter",
    "Part",
    "Resources",
    "Retrieval",
    "RetrievalTask",
    "ShardedEngine",
    "Stage",
    "describe",
    "encode",
    "merge",
    "retrieve",
]
