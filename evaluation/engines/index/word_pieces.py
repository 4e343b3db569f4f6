"""Word pieces of texts from a checkpoint's tokenizer, without its model.

`group_by_size` divides texts into groups of limited size, because a tokenizer's output takes a hundred times more
memory than the token ids.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

from evaluation.checkpoints.description import CheckpointDescription
from evaluation.core.problems import ModelFailure

Item = TypeVar("Item")

_ITEMS, _CHARACTERS = 1_000, 2_000_000


def group_by_size(items: Iterable[Item], get_text: Callable[[Item], str]) -> Iterator[list[Item]]:
    """Yield the items in lists of at most 1,000.

    A list also ends as soon as its texts reach 2,000,000 characters.
    """
    group: list[Item] = []
    characters = 0
    for item in items:
        group.append(item)
        characters += len(get_text(item))
        if len(group) == _ITEMS or characters >= _CHARACTERS:
            yield group
            group, characters = [], 0
    if group:
        yield group


def slices(text: str) -> Iterator[str]:
    """Yield the text in pieces of at most 2,000,000 characters, split after whitespace where possible."""
    start = 0
    while len(text) - start > _CHARACTERS:
        end = start + _CHARACTERS
        space = max(text.rfind(mark, start, end) for mark in " \n\t")
        split = space + 1 if space > start else end
        yield text[start:split]
        start = split
    yield text[start:]


_FILE, _SETTINGS = "tokenizer.json", "tokenizer_config.json"


def load_tokenizer(folder: Path) -> Any:
    """Return the `tokenizers.Tokenizer` of a rebuilt folder, as created by its class in transformers.

    A folder without tokenizer settings, such as that of static embeddings, has only a tokenizer.json. Raises the
    exceptions of the libraries, and ValueError for classes implemented in Python, which ignore tokenizer.json.
    """
    if not (folder / _SETTINGS).is_file():
        from tokenizers import Tokenizer

        return Tokenizer.from_file(str(folder / _FILE))
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=False, local_files_only=True)
    if not tokenizer.is_fast:
        name = type(tokenizer).__name__
        raise ValueError(f"the library's {name} does not use tokenizer.json; save the tokenizer with a fast class")
    return tokenizer.backend_tokenizer


class WordPieces:
    """The tokenizer of a rebuilt checkpoint, for documents if queries have another one.

    Raises ModelFailure if it is missing or cannot be read.
    """

    def __init__(self, checkpoint: Path, threads: int = 1) -> None:
        os.environ.setdefault("TOKENIZERS_PARALLELISM", "true" if threads > 1 else "false")
        os.environ.setdefault("RAYON_NUM_THREADS", str(threads))
        parts = CheckpointDescription.read(checkpoint).parts
        part = checkpoint / ("document" if "document" in parts else parts[0])
        paths = sorted(part.rglob(_FILE), key=lambda path: (len(path.parts), "query" in path.parent.name, path))
        if not paths:
            raise ModelFailure("not_loadable", "the checkpoint has no tokenizer.json")
        folder = paths[0].parent
        try:
            self._tokenizer, self._truncating_tokenizer = load_tokenizer(folder), load_tokenizer(folder)
        except Exception as error:  # the library has no more specific exception
            raise ModelFailure("not_loadable", "the checkpoint's tokenizer.json cannot be read") from error
        for tokenizer in (self._tokenizer, self._truncating_tokenizer):
            tokenizer.no_truncation()
            tokenizer.no_padding()
        self.size: int = self._tokenizer.get_vocab_size(with_added_tokens=True)
        #: Largest token id plus one.
        self.id_bound: int = max(self._tokenizer.get_vocab(with_added_tokens=True).values(), default=-1) + 1
        #: Ids of special tokens, such as [CLS], padding, and the token for unknown pieces.
        self.special_ids = frozenset(
            number for number, token in self._tokenizer.get_added_tokens_decoder().items() if token.special
        )

    def pieces(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the token ids of each text without special tokens or truncation."""
        parts = [list(slices(text)) for text in texts]
        encodings = iter(
            self._tokenizer.encode_batch([part for cuts in parts for part in cuts], add_special_tokens=False)
        )
        special_ids = self.special_ids
        return [[number for _ in cuts for number in next(encodings).ids if number not in special_ids] for cuts in parts]

    def inputs(self, texts: Sequence[str], maximum_length: int) -> list[list[int]]:
        """Return the token ids of each text as model input: with special tokens, truncated to `maximum_length`."""
        texts = [next(slices(text)) for text in texts]
        self._truncating_tokenizer.enable_truncation(maximum_length)
        return [encoding.ids for encoding in self._truncating_tokenizer.encode_batch(texts)]
