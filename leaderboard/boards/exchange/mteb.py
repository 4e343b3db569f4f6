"""A system's results in the layout of MTEB's results repository.

`results/<organisation>__<model>/<revision>/<Task>.json` and, beside the tasks, `model_meta.json`.
"""

from __future__ import annotations

import io
import json
import re
import zipfile
from collections.abc import Mapping, Sequence
from typing import Any

from django.core.exceptions import ValidationError
from django.core.validators import URLValidator
from django.utils.text import slugify

from leaderboard.boards.exchange.results import ExchangedResult
from leaderboard.core import anonymity
from leaderboard.models import Architecture, System

#: As MTEB calls the datasets of BEIR; others go by their own names.
TASKS = {
    "arguana": "ArguAna",
    "climate-fever": "ClimateFEVER",
    "cqadupstack": "CQADupstackRetrieval",
    "dbpedia-entity": "DBPedia",
    "fever": "FEVER",
    "fiqa": "FiQA2018",
    "hotpotqa": "HotpotQA",
    "msmarco": "MSMARCO",
    "nfcorpus": "NFCorpus",
    "nq": "NQ",
    "quora": "QuoraRetrieval",
    "scidocs": "SCIDOCS",
    "scifact": "SciFact",
    "trec-covid": "TRECCOVID",
    "webis-touche2020": "Touche2020",
}
#: ISO 639-1 → as MTEB writes a language: ISO 639-3 and script.
LANGUAGES = {
    "ar": "ara-Arab",
    "de": "deu-Latn",
    "en": "eng-Latn",
    "es": "spa-Latn",
    "fr": "fra-Latn",
    "it": "ita-Latn",
    "ja": "jpn-Jpan",
    "ko": "kor-Hang",
    "nl": "nld-Latn",
    "pl": "pol-Latn",
    "pt": "por-Latn",
    "ru": "rus-Cyrl",
    "zh": "zho-Hans",
}
_NAMES = {"nDCG": "ndcg", "AP": "map", "RR": "mrr", "R": "recall", "P": "precision", "Success": "hit_rate"}
#: MTEB's `MODEL_TYPES` for an architecture. What it has no word for is told as no type.
MODEL_TYPES: dict[Architecture, list[str]] = {
    Architecture.LEXICAL: ["sparse"],  # as MTEB has BM25
    Architecture.LEARNED_SPARSE: ["sparse"],
    Architecture.DENSE: ["dense"],
    Architecture.LATE_INTERACTION: ["late-interaction"],
    Architecture.RE_RANKING: ["cross-encoder"],
    Architecture.DOCUMENT_EXPANSION: [],
    Architecture.QUERY_AUGMENTATION: [],
    Architecture.GENERATIVE: [],
    Architecture.FUSION: ["hybrid"],
    Architecture.OTHER: [],
}
#: MTEB's `Licenses` (2.26.24): Hugging Face's spelling.
LICENCES = frozenset({
    "afl-3.0", "apache-2.0", "bsd-3-clause", "cc-by-2.0", "cc-by-3.0", "cc-by-4.0", "cc-by-nc-3.0", "cc-by-nc-4.0",
    "cc-by-nc-nd-4.0", "cc-by-nc-sa-3.0", "cc-by-nc-sa-4.0", "cc-by-nd-2.1-jp", "cc-by-nd-4.0", "cc-by-sa-3.0",
    "cc-by-sa-4.0", "cc0-1.0", "cdla-sharing-1.0", "eupl-1.2", "gemma", "gpl-3.0", "lgpl", "lgpl-3.0", "mit",
    "mpl-2.0", "msr-la-nc", "multiple", "odc-by", "openmdw-1.1", "openrail", "openrail++",
})  # fmt: skip
#: What MTEB writes where a model has no revision.
NO_REVISION = "no_revision_available"
#: What it writes where the dataset's is not known. Its revisions are commits on the Hugging Face hub.
NO_DATASET_REVISION = "dataset revision not available"
#: Every file of the archive has this date, so that equal results are equal bytes.
_DATE = (1980, 1, 1, 0, 0, 0)


def measure_name(measure: str) -> str:
    """`ndcg_at_10` for nDCG@10, and the like."""
    name, _, cutoff = measure.partition("@")
    plain = _NAMES.get(name) or re.sub(r"\W+", "_", name).strip("_").lower()
    return f"{plain}_at_{cutoff}" if cutoff else plain


def task_name(result: ExchangedResult) -> str:
    """As MTEB calls the dataset, else its own name as one word."""
    return TASKS.get(result.dataset_slug) or re.sub(r"\W+", "", result.dataset) or result.dataset_slug


def licence(text: str) -> str | None:
    """A licence in MTEB's spelling, or its address; None for one that MTEB does not take.

    `Apache-2.0`, `Apache License 2.0` and `apache 2.0` are one; SPDX's `-only` and `-or-later` are left out.
    """
    if _is_address(text):
        return text
    words = re.sub(r"\b(the|licen[cs]e|version)\b|[-_,]", " ", text.lower()).split()
    name = "-".join(words).removesuffix("-only").removesuffix("-or-later")
    return name if name in LICENCES else None


def _is_address(text: str) -> bool:
    """Whether MTEB takes it for an address: those of files by FTP it refuses."""
    try:
        URLValidator(["http", "https"])(text)
    except ValidationError:
        return False
    return True


def languages(results: Sequence[ExchangedResult]) -> list[str]:
    """The languages of the results' datasets as MTEB writes them; those that it would not know are left out."""
    return sorted({LANGUAGES[result.language] for result in results if result.language in LANGUAGES})


def task_result(result: ExchangedResult) -> dict[str, Any]:
    """One result as MTEB's `TaskResult`. What was not measured is null."""
    scores = {measure_name(measure): value for measure, value in result.scores.items()}
    subset = {
        "hf_subset": "default",
        "languages": languages([result]),
        "main_score": result.value,
        **scores,
    }
    return {
        "dataset_revision": NO_DATASET_REVISION,
        "task_name": task_name(result),
        "mteb_version": None,
        "scores": {result.split: [subset]},
        "evaluation_time": None,
        "kg_co2_emissions": None,
        "date": result.published_at.timestamp(),
    }


def model_meta(system: System, results: Sequence[ExchangedResult], url: str) -> dict[str, Any]:
    """What the system says of itself as MTEB's `ModelMeta`; null where it does not. `url` is its page."""
    references = [address for address in (system.paper_url, system.model_url) if _is_address(address)]
    return {
        "name": "/".join(model_name(system)),
        "revision": NO_REVISION,
        "release_date": None,
        "languages": languages(results) or None,
        "n_parameters": system.parameter_count,
        "memory_usage_mb": None,
        "max_tokens": system.maximum_length,
        "embed_dim": system.dimension,
        "license": licence(system.licence),
        "open_weights": system.open_weights,
        "public_training_code": system.code_url or None,
        "public_training_data": None,
        "framework": [],
        "reference": next(iter(references), url),
        "similarity_fn_name": None,
        "use_instructions": None,
        "training_datasets": sorted(system.training_datasets) if system.training_declared else None,
        "adapted_from": system.backbone or None,
        "superseded_by": None,
        "modalities": ["text"],
        "model_type": MODEL_TYPES[Architecture(system.architecture)],
        "citation": system.bibtex or (system.source.bibtex if system.source else "") or None,
    }


def model_name(system: System) -> tuple[str, str]:
    """Organisation and model."""
    if system.anonymous_until is not None:
        return anonymity.ANONYMOUS, system.slug
    organisation = system.team.slug if system.team else system.source.key if system.source else "runboard"
    return organisation, system.slug


def archive(system: System, results: Sequence[ExchangedResult], url: str) -> bytes:
    """All of it as a zip. A configuration stands where MTEB has a model's revision."""
    folder = "results/" + "__".join(model_name(system))
    files: dict[str, Mapping[str, Any]] = {}
    for result in results:
        revision = slugify(result.configuration) or NO_REVISION
        if result.provenance == "reported":
            revision = "reported" if revision == NO_REVISION else f"{revision}-reported"
        files[f"{folder}/{revision}/model_meta.json"] = {
            **model_meta(system, results, url),
            "revision": revision,
        }
        files[f"{folder}/{revision}/{task_name(result)}.json"] = task_result(result)
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as packed:
        for name in sorted(files):
            text = json.dumps(files[name], indent=2, ensure_ascii=False)
            packed.writestr(zipfile.ZipInfo(name, _DATE), text + "\n", zipfile.ZIP_DEFLATED)
    return out.getvalue()
