"""How much of a text a model of transformers can read."""

from __future__ import annotations

from typing import Any

#: Families whose positions start behind the padding token's number.
_POSITIONS_BEHIND_PADDING = frozenset({"roberta", "xlm-roberta", "camembert", "mpnet"})


def positions(config: Any, wanted: int) -> int:
    """`wanted` tokens, or as many as a model with this configuration has positions for, if fewer."""
    found = getattr(config, "max_position_embeddings", None) or wanted
    if config.model_type in _POSITIONS_BEHIND_PADDING:
        found -= (config.pad_token_id or 0) + 1
    return int(min(wanted, found))


def maximum_length(model: Any, tokenizer: Any, wanted: int) -> int:
    """`wanted` tokens, or as many as the model has positions for and its tokenizer was made for, if fewer."""
    return int(min(positions(model.config, wanted), tokenizer.model_max_length or wanted))
