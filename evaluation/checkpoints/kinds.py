"""Plans for checkpoints of each kind, derived from the files in a checkpoint's folder."""

import re
import string
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

from evaluation.checkpoints import modules as m
from evaluation.checkpoints import weights
from evaluation.checkpoints.chains import (
    ENCODERS,
    Chain,
    Transformer,
    combine_routes,
    read_chain,
    read_transformer,
    recognize_kind,
)
from evaluation.checkpoints.configuration import NAME as CONFIG
from evaluation.checkpoints.configuration import class_names, stated_configuration
from evaluation.checkpoints.description import (
    HEADS,
    SPARTA,
    CheckpointDescription,
    CheckpointKind,
    ModelPart,
    Plan,
)
from evaluation.checkpoints.files import ModelFiles
from evaluation.checkpoints.findings import MAX_POSITIONS, Refused, attempt, summarize_names
from evaluation.checkpoints.modules import MODULES, Module, ModuleEntry, read_module_list, read_routes
from evaluation.checkpoints.settings import NAME as SETTINGS
from evaluation.checkpoints.settings import POOLING as STORED_POOLING
from evaluation.checkpoints.settings import TEMPLATE as STORED_TEMPLATE
from evaluation.checkpoints.settings import TEMPLATES, EncoderDefaults, read_settings, recognize_template
from evaluation.checkpoints.unsupported import refuse_unsupported
from evaluation.checkpoints.values import TRUTH, integer, read_values, text

AUGMENTATION = "augmentation.safetensors"
#: Settings of ColBERT's own code; JSON, despite the name.
STANFORD = "artifact.metadata"
_STANFORD_RULES = {
    "query_token_id": text(32), "doc_token_id": text(32), "query_maxlen": integer(1, 512),
    "doc_maxlen": integer(1, MAX_POSITIONS),
    "mask_punctuation": TRUTH, "attend_to_mask_tokens": TRUTH,
}  # fmt: skip
_PROJECTION = ("linear.weight", "linear.bias")
#: The folder in which sentence-transformers saves the pooling of tokens.
_POOLING_FOLDER = "1_Pooling"
_FOLDERS = {
    "query": ("query", "query_encoder", "question_encoder"),
    "document": ("document", "document_encoder", "ctx_encoder", "context_encoder"),
}
#: The kind of a plain model by the end of its class's name.
_ENDS = {
    "ForSequenceClassification": CheckpointKind.CROSS_ENCODER,
    "ForTokenClassification": CheckpointKind.TERM_WEIGHTING,
    "ForConditionalGeneration": CheckpointKind.SEQ2SEQ,
    "WithLMHeadModel": CheckpointKind.SEQ2SEQ,
}
_POOLINGS = {
    CheckpointKind.SPARSE_ENCODER: ("max", "sum", SPARTA),
    CheckpointKind.SENTENCE_ENCODER: ("mean", "cls", "max", "lasttoken"),
}


#: Models trained for inner products that do not state this in their files (BEIR paper, Appendix H, and their model
#: cards), by the prefix of their class's name.
_DOT_CLASSES: Mapping[str, str] = {
    "DPR": "DPR",  # https://huggingface.co/facebook/dpr-question_encoder-single-nq-base
    "Contriever": "Contriever",  # https://huggingface.co/facebook/contriever
    "RobertaDot": "ANCE",  # https://github.com/microsoft/ANCE
    "BERT_Dot": "TAS-B",  # https://huggingface.co/sebastian-hofstaetter/distilbert-dot-tas_b-b256-msmarco
}
#: Modules of https://huggingface.co/sentence-transformers/msmarco-roberta-base-ance-firstp
_ANCE = ("Transformer", "Pooling", "Dense", "LayerNorm")
_DOT_NAMES = re.compile(r"(?<![a-z])(tas[-_]?b|contriever|ance|dpr)(?![a-z])", re.ASCII | re.IGNORECASE)
_SPELLINGS = {"contriever": "Contriever", "ance": "ANCE", "dpr": "DPR"}


def find_dot_model(classes: Iterable[str], roles: Sequence[str], names: Iterable[str]) -> str:
    """Return the known inner product model with these classes, modules, or names, or an empty string."""
    for start, model in _DOT_CLASSES.items():
        if any(name.startswith(start) for name in classes):
            return model
    if tuple(roles) == _ANCE:
        return "ANCE"
    match = next(filter(None, map(_DOT_NAMES.search, names)), None)
    return _SPELLINGS.get(match[1].lower(), "TAS-B") if match else ""


@dataclass(frozen=True)
class ModelFolder:
    """A folder with a model.

    Attributes:
        source: The files of the folder.
        kinds: Accepted kinds. If empty, all kinds are accepted.
        pooling: Pooling to use if the files do not state one.
        name: Name that the sender gave the folder.
    """

    source: ModelFiles
    kinds: frozenset[CheckpointKind]
    pooling: str
    name: str

    @cached_property
    def raw_configuration(self) -> dict[str, Any]:
        """Unchecked content of config.json."""
        return stated_configuration(self.source)

    @property
    def classes(self) -> tuple[str, ...]:
        """Model classes in config.json."""
        return class_names(self.raw_configuration)

    def has_class(self, *ends: str) -> bool:
        """Return whether the name of a class has one of these endings."""
        return any(name.endswith(ends) for name in self.classes)

    def require(self, kind: CheckpointKind) -> None:
        """Raise Refused unless this kind, or a kind that its heads add, is acceptable."""
        encodes = kind is CheckpointKind.SENTENCE_ENCODER
        head_kinds = [head_kind for head_kind, file in HEADS.items() if encodes and self.source.has(file)]
        if not self.kinds or not self.kinds.isdisjoint((kind, *head_kinds)):
            return
        if CheckpointKind.MULTI_VECTOR in self.kinds and kind in ENCODERS:
            message = f"this is a {kind}, which has no projection of tokens"
            self.source.at().stop("missing_projection", message)
        message = f"this is a {kind}, not a {summarize_names(sorted(self.kinds))}"
        self.source.at().stop("wrong_kind", message)

    def plan(self) -> Plan:
        """Return the plan of a checkpoint with modules.json, query augmentation, config.json, or two encoders.

        The similarity of a sentence encoder that is known to be trained for inner products is set to dot, with a
        remark. Raises Refused if the folder has none of these files, or if its model is unusable, unsupported, or of
        another kind.
        """
        source = self.source
        refuse_unsupported(source, self.name)
        pair = {
            role: source.subfolder(name)
            for role, names in _FOLDERS.items()
            for name in names
            if source.subfolder(name).has(CONFIG) or source.subfolder(name).has(MODULES)
        }
        if source.has(MODULES):
            plan = self._plan_from_modules()
        elif source.has(AUGMENTATION):
            plan = self._plan_augmentation()
        elif source.has(CONFIG):
            plan = self._plan_from_transformers()
        elif len(pair) == 2:
            plan = self._plan_two_encoders(pair)
        else:
            source.at(CONFIG).stop("missing_config", "there is neither modules.json nor config.json")
        description = plan.description
        if description.kind is not CheckpointKind.SENTENCE_ENCODER or description.similarity == "dot":
            return plan
        # Libraries write cosine as the default similarity.
        modules = next(iter(plan.parts.values())).json.get(MODULES, [])
        roles = [m.get_role(module["type"]) for module in modules]
        path = self.raw_configuration.get("_name_or_path")
        names = (path if isinstance(path, str) else "", self.name)
        known_model = "" if m.NORMALIZE in roles else find_dot_model(self.classes, roles, names)
        if not known_model:
            return plan
        message = f"{known_model} was trained for inner products: similarity is dot unless the submission sets cosine"
        source.at().remark("known_for_dot", message)
        return plan.with_description(similarity="dot")

    def _plan_from_modules(self) -> Plan:
        """Return the plan of a folder with modules.json, with the additional heads (`HEADS`) of a sentence encoder.

        Raises Refused if the modules do not form an acceptable kind of model, or one of them cannot be read.
        """
        source, findings = self.source, self.source.at(MODULES)
        settings = read_settings(source)
        modules = read_module_list(source)
        roles = [module.role for module in modules]
        if roles == [m.ROUTER]:
            return self._plan_from_router(modules[0].source, settings)
        if m.ROUTER in roles:
            findings.stop("module_order", "a Router must be the only module")
        pylate = any(module.spelling.startswith("pylate.") for module in modules)
        kind = recognize_kind(roles, "ColBERT" if pylate else settings.model_type, self.classes)
        if kind is None:
            findings.stop("module_order", f"{', '.join(roles)} do not form a known kind of model")
        self.require(kind)
        chain = read_chain(modules, kind, findings)
        plan, heads = chain.plan(kind, settings), [each for each, name in HEADS.items() if source.has(name)]
        if kind is not CheckpointKind.SENTENCE_ENCODER or not heads:
            return plan
        width = (chain.transformer.hidden_size if chain.transformer else None) or 0
        files = {}
        for name in (HEADS[kind] for kind in heads):
            tensors, findings = attempt(partial(weights.read_weights, source, name)) or {}, source.at(name)
            head = tensors.get("weight")
            if head is None or set(tensors) != {"weight", "bias"}:
                message = f"it has {summarize_names(sorted(tensors))} instead of weight and bias"
                findings.refuse("missing_weights", message)
                continue
            rows = head.shape[0] if head.shape else 0
            weights.refuse_shape("weight", head, (rows, width), findings)
            weights.refuse_shape("bias", tensors["bias"], (rows,), findings)
            files[name] = tensors
        part = plan.parts["model"] | ModelPart(weights=files)
        return replace(plan.with_description(also=tuple(heads)), parts={"model": part})

    def _plan_from_router(self, source: ModelFiles, settings: EncoderDefaults) -> Plan:
        """Return the plan of a Router model, with one chain of modules for queries and one for documents.

        A sparse encoder is one part; the chains of other models become the parts query and document. Raises Refused if
        they do not form an acceptable kind of model, or one of the modules cannot be read.
        """
        routes = read_routes(source)
        roles = [module.role for modules in routes.values() for module in modules]
        kind = recognize_kind(roles, "", ())
        if kind is CheckpointKind.STATIC_EMBEDDINGS and m.TRANSFORMER in roles:
            kind = CheckpointKind.SENTENCE_ENCODER
        if kind not in (*ENCODERS, CheckpointKind.SPARSE_ENCODER):
            source.at(MODULES).stop("module_order", "the two routes do not form a known kind of model")
        replace(self, source=source).require(kind)
        chains: dict[str, Chain] = {}
        for route, modules in sorted(routes.items(), reverse=True):  # Queries are first, as in all other files.
            chain_kind = ENCODERS[modules[0].role == m.STATIC] if kind in ENCODERS else kind
            chains[route] = read_chain(modules, chain_kind, source.at(route))
        plans = {route: chain.plan(kind, settings) for route, chain in chains.items()}
        plan = _join_plans(plans, kind, settings.prompts, source)
        if kind is not CheckpointKind.SPARSE_ENCODER:
            return plan
        part = combine_routes(chains) | ModelPart({SETTINGS: settings.to_json("SparseEncoder")})
        return replace(plan, parts={"model": part})

    def _plan_two_encoders(self, pair: Mapping[str, ModelFiles]) -> Plan:
        """Return the plan of a folder for queries and one for documents, each a complete encoder.

        Raises Refused if one of them is refused or has two parts, if only one is sparse, or if their dimensions differ.
        """
        base = replace(self, kinds=frozenset({*ENCODERS, CheckpointKind.SPARSE_ENCODER}))
        attempts = {role: attempt(replace(base, source=source).plan) for role, source in pair.items()}
        plans = {role: plan for role, plan in attempts.items() if plan is not None}
        if len(plans) < 2:
            raise Refused
        query, document = plans["query"].description.kind, plans["document"].description.kind
        replace(self, source=pair["document"]).require(document)
        whole_folder = self.source.findings.at("")
        if any(set(plan.parts) != {"model"} for plan in plans.values()):
            whole_folder.stop("module_order", "an encoder within a pair cannot have two parts")
        if query is not document and CheckpointKind.SPARSE_ENCODER in (query, document):
            whole_folder.stop("wrong_kind", f"queries have a {query}, but documents have a {document}")
        kind = query if query is document else CheckpointKind.SENTENCE_ENCODER
        prompts_by_role = {role: plan.description.prompts for role, plan in plans.items()}
        prompts = {role: role_prompts[role] for role, role_prompts in prompts_by_role.items() if role in role_prompts}
        return _join_plans(plans, kind, prompts, self.source)

    def _plan_from_transformers(self) -> Plan:
        """Return the plan of a folder saved by transformers, with its kind from its classes or the acceptable kinds.

        Raises Refused if the kind is not acceptable or the model is unusable.
        """
        source = self.source
        if source.has(STANFORD) or "HF_ColBERT" in self.classes:
            self.require(CheckpointKind.MULTI_VECTOR)
            return _stanford_plan(source)
        kind = next((kind for end, kind in _ENDS.items() if self.has_class(end)), None)
        scores = CheckpointKind.CROSS_ENCODER in self.kinds or not (self.kinds or self.pooling)
        if kind is None and scores and self.has_class("ForCausalLM"):
            kind = CheckpointKind.CROSS_ENCODER
        if kind is None:
            return self._plan_plain_encoder()
        self.require(kind)
        if kind is CheckpointKind.CROSS_ENCODER:
            settings = read_settings(source)
            if self.has_class("ForCausalLM"):
                return _causal_plan(source, settings)
            return read_chain([ModuleEntry(m.TRANSFORMER, "", source)], kind, source.at(CONFIG)).plan(kind, settings)
        model = read_transformer(source, "token" if kind is CheckpointKind.TERM_WEIGHTING else "writer")
        template = read_settings(source).template or recognize_template(model.tokenizer.chat_template)
        if kind is not CheckpointKind.SEQ2SEQ or not template:
            return _plain_plan(kind, model, model.base_part())
        part = model.base_part() | ModelPart({SETTINGS: {STORED_TEMPLATE: template}})
        return _plain_plan(kind, model, part).with_description(template=template)

    def _plan_plain_encoder(self) -> Plan:
        """Return the plan of a model without modules and task head: a sparse encoder or a dense one.

        A masked language model is sparse (SPLADE) if sparse encoders are acceptable, unless dense ones are requested
        too and its pooling is one of theirs, such as mean. A model with the pooling SPARTA is sparse. Raises Refused if
        the kind is not acceptable or the pooling is unknown.
        """
        source, findings = self.source, self.source.at(CONFIG)
        if self.kinds == {CheckpointKind.MULTI_VECTOR}:
            findings.stop("missing_projection", "it is a plain encoder, without a projection of its tokens")
        settings = read_settings(source)
        pooling = self.pooling or settings.pooling
        masked = self.has_class("ForMaskedLM", "ForPreTraining")
        sparse = masked or bool(self.kinds) or pooling == SPARTA
        # If a dense encoder is acceptable, the head and the pooling decide.
        if self.kinds - {CheckpointKind.SPARSE_ENCODER}:
            predicts = masked and pooling in ("", "max", "sum")
            sparse = CheckpointKind.SPARSE_ENCODER in self.kinds and (predicts or pooling == SPARTA)
        kind = CheckpointKind.SPARSE_ENCODER if sparse else CheckpointKind.SENTENCE_ENCODER
        if self.kinds and kind not in self.kinds:
            findings.stop(
                "unknown_kind",
                f"{summarize_names(self.classes) or 'it'} is not a {summarize_names(sorted(self.kinds))}",
            )
        if any(name.startswith("DPR") for name in self.classes):
            pooling = pooling or "cls"
        if not pooling and source.subfolder(_POOLING_FOLDER).has(CONFIG):
            reason = f"although {_POOLING_FOLDER}/ is present, as in a model of sentence-transformers"
            message = f"the file is missing, {reason}"
            source.at(MODULES).stop("missing_config", message)
        if pooling not in _POOLINGS[kind]:
            message = f"it does not state how tokens are pooled for a {kind}: {', '.join(_POOLINGS[kind])}"
            findings.stop("pooling_needed", message)
        model = read_transformer(source, "masked" if sparse and pooling != SPARTA else "base")
        if pooling == SPARTA:
            part = model.module_part() | ModelPart({SETTINGS: {STORED_POOLING: SPARTA}})
            plan, dimension = _plain_plan(kind, model, part), model.configuration.vocabulary
            return plan.with_description(dimension=dimension, pooling=SPARTA, similarity="dot")
        pooling_module = m.splade_by_name(pooling) if sparse else m.pooling_by_name(pooling, model.hidden_size or 0)
        similarity = settings.similarity or ("dot" if sparse else "")  # The library's default.
        return Chain.from_transformer(model, pooling_module).plan(kind, replace(settings, similarity=similarity))

    def _plan_augmentation(self) -> Plan:
        """Return the plan of learned query augmentation: an encoder, with W and u next to it. Raises Refused."""
        kind, source, findings = CheckpointKind.QUERY_AUGMENTATION, self.source, self.source.at(AUGMENTATION)
        self.require(kind)
        model = attempt(lambda: read_transformer(source, "base"))
        tensors = weights.read_weights(source, AUGMENTATION)
        if model is None:
            raise Refused
        hidden_size, vocabulary = model.hidden_size or 0, model.configuration.vocabulary or 0
        shapes = {"W": (vocabulary, hidden_size), "u": (hidden_size,)}
        if missing_names := [name for name in shapes if name not in tensors]:
            findings.stop("missing_weights", f"there is no {summarize_names(missing_names)}")
        for name, shape in shapes.items():
            weights.refuse_shape(name, tensors[name], shape, findings)
        used_tensors = {name: tensors[name] for name in shapes}
        return _plain_plan(kind, model, model.base_part() | ModelPart(weights={AUGMENTATION: used_tensors}))


def _join_plans(
    plans: Mapping[str, Plan], kind: CheckpointKind, prompts: Mapping[str, str], source: ModelFiles
) -> Plan:
    """Return the plan of a model with separately loadable encoders for queries and documents.

    Raises Refused if their dimensions differ.
    """
    query, document = plans["query"].description, plans["document"].description
    if query.dimension != document.dimension:
        message = f"queries have {query.dimension} dimensions, but documents have {document.dimension}"
        source.at().stop("dimension_mismatch", message)
    types = "+".join(dict.fromkeys((document.model_type, query.model_type)))
    description = replace(document, kind=kind, model_type=types, prompts=dict(prompts))
    return Plan(description, {role: plan.parts["model"] for role, plan in plans.items()})


def _plain_plan(kind: CheckpointKind, model: Transformer, part: ModelPart) -> Plan:
    model_type, length = model.configuration.model_type, model.maximum_length
    return Plan(CheckpointDescription(kind, ("model",), model_type, maximum_length=length), {"model": part})


def _causal_plan(source: ModelFiles, settings: EncoderDefaults) -> Plan:
    """Return the plan of a causal language model that scores a pair by the logits of one or two answer tokens.

    The answers are those of its prompt template if this is known. Otherwise they are yes and no, as in the library.
    Raises Refused if the tokenizer lacks one of them.
    """
    model = read_transformer(source, "causal")
    template = TEMPLATES.get(settings.template or recognize_template(model.tokenizer.chat_template))
    answers = [answer for answer in ((template.positive, template.negative) if template else ("yes", "no")) if answer]
    ids = [model.tokenizer.find_id(answer) for answer in answers]
    if None in ids:
        message = f"a causal language model scores by its tokens {' and '.join(answers)}, but its tokenizer lacks them"
        source.at(CONFIG).stop("unknown_kind", message)
    positive, negative = (*ids, None)[:2]
    score_config = {
        "true_token_id": positive,
        "false_token_id": negative,
        "module_input_name": "causal_logits",
    }
    chain = Chain.from_transformer(model, Module(m.LOGIT_SCORE, ModelPart({m.CONFIG: score_config})))
    return chain.plan(CheckpointKind.CROSS_ENCODER, settings)


def _stanford_plan(source: ModelFiles) -> Plan:
    """Return the plan of ColBERT in its authors' format, with the projection among the encoder's weights.

    Raises Refused if the model is unusable or has no projection of the encoder's dimension.
    """
    values = read_values(source.read_settings(STANFORD), _STANFORD_RULES, source.at(STANFORD))
    late_settings = {
        "query_prefix": values.get("query_token_id", "[unused0]") + " ",
        "document_prefix": values.get("doc_token_id", "[unused1]") + " ",
        "query_expansion": {
            "strategy": "fixed",
            "attend": values.get("attend_to_mask_tokens", False),
            "length": values.get("query_maxlen", 32),
        },
        "skiplist_words": list(string.punctuation) if values.get("mask_punctuation", True) else [],
        **({"document_length": values["doc_maxlen"]} if "doc_maxlen" in values else {}),
    }
    model = read_transformer(source, "base", excluded_tensors=_PROJECTION)
    tensors = weights.read_weights(source.silent())
    projection = {name: tensors[name] for name in _PROJECTION if name in tensors}
    shape = projection["linear.weight"].shape if "linear.weight" in projection else ()
    if len(shape) != 2 or (model.hidden_size and shape[1] != model.hidden_size):
        message = f"there is no linear.weight with {model.hidden_size} columns"
        source.at(weights.NAME).stop("missing_projection", message)
    chain = Chain.from_transformer(model, m.token_projection(projection))
    return chain.plan(CheckpointKind.MULTI_VECTOR, EncoderDefaults("ColBERT", late=late_settings))
