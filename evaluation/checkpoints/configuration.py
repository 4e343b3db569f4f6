"""Typed and bounded values of config.json for any architecture. The library silently ignores none of them.

This module does not know the keys and tensors of an architecture: the library checks them when it builds the model
(`evaluation.engines.neural.checking`). Before that, a configuration may only state sizes that its weights have.

The model types of the pinned library are data: `python -m packages.model_types` writes
`model_types.json`, and a test compares the two. This module does not import the library.
"""

import json
import math
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from evaluation.checkpoints.description import CheckpointKind
from evaluation.checkpoints.files import ModelFiles
from evaluation.checkpoints.findings import MAX_EXPERTS_IN_ALL, FileFindings, quoted, summarize_names
from evaluation.checkpoints.values import constant, read_values, refuse_forbidden_keys, typed_values
from evaluation.checkpoints.weights import Tensor

NAME = "config.json"
#: Activations of a model's output, by the names that libraries write.
ACTIVATIONS = (
    "torch.nn.modules.linear.Identity", "torch.nn.modules.activation.Tanh", "torch.nn.modules.activation.ReLU",
    "torch.nn.modules.activation.GELU", "torch.nn.modules.activation.SiLU", "torch.nn.modules.activation.Sigmoid",
)  # fmt: skip
#: Activations that preserve the order of scores.
SCORE_ACTIVATIONS = tuple(name for name in ACTIVATIONS if name.endswith(("Identity", "Tanh", "Sigmoid")))
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}", re.ASCII)
#: Key of a cross-encoder's activation before the library had a separate key for it.
_OLD_ACTIVATION = "sbert_ce_default_activation_function"
#: Keys that libraries write into every file and that have no effect here. They are omitted without a remark.
_UNREMARKED_TEXT = """
architectures model_type _name_or_path name_or_path transformers_version torch_dtype dtype use_cache auto_map
gradient_checkpointing id2label label2id num_labels finetuning_task output_past problem_type
task_specific_params chunk_size_feed_forward output_attentions return_dict sentence_transformers pruned_heads
torchscript _attn_implementation_autoset unsloth_version unsloth_fixed max_length min_length do_sample early_stopping
num_beams num_beam_groups diversity_penalty temperature top_k top_p typical_p repetition_penalty length_penalty
no_repeat_ngram_size encoder_no_repeat_ngram_size bad_words_ids num_return_sequences output_scores
return_dict_in_generate remove_invalid_values exponential_decay_length_penalty suppress_tokens begin_suppress_tokens
tokenizer_class prefix tf_legacy_loss use_bfloat16 sbert_ce_default_activation_function
"""
_UNREMARKED = frozenset(_UNREMARKED_TEXT.split())


@dataclass(frozen=True, slots=True)
class _PublishedType:
    """A type of published code that the library also implements.

    Attributes:
        name: The library's name of the type.
        code: Pattern of the modules that the library implements.
        keys: The library's names of keys.
        fixed: Fixed values of the library's class for options of the published code.
    """

    name: str
    code: str = ""
    keys: Mapping[str, str] = field(default_factory=dict)
    fixed: Mapping[str, Any] = field(default_factory=dict)


_TYPES = {
    "dpr": _PublishedType("bert"),
    "new": _PublishedType("gte", r"(Alibaba-NLP/new-impl--)?(modeling|configuration)", fixed={
        "logn_attention_scale": False, "layer_norm_type": "layer_norm", "position_embedding_type": "rope",
    }),
    "nomic_bert": _PublishedType(
        "nomic_bert", r"(nomic-ai/nomic-bert-2048--)?(modeling|configuration)_hf_nomic_bert",
        {"n_embd": "hidden_size", "n_head": "num_attention_heads", "n_layer": "num_hidden_layers",
         "n_inner": "intermediate_size", "layer_norm_epsilon": "layer_norm_eps", "rotary_emb_base": "rope_theta"},
        {"prenorm": False, "use_rms_norm": False, "rotary_emb_fraction": 1.0, "rotary_emb_interleaved": False,
         "causal": False, "activation_function": "swiglu"},
    ),
}  # fmt: skip
_HIDDEN_SIZE_KEYS = ("hidden_size", "d_model", "dim", "n_embd")
_POSITIONS = ("max_position_embeddings", "n_positions", "max_trained_positions")
#: Families with positions that start after the id of the padding token.
_POSITIONS_BEHIND_PADDING = frozenset({"roberta", "xlm-roberta", "camembert", "mpnet", "longformer"})
_WITH_TOKEN_TYPES = frozenset({"bert", "electra", "albert", "nomic_bert"})
_EMBEDDING = re.compile(r"(^|\.)(word_embeddings?|tok_embeddings|embed_tokens|shared|wte|embeddings)\.weight$")


@dataclass(frozen=True, slots=True)
class Configuration:
    """A model's configuration: `values` for the rebuilt file, and `classes` from the sender's file."""

    model_type: str
    values: dict[str, Any]
    classes: tuple[str, ...]
    labels: int
    vocabulary: int | None
    hidden_size: int | None

    @property
    def positions(self) -> int | None:
        """Maximum number of tokens with positions, None if the configuration does not limit them."""
        count = _first_count(self.values, _POSITIONS)
        if count is None or self.model_type not in _POSITIONS_BEHIND_PADDING:
            return count
        padding = self.values.get("pad_token_id", 1)
        return count - ((padding if _is_count(padding) else 0) + 1)

    @property
    def token_types(self) -> bool:
        """Whether token types distinguish the two texts of a pair."""
        default = 2 if self.model_type in _WITH_TOKEN_TYPES else 0
        kinds = self.values.get("type_vocab_size", default)
        return type(kinds) is int and kinds >= 2

    def to_json(self, labels: int = 0) -> dict[str, Any]:
        """Return config.json of the rebuilt model, with the names of this number of labels unless it is 0."""
        names = {str(number): f"LABEL_{number}" for number in range(labels)}
        ids = {name: int(number) for number, name in names.items()}
        return {
            **self.values,
            "model_type": self.model_type,
            "architectures": list(self.classes),
            **({"id2label": names, "label2id": ids} if labels else {}),
            "dtype": "float32",
        }


def stated_configuration(source: ModelFiles) -> dict[str, Any]:
    """Return the unchecked content of config.json, empty if it is not readable."""
    return source.silent().read_settings(NAME)


def class_names(content: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the model classes in a configuration."""
    classes = content.get("architectures")
    candidates = classes[:4] if isinstance(classes, list) else []
    return tuple(name for name in candidates if isinstance(name, str) and _NAME.fullmatch(name))


def read_configuration(source: ModelFiles, tensors: Mapping[str, Tensor] | None) -> Configuration:
    """Return the checked content of a folder's config.json, with keys and model type as the library names them.

    Forbidden keys, unknown code, and values out of bounds are added to the findings, and so are sizes that `tensors`
    rule out, if they are known. Raises Refused if the file is missing or damaged, or if it has no valid model type.
    """
    findings = source.at(NAME)
    if not source.has(NAME):
        findings.stop("missing_config", "the file is missing")
    content = source.read_object(NAME)
    refuse_forbidden_keys({key: value for key, value in content.items() if key != "auto_map"}, findings)
    _refuse_activations(content, findings)
    model_type = content.get("model_type")
    if not isinstance(model_type, str) or not _NAME.fullmatch(model_type):
        findings.stop("model_type", f"{quoted(model_type)} is not the name of an architecture", "model_type")
    published_type = _TYPES.get(model_type, _PublishedType(model_type))
    refuse_code(content.get("auto_map"), findings, published_type.code)
    fixed_values = {"is_decoder": False, "add_cross_attention": False, **published_type.fixed}
    read_values(content, {key: constant(value) for key, value in fixed_values.items()}, findings)
    read_keys = library_models().keys_read(published_type.name)
    values = {
        published_type.keys.get(key, key): value
        for key, value in content.items()
        if key not in _UNREMARKED and (value or not key.startswith("_"))
    }
    values = {key: value for key, value in values.items() if key in read_keys or not key.startswith("_")}
    values = typed_values(values, findings, read_keys)
    checked_values = {key: value for key, value in values.items() if key not in published_type.fixed}
    _report_unread_keys(published_type.name, checked_values, findings)
    if model_type == "new":
        _use_linear_scaling(values, findings)
    tables = [
        (tensor.shape[0], tensor.shape[1])
        for name, tensor in (tensors or {}).items()
        if len(tensor.shape) == 2 and _EMBEDDING.search(name)
    ]
    rows, columns = max(tables, default=(None, None))
    labels, count = content.get("id2label"), content.get("num_labels")
    # The library has two labels by default.
    label_count = len(labels) if isinstance(labels, dict) else count if type(count) is int else 2
    counts = [count for count in (_first_count(values, ("vocab_size",)), rows) if count]
    result = Configuration(
        published_type.name,
        values,
        class_names(content),
        label_count,
        min(counts, default=None),
        _first_count(values, _HIDDEN_SIZE_KEYS) or columns,
    )
    if tensors:
        _check_claims(values, tensors, findings)
    return result


def refuse_code(auto_map: object, findings: FileFindings, known_modules: str = "") -> None:
    """Refuse an `auto_map` that names code, unless all of its modules match the pattern `known_modules`.

    Code in a checkpoint may differ from the library's class, which would run instead.
    """
    values = list(auto_map.values()) if isinstance(auto_map, dict) else [auto_map]
    names = [name for value in values for name in (value if isinstance(value, list) else [value]) if name]
    modules = [str(name).rpartition(".")[0] for name in names]
    if not all(known_modules and re.fullmatch(known_modules, module) for module in modules):
        message = f"it names code, {quoted(names[0])}, which is never run: the library's own class would run instead"
        findings.refuse("own_code", message, "auto_map")


def refuse_activation(name: object, findings: FileFindings, key: str, choices: Collection[str] = ACTIVATIONS) -> None:
    """Refuse an activation, the value of `key`, that is not allowed, because libraries import it by name.

    None is accepted.
    """
    if name is not None and name not in choices:
        findings.refuse("activation", f"{quoted(name)} is not one of {', '.join(choices)}", key)


def _refuse_activations(content: Mapping[str, Any], findings: FileFindings) -> None:
    """Refuse a cross-encoder's activations in config.json if they do not preserve the order of scores."""
    refuse_activation(content.get(_OLD_ACTIVATION), findings, _OLD_ACTIVATION, SCORE_ACTIVATIONS)
    sentence_transformers_settings = content.get("sentence_transformers")
    if isinstance(sentence_transformers_settings, dict):
        for key in ("activation_fn", "activation_function"):
            refuse_activation(
                sentence_transformers_settings.get(key),
                findings,
                f"sentence_transformers.{key}",
                SCORE_ACTIVATIONS,
            )
    elif sentence_transformers_settings is not None:
        findings.refuse("value", f"{quoted(sentence_transformers_settings)} is not an object", "sentence_transformers")


def _check_claims(values: Mapping[str, Any], tensors: Mapping[str, Tensor], findings: FileFindings) -> None:
    """Refuse numbers of layers and experts above the number of tensors, and sizes above the rows of every tensor.

    The library builds every layer of a configuration: 20,000 took 28 s and 641 MiB, without any weights.
    """
    count, max_rows = len(tensors), max(max(tensor.shape, default=1) for tensor in tensors.values())
    bounds = (
        (r"((num|n)_[a-z_]*|encoder_|decoder_|n_)layers?|.*_types", count),
        (r"(num|n)_.*experts", max(count, max_rows)),
        ("|".join(("vocab_size", *_HIDDEN_SIZE_KEYS)), max_rows),
    )
    for key, value in values.items():
        claimed_size = len(value) if isinstance(value, list) else value
        bound = next((bound for keys, bound in bounds if re.fullmatch(keys, key)), None)
        if bound is not None and type(claimed_size) is int and claimed_size > bound:
            message = f"it claims {claimed_size:,}, but the weights are {count:,} tensors of at most {max_rows:,} rows"
            findings.refuse("weights_shape", message, key)
    layers = _product(values, r"(num|n)_hidden_layers|n_layers?|num_layers")
    if layers * _product(values, r"(num|n)_.*experts") > MAX_EXPERTS_IN_ALL:
        findings.refuse("dimension_cap", f"its layers have more than {MAX_EXPERTS_IN_ALL:,} experts together")
    if _product(values, r"num_hidden_groups|inner_group_num") > count:
        findings.refuse("weights_shape", "its groups have more layers than there are tensors")


def _product(values: Mapping[str, Any], keys: str) -> int:
    """Return the product of the counts with keys that match the pattern."""
    return math.prod(value for key, value in values.items() if re.fullmatch(keys, key) and _is_count(value))


def _use_linear_scaling(values: dict[str, Any], findings: FileFindings) -> None:
    """Replace `rope_scaling` and `rope_theta` of the model type “new” by equivalent `rope_parameters`, in place.

    Values that are not positive numbers are dropped without a replacement. The fixed NTK scaling of this type
    multiplies the base by the factor and divides every frequency by factor^(2 / head size):
    https://github.com/vllm-project/vllm, `rotary_embedding/ntk_scaling_rope.py`; https://kexue.fm/archives/9706.
    """
    scaling = values.pop("rope_scaling", None) or {}
    if not isinstance(scaling, dict):
        findings.stop("value", "only an object is accepted", "rope_scaling")
    theta, factor = values.pop("rope_theta", 10_000.0), scaling.get("factor", 1.0)
    numbers = (theta, factor, values.get("hidden_size", 768), values.get("num_attention_heads", 12))
    if not all(type(number) in (int, float) and number > 0 for number in numbers):
        return
    if scaling.get("type") == "ntk":
        head = numbers[2] / numbers[3]
        rope_parameters = {"rope_type": "linear", "factor": factor ** (2 / head), "rope_theta": float(theta * factor)}
    else:
        rope_parameters = {"rope_type": "default", "rope_theta": float(theta)}
    values["rope_parameters"] = rope_parameters


def _first_count(values: Mapping[str, Any], keys: tuple[str, ...]) -> int | None:
    return next((values[key] for key in keys if _is_count(values.get(key))), None)


def _is_count(value: object) -> bool:
    return type(value) is int and value > 0


#: Keys without effect on outputs: for training, for tokenizers, and for a head that no engine uses.
_BOOKKEEPING = re.compile(
    r".*_token_ids?|initializer_.*|.*(dropout|_drop|pdrop).*|.*_loss_.*|gradient_.*|max_position_embeddings|n_positions"
    r"|is_decoder|add_cross_attention|directionality|pooler_.*|summary_.*|use_(flash|memory_efficient)_.*|.*flash_attn.*|unpad_inputs|pad_vocab_.*"
)
#: Patterns of keys that change outputs, and the values that match the behavior of every class.
_BEHAVIOR: Mapping[str, tuple[str, ...]] = {
    r"position_embedding_type": ("absolute",),
    r".*alibi.*|rope_.*|.*rotary.*|partial_rotary_factor": ("default",),
    r"is_causal|causal|causal_mask|.*bidirectional.*|att(entio)?n_(type|mode)": ("full",),
    r".*sliding_window.*|window_size|(local_)?attention_window|local_attention": (),
    r"layer_types": ("full_attention",),
    r"feed_forward_type|(mlp|ffn)_type|(use_)?(swi|ge|re)?glu": ("original",),
    r"hidden_act(ivation)?|activation(_function)?|feed_forward_proj": (),
    r"pre_?norm|use_rms_norm|(layer_?)?norm(alization)?_type|.*qk_(layer)?norm.*": ("layer_norm",),
    r"(use_)?parallel_.*|.*residual.*|.*softcap.*|.*_multiplier|scale_(emb|depth|embedding)|.*attn_scalar": (),
    r"(.*_)?experts?(_.*)?|moe_.*|.*lora.*|projection_dim": (),
}


def _report_unread_keys(model_type: str, values: Mapping[str, Any], findings: FileFindings) -> None:
    """Refuse output-changing keys that the library's class ignores, and remark on other unread keys.

    Values that match the behavior of the class are accepted. With other values, the class would run a different model
    than the trained one.
    """
    read_keys, causal = library_models().keys_read(model_type), model_type in library_models().causal
    unread_keys = [key for key in values if read_keys and key not in read_keys and not _BOOKKEEPING.fullmatch(key)]
    unknown_keys = []
    for key in unread_keys:
        pattern = next((pattern for pattern in _BEHAVIOR if re.fullmatch(pattern, key)), None)
        if pattern is None:
            unknown_keys.append(key)
            continue
        class_values = [value for name, value in values.items() if name in read_keys and re.fullmatch(pattern, name)]
        if not _is_standard_value(
            values[key], [*_BEHAVIOR[pattern], causal if key == "is_causal" else False, *class_values]
        ):
            message = f"{quoted(values[key])} would be ignored: the library's “{model_type}” does not read the key"
            findings.refuse("ignored_key", message, key)
    if unknown_keys:
        findings.remark("keys_not_read", summarize_names(unknown_keys))


def _is_standard_value(value: Any, usual_values: list[Any]) -> bool:
    """Return whether the value of an unread key matches the behavior of the class.

    Empty and neutral values match, and so do `usual_values`: the behavior of every class, and the values of keys
    that are read.
    """
    if isinstance(value, list | dict):
        return all(
            _is_standard_value(item, usual_values) for item in (value.values() if isinstance(value, dict) else value)
        )
    if isinstance(value, bool):
        return any(value is usual_value for usual_value in usual_values)
    return value is None or value in (0, 1) or value in usual_values


PATH = Path(__file__).with_name("model_types.json")
#: Class of transformers for each use of a model type.
USES: Mapping[str, str] = {
    "encoder": "AutoModel",
    "masked": "AutoModelForMaskedLM",
    "sequence": "AutoModelForSequenceClassification",
    "causal": "AutoModelForCausalLM",
    "token": "AutoModelForTokenClassification",
    "writer": "AutoModelForSeq2SeqLM",
}
#: Uses that each kind of checkpoint may have; static embeddings have none. A sparse encoder predicts terms or
#: is SPARTA; a cross-encoder has a label, or generates yes and no.
USES_BY_KIND: Mapping[CheckpointKind, Sequence[str]] = {
    CheckpointKind.SENTENCE_ENCODER: ("encoder",),
    CheckpointKind.MULTI_VECTOR: ("encoder",),
    CheckpointKind.QUERY_AUGMENTATION: ("encoder",),
    CheckpointKind.SPARSE_ENCODER: ("masked", "encoder"),
    CheckpointKind.CROSS_ENCODER: ("sequence", "causal", "writer"),
    CheckpointKind.TERM_WEIGHTING: ("token",),
    CheckpointKind.SEQ2SEQ: ("writer",),
}


@dataclass(frozen=True, slots=True)
class LibraryModels:
    """The library's version, its model types by use, and the keys that each type reads.

    A `causal` type attends only to preceding tokens by default.
    """

    version: str
    types: Mapping[str, Sequence[str]]
    causal: frozenset[str]
    keys: Mapping[str, str]

    def keys_read(self, model_type: str) -> frozenset[str]:
        """Return the keys of config.json that the classes of a type read, empty for an unknown type."""
        own_keys = self.keys.get(model_type)
        return frozenset() if own_keys is None else frozenset(f"{own_keys} {self.keys['']}".split())

    def get_types(self, kind: CheckpointKind) -> Sequence[str]:
        """Return the model types that a checkpoint of this kind may have."""
        return sorted({model_type for use in USES_BY_KIND.get(kind, ()) for model_type in self.types[use]})


@cache
def library_models() -> LibraryModels:
    """Return the content of `model_types.json`."""
    content = json.loads(PATH.read_text(encoding="utf-8"))
    return LibraryModels(content["transformers"], content["types"], frozenset(content["causal"]), content["keys"])
