"""A small model made on the user's machine: static embeddings of StdlibSearch's words, by latent semantic analysis.

S. Deerwester et al., "Indexing by latent semantic analysis", 1990: the documents' matrix of TF-IDF weights is
decomposed, and a word's vector is its row of right singular vectors, here times the cube of its inverse document
frequency, because a text's vector is the plain mean of its words'. It is a real dense model, small and quick, and
no match for BM25: it knows no word order and no word that the library does not use twice.

Written as a sentence-transformers folder (one StaticEmbedding) without that library: `model.safetensors`,
`tokenizer.json`, `modules.json`. The same corpus gives the same files on the same machine.
"""

import json
import pickle
import re
import struct
import zipfile
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from evaluation.collections.beir import read_corpus

NAME = "Static embeddings (SVD sample)"
ARCHIVE_NAME = "static-embeddings.zip"
REFUSED_NAME = "static-embeddings.refused.zip"

DIMENSION = 256
#: A word is in the vocabulary if so many documents have it, and it is no longer than this.
_LEAST_DOCUMENTS = 2
_LONGEST_WORD = 30
_EXPONENT = 3
_UNKNOWN = "[UNK]"
#: What the tokenizer below makes of ASCII text, without the punctuation that no vocabulary has.
_WORD = re.compile(r"[^\W_]+")
#: The first moment that a zip can name.
_LONG_AGO = (1980, 1, 1, 0, 0, 0)


def make_sample_checkpoint(folder: Path, corpus: Path, dimension: int = DIMENSION) -> Path:
    """Write the model of StdlibSearch's corpus into the empty `folder`, and return that."""
    texts = (f"{document.title} {document.text}" for document in read_corpus(corpus))
    vocabulary, vectors = embed_words(texts, dimension)
    _write_json(folder / "tokenizer.json", _tokenizer(vocabulary))
    _write_json(folder / "modules.json", _MODULES)
    _write_json(folder / "config_sentence_transformers.json", _SETTINGS)
    write_safetensors(folder / "model.safetensors", "embedding.weight", vectors)
    return folder


def embed_words(texts: Iterable[str], dimension: int = DIMENSION) -> tuple[list[str], NDArray[np.float32]]:
    """The vocabulary of the texts, an unknown word's place first, and the vectors: vocabulary × dimension, float32."""
    counts = [Counter(_WORD.findall(text.lower())) for text in texts]
    frequencies = Counter(word for of_document in counts for word in of_document)
    words = sorted(
        word
        for word, count in frequencies.items()
        if count >= _LEAST_DOCUMENTS and len(word) <= _LONGEST_WORD
    )
    places = {word: place for place, word in enumerate(words)}
    rarity = np.log(len(counts) / np.array([frequencies[word] for word in words], np.float32))
    cells = (
        (row, places[word], (1 + np.log(count)) * rarity[places[word]])
        for row, of_document in enumerate(counts)
        for word, count in of_document.items()
        if word in places
    )
    vectors = _right_singular_vectors(np.fromiter(cells, "i8, i8, f4"), dimension)
    weighted = vectors * rarity[:, None] ** _EXPONENT
    return [_UNKNOWN, *words], np.vstack([np.zeros((1, weighted.shape[1]), np.float32), weighted])


def _right_singular_vectors(cells: NDArray[np.void], number: int) -> NDArray[np.float32]:
    """The first right singular vectors, as columns, of the matrix of cells (row, column, value) with rows of length 1.

    From a fixed start, so that the same cells give the same vectors.
    """
    from scipy import sparse  # only the worker that makes the sample needs it
    from scipy.sparse.linalg import svds

    rows, columns, values = (cells[name] for name in cells.dtype.names or ())
    lengths = np.sqrt(np.bincount(rows, values**2))[rows]
    matrix = sparse.csr_array((values / np.where(lengths > 0, lengths, 1), (rows, columns)), dtype=np.float32)
    vectors: NDArray[np.float32]
    if number < min(matrix.shape):
        vectors = svds(matrix, number, return_singular_vectors="vh", rng=0)[2][::-1].T
    else:
        vectors = np.linalg.svd(matrix.toarray(), full_matrices=False)[2].T
    return vectors


def write_safetensors(path: Path, name: str, values: NDArray[np.float32]) -> None:
    """One float32 tensor as a safetensors file: the length of the header, the header, the numbers."""
    raw = np.ascontiguousarray(values, "<f4").tobytes()
    entry = {"dtype": "F32", "shape": list(values.shape), "data_offsets": [0, len(raw)]}
    header = json.dumps({"__metadata__": {"format": "pt"}, name: entry}, separators=(",", ":")).encode()
    header += b" " * (-len(header) % 8)
    path.write_bytes(struct.pack("<Q", len(header)) + header + raw)


def archive_checkpoint(folder: Path, target: Path) -> Path:
    """Zip the files of the folder into `target`, and return that. The same files give the same bytes."""
    _write_zip(target, {path.name: path.read_bytes() for path in folder.iterdir()})
    return target


def archive_with_pickle(folder: Path, target: Path) -> Path:
    """As `archive_checkpoint`, but with a (harmless) pickle in place of the weights, which the site refuses."""
    files = {path.name: path.read_bytes() for path in folder.iterdir() if path.suffix != ".safetensors"}
    files["pytorch_model.bin"] = pickle.dumps({"embedding.weight": [[0.0]]}, protocol=2)
    _write_zip(target, files)
    return target


def _write_zip(target: Path, files: dict[str, bytes]) -> None:
    with zipfile.ZipFile(target, "w") as archive:
        for name in sorted(files):
            entry = zipfile.ZipInfo(name, _LONG_AGO)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, files[name])


def _write_json(path: Path, value: object) -> None:
    path.write_text(json.dumps(value, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


_MODULES = [{"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.StaticEmbedding"}]
_SETTINGS: dict[str, object] = {"prompts": {}, "default_prompt_name": None, "similarity_fn_name": "cosine"}


def _tokenizer(vocabulary: list[str]) -> dict[str, object]:
    """Lower-case words, split at white space and punctuation, each with its place."""
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {"id": 0, "content": _UNKNOWN, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
             "special": True}
        ],
        "normalizer": {"type": "Lowercase"},
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": None,
        "decoder": None,
        "model": {
            "type": "WordLevel",
            "vocab": {word: place for place, word in enumerate(vocabulary)},
            "unk_token": _UNKNOWN,
        },
    }  # fmt: skip
