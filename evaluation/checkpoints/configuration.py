"""config.json of a model: any architecture's, taken key by key where the values are typed and within bounds.

Nothing here knows an architecture. Which keys and tensors one has, its library says where the model is made
(`evaluation.engines.neural.checking`); until then a configuration may claim no more than its weights pay for.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from evaluation.checkpoints.files import ModelFiles
from evaluation.checkpoints.findings import Findings, quoted
from evaluation.checkpoints.json_reading import read_object
from evaluation.checkpoints.library import library_models
from evaluation.checkpoints.limits import MOST_EXPERTS_IN_ALL
from evaluation.checkpoints.safetensors import Tensor
from evaluation.checkpoints.unread_keys import report_unread_keys
from evaluation.checkpoints.values import exactly, read_values, refuse_forbidden_keys, typed_values

NAME = "config.json"
#: What a model may do with its output, by the names that libraries write.
ACTIVATIONS = (
    "torch.nn.modules.linear.Identity", "torch.nn.modules.activation.Tanh", "torch.nn.modules.activation.ReLU",
    "torch.nn.modules.activation.GELU", "torch.nn.modules.activation.SiLU", "torch.nn.modules.activation.Sigmoid",
)  # fmt: skip
#: Activations that preserve the order of scores.
SCORE_ACTIVATIONS = tuple(name for name in ACTIVATIONS if name.endswith(("Identity", "Tanh", "Sigmoid")))
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}", re.ASCII)
_EXACTLY = {"is_decoder": exactly(False), "add_cross_attention": exactly(False)}
#: What libraries write into every file, and nobody needs or says otherwise; left out without a word.
_UNREMARKED_TEXT = """
architectures model_type _name_or_path name_or_path transformers_version torch_dtype dtype use_cache auto_map
gradient_checkpointing id2label label2id num_labels finetuning_task output_past problem_type
task_specific_params chunk_size_feed_forward output_attentions return_dict sentence_transformers pruned_heads
torchscript _attn_implementation_autoset unsloth_version unsloth_fixed max_length min_length do_sample early_stopping
num_beams num_beam_groups diversity_penalty temperature top_k top_p typical_p repetition_penalty length_penalty
no_repeat_ngram_size encoder_no_repeat_ngram_size bad_words_ids num_return_sequences output_scores
return_dict_in_generate remove_invalid_values exponential_decay_length_penalty suppress_tokens begin_suppress_tokens
tokenizer_class prefix tf_legacy_loss use_bfloat16
"""
#: Where cross-encoders named their activation before they had a place of their own for it.
_OLD_ACTIVATION = "sbert_ce_default_activation_function"
_UNREMARKED = frozenset([*_UNREMARKED_TEXT.split(), _OLD_ACTIVATION])
#: Types that were made by code beside the weights, as the library has them: its name for the type, how it calls keys,
#: what it can do of what the code could, and the code.
_TYPES: Mapping[str, tuple[str, Mapping[str, str], Mapping[str, Any], str]] = {
    "dpr": ("bert", {}, {}, ""),
    "new": ("gte", {}, {
        "logn_attention_scale": False, "layer_norm_type": "layer_norm", "position_embedding_type": "rope",
    }, r"(Alibaba-NLP/new-impl--)?(modeling|configuration)"),
    "nomic_bert": ("nomic_bert", {
        "n_embd": "hidden_size", "n_head": "num_attention_heads", "n_layer": "num_hidden_layers",
        "n_inner": "intermediate_size", "layer_norm_epsilon": "layer_norm_eps", "rotary_emb_base": "rope_theta",
    }, {
        "prenorm": False, "use_rms_norm": False, "rotary_emb_fraction": 1.0, "rotary_emb_interleaved": False,
        "causal": False, "activation_function": "swiglu",
    }, r"(nomic-ai/nomic-bert-2048--)?(modeling|configuration)_hf_nomic_bert"),
}  # fmt: skip
_HIDDEN = ("hidden_size", "d_model", "dim", "n_embd")
_POSITIONS = ("max_position_embeddings", "n_positions", "max_trained_positions")
#: Families whose positions start behind the padding token's number.
_POSITIONS_BEHIND_PADDING = frozenset({"roberta", "xlm-roberta", "camembert", "mpnet", "longformer"})
_WITH_TOKEN_TYPES = frozenset({"bert", "electra", "albert", "nomic_bert"})


@dataclass(frozen=True, slots=True)
class Configuration:
    """A model's configuration as it was understood. `values` is what is written; `classes` are the sender's."""

    model_type: str
    values: dict[str, Any]
    classes: tuple[str, ...]
    labels: int
    vocabulary: int | None
    hidden: int | None

    @property
    def positions(self) -> int | None:
        """The most tokens that the model has positions for; None where it does not say."""
        most = _first_count(self.values, _POSITIONS)
        if most is None or self.model_type not in _POSITIONS_BEHIND_PADDING:
            return most
        padding = self.values.get("pad_token_id", 1)
        return most - ((padding if _is_count(padding) else 0) + 1)

    @property
    def token_types(self) -> bool:
        """Whether it tells a pair's first text from its second by numbers beside the tokens."""
        default = 2 if self.model_type in _WITH_TOKEN_TYPES else 0
        kinds = self.values.get("type_vocab_size", default)
        return type(kinds) is int and kinds >= 2

    def written(self, labels: int = 0) -> dict[str, Any]:
        """config.json of the rebuilt model, with so many labels if any."""
        names = {str(number): f"LABEL_{number}" for number in range(labels)}
        ids = {name: int(number) for number, name in names.items()}
        return {
            **self.values,
            "model_type": self.model_type,
            "architectures": list(self.classes),
            **({"id2label": names, "label2id": ids} if labels else {}),
            "dtype": "float32",
        }


def read_name(source: ModelFiles) -> str:
    """What config.json calls the model that it was made from; empty where it does not say."""
    name = _stated(source).get("_name_or_path")
    return name if isinstance(name, str) else ""


def read_classes(source: ModelFiles) -> tuple[str, ...]:
    """What config.json calls its classes, before anything else is known; empty where it does not say."""
    return _classes(_stated(source))


def read_tokenizer_class(source: ModelFiles) -> object:
    """Return the tokenizer class that config.json names, None if it names none."""
    return _stated(source).get("tokenizer_class")


def _stated(source: ModelFiles) -> dict[str, Any]:
    """What config.json says, right or wrong."""
    return (read_object(source, NAME, Findings()) if source.has(NAME) else None) or {}


def read_configuration(
    source: ModelFiles, tensors: Mapping[str, Tensor] | None, findings: Findings
) -> Configuration | None:
    """The configuration in a folder with these weights, or None where it is refused."""
    shown = source.shown(NAME)
    if not source.has(NAME):
        findings.refuse("missing_config", shown, "the file is missing")
        return None
    found = read_object(source, NAME, findings)
    if found is None:
        return None
    refuse_forbidden_keys({key: value for key, value in found.items() if key != "auto_map"}, findings, shown)
    _refuse_activations(found, findings, shown)
    model_type = found.get("model_type")
    if not isinstance(model_type, str) or not _NAME.fullmatch(model_type):
        findings.refuse(
            "model_type", shown, f"{quoted(model_type)} is no name of an architecture", "model_type"
        )
        return None
    read_values(found, _EXACTLY, findings, shown)
    renamed, keys, only, code = _TYPES.get(model_type, (model_type, {}, {}, ""))
    refuse_code(found.get("auto_map"), findings, shown, code)
    read_values(found, {key: exactly(value) for key, value in only.items()}, findings, shown)
    values = {
        keys.get(key, key): value
        for key, value in found.items()
        if key not in _UNREMARKED and (value or not key.startswith("_"))
    }
    read = library_models().keys_read(renamed)
    values = typed_values(
        {key: value for key, value in values.items() if key in read or not key.startswith("_")},
        findings,
        shown,
        read,
    )
    report_unread_keys(
        renamed, {key: value for key, value in values.items() if key not in only}, findings, shown
    )
    if model_type == "new":
        _use_linear_scaling(values)
    rows, columns = _embeddings(tensors) or (None, None)
    counts = [count for count in (_first_count(values, ("vocab_size",)), rows) if count]
    hidden = _first_count(values, _HIDDEN) or columns
    result = Configuration(
        renamed, values, _classes(found), _labels(found), min(counts, default=None), hidden
    )
    _check_claims(result, tensors or {}, findings, shown)
    return result


def refuse_code(auto_map: object, findings: Findings, shown: str, known: str = "") -> None:
    """Refuse code beside the weights, which may differ from the library's class, unless its modules match `known`."""
    values = list(auto_map.values()) if isinstance(auto_map, dict) else [auto_map]
    names = [name for value in values for name in (value if isinstance(value, list) else [value]) if name]
    modules = [str(name).rpartition(".")[0] for name in names]
    if not all(known and re.fullmatch(known, module) for module in modules):
        message = f"it names code, {quoted(names[0])}, which is never run: the library's own class would run instead"
        findings.refuse("own_code", shown, message, "auto_map")


def _check_claims(
    found: Configuration, tensors: Mapping[str, Tensor], findings: Findings, shown: str
) -> None:
    """Refuse more layers and experts than there are tensors or rows for, and sizes that no tensor has.

    The library makes every layer that it is told of: 20,000 took 28 s and 641 MiB, without any weight.
    """
    if not tensors:
        return
    count, largest = len(tensors), max(max(tensor.shape, default=1) for tensor in tensors.values())
    paid_for = (
        (r"((num|n)_[a-z_]*|encoder_|decoder_|n_)layers?|.*_types", count),
        (r"(num|n)_.*experts", max(count, largest)),
        ("|".join(("vocab_size", *_HIDDEN)), largest),
    )
    for key, value in found.values.items():
        claimed = len(value) if isinstance(value, list) else value
        most = next((most for keys, most in paid_for if re.fullmatch(keys, key)), None)
        if most is not None and type(claimed) is int and claimed > most:
            what = f"it claims {claimed:,}, and the weights are {count:,} tensors of at most {largest:,} rows"
            findings.refuse("weights_shape", shown, what, key)
    layers = _product(found.values, r"(num|n)_hidden_layers|n_layers?|num_layers")
    if layers * _product(found.values, r"(num|n)_.*experts") > MOST_EXPERTS_IN_ALL:
        what = f"its layers have more than {MOST_EXPERTS_IN_ALL:,} experts together"
        findings.refuse("dimension_cap", shown, what)
    if _product(found.values, r"num_hidden_groups|inner_group_num") > count:
        findings.refuse("weights_shape", shown, "its groups have more layers than there are tensors")


def _product(values: Mapping[str, Any], keys: str) -> int:
    """What the counts under such keys multiply to."""
    counts = (value for key, value in values.items() if re.fullmatch(keys, key) and _is_count(value))
    return math.prod(counts)


def refuse_activation(
    name: object, findings: Findings, shown: str, key: str, allowed: Collection[str] = ACTIVATIONS
) -> None:
    """Refuse an activation for a model's output that is not one of a few: libraries import what is named there."""
    if name is not None and name not in allowed:
        findings.refuse("activation", shown, f"{quoted(name)} is not one of {', '.join(allowed)}", key)


def _refuse_activations(found: dict[str, Any], findings: Findings, shown: str) -> None:
    """Refuse activations that change the order of a cross-encoder's scores; others are ignored."""
    refuse_activation(found.get(_OLD_ACTIVATION), findings, shown, _OLD_ACTIVATION, SCORE_ACTIVATIONS)
    own = found.get("sentence_transformers")
    if isinstance(own, dict):
        for key in ("activation_fn", "activation_function"):
            name = f"sentence_transformers.{key}"
            refuse_activation(own.get(key), findings, shown, name, SCORE_ACTIVATIONS)
    elif own is not None:
        findings.refuse("value", shown, f"{quoted(own)} is no object", "sentence_transformers")


def _use_linear_scaling(values: dict[str, Any]) -> None:
    """Rotary positions of “new”, in words that the library has.

    Its fixed NTK scaling multiplies the base by the factor, and divides every frequency by factor^(2 / head size):
    https://github.com/vllm-project/vllm, `rotary_embedding/ntk_scaling_rope.py`; https://kexue.fm/archives/9706.
    """
    scaling = values.pop("rope_scaling", None) or {}
    theta, factor = values.pop("rope_theta", 10_000.0), scaling.get("factor", 1.0)
    numbers = (theta, factor, values.get("hidden_size", 768), values.get("num_attention_heads", 12))
    if not all(type(each) in (int, float) and each > 0 for each in numbers):
        return
    if scaling.get("type") == "ntk":
        head = numbers[2] / numbers[3]
        scaled = {"rope_type": "linear", "factor": factor ** (2 / head), "rope_theta": float(theta * factor)}
    else:
        scaled = {"rope_type": "default", "rope_theta": float(theta)}
    values["rope_parameters"] = scaled


def _embeddings(tensors: Mapping[str, Tensor] | None) -> tuple[int, int] | None:
    """Rows and columns of the table of embeddings, where there is one by a usual name."""
    tables = [
        (tensor.shape[0], tensor.shape[1])
        for name, tensor in (tensors or {}).items()
        if len(tensor.shape) == 2 and _EMBEDDING.search(name)
    ]
    return max(tables, default=None)


_EMBEDDING = re.compile(
    r"(^|\.)(word_embeddings?|tok_embeddings|embed_tokens|shared|wte|embeddings)\.weight$"
)


def _first_count(values: Mapping[str, Any], keys: tuple[str, ...]) -> int | None:
    return next((values[key] for key in keys if _is_count(values.get(key))), None)


def _is_count(value: object) -> bool:
    return type(value) is int and value > 0


def _classes(found: dict[str, Any]) -> tuple[str, ...]:
    classes = found.get("architectures")
    fitting = classes[:4] if isinstance(classes, list) else []
    return tuple(name for name in fitting if isinstance(name, str) and _NAME.fullmatch(name))


def _labels(found: dict[str, Any]) -> int:
    """How many labels a classifier has; two where nothing is said, as the library has it."""
    names = found.get("id2label")
    if isinstance(names, dict):
        return len(names)
    count = found.get("num_labels")
    return count if type(count) is int else 2
