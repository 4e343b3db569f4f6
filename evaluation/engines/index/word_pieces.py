"""Word pieces of texts by a checkpoint's tokenizer, without its model.

`grouped` makes groups of texts that a tokenizer can take at once: what it returns is a hundred times larger than what
is kept.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

from evaluation.checkpoints.description import CheckpointDescription
from evaluation.core.problems import ModelFailure

Item = TypeVar("Item")

_ITEMS, _CHARACTERS = 1_000, 2_000_000


def grouped(items: Iterable[Item], text_of: Callable[[Item], str]) -> Iterator[list[Item]]:
    """The items in order, in lists of at most 1,000 whose texts have 2,000,000 characters, but for the last of each."""
    group: list[Item] = []
    characters = 0
    for item in items:
        group.append(item)
        characters += len(text_of(item))
        if len(group) == _ITEMS or characters >= _CHARACTERS:
            yield group
            group, characters = [], 0
    if group:
        yield group


def slices(text: str) -> Iterator[str]:
    """Yield the text in pieces of at most 2,000,000 characters, cut behind white space wherever there is some."""
    start = 0
    while len(text) - start > _CHARACTERS:
        end = start + _CHARACTERS
        space = max(text.rfind(mark, start, end) for mark in " \n\t")
        cut = space + 1 if space > start else end
        yield text[start:cut]
        start = cut
    yield text[start:]


_FILE, _SETTINGS = "tokenizer.json", "tokenizer_config.json"


def load_tokenizer(folder: Path) -> Any:
    """Return the `tokenizers.Tokenizer` that the library's class makes of a rebuilt folder's files.

    A folder without settings, as of static embeddings, has its tokenizer in tokenizer.json alone. Raises what the
    libraries raise, and ValueError for a class of Python code, which ignores tokenizer.json.
    """
    if not (folder / _SETTINGS).is_file():
        from tokenizers import Tokenizer

        return Tokenizer.from_file(str(folder / _FILE))
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=False, local_files_only=True)
    if not tokenizer.is_fast:
        name = type(tokenizer).__name__
        raise ValueError(
            f"the library's {name} does not use tokenizer.json; save the tokenizer with a fast class"
        )
    return tokenizer.backend_tokenizer


class WordPieces:
    """The tokenizer of a rebuilt checkpoint; that of documents where queries have one of their own.

    Raises ModelFailure where there is none, or none that can be read.
    """

    def __init__(self, checkpoint: Path, threads: int = 1) -> None:
        os.environ.setdefault("TOKENIZERS_PARALLELISM", "true" if threads > 1 else "false")
        os.environ.setdefault("RAYON_NUM_THREADS", str(threads))
        parts = CheckpointDescription.read(checkpoint).parts
        part = checkpoint / ("document" if "document" in parts else parts[0])
        found = sorted(
            part.rglob(_FILE), key=lambda path: (len(path.parts), "query" in path.parent.name, path)
        )
        if not found:
            raise ModelFailure("not_loadable", "the checkpoint has no tokenizer.json")
        folder = found[0].parent
        try:
            self._whole, self._cut = load_tokenizer(folder), load_tokenizer(folder)
        except Exception as error:  # the library raises nothing more precise
            raise ModelFailure("not_loadable", "the checkpoint's tokenizer.json cannot be read") from error
        for tokenizer in (self._whole, self._cut):
            tokenizer.no_truncation()
            tokenizer.no_padding()
        self.size: int = self._whole.get_vocab_size(with_added_tokens=True)
        #: One more than the greatest number of a piece.
        self.behind_last: int = max(self._whole.get_vocab(with_added_tokens=True).values(), default=-1) + 1
        #: Numbers of tokens that are no part of a text: [CLS], padding, and what stands for unknown pieces.
        self.special = frozenset(
            number for number, token in self._whole.get_added_tokens_decoder().items() if token.special
        )

    def pieces(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the pieces of each text, however long, in order, without special tokens."""
        parts = [list(slices(text)) for text in texts]
        encoded = iter(
            self._whole.encode_batch([part for some in parts for part in some], add_special_tokens=False)
        )
        special = self.special
        return [
            [number for _ in some for number in next(encoded).ids if number not in special] for some in parts
        ]

    def inputs(self, texts: Sequence[str], maximum_length: int) -> list[list[int]]:
        """Return each text as a model takes it: with special tokens, cut to `maximum_length`."""
        texts = [next(slices(text)) for text in texts]
        self._cut.enable_truncation(maximum_length)
        return [encoding.ids for encoding in self._cut.encode_batch(texts)]
