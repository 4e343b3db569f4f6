"""Single values of strangers' configuration: read with a type and bounds, or refused with both named."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from evaluation.checkpoints.findings import Findings, listed, quoted

#: Keys that make a library load code or files from elsewhere, or hand switches past us, in any configuration file.
_FORBIDDEN = re.compile(
    r"auto_map|.*trust_remote_code.*|custom_.*|.*_internal|_?(attn|experts|moe)_implementation"
    r"|transformers_weights|.*quanti[sz]ation.*|quant_method|.*kernels?|device_map|offload_.*|base_model.*"
    r"|.*_(file|files|path|url|dir|folder)|.*revision|_commit_hash|use_safetensors|weights_only"
    r"|(model|tokenizer|processor|config|loader|init|backend)_(kwargs|args)|backend_(path|model).*|peft.*|adapters?.*"
    r"|tokenizer_name_or_path|gguf.*|export|provider|load_in_.*|code|module_path",
    re.IGNORECASE,
)
#: The same words, in keys that libraries write into every file, and that say nothing to them when reading.
_HARMLESS = frozenset({"_name_or_path", "name_or_path", "_attn_implementation_autoset"})


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
    return Rule(lambda value: type(value) is type(wanted) and value == wanted, str(wanted).lower())


def text(most: int) -> Rule:
    """Text of at most so many characters."""
    return Rule(
        lambda value: isinstance(value, str) and len(value) <= most, f"text of at most {most:,} characters"
    )


def subset_of(values: Collection[str], most: int) -> Rule:
    """A list of some words, in any order and number up to `most`."""

    def accepts(value: Any) -> bool:
        return (
            isinstance(value, list)
            and len(value) <= most
            and all(isinstance(word, str) and word in values for word in value)
        )

    return Rule(accepts, f"a list of at most {most} of {', '.join(values)}")


TRUTH = Rule(lambda value: isinstance(value, bool), "true or false")


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
