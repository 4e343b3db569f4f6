"""Read tokenizer.json with its settings, and write both again without unused parts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from evaluation.checkpoints import tokenizer_settings
from evaluation.checkpoints.files import CHAT_TEMPLATE, ModelFiles
from evaluation.checkpoints.findings import Findings, listed
from evaluation.checkpoints.json_reading import NotJson, read_file, read_object
from evaluation.checkpoints.limits import MOST_POSITIONS, MOST_TOKENIZER
from evaluation.checkpoints.tokenizer_parts import check_parts
from evaluation.checkpoints.tokenizer_settings import ADDED_RULES, MOST_ADDED
from evaluation.checkpoints.values import read_values

NAME = "tokenizer.json"
_MOST_TEMPLATE = 64 * 1024
_KEYS_TEXT = """
version truncation padding added_tokens normalizer pre_tokenizer post_processor decoder model
"""
_KEYS = frozenset(_KEYS_TEXT.split())


@dataclass(frozen=True, slots=True)
class Tokenizer:
    """A tokenizer that was read.

    Attributes:
        content: tokenizer.json of the rebuilt model.
        settings: Settings that change tokens, among them the special tokens and the class.
        maximum_length: Tokens in a text, None if the settings have no limit.
        chat_template: The template that was beside it, empty if there was none.
    """

    content: dict[str, Any]
    settings: dict[str, Any]
    maximum_length: int | None
    chat_template: str

    def id_of(self, token: str) -> int | None:
        """Return the id of a token in the vocabulary, None for an unknown one and for a vocabulary with scores."""
        vocabulary = self.content["model"]["vocab"]
        return vocabulary.get(token) if isinstance(vocabulary, dict) else None

    def written_settings(self, maximum_length: int, token_types: bool) -> dict[str, Any]:
        """Return tokenizer_config.json of the rebuilt model, which has token types or not."""
        inputs = {} if token_types else {"model_input_names": ["input_ids", "attention_mask"]}
        return {
            **inputs,
            **self.settings,
            "model_max_length": maximum_length,
            "clean_up_tokenization_spaces": False,
        }


def read_tokenizer(
    source: ModelFiles, rows: int | None, findings: Findings, keep_truncation: bool = False
) -> Tokenizer | None:
    """The tokenizer in a folder for a model with `rows` embeddings, or None where it is refused.

    Truncation and padding are left out, because who encodes sets both; `keep_truncation` keeps the first for
    models that are not asked.
    """
    shown = source.shown(NAME)
    if not source.has(NAME):
        findings.refuse("missing_tokenizer", shown, "the file is missing")
        return None
    found = read_object(source, NAME, findings, MOST_TOKENIZER)
    if found is None:
        return None
    unknown = sorted(key for key in found if key not in _KEYS)
    if unknown:
        findings.refuse("tokenizer_value", shown, f"the keys {listed(unknown)} are not known here")
    ids = check_parts(found, shown, findings)
    added = _read_added(found.get("added_tokens"), shown, findings)
    if ids is None or added is None:
        return None
    ids |= {token["content"]: token["id"] for token in added}
    _check_ids(set(ids.values()), rows, shown, findings)
    parts = ("normalizer", "pre_tokenizer", "post_processor", "decoder", "model")
    content = {
        "version": "1.0",
        "truncation": found.get("truncation") if keep_truncation else None,
        "padding": None,
        "added_tokens": added,
        **{key: found.get(key) for key in parts},
    }
    settings = tokenizer_settings.read_settings(source, findings)
    template = _chat_template(source, settings)
    if template:
        message = "a chat template is a program, and never run"
        findings.remark("left_out", source.shown(tokenizer_settings.NAME), message)
    longest = settings.get("model_max_length")
    stated = type(longest) in (int, float) and longest is not None and longest >= 1
    return Tokenizer(
        content,
        tokenizer_settings.honored_settings(
            settings, found, ids, findings, source.shown(tokenizer_settings.NAME)
        ),
        min(int(longest), MOST_POSITIONS) if stated and longest is not None else None,
        template,
    )


def _read_added(found: object, shown: str, findings: Findings) -> list[dict[str, Any]] | None:
    if found is None:
        return []
    if not isinstance(found, list) or len(found) > MOST_ADDED:
        findings.refuse(
            "tokenizer_value", shown, f"it is no list of at most {MOST_ADDED:,} tokens", "added_tokens"
        )
        return None
    added = []
    for number, entry in enumerate(found):
        path = f"added_tokens[{number}]"
        if not isinstance(entry, dict) or set(entry) - set(ADDED_RULES):
            findings.refuse("tokenizer_value", shown, "it is no added token as the library writes it", path)
            return None
        taken = read_values(entry, ADDED_RULES, findings, shown, path)
        if not {"id", "content"} <= set(taken) or not taken["content"]:
            findings.refuse("tokenizer_value", shown, "it has no id or no content", path)
            return None
        switches = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized", "special"), False)
        added.append({**switches, **taken})
    return added


def _check_ids(ids: set[int], rows: int | None, shown: str, findings: Findings) -> None:
    """Every id has to have an embedding, or looking it up would read elsewhere."""
    highest = max(ids, default=-1)
    if highest < 0:
        findings.refuse("tokenizer_vocabulary", shown, "it has no tokens")
    elif rows is not None and highest >= rows:
        what = f"a token has the id {highest:,}, and the model has {rows:,} embeddings"
        findings.refuse("tokenizer_vocabulary", shown, what)


def _chat_template(source: ModelFiles, settings: dict[str, Any]) -> str:
    """The chat template, a program, as text; empty where there is none, or a long one."""
    template = settings.get("chat_template")
    if source.has(CHAT_TEMPLATE):
        try:
            data = read_file(source.path(CHAT_TEMPLATE), _MOST_TEMPLATE)
            source.allowance.take_json(len(data))
            template = data.decode("utf-8")
        except (NotJson, ValueError):
            return ""
    return template if isinstance(template, str) and len(template) <= _MOST_TEMPLATE else ""
