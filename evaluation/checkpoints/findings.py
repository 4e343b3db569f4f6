"""Problems of a checkpoint, collected so that all of them are reported at once.

The module also defines the limits of a checkpoint, and a remedy for each problem and remark code. Operators can set the
maximum size of the weights with CHECKPOINT_WEIGHTS_BYTES.
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

#: Maximum bytes of all weights: CHECKPOINT_WEIGHTS_BYTES.
MAX_WEIGHTS = int(os.environ.get("CHECKPOINT_WEIGHTS_BYTES", 32 * 1024 * MIB))
#: Maximum expanded bytes of an archive: its weights, and one GiB for all other files.
MAX_EXPANDED = MAX_WEIGHTS + 1024 * MIB
MAX_FILES_IN_ARCHIVE = 64
MAX_SHARDS = 64
MAX_TENSORS = 10_000
MAX_HEADERS = 4 * MIB
MAX_JSON = 80 * MIB
MAX_JSON_FILE = 4 * MIB
MAX_TOKENIZER = 32 * MIB

#: Maximum numbers in configurations.
MAX_LAYERS = 256
MAX_HEADS = 512
MAX_EXPERTS = 1024
#: Maximum number of experts in all layers.
MAX_EXPERTS_IN_ALL = 8_192
MAX_WIDTH = 16_384
MAX_INNER_WIDTH = 131_072
MAX_VOCABULARY = 1_048_576
#: Maximum characters of a token.
MAX_TOKEN = 2_000
MAX_POSITIONS = 262_144
MAX_ROPE_THETA = 1e9
MIN_ROPE_FACTOR, MAX_ROPE_FACTOR = 0.01, 128.0
MAX_LIST = 512
MAX_LABELS = 2
#: Maximum rows of a static embedding table, and maximum dimension of the vectors between modules.
MAX_STATIC_ROWS = 2_000_000
MAX_DIMENSION = 1_048_576


class AllowanceSpent(ValueError):
    """Error for files that together exceed a limit, which the message names."""


class WeightsTooLarge(AllowanceSpent):
    """Error for weights with more bytes than a checkpoint may have."""


class CheckpointAllowance:
    """Remaining parsing budget of one checkpoint; methods raise AllowanceSpent when it is used up.

    If `without_weights` is set, weight files may be truncated after their headers. `has_omitted_weights` records
    whether any was.
    """

    def __init__(self, without_weights: bool = False) -> None:
        self.without_weights, self.has_omitted_weights = without_weights, False
        self._parsed_bytes = {"JSON files": 0, "headers of weights": 0}
        self._tensors = 0
        self._weights: dict[Path, int] = {}

    def take(self, size: int, files: Literal["JSON files", "headers of weights"] = "JSON files") -> None:
        """Count the bytes of a JSON file, or of the header of a file of weights."""
        self._parsed_bytes[files] += size
        limit = MAX_JSON if files == "JSON files" else MAX_HEADERS
        if self._parsed_bytes[files] > limit:
            raise AllowanceSpent(f"all {files} together have over {describe_bytes(limit)}")

    def take_tensors(self, path: Path, count: int, size: int) -> None:
        """Count the tensors in a header, and their bytes, which count once even if the file is read again."""
        self._tensors += count
        if self._tensors > MAX_TENSORS:
            raise AllowanceSpent(f"all files of weights together have over {MAX_TENSORS:,} tensors")
        self._weights[path] = size
        if sum(self._weights.values()) > MAX_WEIGHTS:
            raise WeightsTooLarge(f"all weights together have over {describe_bytes(MAX_WEIGHTS)}")


T = TypeVar("T")
#: Maximum number of problems and of remarks in a report, because a hostile file could cause one per tensor.
_MAX_PROBLEMS = 100
#: Maximum number of names in a message.
_MAX_NAMES = 5


class Refused(Exception):
    """Signal that a part of a checkpoint was refused and is not read further. The findings contain the reason."""


def attempt(read: Callable[[], T]) -> T | None:
    """Return the result of `read`, or None if it was refused, so that problems of other parts are reported too."""
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

    def clear(self) -> None:
        self._counts.clear()

    def add(self, severity: Severity, code: str, message: str) -> None:
        """Count a problem. After the first hundred problems of a severity, further ones are dropped."""
        entry = (severity, code, message)
        if entry in self._counts or sum(key[0] == severity for key in self._counts) < _MAX_PROBLEMS:
            self._counts[entry] += 1

    @property
    def has_errors(self) -> bool:
        """Whether there are errors."""
        return any(severity == "error" for severity, *_ in self._counts)

    def has(self, code: str) -> bool:
        return any(code == counted_code for _, counted_code, _ in self._counts)

    def report(self) -> Report:
        """Return all problems, errors first."""
        problems = [
            Problem(severity, code, count, message, CODES[code])
            for (severity, code, message), count in self._counts.items()
        ]
        return Report(tuple(sorted(problems, key=lambda problem: problem.severity != "error")))


@dataclass(frozen=True, slots=True)
class FileFindings:
    """Errors and remarks about one file. Messages begin with the file's name and the key."""

    findings: Findings
    file: str

    def refuse(self, code: str, message: str, key: str = "") -> None:
        """Add an error, which causes the checkpoint to be refused."""
        self._add("error", code, message, key)

    def stop(self, code: str, message: str, key: str = "") -> NoReturn:
        """Add an error and raise Refused."""
        self.refuse(code, message, key)
        raise Refused

    def stop_alone(self, code: str, message: str, key: str = "") -> NoReturn:
        """Replace all findings with one error that makes the others irrelevant, and raise Refused."""
        self.findings.clear()
        self.stop(code, message, key)

    def remark(self, code: str, message: str, key: str = "") -> None:
        """Add a remark for the sender of an accepted checkpoint."""
        self._add("warning", code, message, key)

    def _add(self, severity: Severity, code: str, message: str, key: str) -> None:
        prefixes = [quote(part) for part in (self.file, key) if part]
        self.findings.add(severity, code, ": ".join([*prefixes, message]))


def quote(text: object, limit: int = 120) -> str:
    """Return untrusted text in printable characters, shortened to `limit` characters."""
    printable = "".join(
        c if c.isprintable() and not 0xD800 <= ord(c) < 0xE000 else "\ufffd" for c in str(text)[: limit + 1]
    )
    return printable if len(printable) <= limit else printable[:limit] + " …"


def quoted(value: object) -> str:
    """Return an untrusted value in quotation marks, shortened."""
    return f"“{quote(value, 60)}”"


def summarize_names(names: Sequence[str]) -> str:
    """Return the first few names and the number of further ones."""
    further_count = len(names) - _MAX_NAMES
    return ", ".join(quote(name) for name in names[:_MAX_NAMES]) + (
        f" and {further_count:,} more" if further_count > 0 else ""
    )


PACK_COMMAND = "python -m evaluation pack FOLDER"
_PACK = f"`{PACK_COMMAND}` builds such an archive from the folder on your machine."
#: Other ways to submit models that are not accepted as checkpoints.
_IMAGE = "Submit a container image that runs it, if the site runs images (otherwise, ask its operator)"
_OTHER_WAYS = (
    f"{_IMAGE}, or upload its run: `runboard retrieve --endpoint ADDRESS --open-weights OWNER/NAME@COMMIT`, or "
    "`rerank` for a re-ranker, writes one from a server of the model, such as vLLM."
)

CODES: Mapping[str, str] = {
    # The archive
    "archive_kind": f"Send a zip or a tar compressed with zstd (.tar.zst). {_PACK}",
    "compression": f"Pack the files again and check that the upload is complete. {_PACK}",
    "member_kind": f"Pack regular files only: no links, devices, sparse files, or passwords. {_PACK}",
    "member_name": f"Pack every file once, under a plain relative name of letters, digits, . _ - /. {_PACK}",
    "trailing_data": f"Remove the data before or after the archive. {_PACK}",
    "expansion": f"Weights hardly compress; an archive may expand to 50 times its size. {_PACK}",
    "too_many_files": f"Pack only the files that are needed to load the model, at most 64. {_PACK}",
    # The files
    "pickle_weights": f"Weights must be safetensors: loading a pickle can run code. {_PACK}",
    "dangerous_file": f"Omit the file: only safetensors, JSON, and text are accepted. {_PACK}",
    "nested_archive": f"Pack the files themselves, not an archive of them. {_PACK}",
    "unknown_file": f"Omit the file: only safetensors, JSON, and text are accepted. {_PACK}",
    "adapter": "Send complete weights: `python -m evaluation pack FOLDER --base BASE` merges an adapter into its base.",
    "file_kind": f"Send only regular files: no links, no devices. {_PACK}",
    "file_too_large": "The limits are 4 MiB for a JSON file, 32 MiB for tokenizer.json, 80 MiB for all JSON together, "
    f"and {describe_bytes(MAX_WEIGHTS)} for all weights together. For a larger model: {_OTHER_WAYS}",
    "empty_folder": "Send the complete folder of the model, with config.json, safetensors, and tokenizer.json.",
    # JSON
    "json_damaged": "Write JSON as UTF-8 text with one value, no repeated keys, no NaN, and few levels of nesting.",
    "forbidden_key": "Remove the key: it can load code or files from elsewhere. Models are loaded without it.",
    "own_code": "Code in a checkpoint is never run. Convert the checkpoint for the library's class. If that class "
    f"has the same outputs, remove auto_map from the file to confirm this. Otherwise, keep its code: {_OTHER_WAYS}",
    "ignored_key": "Send a checkpoint that the library's class runs as in training. If the key had no effect in "
    "training, remove it to confirm this.",
    "unknown_key": "Remove the key: this file may contain only keys that are listed in the documentation.",
    "value": "Use a value with the type and size in the message.",
    # The model
    "missing_config": "Add the file as saved by its library. It may be missing in a download. " + _PACK,
    "model_type": "Use a text architecture that is part of the site's release of transformers, "
    "without code of its own; the page /models/ lists them.",
    "visual_model": f"The model can compete with texts alone. {_OTHER_WAYS}",
    "listwise_model": f"{_IMAGE}: its interface for re-ranking passes all documents of a query. Or upload its run: "
    "`runboard rerank --endpoint ADDRESS --open-weights OWNER/NAME@COMMIT` writes one from a server of the model.",
    "own_reading": f"Its own code must run it. {_OTHER_WAYS}",
    "configuration": "The configuration must define a model of its class, with values of the types that the class "
    "declares and consistent sizes. Save it again with save_pretrained of the published release.",
    "too_costly": "The library must be able to build the model without its weights within a minute and 2 GiB. Use "
    "fewer layers, fewer parts of a layer, or a tokenizer that does not expand its input.",
    "dimension_cap": "Reduce the size to the limit in the message.",
    "wrong_kind": "Choose the checkpoint's architecture, or send another checkpoint.",
    "unknown_kind": "Send a sentence-transformers folder (modules.json), or state the kind of the model.",
    "pooling_needed": "State how tokens are pooled: max or sum for SPLADE, mean or cls for a dense encoder.",
    "module_type": "modules.json may name modules of sentence-transformers itself and of PyLate, in any spelling.",
    "module_not_run": "Use a text model with a tokenizer.json.",
    "module_order": "Put the modules into the order of one of the known kinds of model.",
    "activation": "Use torch.nn.modules.linear.Identity, or Tanh, ReLU, GELU, SiLU, or Sigmoid of "
    "torch.nn.modules.activation.",
    "dimension_mismatch": "Each module's input dimension must equal the output dimension of the module before it.",
    "missing_projection": "Include the projection of the ColBERT checkpoint; without it, the library initializes a "
    "random one.",
    "labels": "A cross-encoder must have one or two labels, and a term weighting model one label.",
    # Weights
    "missing_weights": f"The checkpoint must contain the weights of all layers. {_PACK}",
    "weights_header": "Files of weights must be complete safetensors as saved by a library: no gaps, no empty tensors, "
    f"at most 10,000 tensors in all, described in at most 4 MiB. {_PACK}",
    "weights_index": "weight_map must map every tensor to one of at most 64 safetensors files next to the index.",
    "weights_type": "Weights must be float32, float16, or bfloat16. Convert the model to one of these, then pack it.",
    "weights_shape": "Every weight must have the shape that the configuration determines.",
    "weights_unknown": "Remove tensors that the class of the module or layer does not have. The model_type may "
    "differ from that of the trained class.",
    "nan_weights": "Weights must be finite numbers. The training diverged, or the conversion overflowed.",
    # Tokenizer
    "missing_tokenizer": "Send tokenizer.json: load the tokenizer with transformers and save it with save_pretrained.",
    "tokenizer_vocabulary": "Every token needs a unique id below the number of the model's embeddings.",
    "tokenizer_regex": "Use only simple regular expressions in tokenizer.json, or the ones of well-known tokenizers.",
    "tokenizer_value": "Save tokenizer.json with the tokenizers library.",
    # Fetching
    "hub_downloads_off": "Upload the checkpoint as an archive. Operators enable downloads with HUB_DOWNLOADS=1 or "
    "in the admin.",
    "hub_missing": "Enter a public model with safetensors, and one of its commits.",
    "hub_name": "Enter the model as owner/name, and a commit as 40 hexadecimal digits.",
    "hub_too_large": f"Choose a smaller model, or upload only what is needed. Otherwise: {_OTHER_WAYS}",
    "hub_unreachable": "Try again later, or upload the checkpoint as an archive.",
    # Remarks
    "known_for_dot": "If the model was trained for cosine, set similarity = cosine in the submission.",
    "prompt_names": "By default, only prompts named query, and document, passage, or corpus, are added to texts.",
    "prompt_template": "No action is needed if the model was trained differently.",
    "left_out": "No action is needed: the file is not used and was omitted.",
    "keys_left_out": "The keys are not used here. No action is needed if the model was trained without them.",
    "keys_not_read": "The library's class of this type does not read the keys. No action is needed if the model "
    "was trained without them.",
    "weights_not_sent": "Include the weights when you submit the model. Their values are checked then.",
    "weights_left_out": "No action is needed: the weights do not belong to a part that is used.",
}
