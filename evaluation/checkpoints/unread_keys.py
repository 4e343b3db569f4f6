"""Keys of config.json that the library's class of a model type does not read.

A key that changes what a model computes is refused, unless its value matches the behavior of the class: the class would
run another model than the one that was trained. Other keys are reported.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from evaluation.checkpoints.findings import Findings, listed, quoted
from evaluation.checkpoints.library import library_models

#: Keys without effect on outputs: for training, for tokenizers, and for a head that no engine uses.
_BOOKKEEPING = re.compile(
    r".*_token_ids?|initializer_.*|.*(dropout|_drop|pdrop).*|.*_loss_.*|gradient_.*|max_position_embeddings|n_positions"
    r"|is_decoder|add_cross_attention|directionality|pooler_.*|summary_.*|use_(flash|memory_efficient)_.*|.*flash_attn.*|unpad_inputs|pad_vocab_.*"
)
#: Patterns of keys that change outputs, and the words for the behavior of every class.
_BEHAVIOR: tuple[tuple[re.Pattern[str], tuple[str, ...]], ...] = tuple(
    (re.compile(pattern), words)
    for pattern, words in (
        (r"position_embedding_type", ("absolute",)),
        (r".*alibi.*|rope_.*|.*rotary.*|partial_rotary_factor", ("default",)),
        (r"is_causal|causal|causal_mask|.*bidirectional.*|att(entio)?n_(type|mode)", ("full",)),
        (r".*sliding_window.*|window_size|(local_)?attention_window|local_attention", ()),
        (r"layer_types", ("full_attention",)),
        (r"feed_forward_type|(mlp|ffn)_type|(use_)?(swi|ge|re)?glu", ("original",)),
        (r"hidden_act(ivation)?|activation(_function)?|feed_forward_proj", ()),
        (r"pre_?norm|use_rms_norm|(layer_?)?norm(alization)?_type|.*qk_(layer)?norm.*", ("layer_norm",)),
        (r"(use_)?parallel_.*|.*residual.*|.*softcap.*|.*_multiplier|scale_(emb|depth|embedding)|.*attn_scalar", ()),
        (r"(.*_)?experts?(_.*)?|moe_.*|.*lora.*|projection_dim", ()),
    )
)  # fmt: skip


def report_unread_keys(model_type: str, values: Mapping[str, Any], findings: Findings, shown: str) -> None:
    """Refuse ignored keys that change outputs, and report other keys that the library's class does not read."""
    read = library_models().keys_read(model_type)
    unread = [key for key in values if read and key not in read and not _BOOKKEEPING.fullmatch(key)]
    others = []
    for key in unread:
        pattern, words = next((rule for rule in _BEHAVIOR if rule[0].fullmatch(key)), (None, ()))
        if pattern is None:
            others.append(key)
            continue
        stated = [value for name, value in values.items() if name in read and pattern.fullmatch(name)]
        usual = [*words, model_type in library_models().causal if key == "is_causal" else False, *stated]
        if not _is_usual(values[key], usual):
            message = (
                f"{quoted(values[key])} would be ignored: the library's “{model_type}” does not read the key"
            )
            findings.refuse("ignored_key", shown, message, key)
    if others:
        findings.remark("keys_not_read", shown, listed(others))


def _is_usual(value: Any, usual: list[Any]) -> bool:
    """Return whether the value of an unread key matches the behavior of the class.

    It does if it is empty or neutral, or one of `usual`: the behavior of every class, and the values of keys that are
    read.
    """
    if isinstance(value, list):
        return all(_is_usual(each, usual) for each in value)
    if isinstance(value, dict):
        return all(_is_usual(each, usual) for each in value.values())
    if isinstance(value, bool):
        return any(value is each for each in usual)
    return value is None or value in (0, 1) or value in usual
