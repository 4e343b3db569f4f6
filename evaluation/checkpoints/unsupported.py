"""Refusal of models that no setting can make usable, recognized by their type, classes, files, or name.

Each refusal is a single finding. It replaces all others, because correcting them would not help.
"""

import re

from evaluation.checkpoints.configuration import NAME, class_names, library_models, stated_configuration
from evaluation.checkpoints.files import ModelFiles
from evaluation.checkpoints.findings import quoted

#: Keys of config.json for vision or audio components, and file names of their processors.
_OTHER_INPUTS = frozenset({"vision_config", "vlm_config", "vision_tower", "audio_config"})
_PROCESSORS = frozenset({"preprocessor_config.json", "video_preprocessor_config.json"})
_VISUAL_TYPE = re.compile(r"(^|_)(vl|vlm|vision|omni|clip|siglip\d?)(_|$)|^col(?!bert)|^paligemma")
#: Published listwise re-rankers. The files of RankZephyr, FirstMistral, and LiT5 do not differ from those of other
#: language models (https://github.com/castorini/rank_llm).
_LISTWISE_CLASS = re.compile(r"JinaForRanking|ListConRanker|Listwise")
_LISTWISE_NAME = re.compile(
    r"(?<![a-z])(jina[-_]reranker[-_]v3|rank[-_]?(zephyr|vicuna|gpt)|first[-_]mistral|listconranker|lit5|list[-_]?t5"
    r"|lighton[-_]rerank[-_]lw)(?![a-z])"
)
#: LLM2Vec has its own selection of tokens for mean pooling (`llm2vec.py` of https://github.com/McGill-NLP/llm2vec).
_LLM2VEC, _LLM2VEC_NAME = "llm2vec_config.json", re.compile(r"llm2vec[-_].*mntp")


def refuse_unsupported(source: ModelFiles, name: str) -> None:
    """Raise Refused with a single finding for a vision or audio model, a listwise re-ranker, or LLM2Vec.

    Args:
        source: The files of the model.
        name: Submitter's name for the folder or archive.
    """
    path = NAME if source.has(NAME) else min((file for file in source.names if file.endswith(f"/{NAME}")), default=NAME)
    folder = source.subfolder(path.rpartition("/")[0])
    content, findings = stated_configuration(folder), source.at(path)
    model_type, sender_name = str(content.get("model_type", "")), name.casefold()
    has_other_inputs = not (_OTHER_INPUTS.isdisjoint(content) and _PROCESSORS.isdisjoint(folder.names))
    is_text_type = any(model_type in types for types in library_models().types.values())
    if not is_text_type and (has_other_inputs or _VISUAL_TYPE.search(model_type)):
        message = f"{quoted(model_type)} reads images or sound, but only texts are searched here"
        findings.stop_alone("visual_model", message, "model_type")
    class_text = f"{class_names(content)} {content.get('auto_map')}"
    if match := _LISTWISE_CLASS.search(class_text) or _LISTWISE_NAME.search(sender_name):
        message = f"{quoted(match[0])}, of type {quoted(model_type)}, scores several documents together"
        findings.stop_alone("listwise_model", f"{message}, but re-rankers here score each document alone")
    if source.has(_LLM2VEC) or _LLM2VEC_NAME.search(sender_name):
        message = f"LLM2Vec, of type {quoted(model_type)}, selects the tokens to average with its own code"
        findings.stop_alone("own_reading", f"{message}, so its vectors would differ here")
