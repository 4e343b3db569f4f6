"""Modules one after the other, in an order that makes a known kind of model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from evaluation.checkpoints import modules as m
from evaluation.checkpoints.description import CheckpointKind
from evaluation.checkpoints.findings import Findings
from evaluation.checkpoints.modules import Listed, Module, check_dimensions, read_module
from evaluation.checkpoints.plan import ModelPart
from evaluation.checkpoints.transformer import Head, Transformer, read_transformer


@dataclass(frozen=True, slots=True)
class Chain:
    """Modules in their order; the first may be a model of transformers."""

    modules: tuple[Module, ...]
    transformer: Transformer | None = None

    @property
    def roles(self) -> tuple[str, ...]:
        """What the modules are."""
        return tuple(module.role for module in self.modules)

    @property
    def dimension(self) -> int | None:
        """Of the vectors that come out: a masked language model's has one for each token that it knows."""
        if m.SPLADE in self.roles and self.transformer is not None:
            return self.transformer.configuration.vocabulary
        return next((module.gives for module in reversed(self.modules) if module.gives), None)

    @property
    def pooling(self) -> str:
        """How the tokens' outputs become one vector."""
        return next((module.pooling for module in self.modules if module.pooling), "")

    @property
    def model_type(self) -> str:
        """The model type of transformers, or what stands in for one."""
        return self.transformer.configuration.model_type if self.transformer else "static"

    @property
    def maximum_length(self) -> int | None:
        """How many tokens are read."""
        return self.transformer.maximum_length if self.transformer else None

    @property
    def chat_template(self) -> str:
        """The text of the chat template that came with it."""
        return self.transformer.tokenizer.chat_template if self.transformer else ""

    def part(self) -> ModelPart:
        """All files, the first module's at the top, and modules.json."""
        part, listed = ModelPart(), []
        for number, module in enumerate(self.modules):
            path = "" if number == 0 else f"{number}_{module.role}"
            part |= module.part.under(path)
            listed.append({"idx": number, "name": str(number), "path": path, "type": m.CLASSES[module.role]})
        return part | ModelPart({m.MODULES: listed})


def kind_of(roles: Sequence[str], model_type: str, classes: Sequence[str]) -> CheckpointKind | None:
    """What modules of these roles make, by what only one kind has. `model_type` is what they call themselves."""
    if {m.SPLADE, m.SPARSE_STATIC, m.AUTO_ENCODER}.intersection(roles):
        return CheckpointKind.SPARSE_ENCODER
    if m.MASK in roles or model_type in ("ColBERT", "MultiVectorEncoder"):
        return CheckpointKind.MULTI_VECTOR
    if m.STATIC in roles:
        return CheckpointKind.STATIC_EMBEDDINGS
    scores = tuple(roles) == (m.TRANSFORMER,) and any(
        name.endswith("ForSequenceClassification") for name in classes
    )
    if model_type == "CrossEncoder" or m.LOGIT_SCORE in roles or scores:
        return CheckpointKind.CROSS_ENCODER
    return CheckpointKind.SENTENCE_ENCODER if m.TRANSFORMER in roles and m.POOLING in roles else None


#: Kinds with separate maximum lengths for queries and documents, and with query expansion.
_TWO_LENGTH_KINDS = (CheckpointKind.MULTI_VECTOR, CheckpointKind.SPARSE_ENCODER)
_BETWEEN = frozenset({m.DENSE, m.NORMALIZE, "LayerNorm", "Dropout"})
_OF_TOKENS = frozenset({"WeightedLayerPooling", "CNN"})
#: What a kind is made of: the first module, what else has to be there, and what may, in any number and order.
_ORDERS: Mapping[CheckpointKind, tuple[tuple[str, frozenset[str], frozenset[str]], ...]] = {
    CheckpointKind.SENTENCE_ENCODER: ((m.TRANSFORMER, frozenset({m.POOLING}), _BETWEEN | _OF_TOKENS),),
    CheckpointKind.STATIC_EMBEDDINGS: ((m.STATIC, frozenset(), _BETWEEN),),
    CheckpointKind.SPARSE_ENCODER: (
        (m.TRANSFORMER, frozenset({m.SPLADE}), frozenset()),
        (m.TRANSFORMER, frozenset({m.POOLING, m.AUTO_ENCODER}), _BETWEEN),
        (m.SPARSE_STATIC, frozenset(), frozenset()),
    ),
    CheckpointKind.MULTI_VECTOR: (
        (m.TRANSFORMER, frozenset({m.DENSE}), _BETWEEN | {m.MASK, "HierarchicalTokenPooling"}),
    ),
    CheckpointKind.CROSS_ENCODER: (
        (m.TRANSFORMER, frozenset(), frozenset({m.LOGIT_SCORE})),
        (m.TRANSFORMER, frozenset({m.POOLING, m.DENSE}), _BETWEEN),
    ),
}


def _head(kind: CheckpointKind, roles: Sequence[str]) -> Head:
    if m.SPLADE in roles:
        return "masked"
    if kind is CheckpointKind.CROSS_ENCODER and m.POOLING not in roles:
        return "causal" if m.LOGIT_SCORE in roles else "sequence"
    return "base"


def read_chain(
    listed: Sequence[Listed], kind: CheckpointKind, shown: str, findings: Findings
) -> Chain | None:
    """The modules of a model of this kind, or None where they are refused."""
    roles = [each.role for each in listed]
    if kind is CheckpointKind.MULTI_VECTOR and m.DENSE not in roles:
        findings.refuse("missing_projection", shown, f"it lists {', '.join(roles)}, and no Dense")
        return None
    rest = set(roles[1:])
    if not any(
        roles[0] == first and needed <= rest <= needed | others for first, needed, others in _ORDERS[kind]
    ):
        findings.refuse("module_order", shown, f"{', '.join(roles)} make no {kind}")
        return None
    transformer, read = None, []
    for each in listed:
        if each.role == m.TRANSFORMER:
            transformer = read_transformer(each.source, _head(kind, roles), findings)
            if transformer is not None:
                if kind not in _TWO_LENGTH_KINDS:
                    transformer.refuse_late_settings(each.source, findings)
                read.append(Module(each.role, transformer.module(), gives=transformer.hidden))
        elif (module := read_module(each, findings)) is not None:
            read.append(module)
    if len(read) < len(listed):
        return None
    check_dimensions(read, shown, findings)
    return Chain(tuple(_with_widths(read)), transformer)


def _with_widths(modules: Sequence[Module]) -> list[Module]:
    """Pooling modules that did not say how wide their input is, told by the model before them."""
    width = modules[0].gives
    return [
        m.pooling_with_width(module, width)
        if module.role == m.POOLING and not module.takes and width
        else module
        for module in modules
    ]


def combine_routes(routes: Mapping[str, Chain]) -> ModelPart:
    """The files of a model with a chain for queries and one for documents."""
    types: dict[str, str] = {}
    structure: dict[str, list[str]] = {}
    part = ModelPart()
    for route, chain in routes.items():
        structure[route] = []
        for number, module in enumerate(chain.modules):
            folder = f"{route}_{number}_{module.role}"
            types[folder] = m.CLASSES[module.role]
            structure[route].append(folder)
            part |= module.part.under(folder)
    parameters: dict[str, Any] = {"default_route": "document", "allow_empty_key": True, "route_mappings": {}}
    listed = [{"idx": 0, "name": "0", "path": "", "type": m.CLASSES[m.ROUTER]}]
    written = {"types": types, "structure": structure, "parameters": parameters}
    return part | ModelPart({m.MODULES: listed, m.ROUTER_CONFIG: written})
