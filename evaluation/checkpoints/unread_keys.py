"""Keys of config.json that the library's class of a model type does not read.

A key by which a model computes otherwise is refused there, unless its value is what the class does anyway: the class
would run another model than the one that was trained. The others are reported.
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
_ACTIVATION = re.compile(r"hidden_act(ivation)?|activation(_function)?|feed_forward_proj")
#: Other keys by which models compute otherwise, and the words that stand for what every class does.
_BEHAVIOR: tuple[tuple[re.Pattern[str], tuple[str, ...]], ...] = tuple(
    (re.compile(pattern), words)
    for pattern, words in (
        (r"position_embedding_type", ("absolute",)),
        (r".*alibi.*|rope_.*|.*rotary.*|partial_rotary_factor", ("default",)),
        (r"is_causal|causal|causal_mask|.*bidirectional.*|att(entio)?n_(type|mode)", ("full",)),
        (r".*sliding_window.*|window_size|(local_)?attention_window|local_attention", ()),
        (r"layer_types", ("full_attention",)),
        (r"feed_forward_type|(mlp|ffn)_type|.*glu(_.*)?", ("original",)),
        (r"pre_?norm|use_rms_norm|(layer_?)?norm(alization)?_type|.*qk_(layer)?norm.*", ("layer_norm",)),
        (r"(use_)?parallel_.*|.*residual.*|.*softcap.*|.*_multiplier|scale_(emb|depth|embedding)|.*attn_scalar", ()),
        (r"(.*_)?experts?(_.*)?|moe_.*|.*lora.*|projection_dim", ()),
    )
)  # fmt: skip


def report_unread_keys(model_type: str, values: Mapping[str, Any], findings: Findings, shown: str) -> None:
    """Refuse keys that the library's class ignores although models compute by them, and remark on other such keys."""
    read = library_models().keys_read(model_type)
    activations = [value for key, value in values.items() if key in read and _ACTIVATION.fullmatch(key)]
    others = []
    for key in values if read else ():
        if key in read or _BOOKKEEPING.fullmatch(key):
            continue
        words = next((words for pattern, words in _BEHAVIOR if pattern.fullmatch(key)), None)
        if _ACTIVATION.fullmatch(key):
            words = (*activations,)  # some files name it by two keys
        if words is None:
            others.append(key)
        elif not _is_usual(key, values[key], words, model_type):
            what = (
                f"{quoted(values[key])} would be ignored: the library's “{model_type}” does not read the key"
            )
            findings.refuse("ignored_key", shown, what, key)
    if others:
        findings.remark("keys_not_read", shown, listed(others))


def _is_usual(key: str, value: Any, words: tuple[str, ...], model_type: str) -> bool:
    """Return whether a class that does not know the key computes as the value says."""
    if key == "is_causal":
        return value is None or value is (model_type in library_models().causal)
    if isinstance(value, list):
        return all(each in words for each in value)
    if isinstance(value, dict):
        return all(_is_usual(key, each, words, model_type) for each in value.values())
    return value is None or value is False or value in words or (value in (0, 1) and value is not True)
