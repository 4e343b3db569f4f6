"""A small model made by hand, collections with documents, and requests to run the one over the other."""

from __future__ import annotations

import io
import json
import struct
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from leaderboard.core.storage.store import Area, put
from leaderboard.models import Dataset, DatasetVersion
from tests.submissions.clients import Answer, Api, upload
from tests.submissions.collections import DOCUMENTS, make_collection

#: What the words of the made-up corpus are.
WORDS = [f"word{number}" for number in range(40)]
DIMENSION = 8


def static_files(seed: int = 0) -> dict[str, bytes]:
    """The files of a static-embeddings checkpoint as sentence-transformers saves one."""
    vocabulary = {word: number for number, word in enumerate(["[UNK]", *WORDS])}
    weights = np.random.default_rng(seed).normal(size=(len(vocabulary), DIMENSION)).astype("<f4")
    tokenizer = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [],
        "normalizer": {"type": "Lowercase"},
        "pre_tokenizer": {"type": "Whitespace"},
        "post_processor": None,
        "decoder": None,
        "model": {"type": "WordLevel", "vocab": vocabulary, "unk_token": "[UNK]"},
    }
    modules = [
        {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.StaticEmbedding"},
    ]
    return {
        "modules.json": json.dumps(modules).encode(),
        "tokenizer.json": json.dumps(tokenizer).encode(),
        "model.safetensors": safetensors({"embedding.weight": weights}),
    }


def safetensors(tensors: Mapping[str, np.ndarray[Any, np.dtype[np.float32]]]) -> bytes:
    """Float32 tensors in the format of safetensors: the header's length, the header, the bytes."""
    header: dict[str, Any] = {}
    end = 0
    for name, tensor in tensors.items():
        header[name] = {
            "dtype": "F32",
            "shape": list(tensor.shape),
            "data_offsets": [end, end + tensor.nbytes],
        }
        end += tensor.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + b"".join(tensor.tobytes() for tensor in tensors.values())


def zipped(files: Mapping[str, bytes]) -> bytes:
    """A zip of these files; the same ones give the same bytes."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, content in files.items():
            archive.writestr(zipfile.ZipInfo(name), content, zipfile.ZIP_DEFLATED)
    return out.getvalue()


def static_archive(seed: int = 0) -> bytes:
    """The checkpoint as an archive."""
    return zipped(static_files(seed))


def with_corpus(dataset: Dataset, folder: Path) -> Dataset:
    """The dataset, its documents kept here."""
    path = folder / f"{dataset.slug}.corpus"
    path.write_text("".join(json.dumps({"_id": each, "title": "", "text": WORDS[0]}) + "\n" for each in DOCUMENTS))
    versions = DatasetVersion.objects.filter(dataset=dataset)
    versions.update(corpus_sha256=put(Area.FILES, path))
    dataset.refresh_from_db()
    return dataset


def collection(folder: Path, slug: str, **fields: Any) -> Dataset:
    """A published dataset with its documents."""
    return with_corpus(make_collection(folder, slug, **fields), folder)


def submit_model(api: Api, **fields: Any) -> Answer:
    """POST submissions/ with one good model, unless told otherwise."""
    values: dict[str, Any] = {
        "kind": "model",
        "system": "My model",
        "engine": "dense",
        "dataset": "demo",
        "checkpoint": upload(static_archive(), "static.zip"),
        **fields,
    }
    return api.post("submissions/", **{name: value for name, value in values.items() if value is not None})
