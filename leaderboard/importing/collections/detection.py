"""Detection of facts about a collection, which a curator confirms before its import, and of values to propose."""

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from itertools import chain, islice
from pathlib import Path
from typing import Any

from evaluation.collections.beir import read_corpus, read_queries
from evaluation.core.problems import format_count
from evaluation.judgements.answers import read_answers
from evaluation.text import SNOWBALL_LANGUAGES, analyser_for
from leaderboard.core.storage.store import work_folder
from leaderboard.core.text.slugs import first_unused, name_slug
from leaderboard.datasets.problems import missing_documents
from leaderboard.importing.collections.inspection import Inspection
from leaderboard.importing.collections.source import ImportOptions, Progress, list_parts, open_source
from leaderboard.models import Dataset

#: Preferred splits for scoring, in order.
_SPLITS = ("test", "dev", "validation", "valid", "train")
#: Letters that identify a language. Japanese and Korean texts also contain Han characters, so they precede Chinese.
_LETTERS = {
    "ja": "[\u3041-\u30ff]", "ko": "[\uac00-\ud7af]", "zh": "[\u4e00-\u9fff]", "th": "[\u0e00-\u0e7f]",
    "lo": "[\u0e80-\u0eff]", "my": "[\u1000-\u109f]", "km": "[\u1780-\u17ff]", "el": "[\u0370-\u03ff]",
    "hy": "[\u0530-\u058f]", "ta": "[\u0b80-\u0bff]",
}  # fmt: skip
#: Minimum share of letters or stop words, and number of texts, for a proposed language.
_MIN_SHARE, _SAMPLED_TEXTS = 0.15, 200


def detect_facts(path: Path, options: ImportOptions, progress: Progress) -> dict[str, Any]:
    """Inspect the collection in a folder or zip without storing it, and return its facts as JSON-serializable values.

    `options.split` is proposed for scoring if the collection has judgments for it. Raises InvalidContent with all
    problems of all files.

    Returns:
        `documents` (None if their number is unknown), `has_corpus`, `queries` (number in all splits), `judgements`
        (descriptions with numbers, by split), `answers` (number of queries with correct answers), `split` (empty
        without judgments), `language` (empty if unknown), and `remarks` on the judgments of the split.
    """
    parts = list_parts(path, options.split)
    splits = {part.removeprefix("qrels-").removesuffix(".tsv") for part in parts if part.startswith("qrels-")}
    split = next((name for name in (options.split, *_SPLITS, *sorted(splits)) if name in splits), "")
    # A collection without queries cannot be imported. Its missing files are then reported as problems.
    is_usable = "queries.jsonl" in parts
    runs_only, collecting = is_usable and "corpus.jsonl" not in parts, is_usable and not splits
    options = replace(options, split=split or options.split, runs_only=runs_only, collecting=collecting)
    with work_folder("detect") as work, open_source(path, options, work, progress) as source:
        collection = Inspection(source, options, work, progress).read()
        documents = (document.text for document in read_corpus(source.corpus)) if source.corpus else ()
        queries = (query.text for query in read_queries(source.queries)) if source.queries else ()
        texts = chain(islice(documents, _SAMPLED_TEXTS), islice(queries, _SAMPLED_TEXTS))
        language = guess_language(texts) or options.card.get("language", "")
        qrels = {name: file.qrels for name, file in collection.judgements.items()}
        return {
            "documents": collection.statistics().get("documents"),
            "has_corpus": collection.corpus is not None,
            "queries": collection.queries.records,
            "judgements": {
                name: f"{format_count(each.number_of_judgements, 'judgment')} of "
                f"{format_count(len(each.query_ids), 'query', 'queries')}"
                for name, each in qrels.items()
            },
            "answers": len(read_answers(collection.answers.path, try_patterns=False)) if collection.answers else 0,
            "split": split,
            "language": language,
            "remarks": missing_documents(collection.judgements[split].statistics(1)) if split else [],
        }


def guess_language(texts: Iterable[str]) -> str:
    """Return the language code of most texts, detected by letters or stop words, or an empty string if unsure."""
    text = " ".join(texts).lower()
    letters = len(re.findall(r"[^\W\d_]", text))
    for code, pattern in _LETTERS.items():
        if letters and len(re.findall(pattern, text)) / letters > _MIN_SHARE:
            return code
    words = Counter(re.findall(r"\w+", text))
    stop_words = {code: analyser_for(code, stemming=False).stop_words for code in ("en", *SNOWBALL_LANGUAGES)}
    counts = Counter({code: sum(words[word] for word in each) for code, each in stop_words.items()})
    (best, best_count), (_, second_count) = counts.most_common(2)
    return best if best_count > max(_MIN_SHARE * words.total(), 1.2 * second_count) else ""


def propose_name(source: str) -> str:
    """Derive a dataset's name from a file name or source, such as `mteb/scifact` or `beir/scifact/test`."""
    words = [part for part in re.split(r"[/:]", source.partition("@")[0]) if part]
    is_split = len(words) > 2 and words[-1] in _SPLITS
    return re.sub(r"(\.(zip|tar|gz|tgz))+$", "", words[-2 if is_split else -1])[:100] if words else ""


def propose_slug(name: str) -> str:
    """Return a slug for the name, with a numeric suffix if a dataset with content has the same slug."""
    taken = set(Dataset.objects.exclude(current_version=None).values_list("slug", flat=True))
    return first_unused(name_slug(name.replace("_", "-"))[:70], taken)
