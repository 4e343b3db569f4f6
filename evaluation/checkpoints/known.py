"""Models that were trained for inner products, and whose files do not say so: BEIR paper, Appendix H, and their cards.

What is known is told by a class of its authors', by modules that only one model has, or by a name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

#: How the classes begin that config.json names.
_CLASSES: Mapping[str, str] = {
    "DPR": "DPR",  # https://huggingface.co/facebook/dpr-question_encoder-single-nq-base
    "Contriever": "Contriever",  # https://huggingface.co/facebook/contriever
    "RobertaDot": "ANCE",  # https://github.com/microsoft/ANCE
    "BERT_Dot": "TAS-B",  # https://huggingface.co/sebastian-hofstaetter/distilbert-dot-tas_b-b256-msmarco
}
#: Of https://huggingface.co/sentence-transformers/msmarco-roberta-base-ance-firstp
_ANCE = ("Transformer", "Pooling", "Dense", "LayerNorm")
_NAMES = re.compile(r"(?<![a-z])(tas[-_]?b|contriever|ance|dpr)(?![a-z])", re.ASCII | re.IGNORECASE)
_SPELLED = {"contriever": "Contriever", "ance": "ANCE", "dpr": "DPR"}


def known_for_dot(classes: Iterable[str], roles: Sequence[str], names: Iterable[str]) -> str:
    """Which of them a model is, by its classes, modules and names; empty where it is none that is known."""
    for start, model in _CLASSES.items():
        if any(name.startswith(start) for name in classes):
            return model
    if tuple(roles) == _ANCE:
        return "ANCE"
    found = next(filter(None, map(_NAMES.search, names)), None)
    return _SPELLED.get(found[1].lower(), "TAS-B") if found else ""
