"""From the files of a folder to the plan of a checkpoint of one kind."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from evaluation.checkpoints import modules as m
from evaluation.checkpoints import weights
from evaluation.checkpoints.chains import Chain, combine_routes, kind_of, read_chain
from evaluation.checkpoints.configuration import NAME as CONFIG
from evaluation.checkpoints.configuration import read_classes, read_name
from evaluation.checkpoints.description import HEADS, SPARTA, CheckpointKind
from evaluation.checkpoints.files import ModelFiles
from evaluation.checkpoints.findings import Findings, listed
from evaluation.checkpoints.known import known_for_dot
from evaluation.checkpoints.late_interaction import STANFORD, late_interaction_plan, stanford_plan
from evaluation.checkpoints.modules import MODULES, Listed, Module, read_module_list, read_routes
from evaluation.checkpoints.plan import ModelPart, Plan
from evaluation.checkpoints.settings import NAME as SETTINGS
from evaluation.checkpoints.settings import POOLING as STORED_POOLING
from evaluation.checkpoints.settings import TEMPLATE as STORED_TEMPLATE
from evaluation.checkpoints.settings import EncoderDefaults, read_settings
from evaluation.checkpoints.templates import TEMPLATES, recognise
from evaluation.checkpoints.transformer import Head, Transformer, read_transformer

AUGMENTATION = "augmentation.safetensors"
#: The folder in which sentence-transformers saves the pooling of tokens.
_POOLING_FOLDER = "1_Pooling"
_FOLDERS = {
    "query": ("query", "query_encoder", "question_encoder"),
    "document": ("document", "document_encoder", "ctx_encoder", "context_encoder"),
}
_ENCODERS = (CheckpointKind.SENTENCE_ENCODER, CheckpointKind.STATIC_EMBEDDINGS)
#: What a plain model is, by the end of its class's name.
_ENDS = {
    "ForSequenceClassification": CheckpointKind.CROSS_ENCODER,
    "ForTokenClassification": CheckpointKind.TERM_WEIGHTING,
    "ForConditionalGeneration": CheckpointKind.SEQ2SEQ,
    "WithLMHeadModel": CheckpointKind.SEQ2SEQ,
}
_POOLINGS = {
    "sparse-encoder": ("max", "sum", SPARTA),
    "sentence-encoder": ("mean", "cls", "max", "lasttoken"),
}


@dataclass(frozen=True, slots=True)
class Requirements:
    """What the checkpoint is for: kinds that would do (empty: any), and how to pool where its files do not say."""

    kinds: frozenset[CheckpointKind] = frozenset()
    pooling: str = ""
    #: What its sender calls it.
    name: str = ""

    def allows(self, kind: CheckpointKind) -> bool:
        """Whether a checkpoint of this kind would do."""
        return not self.kinds or kind in self.kinds


def make_plan(source: ModelFiles, wanted: Requirements, findings: Findings) -> Plan | None:
    """The plan for the files of a folder, or None where they are refused."""
    if source.has(MODULES):
        plan = _from_modules(source, wanted, findings)
    elif source.has(AUGMENTATION):
        plan = _augmentation(source, wanted, findings)
    elif source.has(CONFIG):
        plan = _from_transformers(source, wanted, findings)
    elif (pair := _two_folders(source)) is not None:
        plan = _two_encoders(source, pair, wanted, findings)
    else:
        findings.refuse(
            "missing_config", source.shown(CONFIG), "there is neither modules.json nor config.json"
        )
        return None
    return None if plan is None else _with_known_similarity(plan, source, wanted, findings)


def _with_known_similarity(plan: Plan, source: ModelFiles, wanted: Requirements, findings: Findings) -> Plan:
    """The plan with dot for a model that is known to be trained for it: a library writes cosine where nobody chose."""
    if plan.kind is not CheckpointKind.SENTENCE_ENCODER or plan.similarity == "dot":
        return plan
    modules = next(iter(plan.parts.values())).json.get(MODULES, [])
    roles = [m.role_of(module["type"]) for module in modules]
    names = (read_name(source), wanted.name)
    known = "" if m.NORMALIZE in roles else known_for_dot(read_classes(source), roles, names)
    if not known:
        return plan
    what = f"{known} was trained for inner products: similarity is dot unless a submission says cosine"
    findings.remark("known_for_dot", source.prefix, what)
    return replace(plan, similarity="dot")


def _right_kind(kind: CheckpointKind, wanted: Requirements, source: ModelFiles, findings: Findings) -> bool:
    also = [
        other for other, file in HEADS.items() if kind is CheckpointKind.SENTENCE_ENCODER and source.has(file)
    ]
    if wanted.allows(kind) or any(wanted.allows(other) for other in also):
        return True
    if CheckpointKind.MULTI_VECTOR in wanted.kinds and kind in _ENCODERS:
        findings.refuse(
            "missing_projection", source.prefix, f"this is a {kind}, which has no projection of tokens"
        )
    else:
        findings.refuse(
            "wrong_kind", source.prefix, f"this is a {kind}; wanted is {listed(sorted(wanted.kinds))}"
        )
    return False


def _from_modules(source: ModelFiles, wanted: Requirements, findings: Findings) -> Plan | None:
    modules = read_module_list(source, findings)
    settings = read_settings(source, findings)
    if modules is None:
        return None
    roles = [each.role for each in modules]
    if roles == [m.ROUTER]:
        return _from_router(modules[0].source, settings, wanted, findings)
    if m.ROUTER in roles:
        findings.refuse("module_order", source.shown(MODULES), "a Router has to be the only module")
        return None
    pylate = any(each.spelling.startswith("pylate.") for each in modules)
    kind = kind_of(roles, "ColBERT" if pylate else settings.model_type, read_classes(source))
    if kind is None:
        findings.refuse(
            "module_order", source.shown(MODULES), f"{', '.join(roles)} make no model of a known kind"
        )
        return None
    if not _right_kind(kind, wanted, source, findings):
        return None
    chain = read_chain(modules, kind, source.shown(MODULES), findings)
    return None if chain is None else _with_heads(_plan_of(chain, kind, settings), chain, source, findings)


def _with_heads(plan: Plan, chain: Chain, source: ModelFiles, findings: Findings) -> Plan:
    """The plan of a sentence encoder with the heads beside its weights, each of which makes another kind of it."""
    found = [kind for kind, file in HEADS.items() if source.has(file)]
    if plan.kind is not CheckpointKind.SENTENCE_ENCODER or not found:
        return plan
    width = chain.transformer.hidden if chain.transformer else None
    files = {}
    for file in (HEADS[kind] for kind in found):
        tensors = weights.read_weights(source, findings, file) or {}
        head = tensors.get("weight")
        rows = head.shape[0] if head and head.shape else 0
        if head is None or set(tensors) != {"weight", "bias"}:
            what = f"it holds {listed(sorted(tensors))}, where weight and bias are wanted"
            findings.refuse("missing_weights", source.shown(file), what)
            continue
        weights.refuse_shape("weight", head, (rows, width or 0), source.shown(file), findings)
        weights.refuse_shape("bias", tensors["bias"], (rows,), source.shown(file), findings)
        files[file] = tensors
    return replace(plan, parts={"model": plan.parts["model"] | ModelPart(weights=files)}, also=tuple(found))


def _plan_of(chain: Chain, kind: CheckpointKind, settings: EncoderDefaults) -> Plan:
    """The plan of a model that is one chain."""
    if kind is CheckpointKind.MULTI_VECTOR:
        return late_interaction_plan(chain, settings)
    names = {CheckpointKind.SPARSE_ENCODER: "SparseEncoder", CheckpointKind.CROSS_ENCODER: "CrossEncoder"}
    if kind is CheckpointKind.CROSS_ENCODER:
        settings = replace(settings, template=settings.template or recognise(chain.chat_template))
    part = chain.part() | ModelPart({SETTINGS: settings.written(names.get(kind, "SentenceTransformer"))})
    dimension = None if kind is CheckpointKind.CROSS_ENCODER else chain.dimension
    if dimension is not None and kind in _ENCODERS:
        dimension = min(dimension, settings.cuts.get("truncate_dim", dimension))
    return Plan(
        kind, {"model": part}, chain.model_type, dimension, chain.maximum_length, chain.pooling,
        settings.similarity, settings.prompts, settings.template,
    )  # fmt: skip


def _from_router(
    source: ModelFiles, settings: EncoderDefaults, wanted: Requirements, findings: Findings
) -> Plan | None:
    routes = read_routes(source, findings)
    if routes is None:
        return None
    roles = [each.role for modules in routes.values() for each in modules]
    kind = kind_of(roles, "", ())
    if kind is CheckpointKind.STATIC_EMBEDDINGS and m.TRANSFORMER in roles:
        kind = CheckpointKind.SENTENCE_ENCODER
    if kind not in (*_ENCODERS, CheckpointKind.SPARSE_ENCODER):
        findings.refuse("module_order", source.shown(MODULES), "the two routes make no model of a known kind")
        return None
    if not _right_kind(kind, wanted, source, findings):
        return None
    chains: dict[str, Chain] = {}
    for route, modules in sorted(routes.items(), reverse=True):  # queries first, as everywhere
        own = _ENCODERS[modules[0].role == m.STATIC] if kind in _ENCODERS else kind
        chain = read_chain(modules, own, source.shown(route), findings)
        if chain is None:
            return None
        chains[route] = chain
    plans = {route: _plan_of(chain, kind, settings) for route, chain in chains.items()}
    plan = _joined(plans, kind, settings.prompts, source, findings)
    if plan is None or kind is not CheckpointKind.SPARSE_ENCODER:
        return plan
    part = combine_routes(chains) | ModelPart({SETTINGS: settings.written("SparseEncoder")})
    return replace(plan, parts={"model": part})


def _joined(
    plans: Mapping[str, Plan],
    kind: CheckpointKind,
    prompts: Mapping[str, str],
    source: ModelFiles,
    findings: Findings,
) -> Plan | None:
    """The plan of a model with an encoder for queries and one for documents, each of which loads by itself."""
    query, document = plans["query"], plans["document"]
    if query.dimension != document.dimension:
        what = f"queries have {query.dimension} dimensions, and documents {document.dimension}"
        findings.refuse("dimension_mismatch", source.prefix, what)
        return None
    types = "+".join(dict.fromkeys((document.model_type, query.model_type)))
    parts = {role: plan.parts["model"] for role, plan in plans.items()}
    return replace(document, kind=kind, parts=parts, model_type=types, prompts=prompts)


def _two_folders(source: ModelFiles) -> dict[str, ModelFiles] | None:
    found = {
        role: source.within(name)
        for role, names in _FOLDERS.items()
        for name in names
        if source.within(name).has(CONFIG) or source.within(name).has(MODULES)
    }
    return found if len(found) == 2 else None


def _two_encoders(
    source: ModelFiles, pair: Mapping[str, ModelFiles], wanted: Requirements, findings: Findings
) -> Plan | None:
    """A folder for queries and one for documents, each a whole encoder."""
    within = Requirements(frozenset({*_ENCODERS, CheckpointKind.SPARSE_ENCODER}), wanted.pooling, wanted.name)
    made = {role: make_plan(folder, within, findings) for role, folder in pair.items()}
    plans = {role: plan for role, plan in made.items() if plan is not None}
    if len(plans) < 2 or not _right_kind(plans["document"].kind, wanted, pair["document"], findings):
        return None
    query, document = plans["query"], plans["document"]
    if set(query.parts) != {"model"} or set(document.parts) != {"model"}:
        findings.refuse("module_order", "", "an encoder for queries cannot have two parts itself")
        return None
    kind = query.kind if query.kind is document.kind else CheckpointKind.SENTENCE_ENCODER
    if CheckpointKind.SPARSE_ENCODER in (query.kind, document.kind) and query.kind is not document.kind:
        findings.refuse("wrong_kind", "", f"queries have a {query.kind}, and documents a {document.kind}")
        return None
    prompts = {role: plan.prompts[role] for role, plan in plans.items() if role in plan.prompts}
    return _joined(plans, kind, prompts, source, findings)


def _from_transformers(source: ModelFiles, wanted: Requirements, findings: Findings) -> Plan | None:
    """A folder as transformers saves it: what it is, its classes say, or who sends it."""
    classes = read_classes(source)
    if source.has(STANFORD) or "HF_ColBERT" in classes:
        if not _right_kind(CheckpointKind.MULTI_VECTOR, wanted, source, findings):
            return None
        return stanford_plan(source, findings)
    kind = next((kind for end, kind in _ENDS.items() for name in classes if name.endswith(end)), None)
    scores = CheckpointKind.CROSS_ENCODER in wanted.kinds or not (wanted.kinds or wanted.pooling)
    if kind is None and scores and any(name.endswith("ForCausalLM") for name in classes):
        kind = CheckpointKind.CROSS_ENCODER
    if kind is None:
        return _pooled_here(source, wanted, classes, findings)
    if not _right_kind(kind, wanted, source, findings):
        return None
    if kind is CheckpointKind.CROSS_ENCODER:
        return _scorer(source, findings)
    head: Head = "token" if kind is CheckpointKind.TERM_WEIGHTING else "writer"
    model = read_transformer(source, head, findings)
    if model is None:
        return None
    plan = _plain_plan(kind, model, model.plain())
    template = read_settings(source, findings).template or recognise(model.tokenizer.chat_template)
    if kind is not CheckpointKind.SEQ2SEQ or not template:
        return plan
    part = plan.parts["model"] | ModelPart({SETTINGS: {STORED_TEMPLATE: template}})
    return replace(plan, parts={"model": part}, template=template)


def _scorer(source: ModelFiles, findings: Findings) -> Plan | None:
    """A cross-encoder with a head for classes, or a causal language model that is asked for one of two words.

    Those are its chat template's, where that is known; else yes and no, as the library has it.
    """
    settings = read_settings(source, findings)
    if not any(name.endswith("ForCausalLM") for name in read_classes(source)):
        listed = [Listed(m.TRANSFORMER, "", source)]
        chain = read_chain(listed, CheckpointKind.CROSS_ENCODER, source.shown(CONFIG), findings)
        return None if chain is None else _plan_of(chain, CheckpointKind.CROSS_ENCODER, settings)
    model = read_transformer(source, "causal", findings)
    if model is None:
        return None
    known = TEMPLATES.get(settings.template or recognise(model.tokenizer.chat_template))
    answers = [answer for answer in ((known.positive, known.negative) if known else ("yes", "no")) if answer]
    ids = [model.tokenizer.id_of(answer) for answer in answers]
    if None in ids:
        what = f"a causal language model scores by its tokens {' and '.join(answers)}, which it does not have"
        findings.refuse("unknown_kind", source.shown(CONFIG), what)
        return None
    positive, negative = (*ids, None)[:2]
    written = {"true_token_id": positive, "false_token_id": negative, "module_input_name": "causal_logits"}
    score = Module(m.LOGIT_SCORE, ModelPart({m.CONFIG: written}))
    chain = Chain((Module(m.TRANSFORMER, model.module(), gives=model.hidden), score), model)
    return _plan_of(chain, CheckpointKind.CROSS_ENCODER, settings)


def _plain_plan(kind: CheckpointKind, model: Transformer, part: ModelPart) -> Plan:
    return Plan(kind, {"model": part}, model.configuration.model_type, None, model.maximum_length)


def _pooled_here(
    source: ModelFiles, wanted: Requirements, classes: Collection[str], findings: Findings
) -> Plan | None:
    """A plain encoder, pooled as its sender says: SPLADE for a masked language model, else a dense encoder."""
    shown = source.shown(CONFIG)
    masked = any(name.endswith(("ForMaskedLM", "ForPreTraining")) for name in classes)
    if wanted.kinds == {CheckpointKind.MULTI_VECTOR}:
        findings.refuse(
            "missing_projection", shown, "it is a plain encoder, without a projection of its tokens"
        )
        return None
    settings = read_settings(source, findings)
    pooling = wanted.pooling or settings.pooling
    sparse = masked or bool(wanted.kinds) or pooling == SPARTA
    if wanted.kinds - {CheckpointKind.SPARSE_ENCODER}:  # a dense one would do: its head and the pooling say
        predicts = masked and pooling in ("", "max", "sum")
        sparse = CheckpointKind.SPARSE_ENCODER in wanted.kinds and (predicts or pooling == SPARTA)
    kind = CheckpointKind.SPARSE_ENCODER if sparse else CheckpointKind.SENTENCE_ENCODER
    if not wanted.allows(kind):
        findings.refuse(
            "unknown_kind", shown, f"{listed(list(classes)) or 'it'} is no {listed(sorted(wanted.kinds))}"
        )
        return None
    dpr = any(name.startswith("DPR") for name in classes)
    pooling = pooling or ("cls" if dpr else "")
    if not pooling and source.within(_POOLING_FOLDER).has(CONFIG):
        message = f"the file is missing, although {_POOLING_FOLDER}/ is present, as in a model of sentence-transformers"
        findings.refuse("missing_config", source.shown(MODULES), message)
        return None
    if pooling not in _POOLINGS[kind]:
        what = f"it does not say how tokens are pooled for a {kind}: {', '.join(_POOLINGS[kind])}"
        findings.refuse("pooling_needed", shown, what)
        return None
    model = read_transformer(source, "masked" if sparse and pooling != SPARTA else "base", findings)
    if model is None:
        return None
    if pooling == SPARTA:
        dimension = model.configuration.vocabulary
        part = model.module() | ModelPart({SETTINGS: {STORED_POOLING: SPARTA}})
        plan = _plain_plan(kind, model, part)
        return replace(plan, dimension=dimension, pooling=SPARTA, similarity="dot")
    last = m.splade_by_name(pooling) if sparse else m.pooling_by_name(pooling, model.hidden or 0)
    chain = Chain((Module(m.TRANSFORMER, model.module(), gives=model.hidden), last), model)
    similarity = settings.similarity or ("dot" if sparse else "")  # as the library has it
    return _plan_of(chain, kind, replace(settings, similarity=similarity))


def _augmentation(source: ModelFiles, wanted: Requirements, findings: Findings) -> Plan | None:
    """Learned query augmentation: an encoder, and W (vocabulary × hidden) and u (hidden) beside it."""
    kind = CheckpointKind.QUERY_AUGMENTATION
    if not _right_kind(kind, wanted, source, findings):
        return None
    model = read_transformer(source, "base", findings)
    tensors = weights.read_weights(source, findings, AUGMENTATION)
    if model is None or tensors is None:
        return None
    shown, hidden = source.shown(AUGMENTATION), model.hidden or 0
    missing = [name for name in ("W", "u") if name not in tensors]
    if missing:
        findings.refuse("missing_weights", shown, f"there is no {listed(missing)}")
        return None
    weights.refuse_shape("W", tensors["W"], (model.configuration.vocabulary or 0, hidden), shown, findings)
    weights.refuse_shape("u", tensors["u"], (hidden,), shown, findings)
    taken = {name: tensors[name] for name in ("W", "u")}
    return _plain_plan(kind, model, model.plain() | ModelPart(weights={AUGMENTATION: taken}))
