"""Whatever is sent as a run, an archive, a checkpoint or judgements ends in a verdict, never in an exception.

The cases are few here; `make fuzz` asks for 10,000 of each by RUNBOARD_FUZZ_CASES.
"""

from __future__ import annotations

import bz2
import gzip
import io
import os
import random
import tempfile
import warnings
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import zstandard
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fuzz.seeds import WORDS, seeds
from tests.fuzz.spoilt_checkpoints import judge_once
from tests.fuzz.targets import TARGETS, judge

CASES = int(os.environ.get("RUNBOARD_FUZZ_CASES", "25"))
MANY = settings(
    max_examples=CASES,
    deadline=None,
    derandomize=CASES < 1000,
    database=None,
    suppress_health_check=list(HealthCheck),
)

SPACE = st.sampled_from([" ", " ", " ", "\t", "  ", "\v", "\f", "\u00a0", "\u3000", ""])
QUERY = st.sampled_from(["1", "2", "query-with-a-long-identifier", "9", "é", "x" * 300, "", "\0", "\u2028"])
DOCUMENT = st.one_of(
    st.sampled_from(["a", "b", "é", "document-with-a-long-identifier", "y" * 257]),
    st.text(min_size=1, max_size=8),
    st.integers(0, 60).map(str),
)
SCORE = st.one_of(
    st.floats().map(repr),
    st.integers().map(str),
    st.sampled_from(
        ["nan", "-inf", "1e400", "1e-400", "0x1p3", "1_000", "٣", "３", "+", ".", "1.", "-.5e+3", "9" * 60]
    ),
)
LINE_END = st.sampled_from(["\n", "\n", "\n", "\r\n", "\r", "\n\n", "\0\n", ""])
COMPRESS = st.sampled_from([bytes, bytes, gzip.compress, bz2.compress, zstandard.compress])
PATH = st.one_of(
    st.sampled_from(["config.json", "CONFIG.JSON", "a/b.txt", "../x", "/x", "a//b", "a\\b", "", "a/", "__MACOSX/x"]),
    st.text(max_size=30),
)
SEEDS = {target: tuple(seeds(target)) for target in TARGETS}


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """A folder in memory where there is one: ten thousand cases write some files each."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as made:
        yield Path(made)


def line(query: str, document: str, score: str, space: str, end: str, fields: int) -> str:
    """One line, of six fields or fewer."""
    return space.join([query, "Q0", document, "1", score, "tag"][:fields]) + end


LINE = st.builds(line, QUERY, DOCUMENT, SCORE, SPACE, LINE_END, st.sampled_from([6, 6, 6, 6, 5, 3, 0]))
START = st.sampled_from(["", "", "\ufeff", "# ir_metadata.start\n# a:\n#  - 1: [x\n", "{", "#"])
ENCODING = st.sampled_from(["utf-8", "utf-8", "utf-8", "utf-16", "latin-1", "utf-7"])
#: Lines that are nearly a run's, in any encoding.
RUN_TEXT = st.builds(
    lambda start, lines, encoding: (start + "".join(lines)).encode(encoding, "replace"),
    START,
    st.lists(LINE, max_size=8),
    ENCODING,
)


@st.composite
def zip_bytes(draw: st.DrawFn) -> bytes:
    """A zip of any members, whose flags, sizes and places may be other than they were."""
    buffer = io.BytesIO()
    with warnings.catch_warnings(), zipfile.ZipFile(buffer, "w") as archive:
        warnings.simplefilter("ignore")  # that a name is there twice is what is meant
        for _ in range(draw(st.integers(0, 5))):
            info = zipfile.ZipInfo(draw(PATH) or "x")
            info.external_attr = draw(st.sampled_from([0, 0o100644, 0o120777, 0o060000, 0o040755])) << 16
            info.compress_type = draw(st.sampled_from([0, 8, 8, 12, 14]))
            archive.writestr(info, draw(st.binary(max_size=200)))
    return draw(spoilt(buffer.getvalue())) if draw(st.booleans()) else buffer.getvalue()


@st.composite
def spoilt(draw: st.DrawFn, data: bytes) -> bytes:
    """The bytes with a few of them replaced, cut out, repeated or preceded by a word that matters."""
    for _ in range(draw(st.integers(0, 4))):
        place = draw(st.integers(0, len(data)))
        length = draw(st.integers(0, 64))
        put = draw(st.one_of(st.sampled_from(WORDS), st.binary(max_size=8), st.just(data[place : place + length])))
        end = place + draw(st.sampled_from([0, len(put), length]))
        data = data[:place] + put + data[end:]
    return data[: draw(st.integers(0, len(data)))] if draw(st.integers(0, 9)) == 0 else data


@MANY
@given(data=st.data())
@pytest.mark.parametrize("target", TARGETS)
def test_any_bytes_end_in_a_verdict(target: str, folder: Path, data: st.DataObject) -> None:
    assert judge(target, data.draw(spoilt(data.draw(st.sampled_from(SEEDS[target])))), folder)


@MANY
@given(text=RUN_TEXT, compress=COMPRESS)
def test_any_run_ends_in_a_verdict(folder: Path, text: bytes, compress: type[bytes]) -> None:
    assert judge("runs", compress(text), folder)


@MANY
@given(data=zip_bytes())
def test_any_zip_ends_in_a_verdict(folder: Path, data: bytes) -> None:
    assert judge("archives", data, folder)


@MANY
@given(generator=st.randoms(use_true_random=False))
def test_any_change_of_a_checkpoint_ends_in_a_verdict(folder: Path, generator: random.Random) -> None:
    with tempfile.TemporaryDirectory(dir=folder) as work:
        assert judge_once(generator, Path(work))[1]
