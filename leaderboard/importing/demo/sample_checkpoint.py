"""Sample model trained on the user's machine: static word embeddings of StdlibSearch by latent semantic analysis.

The TF-IDF matrix of the documents is decomposed as in S. Deerwester et al., "Indexing by latent semantic analysis",
1990. A word's vector is its row of right singular vectors times the cube of its inverse document frequency, because a
text's vector is the plain mean of its words' vectors. The result is a real dense model, small and fast, but weaker
than BM25: it ignores word order, and words that occur in fewer than two documents.

The model is written in the format of sentence-transformers (one StaticEmbedding) without that library:
`model.safetensors`, `tokenizer.json`, `modules.json`. The same corpus gives the same files on the same machine.
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
#: Minimum document frequency and maximum length of the vocabulary's words.
_MIN_DOCUMENTS = 2
_MAX_WORD_LENGTH = 30
#: Weight of a word: this power of its inverse document frequency, because a text is the plain mean of its words.
_RARITY_EXPONENT = 3
_UNKNOWN = "[UNK]"
#: Words as the tokenizer below splits ASCII text, without punctuation.
_WORD = re.compile(r"[^\W_]+")
#: Earliest time that a zip file can represent.
_EARLIEST_TIME = (1980, 1, 1, 0, 0, 0)


def make_sample_checkpoint(folder: Path, corpus: Path, dimension: int = DIMENSION) -> Path:
    """Train the model on a corpus, write its files into the empty `folder`, and return `folder`."""
    texts = (f"{document.title} {document.text}" for document in read_corpus(corpus))
    vocabulary, vectors = embed_words(texts, dimension)
    _write_json(folder / "tokenizer.json", _tokenizer(vocabulary))
    _write_json(folder / "modules.json", _MODULES)
    _write_json(folder / "config_sentence_transformers.json", _SETTINGS)
    write_safetensors(folder / "model.safetensors", "embedding.weight", vectors)
    return folder


def embed_words(texts: Iterable[str], dimension: int = DIMENSION) -> tuple[list[str], NDArray[np.float32]]:
    """Return the vocabulary and its float32 vectors of shape (words, dimension); the unknown word is first and zero.

    Words in fewer than two texts and very long ones are omitted. Small collections give fewer dimensions.
    """
    counts = [Counter(_WORD.findall(text.lower())) for text in texts]
    frequencies = Counter(word for document_counts in counts for word in document_counts)
    words = sorted(
        word for word, count in frequencies.items() if count >= _MIN_DOCUMENTS and len(word) <= _MAX_WORD_LENGTH
    )
    columns = {word: number for number, word in enumerate(words)}
    rarity = np.log(len(counts) / np.array([frequencies[word] for word in words], np.float32))
    cells = (
        (row, columns[word], (1 + np.log(count)) * rarity[columns[word]])
        for row, document_counts in enumerate(counts)
        for word, count in document_counts.items()
        if word in columns
    )
    vectors = _right_singular_vectors(np.fromiter(cells, "i8, i8, f4"), dimension)
    weighted_vectors = vectors * rarity[:, None] ** _RARITY_EXPONENT
    return [_UNKNOWN, *words], np.vstack([np.zeros((1, weighted_vectors.shape[1]), np.float32), weighted_vectors])


def _right_singular_vectors(cells: NDArray[np.void], number: int) -> NDArray[np.float32]:
    """Return the first `number` right singular vectors as columns.

    The matrix is given as cells (row, column, value), and its rows are normalized to length 1. A fixed random state
    makes the result reproducible.
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
    """Write one float32 tensor as a safetensors file: header length, header, values."""
    raw_values = np.ascontiguousarray(values, "<f4").tobytes()
    entry = {"dtype": "F32", "shape": list(values.shape), "data_offsets": [0, len(raw_values)]}
    header = json.dumps({"__metadata__": {"format": "pt"}, name: entry}, separators=(",", ":")).encode()
    header += b" " * (-len(header) % 8)
    path.write_bytes(struct.pack("<Q", len(header)) + header + raw_values)


def archive_checkpoint(folder: Path, target: Path) -> Path:
    """Write a reproducible zip of the folder's files to `target`, and return `target`."""
    _write_zip(target, {path.name: path.read_bytes() for path in folder.iterdir()})
    return target


def archive_with_pickle(folder: Path, target: Path) -> Path:
    """Write a zip that the site rejects, and return `target`.

    It is like that of `archive_checkpoint`, but with a harmless pickle instead of the weights.
    """
    files = {path.name: path.read_bytes() for path in folder.iterdir() if path.suffix != ".safetensors"}
    files["pytorch_model.bin"] = pickle.dumps({"embedding.weight": [[0.0]]}, protocol=2)
    _write_zip(target, files)
    return target


def _write_zip(target: Path, files: dict[str, bytes]) -> None:
    """Write files by name as a zip with fixed times and permissions, so that equal files give equal bytes."""
    with zipfile.ZipFile(target, "w") as archive:
        for name in sorted(files):
            entry = zipfile.ZipInfo(name, _EARLIEST_TIME)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, files[name])


def _write_json(path: Path, value: object) -> None:
    path.write_text(json.dumps(value, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


_MODULES = [{"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.StaticEmbedding"}]
_SETTINGS: dict[str, object] = {"prompts": {}, "default_prompt_name": None, "similarity_fn_name": "cosine"}


def _tokenizer(vocabulary: list[str]) -> dict[str, object]:
    """Return the content of `tokenizer.json`, a tokenizer for the words of the vocabulary.

    It lowercases text, and splits it at white space and punctuation.
    """
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
