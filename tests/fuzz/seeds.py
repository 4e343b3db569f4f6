"""What coverage-guided fuzzing begins with: small inputs of every form, made here, and words to put in."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import zstandard

from tests.evaluation.hostile_archives import ARCHIVES
from tests.evaluation.small_checkpoint import files

RUN = (
    "1 Q0 a 1 3.5 tag\n1 Q0 b 2 2.5 tag\n2 Q0 é 1 1e-3 tag\n"
    "query-with-a-long-identifier Q0 document-with-a-long-identifier 1 -0.5 tag\n"
).encode()
_HEADER = b"# ir_metadata.start\n# platform:\n#   os: 'x'\n# method:\n#   - 1: [a, b]\n# ir_metadata.end\n"
_PREDICTIONS = {
    "mteb_model_meta": {"model_name": "owner/model", "revision": "1"},
    "default": {"test": {"1": {"a": 1.5, "b": 1}, "2": {"é": -1e-9}}},
}
#: Lines of answer runs in three forms.
_RESPONSE = {"query_id": "1", "answer": "x", "citations": ["a", "é"], "confidence": 0.5}
_CITED = {"metadata": {"narrative_id": 1}, "references": ["a"], "answer": [{"text": "x", "citations": [0]}]}
_TRAJECTORY = {
    "query_id": "1", "tool_call_counts": {"search": 2}, "status": "completed", "retrieved_docids": ["a", "b"],
    "result": [{"type": "output_text", "output": "x [a]\nExact Answer: y\nConfidence: 9%"}],
}  # fmt: skip
#: Nothing larger is begun with; a corpus of large inputs is slow.
_MAX_BYTES = 24 * 1024

#: Words that a mutation puts in, for all targets: marks of formats, numbers that are hard, keys that matter.
WORDS: tuple[bytes, ...] = (
    b"\x1f\x8b\x08", b"\x28\xb5\x2f\xfd", b"BZh91AY", b"\xfd7zXZ\x00", b"PK\x01\x02", b"PK\x03\x04", b"PK\x05\x06",
    b"PK\x06\x06", b"PK\x06\x07", b"PK\x07\x08", b"\x01\x00\x08\x00", b"\xff\xff\xff\xff", b"\xff" * 8, b"ustar\x0000",
    b"ustar  \x00", b"13 path=../x\n", b"\xef\xbb\xbf", b"\xed\xa0\x80", b"\xc0\xaf", b"\x00", b"\r\n", b"\r", b" Q0 ",
    b"nan", b"inf", b"1e400", b"3.4028236e38", b"-0", b"1_000", "٣".encode(), b"9" * 40, b"\\ud800", b'{"a":', b"[[[[",
    b"../", b"//", b"ir_metadata.start", b"model_type", b"bert", b"auto_map", b"hidden_size", b"dtype", b"F32",
    b"data_offsets", b"shape", b"weight_map", b"type", b"Sequence", b"Regex", b"(a+)+$", b"vocab", b"merges", b"ids",
    b"query-id,corpus-id,score", b"query_id\tdoc_id\tgrade", b'"a\nb"', b"=cmd()",
)  # fmt: skip


def seeds(target: str) -> Iterator[bytes]:
    """Inputs of a target, each once."""
    return iter({data: None for data in _MAKERS[target]() if len(data) <= _MAX_BYTES})


def write_seeds(target: str, folder: Path) -> int:
    """The target's seeds as files; how many."""
    folder.mkdir(parents=True, exist_ok=True)
    number = 0
    for number, data in enumerate(seeds(target), 1):
        (folder / f"seed-{number:03}").write_bytes(data)
    return number


def write_words(path: Path) -> None:
    """The words as libFuzzer's dictionary."""
    lines = ('"' + "".join(f"\\x{byte:02x}" for byte in word) + '"' for word in WORDS)
    path.write_text("\n".join(lines) + "\n")


def _runs() -> Iterator[bytes]:
    predictions = json.dumps(_PREDICTIONS).encode()
    plain = (
        RUN, _HEADER + RUN, RUN.replace(b"\n", b"\r\n"), RUN.replace(b" ", b"\t"), b"\xef\xbb\xbf" + RUN, predictions,
        json.dumps(_PREDICTIONS["default"]["test"]).encode(),
        b'{"qid": "1", "docid": "a", "score": NaN}\n{"qid": "2"}\n', b"1\ta\t1\n1\tb\t2\n1\tc\t3\n1\td\t4\n",
        b'qid,docno,rank,score\n1,"a",0,2.5\n',
        json.dumps(_RESPONSE).encode() + b"\n", json.dumps({**_RESPONSE, "ranking": ["a", "b"], "cost": 1}).encode(),
        json.dumps(_CITED).encode() + b"\n", json.dumps(_TRAJECTORY).encode() + b"\n",
        RUN + RUN.replace(b"tag", b"other"), b"1 Q0 a 1 nan t\n\n x\n", b"x" * 5000 + b"\n" + RUN, b"",
    )  # fmt: skip
    yield from plain
    for compress in (gzip.compress, bz2.compress, zstandard.compress, lzma.compress):
        for data in (RUN, predictions):
            yield compress(data)
        yield compress(RUN) + compress(RUN)
        yield compress(bytes(300_000))


def _archives() -> Iterator[bytes]:
    for name, method in (("1.txt", zipfile.ZIP_STORED), ("a/2.txt", zipfile.ZIP_DEFLATED)):
        yield zip_of({name: RUN, "b.txt": b"x"}, method)
    for base in ("base", "masked"):
        content = files(base)
        yield zip_of(content, zipfile.ZIP_DEFLATED)
        yield _tar_of(content, tarfile.USTAR_FORMAT)
    small = {"config.json": b"{}", "1_Pooling/config.json": b"[]"}
    for form in (tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT):
        yield _tar_of(small, form)
    yield zstandard.compress(_tar_of(small, tarfile.PAX_FORMAT))
    with tempfile.TemporaryDirectory() as folder:
        for code, make in ARCHIVES.values():
            if code not in ("expansion", "too_many_files"):  # these are large, or slow to make
                data = make(Path(folder)).read_bytes()
                packed = data.startswith(b"\x28\xb5\x2f\xfd") and code != "compression"
                yield zstandard.decompress(data) if packed else data


def zip_of(content: dict[str, bytes], method: int) -> bytes:
    """These files in a zip."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as archive:
        for name, data in content.items():
            archive.writestr(zipfile.ZipInfo(name), data, method)
    return buffer.getvalue()


def _tar_of(content: dict[str, bytes], form: int) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=form) as archive:
        for name, data in content.items():
            info = tarfile.TarInfo(name)
            info.size, info.mtime = len(data), 1 if form == tarfile.USTAR_FORMAT else 1.5  # type: ignore[assignment]
            archive.addfile(info, io.BytesIO(data))
    return buffer.getvalue().rstrip(b"\0") + bytes(1024)


def _checkpoints() -> Iterator[bytes]:
    for number, base in enumerate(("base", "masked", "sequence")):
        content = files(base)  # type: ignore[arg-type]
        names = sorted(content)
        for place, name in enumerate(names):
            yield bytes([number + 3 * place]) + content[name]
            if name.endswith(".safetensors"):
                choice = next(n for n in range(128, 256) if n % 3 == number and n // 3 % len(names) == place)
                (length,) = (int.from_bytes(content[name][:8], "little"),)
                yield bytes([choice]) + content[name][8 : 8 + length]


def _judgements() -> Iterator[bytes]:
    rows = (("1", "a", "1"), ("2", "b,c", "0"), ("é", "'=x", ""))
    yield b"1 0 a 1\n2 0 b 0\n"
    yield b"1\ta\t1\n2\tb\t0\n"
    for separator in ",\t;":
        header = separator.join(("query", "document", "grade"))
        quote = "" if separator == "\t" else '"'
        lines = [separator.join(f"{quote}{cell}{quote}" for cell in row) for row in rows]
        yield "\n".join([header, *lines, ""]).encode()
        yield gzip.compress("\r\n".join([header, *lines, ""]).encode())
    yield b'query,document,grade\n1,"a\nb",1\n2,"x'


_MAKERS: dict[str, Callable[[], Iterator[bytes]]] = {
    "runs": _runs,
    "archives": _archives,
    "checkpoints": _checkpoints,
    "judgements": _judgements,
}
