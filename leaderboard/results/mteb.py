"""What MTEB calls the things that this site has: tasks, languages, measures, kinds of models.

Results leave in MTEB's layout (`leaderboard.boards.exchange.system_results`) and come in that layout
(`leaderboard.importing.reported.mteb`) under the same names.
"""

import re

from leaderboard.models import Architecture

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
MODEL_TYPES: dict[str, list[str]] = {
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
#: The split that MTEB, and BEIR before it, reports a dataset on, where that is not `test`.
SPLITS = {"msmarco": "dev"}
#: MTEB's BM25, under its present and its earlier name.
BASELINES = frozenset({"mteb/baseline-bm25s", "baseline/bm25s", "bm25s"})
#: What MTEB writes where a model has no revision.
NO_REVISION = "no_revision_available"
#: What it writes where the dataset's is not known. Its revisions are commits on the Hugging Face hub.
NO_DATASET_REVISION = "dataset revision not available"


def measure_name(measure: str) -> str:
    """`ndcg_at_10` for nDCG@10, and the like."""
    name, _, cutoff = measure.partition("@")
    plain = _NAMES.get(name) or re.sub(r"\W+", "_", name).strip("_").lower()
    return f"{plain}_at_{cutoff}" if cutoff else plain


def task_name(slug: str, name: str) -> str:
    """What MTEB calls a dataset, else its own name as one word."""
    return TASKS.get(slug) or re.sub(r"\W+", "", name) or slug
