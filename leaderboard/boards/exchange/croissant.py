"""Datasets as Croissant 1.1: JSON-LD that lists public downloads and describes their records.

Only files that the dataset's settings offer to everyone are listed, never hidden judgments or restricted texts.
"""

import re
from collections.abc import Callable, Sequence
from typing import Any

from leaderboard.models import Dataset, DatasetFile

CONFORMS_TO = "http://mlcommons.org/croissant/1.1"
_TYPED_TERMS = {"data": "@json", "dataType": "@vocab", "examples": "@json"}
_PLAIN_TERMS = (
    "citeAs", "column", "equivalentProperty", "extract", "field", "fileProperty", "fileObject", "fileSet", "format",
    "includes", "isLiveDataset", "jsonPath", "key", "md5", "parentField", "path", "recordSet", "references", "regex",
    "repeated", "replace", "samplingRate", "separator", "source", "subField", "transform",
)  # fmt: skip
#: Context required by the specification.
CONTEXT: dict[str, Any] = {
    "@language": "en",
    "@vocab": "https://schema.org/",
    "sc": "https://schema.org/",
    "cr": "http://mlcommons.org/croissant/",
    "rai": "http://mlcommons.org/croissant/RAI/",
    "dct": "http://purl.org/dc/terms/",
    "conformsTo": "dct:conformsTo",
    **{name: f"cr:{name}" for name in _PLAIN_TERMS},
    **{name: {"@id": f"cr:{name}", "@type": kind} for name, kind in _TYPED_TERMS.items()},
}
Kind = DatasetFile.Kind
#: Fields of a file's records as name, description, and type; each has a column of the same name in the file.
_TEXTS = (
    ("_id", "the id", "sc:Text"),
    ("title", "the title, perhaps empty", "sc:Text"),
    ("text", "the text", "sc:Text"),
)
_PAIR = (
    ("query-id", "the query’s id", "sc:Text"),
    ("corpus-id", "the document’s id", "sc:Text"),
)
_PAIR_KINDS = (Kind.QRELS, Kind.EXCLUDED)
_RECORDS = {
    Kind.QUERIES: ("queries", (_TEXTS[0], _TEXTS[2])),
    Kind.ALL_QUERIES: ("all-queries", (_TEXTS[0], _TEXTS[2])),
    Kind.CORPUS: ("corpus", _TEXTS),
    Kind.EXCLUDED: ("excluded", _PAIR),
    Kind.QRELS: ("qrels", (*_PAIR, ("score", "the grade; above 0 is relevant", "sc:Integer"))),
}


def describe_dataset(
    dataset: Dataset, files: Sequence[DatasetFile], url: str, get_address: Callable[[DatasetFile], str]
) -> dict[str, Any]:
    """Return a dataset and its public files as JSON-LD.

    `url` is the dataset's page, and `get_address` returns the URL of a file.
    """
    content_files = [file for file in files if file.kind in _RECORDS or file.kind == Kind.DOCUMENT_IDS]
    version = dataset.current_version
    description: dict[str, Any] = {
        "@context": CONTEXT,
        "@type": "sc:Dataset",
        "conformsTo": CONFORMS_TO,
        "name": dataset.name,
        "description": dataset.description or f"{dataset.name}, a test collection for retrieval.",
        "url": dataset.homepage or url,
        "sameAs": url,
        "inLanguage": dataset.language,
        "datePublished": (version.created_at if version else dataset.created_at).date().isoformat(),
        "version": f"{version.number}.0.0" if version else "0.0.0",
        "keywords": [word for word in ("information retrieval", dataset.task, dataset.domain) if word],
        "isLiveDataset": False,
    }
    if dataset.licence:
        description["license"] = dataset.licence
    if dataset.citation:
        description["citeAs"] = dataset.citation
    description["distribution"] = [_file_object(file, get_address(file)) for file in content_files]
    has_titles = bool(version and version.statistics.get("has_titles", 1))
    tables = [file for file in content_files if file.kind != Kind.QRELS or file.name.endswith(".tsv.gz")]
    description["recordSet"] = [_record_set(file, has_titles) for file in tables if file.kind in _RECORDS]
    return description


def _file_object(file: DatasetFile, address: str) -> dict[str, Any]:
    """Return the `FileObject` of a public file, whose URL is `address`."""
    name = file.name.removesuffix(".gz")
    formats = {".jsonl": "application/jsonlines", ".tsv": "text/tab-separated-values"}
    kind = next((media_type for ending, media_type in formats.items() if name.endswith(ending)), "text/plain")
    return {
        "@type": "cr:FileObject",
        "@id": file.name,
        "name": file.name,
        "description": file.description or file.get_kind_display(),
        "contentUrl": address,
        "contentSize": f"{file.size} B",
        "encodingFormat": kind,
        "sha256": file.sha256,
    }


def _record_set(file: DatasetFile, has_titles: bool) -> dict[str, Any]:
    """Return the record set of a file with a field per column, omitting `title` if there are no titles."""
    name, fields = _RECORDS[Kind(file.kind)]
    fields = tuple(field for field in fields if has_titles or field[0] != "title")
    if file.kind == Kind.QRELS:
        name = re.sub(r"[^\w-]", "-", file.name.removesuffix(".gz").removesuffix(".tsv"))
    keys = [{"@id": f"{name}/{field}"} for field, _, _ in fields[: 2 if file.kind in _PAIR_KINDS else 1]]
    return {
        "@type": "cr:RecordSet",
        "@id": name,
        "name": name,
        "description": file.description or file.get_kind_display(),
        "key": keys if len(keys) > 1 else keys[0],
        # For Croissant, a line of JSON Lines is a row with columns; jsonPath is for files with a single JSON
        # document.
        "field": [
            {
                "@type": "cr:Field",
                "@id": f"{name}/{field}",
                "name": field,
                "description": description,
                "dataType": data_type,
                "source": {"fileObject": {"@id": file.name}, "extract": {"column": field}},
            }
            for field, description, data_type in fields
        ],
    }
