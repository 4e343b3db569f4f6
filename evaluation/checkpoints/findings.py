"""Problems found while a checkpoint is read, collected so that its sender gets all of them at once.

The module has every code that a checkpoint is refused with, or remarked on, with its remedy, and the limits of a
checkpoint, of which operators change the first one through the environment.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NoReturn, TypeVar

from evaluation.archives.compression import MIB, describe_bytes
from evaluation.core.problems import Problem, Report, Severity

#: Bytes of all weights together: CHECKPOINT_WEIGHTS_BYTES.
MOST_WEIGHTS = int(os.environ.get("CHECKPOINT_WEIGHTS_BYTES", 32 * 1024 * MIB))
#: Bytes that an archive expands to: its weights, and one GiB for all other files.
MOST_EXPANDED = MOST_WEIGHTS + 1024 * MIB
MOST_FILES_IN_ARCHIVE = 64
MOST_SHARDS = 64
MOST_TENSORS = 10_000
MOST_HEADERS = 4 * MIB
MOST_JSON = 80 * MIB
MOST_JSON_FILE = 4 * MIB
MOST_TOKENIZER = 32 * MIB

#: Numbers in configurations.
MOST_LAYERS = 256
MOST_HEADS = 512
MOST_EXPERTS = 1024
#: Experts of all layers together.
MOST_EXPERTS_IN_ALL = 8_192
MOST_WIDTH = 16_384
MOST_INNER_WIDTH = 131_072
MOST_VOCABULARY = 1_048_576
#: Characters of a token.
MOST_TOKEN = 2_000
MOST_POSITIONS = 262_144
MOST_ROPE_THETA = 1e9
LEAST_ROPE_FACTOR, MOST_ROPE_FACTOR = 0.01, 128.0
MOST_LIST = 512
MOST_LABELS = 2
#: Rows of a table of static embeddings, and dimensions of the vectors that modules pass on.
MOST_STATIC_ROWS = 2_000_000
MOST_DIMENSION = 1_048_576


class AllowanceSpent(ValueError):
    """All files together are over a limit, which the text names."""


class WeightsTooLarge(AllowanceSpent):
    """The weights have more bytes than a checkpoint may have."""


class CheckpointAllowance:
    """The amount that may still be parsed of one checkpoint; methods raise AllowanceSpent.

    `without_weights`: files of weights may end after their headers; `left_out` is whether one did.
    """

    def __init__(self, without_weights: bool = False) -> None:
        self.without_weights, self.left_out = without_weights, False
        self._parsed = {"JSON files": 0, "headers of weights": 0}
        self._tensors = 0
        self._weights: dict[Path, int] = {}

    def take(self, size: int, files: Literal["JSON files", "headers of weights"] = "JSON files") -> None:
        """Count the bytes of a file of JSON, or of the header of a file of weights."""
        self._parsed[files] += size
        most = MOST_JSON if files == "JSON files" else MOST_HEADERS
        if self._parsed[files] > most:
            raise AllowanceSpent(f"all {files} together have over {describe_bytes(most)}")

    def take_tensors(self, path: Path, count: int, size: int) -> None:
        """Count the tensors in a header, and their bytes, which count once however often the file is read."""
        self._tensors += count
        if self._tensors > MOST_TENSORS:
            raise AllowanceSpent(f"all files of weights together have over {MOST_TENSORS:,} tensors")
        self._weights[path] = size
        if sum(self._weights.values()) > MOST_WEIGHTS:
            raise WeightsTooLarge(f"all weights together have over {describe_bytes(MOST_WEIGHTS)}")


T = TypeVar("T")
#: Classes of errors and of remarks in a report; a hostile file could make one for each of its tensors.
_MOST = 100
#: Names that a message lists.
_NAMED = 5


class Refused(Exception):
    """A part of a checkpoint is refused, for a reason among the findings, and not read any further."""


def attempt(read: Callable[[], T]) -> T | None:
    """Return what `read` returns, or None if it is refused, so that problems of other parts are found as well."""
    try:
        return read()
    except Refused:
        return None


class Findings:
    """Errors and remarks about the files of one checkpoint."""

    def __init__(self) -> None:
        self._counts: Counter[tuple[Severity, str, str]] = Counter()

    def at(self, file: str) -> FileFindings:
        """Return the findings about one file, or about the checkpoint for an empty name."""
        return FileFindings(self, file)

    def add(self, severity: Severity, code: str, message: str) -> None:
        """Count a problem; further classes of one severity are dropped after the first hundred."""
        entry = (severity, code, message)
        if entry in self._counts or sum(severity == each for each, *_ in self._counts) < _MOST:
            self._counts[entry] += 1

    @property
    def refused(self) -> bool:
        """Whether there is any error."""
        return any(severity == "error" for severity, *_ in self._counts)

    def has(self, code: str) -> bool:
        """Whether there is an error or a remark of this code."""
        return any(code == each for _, each, _ in self._counts)

    def report(self) -> Report:
        """Return all problems, errors first."""
        problems = [
            Problem(severity, code, count, message, CODES[code])
            for (severity, code, message), count in self._counts.items()
        ]
        return Report(tuple(sorted(problems, key=lambda problem: problem.severity != "error")))


@dataclass(frozen=True, slots=True)
class FileFindings:
    """Errors and remarks about one file, whose messages begin with its name and the key in it."""

    findings: Findings
    file: str

    def refuse(self, code: str, message: str, key: str = "") -> None:
        """Add an error, for which the checkpoint is refused."""
        self._add("error", code, message, key)

    def stop(self, code: str, message: str, key: str = "") -> NoReturn:
        """Add an error, and raise Refused."""
        self.refuse(code, message, key)
        raise Refused

    def remark(self, code: str, message: str, key: str = "") -> None:
        """Add a remark for the sender of a checkpoint that is accepted."""
        self._add("warning", code, message, key)

    def _add(self, severity: Severity, code: str, message: str, key: str) -> None:
        where = [quote(part) for part in (self.file, key) if part]
        self.findings.add(severity, code, ": ".join([*where, message]))


def quote(text: object, most: int = 120) -> str:
    """Return untrusted text, short and printable."""
    plain = "".join(
        c if c.isprintable() and not 0xD800 <= ord(c) < 0xE000 else "\ufffd" for c in str(text)[: most + 1]
    )
    return plain if len(plain) <= most else plain[:most] + " …"


def quoted(value: object) -> str:
    """Return an untrusted value in quotation marks, short."""
    return f"“{quote(value, 60)}”"


def listed(names: Sequence[str]) -> str:
    """Return the first few names, and how many more there are."""
    more = len(names) - _NAMED
    return ", ".join(quote(name) for name in names[:_NAMED]) + (f" and {more:,} more" if more > 0 else "")


PACK_COMMAND = "python -m evaluation pack FOLDER"
_PACK = f"`{PACK_COMMAND}` makes such an archive from the folder, on your machine."

CODES: Mapping[str, str] = {
    # The archive
    "archive_kind": f"Send a zip or a tar compressed with zstd (.tar.zst). {_PACK}",
    "compression": f"Pack it again, and check that it was sent whole. {_PACK}",
    "member_kind": f"Pack regular files only: no links, devices, sparse files or passwords. {_PACK}",
    "member_name": f"Pack every file once, under a plain relative name of letters, digits, . _ - /. {_PACK}",
    "trailing_data": f"The file has to begin and end where the archive does. {_PACK}",
    "expansion": f"Weights shrink little; an archive may expand to 50 times its size. {_PACK}",
    "too_many_files": f"Pack what the model is loaded from: at most 64 files. {_PACK}",
    # The files
    "pickle_weights": f"Weights must be safetensors: loading a pickle can run code. {_PACK}",
    "dangerous_file": f"Leave it out: only safetensors, JSON and text are taken. {_PACK}",
    "nested_archive": f"Pack the files themselves, not an archive of them. {_PACK}",
    "unknown_file": f"Leave it out: only safetensors, JSON and text are taken. {_PACK}",
    "adapter": "Send whole weights: `python -m evaluation pack FOLDER --base BASE` merges an adapter into its base.",
    "file_kind": f"Every file has to be a regular file of its own: no link, no device. {_PACK}",
    "file_too_large": "JSON files have at most 4 MiB, tokenizer.json 32 MiB, all JSON together 80 MiB, all "
    f"weights together {describe_bytes(MOST_WEIGHTS)}.",
    "empty_folder": "Send the folder that the model is loaded from, with config.json, safetensors and tokenizer.json.",
    # JSON
    "json_damaged": "Every JSON file is UTF-8 text with one value, no key twice, no NaN, and few levels deep.",
    "forbidden_key": "Remove the key: it can load code or files from elsewhere. Models are loaded without it.",
    "own_code": "Code beside the weights is never run. Convert the checkpoint for the library's class. If that class "
    "gives the same outputs, remove auto_map from the file to state that.",
    "ignored_key": "Send a checkpoint that the library's class computes as it was trained. If the model was "
    "trained as the class computes, remove the key to state that.",
    "unknown_key": "Remove the key: only the keys that the documentation lists are taken in this file.",
    "value": "Give a value of the kind and size that the message names.",
    # The model
    "missing_config": "Add the file as its library saved it; a download may have left it out. " + _PACK,
    "model_type": "The architecture has to be one of texts that the site's release of transformers has in itself, "
    "without code beside the weights; its page /models/ lists them.",
    "configuration": "The configuration has to make a model of its class: with values of the types that the class "
    "declares, and sizes that go together. Save it again with save_pretrained of the published release.",
    "too_costly": "The library has to set the model up, without its weights, within a minute and 2 GiB: with fewer "
    "layers, fewer parts of a layer, or a tokenizer that does not multiply what it replaces.",
    "dimension_cap": "The size is over what is accepted here; the message names the limit.",
    "wrong_kind": "Choose the architecture that the checkpoint is for, or send another checkpoint.",
    "unknown_kind": "Send a sentence-transformers folder (modules.json), or say what the model is.",
    "pooling_needed": "Say how the tokens' outputs become one: max or sum for SPLADE, mean or cls for a dense encoder.",
    "module_type": "modules.json may name modules of sentence-transformers itself and of PyLate, in any spelling.",
    "module_not_run": "Use a model whose tokenizer is a tokenizer.json, and which reads texts.",
    "module_order": "The modules have to be in an order that makes one of the known kinds of model.",
    "activation": "The activation has to be torch.nn.modules.linear.Identity, or Tanh, ReLU, GELU, SiLU or Sigmoid of "
    "torch.nn.modules.activation.",
    "dimension_mismatch": "Each module has to take as many dimensions as the one before gives.",
    "missing_projection": "A ColBERT checkpoint has to bring its projection; without one the library makes up a random "
    "one.",
    "labels": "A cross-encoder has one label or two, a model that weighs terms one.",
    # Weights
    "missing_weights": f"The checkpoint must contain the weights of all layers. {_PACK}",
    "weights_header": "Files of weights are whole safetensors as their library writes them: no gaps, no empty tensors, "
    f"at most 10,000 tensors in all, described in at most 4 MiB. {_PACK}",
    "weights_index": "weight_map names every tensor, and the one of at most 64 safetensors files beside the "
    "index that holds it.",
    "weights_type": "Weights are float32, float16 or bfloat16. Convert the model to one of these and pack it again.",
    "weights_shape": "Every weight has to have the shape that follows from the configuration.",
    "weights_unknown": "Remove tensors that the class of the module or layer does not have. The model_type may "
    "name another class than the one that was trained.",
    "nan_weights": "Weights have to be finite numbers. The training diverged, or the conversion overflowed.",
    # Tokenizer
    "missing_tokenizer": "Send tokenizer.json: load the tokenizer with transformers, and save it with save_pretrained.",
    "tokenizer_vocabulary": "Every token needs an id of its own, below the number of the model's embeddings.",
    "tokenizer_regex": "Regular expressions in tokenizer.json are those of well-known tokenizers, or simple ones.",
    "tokenizer_value": "tokenizer.json has to be as the tokenizers library writes it.",
    # Fetching
    "hub_downloads_off": "Upload the checkpoint as an archive; the operator turns fetching on with HUB_DOWNLOADS=1 or "
    "in the admin.",
    "hub_missing": "Name a public model that has safetensors, and one of its commits.",
    "hub_name": "Name the model as owner/name, and a commit by its 40 hexadecimal digits.",
    "hub_too_large": "Choose a smaller model, or upload only what is needed.",
    "hub_unreachable": "Try again later, or upload the checkpoint as an archive.",
    # Remarks
    "known_for_dot": "Nothing to do; where it was trained for cosine, say similarity = cosine in the submission.",
    "prompt_names": "Without a choice only prompts named query, and document, passage or corpus, are put before texts.",
    "prompt_template": "Nothing to do where the model was trained otherwise.",
    "left_out": "Nothing to do: the file is not needed, and was not taken.",
    "keys_left_out": "The keys are not used here. Nothing to do if the model was trained without them.",
    "keys_not_read": "The library's class of this type does not read the keys. Nothing to do if the model was "
    "trained without them.",
    "weights_not_sent": "Send the weights too when you submit it; whether they are finite is asked then.",
    "weights_left_out": "Nothing to do: the weights belong to no part that is used.",
}
