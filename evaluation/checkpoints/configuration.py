"""config.json of a model: checked, and written again from what was understood."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from evaluation.checkpoints.architectures import ARCHITECTURES, Architecture, Head
from evaluation.checkpoints.files import ModelFiles
from evaluation.checkpoints.findings import Findings, quoted
from evaluation.checkpoints.json_reading import read_object
from evaluation.checkpoints.values import (
    TRUTH,
    Rule,
    choice,
    exactly,
    number,
    read_values,
    refuse_forbidden_keys,
    remark_on_unknown,
    subset_of,
    whole,
)

NAME = "config.json"
#: What a model may do with its output, by the names that libraries write.
ACTIVATIONS = (
    "torch.nn.modules.linear.Identity", "torch.nn.modules.activation.Tanh", "torch.nn.modules.activation.ReLU",
    "torch.nn.modules.activation.GELU", "torch.nn.modules.activation.Sigmoid",
)  # fmt: skip
_ACTIVATION = choice(
    "gelu", "gelu_new", "gelu_fast", "gelu_python", "gelu_pytorch_tanh", "relu", "silu", "swish", "tanh"
)
_SHARE = number(0, 1)
_ATTENTIONS = ("full_attention", "sliding_attention")
_TOKEN = whole(-1, 512_000)
_RULES: dict[str, Rule] = {
    **dict.fromkeys(
        ("hidden_act", "activation", "hidden_activation", "dense_act_fn", "classifier_activation"), _ACTIVATION
    ),
    **dict.fromkeys(
        (
            "hidden_dropout_prob", "attention_probs_dropout_prob", "classifier_dropout", "classifier_dropout_prob",
            "dropout", "attention_dropout", "embedding_dropout", "mlp_dropout", "dropout_rate", "seq_classif_dropout",
            "qa_dropout", "layer_norm_eps", "norm_eps", "layer_norm_epsilon",
        ),
        _SHARE,
    ),
    **dict.fromkeys(
        [f"{role}_id" for role in ("pad_token", "bos_token", "eos_token", "cls_token", "sep_token")], _TOKEN
    ),
    **dict.fromkeys(("tie_word_embeddings", "scale_decoder_outputs", "sinusoidal_pos_embds"), TRUTH),
    **dict.fromkeys(
        ("is_decoder", "add_cross_attention", "attention_bias", "mlp_bias", "norm_bias", "classifier_bias"),
        exactly(False),
    ),
    "decoder_start_token_id": _TOKEN,
    "position_embedding_type": choice("absolute"),
    "feed_forward_proj": choice("relu", "gelu", "silu", "gated-gelu", "gated-silu", "gated-relu"),
    "relative_attention_max_distance": whole(1, 4096),
    "classifier_pooling": choice("cls", "mean"),
    "global_attn_every_n_layers": whole(1, 64),
    "local_attention": whole(2, 32_768),
    "global_rope_theta": number(1, 1e9),
    "local_rope_theta": number(1, 1e9),
    "layer_types": subset_of(_ATTENTIONS, 64),
    "rope_parameters": Rule(lambda value: _is_rope(value), "the default rope_type and a rope_theta, by kind of layer"),
}  # fmt: skip
#: What libraries write into every file and nobody needs.
_UNREMARKED_TEXT = """
architectures model_type _name_or_path transformers_version torch_dtype dtype use_cache
gradient_checkpointing initializer_range initializer_factor id2label label2id num_labels finetuning_task
output_past problem_type is_encoder_decoder is_gated_act task_specific_params n_positions
chunk_size_feed_forward output_attentions output_hidden_states return_dict sentence_transformers
pruned_heads torchscript _attn_implementation_autoset
"""
#: Where cross-encoders named their activation before they had a place of their own for it.
_OLD_ACTIVATION = "sbert_ce_default_activation_function"
_UNREMARKED = frozenset([*_UNREMARKED_TEXT.split(), _OLD_ACTIVATION])
_CLASSES = {
    "bert": "Bert", "roberta": "Roberta", "xlm-roberta": "XLMRoberta", "camembert": "Camembert", "mpnet": "MPNet",
    "distilbert": "DistilBert", "electra": "Electra", "albert": "Albert", "modernbert": "ModernBert", "t5": "T5",
    "mt5": "MT5",
}  # fmt: skip
_SUFFIXES: dict[Head, str] = {
    "base": "Model", "masked": "ForMaskedLM", "sequence": "ForSequenceClassification",
    "token": "ForTokenClassification", "writer": "ForConditionalGeneration",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Configuration:
    """A model's configuration as it was understood. `values` is what is written; `classes` are the sender's."""

    model_type: str
    architecture: Architecture
    sizes: dict[str, int]
    values: dict[str, Any]
    classes: tuple[str, ...]
    labels: int

    @property
    def hidden(self) -> int:
        """Dimensions of a token's output."""
        return self.sizes[self.architecture.hidden]

    @property
    def tied(self) -> bool:
        """Whether a head may share the embeddings' weights."""
        return self.values.get("tie_word_embeddings", True) is not False

    @property
    def positions(self) -> int | None:
        """The most tokens that the model has positions for; None where positions are relative."""
        most = self.sizes.get("max_position_embeddings")
        return None if most is None else most - self.architecture.positions_before

    def written(self, head: Head) -> dict[str, Any]:
        """config.json of the rebuilt model with this head."""
        suffix = "EncoderModel" if head == "base" and self.model_type in ("t5", "mt5") else _SUFFIXES[head]
        labels = {"id2label": {"0": "LABEL_0"}, "label2id": {"LABEL_0": 0}}
        return {
            "model_type": self.model_type,
            "architectures": [_CLASSES[self.model_type] + suffix],
            **self.values,
            **(labels if head in ("sequence", "token") else {}),
            "dtype": "float32",
        }


def read_classes(source: ModelFiles, findings: Findings) -> tuple[str, ...]:
    """What config.json calls its classes, before anything else is known; empty where it does not say."""
    if not source.has(NAME):
        return ()
    found = read_object(source, NAME, Findings()) or {}
    return _classes(found)


def read_configuration(source: ModelFiles, findings: Findings) -> Configuration | None:
    """The configuration in a folder, or None where it is refused."""
    shown = source.shown(NAME)
    if not source.has(NAME):
        findings.refuse("missing_config", shown, "the file is missing")
        return None
    found = read_object(source, NAME, findings)
    if found is None:
        return None
    refuse_forbidden_keys(found, findings, shown)
    _refuse_activations(found, findings, shown)
    model_type = found.get("model_type")
    if model_type == "dpr":
        model_type = "bert"
    architecture = ARCHITECTURES.get(model_type) if isinstance(model_type, str) else None
    if architecture is None or not isinstance(model_type, str):
        known = ", ".join(ARCHITECTURES)
        findings.refuse("model_type", shown, f"{quoted(model_type)} is not one of {known}", "model_type")
        return None
    sizes = _read_sizes(found, architecture, findings, shown)
    values = read_values(found, _RULES, findings, shown)
    named = {size.key for size in architecture.sizes}
    remark_on_unknown(found, {*_RULES, *named, *_UNREMARKED}, findings, shown)
    written = {**{key: value for key, value in sizes.items() if key in named}, **values}
    return Configuration(model_type, architecture, sizes, written, _classes(found), _labels(found))


def refuse_activation(name: object, findings: Findings, shown: str, key: str) -> None:
    """Refuse an activation for a model's output that is not one of a few: libraries import what is named there."""
    if name is not None and name not in ACTIVATIONS:
        what = f"{quoted(name)} is not one of {', '.join(ACTIVATIONS)}"
        findings.refuse("activation", shown, what, key)


def _refuse_activations(found: dict[str, Any], findings: Findings, shown: str) -> None:
    """Those that cross-encoders keep in config.json. They are not needed: scores order alike without them."""
    refuse_activation(found.get(_OLD_ACTIVATION), findings, shown, _OLD_ACTIVATION)
    own = found.get("sentence_transformers")
    if isinstance(own, dict):
        for key in ("activation_fn", "activation_function"):
            refuse_activation(own.get(key), findings, shown, f"sentence_transformers.{key}")
    elif own is not None:
        findings.refuse("value", shown, f"{quoted(own)} is no object", "sentence_transformers")


def _read_sizes(
    found: dict[str, Any], architecture: Architecture, findings: Findings, shown: str
) -> dict[str, int]:
    sizes = {}
    for size in architecture.sizes:
        value = found.get(size.key)
        if value is None:
            value = found.get("num_layers") if size.key == "num_decoder_layers" else None
            value = size.default if value is None else value
        if type(value) is not int or value < 1:
            findings.refuse(
                "value", shown, f"{quoted(value)} is not a whole number from 1 to {size.most:,}", size.key
            )
            value = size.default
        elif value > size.most:
            findings.refuse("dimension_cap", shown, f"{value:,} is over the limit of {size.most:,}", size.key)
            value = size.default
        sizes[size.key] = value
    projection = str(
        found.get("feed_forward_proj", "gated-gelu" if found.get("model_type") == "mt5" else "relu")
    )
    sizes["gated"] = int(projection.startswith("gated-"))
    heads = next((sizes[key] for key in ("num_attention_heads", "n_heads") if key in sizes), 1)
    if sizes[architecture.hidden] % heads:
        what = f"{sizes[architecture.hidden]} dimensions do not divide among {heads} attention heads"
        findings.refuse("value", shown, what, architecture.hidden)
    return sizes


def _classes(found: dict[str, Any]) -> tuple[str, ...]:
    classes = found.get("architectures")
    return tuple(str(name) for name in classes[:4]) if isinstance(classes, list) else ()


def _labels(found: dict[str, Any]) -> int:
    """How many labels a classifier has; two where nothing is said, as the library has it."""
    names = found.get("id2label")
    if isinstance(names, dict):
        return len(names)
    count = found.get("num_labels")
    return count if type(count) is int else 2


def _is_rope(value: object) -> bool:
    rules = {"rope_type": choice("default"), "rope_theta": number(1, 1e9)}
    return (
        isinstance(value, dict)
        and len(value) <= 2
        and all(
            name in _ATTENTIONS
            and isinstance(inner, dict)
            and all(key in rules and rules[key].accepts(given) for key, given in inner.items())
            for name, inner in value.items()
        )
    )
