"""Which types of models the pinned library has, as data: nothing here imports the library.

`model_types.json` is written by `python -m evaluation.engines.neural.model_types`, and a test compares the two.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from evaluation.checkpoints.description import CheckpointKind

PATH = Path(__file__).with_name("model_types.json")
#: What is needed of a type, and the class of transformers that has it.
USES: Mapping[str, str] = {
    "encoder": "AutoModel",
    "masked": "AutoModelForMaskedLM",
    "sequence": "AutoModelForSequenceClassification",
    "causal": "AutoModelForCausalLM",
    "token": "AutoModelForTokenClassification",
    "writer": "AutoModelForSeq2SeqLM",
}
#: What each kind of checkpoint needs, one of several; static embeddings have no such model. A sparse encoder predicts
#: terms, or is SPARTA; a cross-encoder has a label, or writes yes and no.
USES_OF: Mapping[CheckpointKind, Sequence[str]] = {
    CheckpointKind.SENTENCE_ENCODER: ("encoder",),
    CheckpointKind.MULTI_VECTOR: ("encoder",),
    CheckpointKind.QUERY_AUGMENTATION: ("encoder",),
    CheckpointKind.SPARSE_ENCODER: ("masked", "encoder"),
    CheckpointKind.CROSS_ENCODER: ("sequence", "causal", "writer"),
    CheckpointKind.TERM_WEIGHTING: ("token",),
    CheckpointKind.SEQ2SEQ: ("writer",),
}


@dataclass(frozen=True, slots=True)
class LibraryModels:
    """The library's version, its model types by use, and the keys that each type reads.

    A `causal` type attends only to preceding tokens unless its configuration states otherwise.
    """

    version: str
    types: Mapping[str, Sequence[str]]
    causal: frozenset[str]
    keys: Mapping[str, str]

    def keys_read(self, model_type: str) -> frozenset[str]:
        """Return the keys of config.json that the classes of a type read, empty for an unlisted type."""
        own = self.keys.get(model_type)
        return frozenset() if own is None else frozenset(f"{own} {self.keys['']}".split())

    def of_kind(self, kind: CheckpointKind) -> Sequence[str]:
        """The types that a checkpoint of this kind may have."""
        return sorted({each for use in USES_OF.get(kind, ()) for each in self.types[use]})


@cache
def library_models() -> LibraryModels:
    """What the file says."""
    told = json.loads(PATH.read_text(encoding="utf-8"))
    return LibraryModels(told["transformers"], told["types"], frozenset(told["causal"]), told["keys"])
