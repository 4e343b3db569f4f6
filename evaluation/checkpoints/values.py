"""Checks of untrusted configuration values: rules by key, bounds of numbers, and keys that are never accepted."""

import math
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from evaluation.checkpoints import findings as limits
from evaluation.checkpoints.findings import FileFindings, quoted, summarize_names

#: Keys of configuration files that make a library load other code or files, or that pass options to it.
_FORBIDDEN_KEY = re.compile(
    r"auto_map|.*trust_remote_code.*|custom_.*|.*_internal|_?(attn|experts|moe)_implementation"
    r"|transformers_weights|.*quanti[sz]ation.*|quant_method|.*kernels?|device_map|offload_.*|base_model.*"
    r"|(.*_)?(file|files|path|url|dir|folder)|.*revision|_commit_hash|use_safetensors|weights_only|fusion_config"
    r"|(model|tokenizer|processor|config|loader|init|backend)_(kwargs|args)|backend_(path|model).*|peft.*|adapters?.*"
    r"|tokenizer_name_or_path|gguf.*|export|provider|load_in_.*|code|module_path|attribute_map|base_config_key|sub_configs.*",
    re.IGNORECASE,
)
#: Exceptions that libraries write into every file and ignore when they read it.
_HARMLESS = frozenset({"_name_or_path", "name_or_path", "_attn_implementation_autoset"})
_KEY = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,63}", re.ASCII)
#: Pattern of words in configurations. It has no slash, so that none of them is a path.
_WORD = re.compile(r"[A-Za-z0-9_.+|-]{0,64}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Rule:
    """A condition for a value, and its description for messages."""

    accepts: Callable[[Any], bool]
    words: str


def integer(minimum: int, maximum: int) -> Rule:
    """Return a rule for whole numbers from `minimum` to `maximum`."""
    return Rule(
        lambda value: type(value) is int and minimum <= value <= maximum,
        f"a whole number from {minimum:,} to {maximum:,}",
    )


def number(minimum: float, maximum: float) -> Rule:
    """Return a rule for numbers from `minimum` to `maximum`."""
    return Rule(
        lambda value: type(value) in (int, float) and minimum <= value <= maximum,
        f"a number from {minimum:g} to {maximum:g}",
    )


def choice(*values: str) -> Rule:
    return Rule(lambda value: isinstance(value, str) and value in values, "one of " + ", ".join(values))


def constant(expected: object) -> Rule:
    truth = isinstance(expected, bool)
    return Rule(lambda value: isinstance(value, bool) == truth and value == expected, str(expected).lower())


def text(maximum: int) -> Rule:
    """Return a rule for text of at most `maximum` characters."""
    return Rule(
        lambda value: isinstance(value, str) and len(value) <= maximum,
        f"text of at most {maximum:,} characters",
    )


def texts(maximum: int, length: int) -> Rule:
    """Return a rule for lists of at most `maximum` texts with 1 to `length` characters."""

    def accepts(value: Any) -> bool:
        fits = isinstance(value, list) and len(value) <= maximum
        return fits and all(isinstance(item, str) and 0 < len(item) <= length for item in value)

    return Rule(accepts, f"a list of at most {maximum:,} texts of at most {length} characters")


def object_with(rules: Mapping[str, Rule], words: str) -> Rule:
    """Return a rule for objects with values that follow these rules or are null, without other keys."""
    return Rule(
        lambda value: (
            isinstance(value, dict)
            and value.keys() <= rules.keys()
            and all(item is None or rules[key].accepts(item) for key, item in value.items())
        ),
        words,
    )


TRUTH = Rule(lambda value: isinstance(value, bool), "true or false")

#: Bounds of numbers by the pattern of their key or dotted path; the first match applies. The library's classes
#: check types but not bounds.
_BOUNDS: Mapping[str, Rule] = {
    r".*rotary.*factor|rope_.*\.[a-z_]*mscale[a-z_]*": number(0, limits.MAX_ROPE_FACTOR),
    # Divisors of angles: one number, or one per angle.
    r"rope.*factor(\[\])?|rope_.*\.[a-z_]*(factor|beta)[a-z_]*(\[\])?": number(
        limits.MIN_ROPE_FACTOR, limits.MAX_ROPE_FACTOR
    ),
    r".*_id|.*_token_ids?": integer(-1, limits.MAX_VOCABULARY),
    r".*(dropout|_prob|pdrop|_drop|_eps|epsilon|probability)": number(0, 1),
    r"type_vocab_size": integer(0, 16),
    r".*vocab.*size.*": integer(1, limits.MAX_VOCABULARY),
    r".*(layers?|blocks?|groups?|networks|block_sizes|block_repeats)|depth|.*_num": integer(0, limits.MAX_LAYERS),
    r".*experts?.*": number(0, limits.MAX_EXPERTS),
    r".*heads?": integer(0, limits.MAX_HEADS),
    r".*(intermediate_size|n_inner|d_ff|ffn_dim|ff_dim|hidden_dim)": integer(1, limits.MAX_INNER_WIDTH),
    r"projection_dim": integer(0, limits.MAX_WIDTH),  # 0 means none, as in DPR.
    r"d_model|d_kv|dim|n_embd|.*(hidden|embedding)_size|.*_dim": integer(1, limits.MAX_WIDTH),
    r".*(_features|dimension)|k|k_aux": integer(0, limits.MAX_DIMENSION),
    r".*(position|window|seq_len|max_len|context|length|distance|local_attention).*": integer(-1, limits.MAX_POSITIONS),
    r".*(theta|rope.*base|rotary.*base|local_base_freq)": number(1, limits.MAX_ROPE_THETA),
}
_ANY_NUMBER = number(-limits.MAX_VOCABULARY, limits.MAX_VOCABULARY)


def refuse_forbidden_keys(value: object, findings: FileFindings, path: str = "", depth: int = 0) -> None:
    """Refuse keys that refer to anything outside of the checkpoint, at any depth; null counts as absent."""
    if isinstance(value, Mapping) and depth < 32:
        for key, item in value.items():
            inner_path = f"{path}.{key}" if path else str(key)
            if item is not None and key not in _HARMLESS and _FORBIDDEN_KEY.fullmatch(key):
                findings.refuse("forbidden_key", "the key is not accepted, whatever its value", inner_path)
            else:
                refuse_forbidden_keys(item, findings, inner_path, depth + 1)
    elif isinstance(value, list) and depth < 32:
        for item in value[:1000]:
            refuse_forbidden_keys(item, findings, path, depth + 1)


def typed_values(values: Mapping[str, Any], findings: FileFindings, read_keys: Collection[str] = ()) -> dict[str, Any]:
    """Return the entries with plain values: numbers, booleans, short words, null, or short lists and objects of these.

    Numbers out of bounds are added to the findings as errors, and so are other values of `read_keys`. Other entries
    are omitted with a remark. null is accepted, because it can differ from an absent key.
    """
    typed_items = {key: value for key, value in values.items() if _KEY.fullmatch(key) and _is_typed(value)}
    for key, value in typed_items.items():
        _check_numbers(key, value, findings)
    untyped_keys = [key for key in values if key not in typed_items]
    for key in untyped_keys:
        if key in read_keys:
            findings.refuse("value", "the model reads the key, but values of this form are not accepted", key)
    if omitted_keys := [key for key in untyped_keys if key not in read_keys]:
        findings.remark("keys_left_out", summarize_names(omitted_keys))
    return typed_items


def _is_typed(value: Any, depth: int = 0) -> bool:
    """Return whether a value is null, a boolean, a finite number, a short word, or a short list or object of these.

    Lists of lists, and objects with more than two levels, are not accepted.
    """
    if isinstance(value, str):
        return _WORD.fullmatch(value) is not None
    if isinstance(value, list):
        return depth < 3 and len(value) <= limits.MAX_LIST and all(_is_typed(each, depth + 2) for each in value)
    if isinstance(value, dict):
        return depth < 2 and len(value) <= limits.MAX_LIST and all(
            _KEY.fullmatch(key) is not None and _is_typed(each, depth + 1) for key, each in value.items()
        )  # fmt: skip
    return value is None or type(value) in (bool, int) or (type(value) is float and math.isfinite(value))


def _check_numbers(key: str, value: Any, findings: FileFindings) -> None:
    """Refuse numbers in a value, or in its parts, that are out of the bounds for their key or dotted path."""
    if isinstance(value, Mapping):
        for inner, each in value.items():
            _check_numbers(f"{key}.{inner}", each, findings)
    elif isinstance(value, list):
        for each in value:
            _check_numbers(f"{key}[]", each, findings)
    elif type(value) in (int, float):
        name = key.removesuffix("[]").rpartition(".")[2]
        rules = (rule for keys, rule in _BOUNDS.items() if re.fullmatch(keys, name) or re.fullmatch(keys, key))
        rule = next(rules, _ANY_NUMBER)
        if not rule.accepts(value):
            code = "dimension_cap" if type(value) is int and value > 0 else "value"
            findings.refuse(code, f"{value:,} is not {rule.words}", key)


def read_values(
    values: Mapping[str, Any], rules: Mapping[str, Rule], findings: FileFindings, path: str = ""
) -> dict[str, Any]:
    """Return the values that follow their rule, and add an error for others. Keys without a rule are skipped.

    null counts as absent. `path` is the path of the values in messages.
    """
    present_values = {key: values[key] for key in rules if values.get(key) is not None}
    accepted_values = {key: value for key, value in present_values.items() if rules[key].accepts(value)}
    for key, value in present_values.items():
        if key not in accepted_values:
            value_path = f"{path}.{key}" if path else key
            findings.refuse("value", f"{quoted(value)} is not {rules[key].words}", value_path)
    return accepted_values


def unknown_keys(values: Mapping[str, Any], known_keys: Collection[str]) -> list[str]:
    """Return the keys that are not in `known_keys`; null counts as absent."""
    return [key for key, value in values.items() if key not in known_keys and value is not None]


def refuse_unknown(values: Mapping[str, Any], known_keys: Collection[str], findings: FileFindings) -> None:
    """Refuse unknown keys, for files in which every key has a meaning."""
    if unsupported_keys := unknown_keys(values, known_keys):
        findings.refuse("unknown_key", f"the keys {summarize_names(unsupported_keys)} are not supported")


def remark_on_unknown(values: Mapping[str, Any], known_keys: Collection[str], findings: FileFindings) -> None:
    """Remark on unknown keys, for files that libraries fill with irrelevant keys."""
    if omitted_keys := unknown_keys(values, known_keys):
        findings.remark("keys_left_out", summarize_names(omitted_keys))
