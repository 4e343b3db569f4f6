"""MTEB's names for tasks, languages, measures, and model types.

Both the export (`leaderboard.boards.exchange.system_results`) and the import (`leaderboard.importing.reported.mteb`)
use them.
"""

import csv
import re
import unicodedata
from functools import lru_cache
from pathlib import Path

from leaderboard.models import Architecture

with (Path(__file__).parent / "mteb_tasks.csv").open(encoding="utf-8", newline="") as _file:
    _ROWS = list(csv.DictReader(_file))
#: Dataset slug → MTEB task name.
TASKS = {row["dataset"]: row["task"] for row in _ROWS}
#: ISO 639-1 code → MTEB language code (ISO 639-3 and script).
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
#: Architecture → MTEB's `MODEL_TYPES`; empty for architectures without a counterpart.
MODEL_TYPES: dict[str, list[str]] = {
    Architecture.LEXICAL: ["sparse"],  # MTEB's type for BM25
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
#: Splits other than `test` on which MTEB reports datasets.
SPLITS = {row["dataset"]: row["split"] for row in _ROWS if row["split"] != "test"}
#: Dataset slug → slug of the dataset that it is a part or another version of.
ORIGINALS = {row["dataset"]: row["derived_from"] for row in _ROWS if row["derived_from"]}
#: Parts of a name that do not change the collection: subsets, the kind of task, translations, and versions.
_VARIANT = re.compile(
    r"^nano(?=.)|(?<=.)(-hn|-?(retrieval|reranking)|-?hard[- ]?negatives|-(pl|nl))*([.]v\d+)?$", re.IGNORECASE
)
#: Current and former names of MTEB's BM25 baseline.
BASELINES = frozenset({"mteb/baseline-bm25s", "baseline/bm25s", "bm25s"})
#: MTEB's placeholder for a missing model revision.
NO_REVISION = "no_revision_available"
#: MTEB's revision of models whose makers reported the results themselves.
EXTERNAL = "external"
#: MTEB's placeholder for an unknown dataset revision. Revisions are commits on the Hugging Face hub.
NO_DATASET_REVISION = "dataset revision not available"


def _normalize_name(name: str) -> str:
    """Return the letters and digits of a name in lower case, without accents and without parts that make a variant."""
    letters = unicodedata.normalize("NFKD", _VARIANT.sub("", name)).casefold()
    return "".join(filter(str.isalnum, letters))


#: Normalized name → slug of the collection. Originals precede their variants in the table.
_SLUGS = {
    _normalize_name(name): row["dataset"]
    for row in reversed(_ROWS)
    for name in (row["dataset"], row["task"], *filter(None, row["other_names"].split(";")))
}


@lru_cache(maxsize=10_000)
def collection_key(name: str) -> str:
    """Return a key of a collection in any spelling, the same for HotPotQA, nano-hotpotqa, and HotpotQAHardNegatives.v2.

    It is the slug of the collection if MTEB has a task for it.
    """
    return _SLUGS.get(key := _normalize_name(name), key)


def measure_name(measure: str) -> str:
    """Return MTEB's name of a measure, such as `ndcg_at_10` for nDCG@10.

    Names unknown to MTEB are converted to the same style.
    """
    name, _, cutoff = measure.partition("@")
    mteb_name = _NAMES.get(name) or re.sub(r"\W+", "_", name).strip("_").lower()
    return f"{mteb_name}_at_{cutoff}" if cutoff else mteb_name


def task_name(slug: str, name: str) -> str:
    """Return MTEB's name of a dataset, or the dataset's own name as one word."""
    return TASKS.get(slug) or re.sub(r"\W+", "", name) or slug


def short_revision(revision: str) -> str:
    """Return a commit abbreviated to twelve digits, or the start of another name."""
    return revision[: 12 if re.fullmatch(r"[0-9a-f]{30,40}", revision) else 30]


def describe_result(collection: str, version: str, revision: str) -> str:
    """Return the location of a result in MTEB's repository: revision of the dataset, version of mteb, and model."""
    return (
        f"dataset {short_revision(collection) or 'unknown'}; mteb {version[:12] or 'unknown'}; "
        f"revision {short_revision(revision)}"
    )


def revision_placeholder(locator: str, configuration: str) -> str:
    """Return EXTERNAL or NO_REVISION if a result has it instead of the model's revision, or else empty text."""
    texts = locator.rpartition("; ")[2], configuration
    return next((name for name in (EXTERNAL, NO_REVISION) if f"revision {name}" in texts), "")
