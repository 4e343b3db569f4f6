"""Registry of the engines: a new one is a module with its DESCRIPTIONS, and its name here."""

from importlib import import_module

from evaluation.engines.base import EngineDescription, InvalidParameter

#: Modules of this package that describe engines, in the order in which pages list these.
_MODULES = ("bm25", "dense", "learned_sparse", "late_interaction", "cross_encoder", "model_terms", "fusion")
#: Every engine by its name.
ENGINES: dict[str, EngineDescription] = {
    description.name: description
    for module in _MODULES
    for description in import_module(f"evaluation.engines.{module}").DESCRIPTIONS
}

#: Other names of engines, as papers and Anserini have them.
ALIASES = {"bm25-flat": "bm25"}


def describe(engine: str) -> EngineDescription:
    """Return the engine's description. Raises InvalidParameter for an unknown name."""
    description = ENGINES.get(ALIASES.get(engine, engine))
    if description is None:
        raise InvalidParameter(f"There is no engine {engine!r}; there are {', '.join(ENGINES)}.")
    return description
