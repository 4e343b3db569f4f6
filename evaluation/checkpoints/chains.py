"""Transformer models, and chains of modules in an order that forms a known kind of model."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from evaluation.checkpoints import configuration, tokenizer, weights
from evaluation.checkpoints import modules as m
from evaluation.checkpoints.configuration import Configuration, read_configuration
from evaluation.checkpoints.description import CheckpointDescription, CheckpointKind, ModelPart, Plan
from evaluation.checkpoints.files import ModelFiles
from evaluation.checkpoints.findings import MAX_LABELS, FileFindings, Refused, attempt
from evaluation.checkpoints.modules import Module, ModuleEntry, check_dimensions, read_module
from evaluation.checkpoints.settings import (
    LATE_LENGTHS,
    TASKS,
    TRANSFORMER_NAME,
    EncoderDefaults,
    Head,
    read_transformer_settings,
    recognize_template,
)
from evaluation.checkpoints.settings import NAME as SETTINGS
from evaluation.checkpoints.tokenizer import Tokenizer, read_tokenizer

#: Maximum length in tokens for a model that does not limit it.
_RELATIVE_LENGTH = 512


@dataclass(frozen=True, slots=True)
class Transformer:
    """A model of transformers; `settings` is the content of sentence_bert_config.json."""

    configuration: Configuration
    head: Head
    tensors: weights.Tensors
    tokenizer: Tokenizer
    settings: dict[str, Any]

    @property
    def hidden_size(self) -> int | None:
        """Dimension of a token's output, if config.json states it."""
        return self.configuration.hidden_size

    @property
    def maximum_length(self) -> int:
        """Number of tokens that the model reads, limited by its settings and its positions."""
        own_length = self.settings.get("max_seq_length") or self.tokenizer.maximum_length
        positions = self.configuration.positions
        if positions is None:
            return own_length or _RELATIVE_LENGTH
        return max(1, min(own_length or positions, positions))

    @property
    def late_settings(self) -> dict[str, Any]:
        """Settings that treat queries and documents differently."""
        return {key: self.settings[key] for key in LATE_LENGTHS if key in self.settings}

    def base_part(self) -> ModelPart:
        """Return the files that transformers loads."""
        labels = self.configuration.labels if self.head in ("sequence", "token") else 0
        tokenizer_settings = self.tokenizer.written_settings(self.maximum_length, self.configuration.token_types)
        json = {
            configuration.NAME: self.configuration.to_json(labels),
            tokenizer.NAME: self.tokenizer.content,
            tokenizer.SETTINGS_NAME: tokenizer_settings,
        }
        return ModelPart(json, {weights.NAME: self.tensors})

    def module_part(self) -> ModelPart:
        """Return the files that sentence-transformers loads as the module Transformer."""
        own_settings = {"transformer_task": TASKS[self.head][0], "max_seq_length": self.maximum_length}
        case_settings = {"do_lower_case": True} if self.settings.get("do_lower_case") else {}
        return self.base_part() | ModelPart({TRANSFORMER_NAME: {**own_settings, **case_settings, **self.late_settings}})


def read_transformer(source: ModelFiles, head: Head, excluded_tensors: Collection[str] = ()) -> Transformer:
    """Read the configuration, tokenizer, settings, and weights of a folder's model, which is used with this head.

    The tensors named in `excluded_tensors` are omitted. An unsupported number of labels and a missing padding token are
    added to the findings. Raises Refused if the configuration, the tokenizer, or the weights cannot be read.
    """
    settings = read_transformer_settings(source, head)
    tensors = attempt(lambda: weights.read_weights(source))
    config = attempt(lambda: read_configuration(source, tensors))
    if config is not None and head in ("sequence", "token"):
        max_labels = MAX_LABELS if head == "sequence" else 1
        if not 1 <= config.labels <= max_labels:
            message = f"the model has {config.labels} labels; at most {max_labels} are possible"
            source.at(configuration.NAME).refuse("labels", message, "id2label")
    words = read_tokenizer(source, config.vocabulary if config else None)
    if config is None or tensors is None:
        raise Refused
    if words.settings.get("pad_token") is None:
        message = "it has no pad_token, which pads texts to equal length"
        source.at(tokenizer.SETTINGS_NAME).refuse("tokenizer_value", message, "pad_token")
    used_tensors = {name: tensor for name, tensor in tensors.items() if name not in excluded_tensors}
    return Transformer(config, head, used_tensors, words, settings)


#: Kinds of encoders with one vector for each text.
ENCODERS = (CheckpointKind.SENTENCE_ENCODER, CheckpointKind.STATIC_EMBEDDINGS)
#: Kinds with separate maximum lengths for queries and documents, and with query expansion.
_TWO_LENGTH_KINDS = (CheckpointKind.MULTI_VECTOR, CheckpointKind.SPARSE_ENCODER)
_INTERMEDIATE = frozenset({m.DENSE, m.NORMALIZE, "LayerNorm", "Dropout"})
_TOKEN_MODULES = frozenset({"WeightedLayerPooling", "CNN"})
#: Module orders of each kind: the first module, required modules, and modules allowed in any number and
#: order.
_ORDERS: Mapping[CheckpointKind, tuple[tuple[str, frozenset[str], frozenset[str]], ...]] = {
    CheckpointKind.SENTENCE_ENCODER: ((m.TRANSFORMER, frozenset({m.POOLING}), _INTERMEDIATE | _TOKEN_MODULES),),
    CheckpointKind.STATIC_EMBEDDINGS: ((m.STATIC, frozenset(), _INTERMEDIATE),),
    CheckpointKind.SPARSE_ENCODER: (
        (m.TRANSFORMER, frozenset({m.SPLADE}), frozenset()),
        (m.TRANSFORMER, frozenset({m.POOLING, m.AUTO_ENCODER}), _INTERMEDIATE),
        (m.SPARSE_STATIC, frozenset(), frozenset()),
    ),
    CheckpointKind.MULTI_VECTOR: (
        (m.TRANSFORMER, frozenset({m.DENSE}), _INTERMEDIATE | {m.MASK, "HierarchicalTokenPooling"}),
    ),
    CheckpointKind.CROSS_ENCODER: (
        (m.TRANSFORMER, frozenset(), frozenset({m.LOGIT_SCORE})),
        (m.TRANSFORMER, frozenset({m.POOLING, m.DENSE}), _INTERMEDIATE),
    ),
}


@dataclass(frozen=True, slots=True)
class Chain:
    """Modules of a checkpoint in order; the first may be a Hugging Face Transformers model."""

    modules: tuple[Module, ...]
    transformer: Transformer | None = None

    @classmethod
    def from_transformer(cls, model: Transformer, *modules: Module) -> Chain:
        """Return the chain of a transformer and the modules after it."""
        return cls((Module(m.TRANSFORMER, model.module_part(), output_width=model.hidden_size), *modules), model)

    @property
    def roles(self) -> tuple[str, ...]:
        return tuple(module.role for module in self.modules)

    @property
    def dimension(self) -> int | None:
        """Dimension of the output; for a masked language model, the size of its vocabulary."""
        if m.SPLADE in self.roles and self.transformer is not None:
            return self.transformer.configuration.vocabulary
        return next((module.output_width for module in reversed(self.modules) if module.output_width), None)

    def part(self) -> ModelPart:
        """Return the files of all modules, with the first module's at the top level, and modules.json."""
        part, module_list = ModelPart(), []
        for number, module in enumerate(self.modules):
            path = "" if number == 0 else f"{number}_{module.role}"
            part |= module.part.in_folder(path)
            module_list.append({"idx": number, "name": str(number), "path": path, "type": m.CLASSES[module.role]})
        return part | ModelPart({m.MODULES: module_list})

    def plan(self, kind: CheckpointKind, settings: EncoderDefaults) -> Plan:
        """Return the plan of a checkpoint of this kind with this chain: its description, files, and settings."""
        model = self.transformer
        description = CheckpointDescription(
            kind,
            ("model",),
            model.configuration.model_type if model else "static",
            dimension=self.dimension,
            maximum_length=model.maximum_length if model else None,
            prompts=dict(settings.prompts),
        )
        if kind is CheckpointKind.MULTI_VECTOR:
            return self._plan_late_interaction(description, settings)
        names = {CheckpointKind.SPARSE_ENCODER: "SparseEncoder", CheckpointKind.CROSS_ENCODER: "CrossEncoder"}
        if kind is CheckpointKind.CROSS_ENCODER:
            template = model.tokenizer.chat_template if model else ""
            settings = replace(settings, template=settings.template or recognize_template(template))
            description = replace(description, dimension=None)
        elif self.dimension is not None and kind in ENCODERS:
            max_dimension = settings.cuts.get("truncate_dim", self.dimension)
            description = replace(description, dimension=min(self.dimension, max_dimension))
        pooling = next((module.pooling for module in self.modules if module.pooling), "")
        description = replace(description, pooling=pooling, similarity=settings.similarity, template=settings.template)
        settings_content = settings.to_json(names.get(kind, "SentenceTransformer"))
        return Plan(description, {"model": self.part() | ModelPart({SETTINGS: settings_content})})

    def _plan_late_interaction(self, description: CheckpointDescription, settings: EncoderDefaults) -> Plan:
        """Return the plan in the format of sentence-transformers, or in PyLate's if there is no module for masks.

        A projection without names for its input applies to tokens; the library reads it this way only in these models.
        """
        names = dict.fromkeys(("module_input_name", "module_output_name"), "token_embeddings")
        modules = tuple(
            module.with_values(**names) if module.role in (m.DENSE, m.NORMALIZE) else module for module in self.modules
        )
        model_type = "MultiVectorEncoder" if m.MASK in self.roles else "ColBERT"
        if model_type == "ColBERT":
            modules = tuple(module for module in modules if module.role != m.NORMALIZE)
        part = Chain(modules).part()
        part |= ModelPart({SETTINGS: settings.to_json(model_type, **settings.late)})
        own_settings = self.transformer.settings if self.transformer else {}
        length = own_settings.get("document_length", settings.late.get("document_length"))
        maximum = description.maximum_length if length is None else length
        return Plan(replace(description, maximum_length=maximum), {"model": part})


def recognize_kind(roles: Sequence[str], model_type: str, classes: Sequence[str]) -> CheckpointKind | None:
    """Return the kind of a model by traits that only one kind has, or None if it has no such trait.

    `roles` are the roles of its modules, `model_type` is the library class that its settings name, and `classes` are
    the model classes in config.json.
    """
    if {m.SPLADE, m.SPARSE_STATIC, m.AUTO_ENCODER}.intersection(roles):
        return CheckpointKind.SPARSE_ENCODER
    if m.MASK in roles or model_type in ("ColBERT", "MultiVectorEncoder"):
        return CheckpointKind.MULTI_VECTOR
    if m.STATIC in roles:
        return CheckpointKind.STATIC_EMBEDDINGS
    scores = tuple(roles) == (m.TRANSFORMER,) and any(name.endswith("ForSequenceClassification") for name in classes)
    if model_type == "CrossEncoder" or m.LOGIT_SCORE in roles or scores:
        return CheckpointKind.CROSS_ENCODER
    return CheckpointKind.SENTENCE_ENCODER if m.TRANSFORMER in roles and m.POOLING in roles else None


def read_chain(module_list: Sequence[ModuleEntry], kind: CheckpointKind, findings: FileFindings) -> Chain:
    """Read the modules of a model of this kind, and return them in order.

    Problems of the list of modules are added to `findings`, such as different dimensions of adjacent modules. Raises
    Refused if the modules are not in an order of this kind, or one of them cannot be read.
    """
    roles = [entry.role for entry in module_list]
    if kind is CheckpointKind.MULTI_VECTOR and m.DENSE not in roles:
        findings.stop("missing_projection", f"it lists {', '.join(roles)}, but no Dense")
    other_roles = set(roles[1:])
    orders = [(required, optional) for first, required, optional in _ORDERS[kind] if first == roles[0]]
    if not any(required <= other_roles <= required | optional for required, optional in orders):
        findings.stop("module_order", f"{', '.join(roles)} do not form a {kind}")
    transformer = None
    first = module_list[0]
    if first.role == m.TRANSFORMER:
        head: Head = "masked" if m.SPLADE in roles else "base"
        if kind is CheckpointKind.CROSS_ENCODER and m.POOLING not in roles and head == "base":
            head = "causal" if m.LOGIT_SCORE in roles else "sequence"
        transformer = attempt(lambda: read_transformer(first.source, head))
    other_modules = [entry for entry in module_list if entry.role != m.TRANSFORMER]
    modules = [module for entry in other_modules if (module := attempt(partial(read_module, entry)))]
    if len(modules) < len(other_modules) or (transformer is None and len(other_modules) < len(module_list)):
        raise Refused
    if transformer is not None:
        for key in () if kind in _TWO_LENGTH_KINDS else transformer.late_settings:
            message = "models of this kind must treat queries and documents alike"
            first.source.at(TRANSFORMER_NAME).refuse("value", message, key)
        modules = [*Chain.from_transformer(transformer, *modules).modules]
    check_dimensions(modules, findings)
    width = modules[0].output_width
    for index, module in enumerate(modules):
        if module.role == m.POOLING and not module.input_width and width:
            modules[index] = m.pooling_with_width(module, width)
    return Chain(tuple(modules), transformer)


def combine_routes(routes: Mapping[str, Chain]) -> ModelPart:
    """Return the files of a Router model from the chain of each route, query and document."""
    types: dict[str, str] = {}
    structure: dict[str, list[str]] = {}
    part = ModelPart()
    for route, chain in routes.items():
        structure[route] = []
        for number, module in enumerate(chain.modules):
            folder = f"{route}_{number}_{module.role}"
            types[folder] = m.CLASSES[module.role]
            structure[route].append(folder)
            part |= module.part.in_folder(folder)
    parameters: dict[str, Any] = {"default_route": "document", "allow_empty_key": True, "route_mappings": {}}
    module_list = [{"idx": 0, "name": "0", "path": "", "type": m.CLASSES[m.ROUTER]}]
    router_config = {"types": types, "structure": structure, "parameters": parameters}
    return part | ModelPart({m.MODULES: module_list, m.ROUTER_CONFIG: router_config})
