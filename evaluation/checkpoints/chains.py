"""modules.json: modules one after the other, in an order that makes a known kind of model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from evaluation.checkpoints import modules as m
from evaluation.checkpoints.architectures import Head
from evaluation.checkpoints.description import CheckpointKind
from evaluation.checkpoints.files import ModelFiles
from evaluation.checkpoints.findings import Findings, quoted
from evaluation.checkpoints.json_reading import read_json, read_object
from evaluation.checkpoints.modules import Module, read_module
from evaluation.checkpoints.plan import ModelPart
from evaluation.checkpoints.transformer import Transformer, read_transformer
from evaluation.checkpoints.values import refuse_forbidden_keys, refuse_unknown

MODULES, ROUTER = "modules.json", "router_config.json"
_MOST_MODULES = 12
_ROUTES = {"query", "document"}

#: A module as listed: what it is, and its files.
Listed = tuple[str, ModelFiles]


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
        """Of the vectors that come out."""
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

    def part(self) -> ModelPart:
        """All files, the first module's at the top, and modules.json."""
        part, listed = ModelPart(), []
        for number, module in enumerate(self.modules):
            path = "" if number == 0 else f"{number}_{module.role}"
            part |= module.part.under(path)
            listed.append({"idx": number, "name": str(number), "path": path, "type": m.CLASSES[module.role]})
        return part | ModelPart({MODULES: listed})


def read_module_list(source: ModelFiles, findings: Findings) -> list[Listed] | None:
    """The modules that modules.json names, or None where it is refused."""
    found = read_json(source, MODULES, findings)
    if found is None:
        return None
    shown = source.shown(MODULES)
    if not isinstance(found, list) or not 0 < len(found) <= _MOST_MODULES:
        findings.refuse("json_damaged", shown, f"it is no list of 1 to {_MOST_MODULES} modules")
        return None
    refuse_forbidden_keys(found, findings, shown)
    listed: list[Listed] = []
    for number, entry in enumerate(found):
        if not isinstance(entry, dict):
            findings.refuse("json_damaged", shown, "a module is no object { … }", f"[{number}]")
            return None
        refuse_unknown(entry, ("idx", "name", "path", "type"), findings, shown)
        role = _role(entry.get("type"), f"[{number}].type", shown, findings)
        path = entry.get("path", "")
        folder = _folder(path)
        if folder is None:
            what = f"{quoted(path)} is no folder beside modules.json"
        elif (within := source.within(folder)) in [source for _, source in listed]:
            what = f"{quoted(path)} is named twice"  # every copy would be read and written, however large
        else:
            listed.append((role, within))
            continue
        findings.refuse("value", shown, what, f"[{number}].path")
        return None
    return None if "" in (role for role, _ in listed) else listed


def _folder(path: object) -> str | None:
    """A module's folder, empty for that of modules.json itself; None where the path may not be one."""
    if not isinstance(path, str):
        return None
    folder = "" if path == "." else path.removesuffix("/")
    return folder if not folder or m.MODULE_FOLDER.fullmatch(folder) else None


def _role(name: object, key: str, shown: str, findings: Findings) -> str:
    role = m.TYPES.get(name, "") if isinstance(name, str) else ""
    if not role:
        findings.refuse("module_type", shown, f"{quoted(name)} is not taken", key)
    return role


def read_routes(source: ModelFiles, findings: Findings) -> dict[str, list[Listed]] | None:
    """The modules for queries and for documents that a Router names, or None where it is refused."""
    name = ROUTER if source.has(ROUTER) else m.CONFIG
    found = read_object(source, name, findings) if source.has(name) else None
    if found is None:
        findings.refuse("missing_config", source.shown(ROUTER), "the Router's own file is missing or damaged")
        return None
    shown = source.shown(name)
    refuse_forbidden_keys(found, findings, shown)
    refuse_unknown(found, ("types", "structure", "parameters"), findings, shown)
    types, structure = found.get("types"), found.get("structure")
    if not isinstance(types, dict) or not isinstance(structure, dict) or set(structure) != _ROUTES:
        findings.refuse(
            "value", shown, "there are not exactly the two routes query and document", "structure"
        )
        return None
    parameters = found.get("parameters") or {}
    if not isinstance(parameters, dict) or parameters.get("route_mappings"):
        findings.refuse("value", shown, "only an empty object is taken", "parameters.route_mappings")
    routes: dict[str, list[Listed]] = {}
    for role, names in structure.items():
        if not isinstance(names, list) or not 0 < len(names) <= _MOST_MODULES:
            findings.refuse("value", shown, "it is no list of modules", f"structure.{role}")
            return None
        routes[role] = []
        for number, each in enumerate(names):
            if each in names[:number]:  # every copy would be written, however large
                findings.refuse("value", shown, f"{quoted(each)} is named twice", f"structure.{role}")
                return None
            if not isinstance(each, str) or not m.MODULE_FOLDER.fullmatch(each) or each not in types:
                findings.refuse("value", shown, f"{quoted(each)} is no folder beside it", f"structure.{role}")
                return None
            kind = _role(types[each], f"types.{each}", shown, findings)
            if not kind:
                return None
            routes[role].append((kind, source.within(each)))
    return routes


def kind_of(roles: Sequence[str], model_type: str, classes: Sequence[str]) -> CheckpointKind | None:
    """What modules of these roles make, by what only one kind has."""
    if m.SPLADE in roles or m.SPARSE_STATIC in roles:
        return CheckpointKind.SPARSE_ENCODER
    if m.MASK in roles or model_type in ("ColBERT", "MultiVectorEncoder"):
        return CheckpointKind.MULTI_VECTOR
    if m.STATIC in roles:
        return CheckpointKind.STATIC_EMBEDDINGS
    if tuple(roles) == (m.TRANSFORMER,):
        scores = model_type == "CrossEncoder" or any(
            name.endswith("ForSequenceClassification") for name in classes
        )
        return CheckpointKind.CROSS_ENCODER if scores else None
    return CheckpointKind.SENTENCE_ENCODER if m.TRANSFORMER in roles and m.POOLING in roles else None


#: What may follow on the first module, by kind: first those that have to, then those that may, in any number.
_ORDERS: Mapping[CheckpointKind, tuple[tuple[tuple[str, ...], frozenset[str]], ...]] = {
    CheckpointKind.SENTENCE_ENCODER: (((m.TRANSFORMER, m.POOLING), frozenset({m.DENSE, m.NORMALIZE})),),
    CheckpointKind.STATIC_EMBEDDINGS: (((m.STATIC,), frozenset({m.DENSE, m.NORMALIZE})),),
    CheckpointKind.SPARSE_ENCODER: (
        ((m.TRANSFORMER, m.SPLADE), frozenset()),
        ((m.SPARSE_STATIC,), frozenset()),
    ),
    CheckpointKind.MULTI_VECTOR: (((m.TRANSFORMER, m.DENSE), frozenset({m.DENSE, m.MASK, m.NORMALIZE})),),
    CheckpointKind.CROSS_ENCODER: (((m.TRANSFORMER,), frozenset()),),
}
_HEADS: Mapping[CheckpointKind, Head] = {
    CheckpointKind.SPARSE_ENCODER: "masked",
    CheckpointKind.CROSS_ENCODER: "sequence",
}


def read_chain(
    listed: Sequence[Listed], kind: CheckpointKind, shown: str, findings: Findings
) -> Chain | None:
    """The modules of a model of this kind, or None where they are refused."""
    roles = tuple(role for role, _ in listed)
    if kind is CheckpointKind.MULTI_VECTOR and m.DENSE not in roles:
        findings.refuse("missing_projection", shown, f"it lists {', '.join(roles)}, and no Dense")
        return None
    if not any(
        roles[: len(first)] == first and set(roles[len(first) :]) <= others for first, others in _ORDERS[kind]
    ):
        findings.refuse("module_order", shown, f"{', '.join(roles)} make no {kind}")
        return None
    transformer, read = None, []
    for role, source in listed:
        if role == m.TRANSFORMER:
            transformer = read_transformer(source, _HEADS.get(kind, "base"), findings)
            if transformer is not None:
                gives = transformer.hidden
                read.append(Module(role, transformer.module(), gives=gives))
        elif (module := read_module(role, source, findings)) is not None:
            read.append(module)
    if len(read) < len(listed):
        return None
    _check_dimensions(read, shown, findings)
    return Chain(tuple(_with_widths(read)), transformer)


def _check_dimensions(modules: Sequence[Module], shown: str, findings: Findings) -> None:
    before = None
    for module in modules:
        if module.takes and before and module.takes != before:
            what = (
                f"{module.role} takes {module.takes:,} dimensions, and the module before it gives {before:,}"
            )
            findings.refuse("dimension_mismatch", shown, what)
        before = module.gives or before


def _with_widths(modules: Sequence[Module]) -> list[Module]:
    """Pooling modules that did not say how wide their input is, told by the model before them."""
    width = modules[0].gives
    return [
        m.pooling_by_name(module.pooling, width)
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
    return part | ModelPart(
        {MODULES: listed, ROUTER: {"types": types, "structure": structure, "parameters": parameters}}
    )
