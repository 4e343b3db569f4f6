"""Mutations of good checkpoints: whatever comes in, the verdict is a report, never an exception.

`PYTHONPATH=. python tests/fuzz/spoilt_checkpoints.py [COUNT] [SEED]` tries so many, and prints what became of them.
"""

from __future__ import annotations

import json
import random
import resource
import shutil
import sys
import tempfile
import time
import traceback
from collections import Counter
from pathlib import Path
from typing import Any

import zstandard

from evaluation.checkpoints.rebuilding import rebuild, validate_archive, validate_folder
from evaluation.engines.neural.checking import check_checkpoint
from tests.evaluation.hostile_archives import tarred
from tests.evaluation.small_checkpoint import arrays, files, safetensors, write, zipped

_VALUES: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 7, 10**17, 1.5, -0.0, "", "x", "../x", "\ud7ff", "é" * 300, [], {}, [[]], [None],
    {"type": "Sequence"}, {"a": 1}, ["Transformer"], {"content": None}, [0, 8], "bert", "t5", "F32", "BF16",
    {"activation_fn": "os.system"}, [0], [3, 0],
)  # fmt: skip
_BASES = ("base", "masked", "sequence")
#: What a file in an archive may be called instead of `a/b`.
_SPELLINGS = (
    "a//b", "./a/b", "a/./b", "././a/b", "A/b", "a/B", "/a/b", "a/../a/b", "a/b/c.json", "a\\b", "a/b ", "a/b/",
)  # fmt: skip


def mutated(generator: random.Random) -> tuple[str, dict[str, bytes]]:
    """A good checkpoint's files with one to three changes, and what was changed."""
    content = files(generator.choice(_BASES))  # type: ignore[arg-type]
    if generator.random() < 0.3:
        _split(content, generator)
    done = []
    for _ in range(generator.randint(1, 3)):
        name = generator.choice(sorted(content))
        change = generator.choice((_json_value, _json_value, _json_value, _bytes, _cut, _moved, _header))
        content[name] = change(content[name], generator, content)
        done.append(f"{change.__name__} {name}")
    return ", ".join(done), content


def _split(content: dict[str, bytes], generator: random.Random) -> None:
    """The weights in up to five shards, and their index."""
    count, places = generator.randint(1, 5), {}
    shards: list[dict[str, Any]] = [{} for _ in range(count)]
    del content["model.safetensors"]
    for name, array in arrays().items():
        place = generator.randrange(count)
        shards[place][name] = array
        places[name] = f"model-{place}.safetensors"
    content |= {f"model-{place}.safetensors": safetensors(shard) for place, shard in enumerate(shards)}
    content["model.safetensors.index.json"] = json.dumps({"weight_map": places}).encode()


def _misnamed(content: dict[str, bytes], generator: random.Random) -> dict[str, bytes]:
    """One more file, its name like that of another, spelled in another way."""
    name = generator.choice(sorted(content))
    folder, _, base = name.rpartition("/")
    spelled = generator.choice(_SPELLINGS).replace("b", base).replace("a/", f"{folder}/" if folder else "")
    return {**content, generator.choice((spelled, "license", "license/config.json")): content[name]}


def _json_value(data: bytes, generator: random.Random, content: dict[str, bytes]) -> bytes:
    """Another value at a random place of a JSON file."""
    try:
        value = json.loads(data)
    except ValueError:
        return _bytes(data, generator, content)
    return json.dumps(changed_value(value, generator)).encode()


def changed_value(value: Any, generator: random.Random) -> Any:
    """A JSON value with one part of it changed."""
    if isinstance(value, dict) and value and generator.random() < 0.9:
        key = generator.choice(list(value))
        if generator.random() < 0.1:
            return {
                **{k: v for k, v in value.items() if k != key},
                generator.choice(("x", "", "path")): value[key],
            }
        if generator.random() < 0.1:
            return {k: v for k, v in value.items() if k != key}
        return {**value, key: changed_value(value[key], generator)}
    if isinstance(value, list) and value and generator.random() < 0.9:
        place = generator.randrange(len(value))
        return [
            *value[:place],
            changed_value(value[place], generator),
            *value[place + generator.randint(0, 1) :],
        ]
    return generator.choice(_VALUES)


def _bytes(data: bytes, generator: random.Random, content: dict[str, bytes]) -> bytes:
    """A few other bytes."""
    changed = bytearray(data or b"\0")
    for _ in range(generator.randint(1, 8)):
        changed[generator.randrange(len(changed))] = generator.randrange(256)
    return bytes(changed)


def _cut(data: bytes, generator: random.Random, content: dict[str, bytes]) -> bytes:
    """The beginning alone, or the beginning and something else."""
    return data[: generator.randrange(len(data) + 1)] + bytes(generator.choice((0, 0, 1, 100)))


def _moved(data: bytes, generator: random.Random, content: dict[str, bytes]) -> bytes:
    """Another file's content."""
    return content[generator.choice(sorted(content))]


def _header(data: bytes, generator: random.Random, content: dict[str, bytes]) -> bytes:
    """Another value in a header of weights."""
    try:
        length = int.from_bytes(data[:8], "little")
        header = json.loads(data[8 : 8 + length])
    except (ValueError, OverflowError, MemoryError):
        return _bytes(data, generator, content)
    text = json.dumps(changed_value(header, generator)).encode()
    return len(text).to_bytes(8, "little") + text + data[8 + length :]


def judge_once(generator: random.Random, folder: Path) -> tuple[str, str]:
    """Validate one mutation, and rebuild it if it is valid: what was changed, and the verdict."""
    form = generator.choice(("folder", "folder", "folder", "zip", "tar"))
    what, content = mutated(generator)
    scratch = folder / "scratch"
    scratch.mkdir()
    if form == "folder":
        validation = validate_folder(write(content, folder / "sent"), pooling="max")
    else:
        if generator.random() < 0.3:
            what, content = f"{what}, a name", _misnamed(content, generator)
        path = zipped(content, folder / "sent.zip") if form == "zip" else tarred(folder, content=content)
        if generator.random() < 0.5:
            what = f"bytes of the {form}"
            data = path.read_bytes() if form == "zip" else zstandard.decompress(path.read_bytes())
            data = generator.choice((_bytes, _cut))(data, generator, content)
            path.write_bytes(data if form == "zip" else zstandard.compress(data))
        validation = validate_archive(path, scratch, pooling="max")
    if validation.valid:
        rebuild(validation, folder / "rebuilt")
        errors = check_checkpoint(folder / "rebuilt").errors
        return what, f"{errors[0].code} of the library" if errors else "accepted"
    return what, validation.report.errors[0].code


def fuzz(count: int, seed: int) -> tuple[Counter[str], list[str]]:
    """Verdicts on `count` mutations, and the tracebacks of those that had none."""
    verdicts: Counter[str] = Counter()
    failures = []
    for number in range(count):
        folder = Path(tempfile.mkdtemp(prefix="fuzz-"))
        try:
            _, verdict = judge_once(random.Random(f"{seed}-{number}"), folder)
            verdicts[verdict] += 1
        except Exception:
            failures.append(f"{seed}-{number}: {traceback.format_exc()}")
        finally:
            shutil.rmtree(folder)
    return verdicts, failures


def main() -> int:
    """Run from the command line; 1 where there was an exception."""
    count, seed = (
        (int(word) for word in [*sys.argv[1:], "5000", "1"][:2]) if len(sys.argv) != 2 else (int(sys.argv[1]), 1)
    )
    started = time.perf_counter()
    verdicts, failures = fuzz(count, seed)
    for verdict, times in verdicts.most_common():
        print(f"{times:7,}  {verdict}")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"{count:,} mutations in {time.perf_counter() - started:.0f} s, {len(failures)} uncaught, peak {peak:.0f} MB")
    print("\n".join(failures[:20]))
    return bool(failures)


if __name__ == "__main__":
    sys.exit(main())
