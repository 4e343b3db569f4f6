"""Single values of strangers' configuration: taken with a type and bounds, left out, or refused with both named."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from evaluation.checkpoints import limits
from evaluation.checkpoints.findings import Findings, listed, quoted

#: Keys that make a library load code or files from elsewhere, or hand switches past us, in any configuration file.
_FORBIDDEN = re.compile(
    r"auto_map|.*trust_remote_code.*|custom_.*|.*_internal|_?(attn|experts|moe)_implementation"
    r"|transformers_weights|.*quanti[sz]ation.*|quant_method|.*kernels?|device_map|offload_.*|base_model.*"
    r"|(.*_)?(file|files|path|url|dir|folder)|.*revision|_commit_hash|use_safetensors|weights_only|fusion_config"
    r"|(model|tokenizer|processor|config|loader|init|backend)_(kwargs|args)|backend_(path|model).*|peft.*|adapters?.*"
    r"|tokenizer_name_or_path|gguf.*|export|provider|load_in_.*|code|module_path|attribute_map|base_config_key|sub_configs.*",
    re.IGNORECASE,
)
#: The same words, in keys that libraries write into every file, and that say nothing to them when reading.
_HARMLESS = frozenset({"_name_or_path", "name_or_path", "_attn_implementation_autoset"})
_KEY = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,63}", re.ASCII)
#: Words as configurations have them. No slash: none of them is a path.
_WORD = re.compile(r"[A-Za-z0-9_.+|-]{0,64}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Rule:
    """What a value has to be: `accepts` it, and how that reads in a message."""

    accepts: Callable[[Any], bool]
    words: str


def whole(least: int, most: int) -> Rule:
    """A whole number from `least` to `most`."""
    return Rule(
        lambda value: type(value) is int and least <= value <= most,
        f"a whole number from {least:,} to {most:,}",
    )


def number(least: float, most: float) -> Rule:
    """A number from `least` to `most`."""
    return Rule(
        lambda value: type(value) in (int, float) and least <= value <= most,
        f"a number from {least:g} to {most:g}",
    )


def choice(*values: str) -> Rule:
    """One of some words."""
    return Rule(lambda value: isinstance(value, str) and value in values, "one of " + ", ".join(values))


def exactly(wanted: object) -> Rule:
    """One value."""
    truth = isinstance(wanted, bool)
    return Rule(lambda value: isinstance(value, bool) == truth and value == wanted, str(wanted).lower())


def text(most: int) -> Rule:
    """Text of at most so many characters."""
    return Rule(
        lambda value: isinstance(value, str) and len(value) <= most, f"text of at most {most:,} characters"
    )


def texts(most: int, length: int) -> Rule:
    """A list of at most so many texts, none of them empty or over `length` characters."""
    return Rule(
        lambda value: (
            isinstance(value, list)
            and len(value) <= most
            and all(isinstance(word, str) and 0 < len(word) <= length for word in value)
        ),
        f"a list of at most {most:,} texts of at most {length} characters",
    )


TRUTH = Rule(lambda value: isinstance(value, bool), "true or false")

#: What numbers may be, by what their key is about: the first that fits. The dotted key of what is nested ends in its
#: own name. Classes of the library check types; these are the bounds that they do not have.
_BOUNDS: tuple[tuple[re.Pattern[str], Rule], ...] = tuple(
    (re.compile(pattern), rule)
    for pattern, rule in (
        (r".*rotary.*factor|rope_.*\.[a-z_]*mscale[a-z_]*", number(0, limits.MOST_ROPE_FACTOR)),
        # What angles are divided by: one number, or one for each of them.
        (
            r"rope.*factor(\[\])?|rope_.*\.[a-z_]*(factor|beta)[a-z_]*(\[\])?",
            number(limits.LEAST_ROPE_FACTOR, limits.MOST_ROPE_FACTOR),
        ),
        (r".*_id|.*_token_ids?", whole(-1, limits.MOST_VOCABULARY)),
        (r".*(dropout|_prob|pdrop|_drop|_eps|epsilon|probability)", number(0, 1)),
        (r"type_vocab_size", whole(0, 16)),
        (r".*vocab.*size.*", whole(1, limits.MOST_VOCABULARY)),
        (
            r".*(layers?|blocks?|groups?|networks|block_sizes|block_repeats)|depth|.*_num",
            whole(0, limits.MOST_LAYERS),
        ),
        (r".*experts?.*", number(0, limits.MOST_EXPERTS)),
        (r".*heads?", whole(0, limits.MOST_HEADS)),
        (r".*(intermediate_size|n_inner|d_ff|ffn_dim|ff_dim|hidden_dim)", whole(1, limits.MOST_INNER_WIDTH)),
        (r"projection_dim", whole(0, limits.MOST_WIDTH)),  # 0 is none, as in DPR
        (r"d_model|d_kv|dim|n_embd|.*(hidden|embedding)_size|.*_dim", whole(1, limits.MOST_WIDTH)),
        (r".*(_features|dimension)|k|k_aux", whole(0, limits.MOST_DIMENSION)),
        (
            r".*(position|window|seq_len|max_len|context|length|distance|local_attention).*",
            whole(-1, limits.MOST_POSITIONS),
        ),
        (r".*(theta|rope.*base|rotary.*base|local_base_freq)", number(1, limits.MOST_ROPE_THETA)),
    )
)
_ANY_NUMBER = number(-limits.MOST_VOCABULARY, limits.MOST_VOCABULARY)


def refuse_forbidden_keys(
    value: object, findings: Findings, file: str, path: str = "", depth: int = 0
) -> None:
    """Refuse keys that reach outside of the checkpoint, at any depth; null counts as absent."""
    if isinstance(value, Mapping) and depth < 32:
        for key, inner in value.items():
            here = f"{path}.{key}" if path else str(key)
            if inner is not None and key not in _HARMLESS and _FORBIDDEN.fullmatch(key):
                findings.refuse("forbidden_key", file, "the key is not taken, whatever its value", here)
            else:
                refuse_forbidden_keys(inner, findings, file, here, depth + 1)
    elif isinstance(value, list) and depth < 32:
        for inner in value[:1000]:
            refuse_forbidden_keys(inner, findings, file, path, depth + 1)


def typed_values(
    found: Mapping[str, Any], findings: Findings, file: str, needed: Collection[str] = ()
) -> dict[str, Any]:
    """Return the keys whose values are numbers, truths, short plain words, or short lists and objects of these.

    Numbers out of bounds are refused, and so are other values of the keys in `needed`. Others are left out with a
    remark. null is accepted, because it can differ from an absent key.
    """
    taken, left = {}, []
    for key, value in found.items():
        if _KEY.fullmatch(key) and _is_typed(value):
            taken[key] = value
            _check_numbers(key, value, findings, file)
        elif key in needed:
            findings.refuse(
                "value", file, "the model reads the key, and values of this form are not accepted", key
            )
        else:
            left.append(key)
    if left:
        findings.remark("keys_left_out", file, listed(left))
    return taken


def _is_typed(value: Any, depth: int = 0) -> bool:
    if isinstance(value, str):
        return _WORD.fullmatch(value) is not None
    if isinstance(value, list):
        return (
            depth < 3 and len(value) <= limits.MOST_LIST and all(_is_typed(each, depth + 2) for each in value)
        )
    if isinstance(value, dict):
        return depth < 2 and len(value) <= limits.MOST_LIST and all(
            _KEY.fullmatch(key) is not None and _is_typed(each, depth + 1) for key, each in value.items()
        )  # fmt: skip
    return value is None or type(value) in (bool, int) or (type(value) is float and math.isfinite(value))


def _check_numbers(key: str, value: Any, findings: Findings, file: str) -> None:
    if isinstance(value, Mapping):
        for inner, each in value.items():
            _check_numbers(f"{key}.{inner}", each, findings, file)
    elif isinstance(value, list):
        for each in value:
            _check_numbers(f"{key}[]", each, findings, file)
    else:
        _check_number(key, value, findings, file)


def _check_number(key: str, value: Any, findings: Findings, file: str) -> None:
    name = key.removesuffix("[]").rpartition(".")[2]
    rule = next(
        (rule for pattern, rule in _BOUNDS if pattern.fullmatch(name) or pattern.fullmatch(key)), None
    )
    if type(value) in (int, float) and not (rule or _ANY_NUMBER).accepts(value):
        over = type(value) is int and value > 0
        findings.refuse(
            "dimension_cap" if over else "value", file, f"{value:,} is not {(rule or _ANY_NUMBER).words}", key
        )


def read_values(
    found: Mapping[str, Any], rules: Mapping[str, Rule], findings: Findings, file: str, path: str = ""
) -> dict[str, Any]:
    """The values that have a rule and keep it; others that have one are refused. null counts as absent."""
    taken = {}
    for key, rule in rules.items():
        value = found.get(key)
        if value is None:
            continue
        if rule.accepts(value):
            taken[key] = value
        else:
            findings.refuse(
                "value", file, f"{quoted(value)} is not {rule.words}", f"{path}.{key}" if path else key
            )
    return taken


def refuse_unknown(found: Mapping[str, Any], known: Collection[str], findings: Findings, file: str) -> None:
    """Refuse keys outside of `known`, in files where every key has a meaning."""
    unknown = [key for key, value in found.items() if key not in known and value is not None]
    if unknown:
        findings.refuse("unknown_key", file, f"the keys {listed(unknown)} are not known here")


def remark_on_unknown(
    found: Mapping[str, Any], known: Collection[str], findings: Findings, file: str
) -> None:
    """Remark on keys that are left out, in files that libraries fill with much that nobody needs."""
    unknown = [key for key, value in found.items() if key not in known and value is not None]
    if unknown:
        findings.remark("keys_left_out", file, f"{listed(unknown)}")
