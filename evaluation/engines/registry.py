"""Registry of engines. To add one, write a module with DESCRIPTIONS and list it in `_MODULES`."""

from importlib import import_module

from evaluation.engines.base import EngineDescription, InvalidParameter

#: Modules of this package that describe engines, in display order.
_MODULES = ("bm25", "dense", "learned_sparse", "late_interaction", "cross_encoder", "model_terms", "fusion", "serving")
#: Engine descriptions, keyed by name.
ENGINES: dict[str, EngineDescription] = {
    description.name: description
    for module in _MODULES
    for description in import_module(f"evaluation.engines.{module}").DESCRIPTIONS
}

#: Names of engines in papers and in Anserini.
ALIASES = {"bm25-flat": "bm25"}


def describe(engine: str) -> EngineDescription:
    """Return the description of an engine. Raises InvalidParameter for an unknown name."""
    description = ENGINES.get(ALIASES.get(engine, engine))
    if description is None:
        raise InvalidParameter(f"There is no engine {engine!r}. Available: {', '.join(ENGINES)}.")
    return description
