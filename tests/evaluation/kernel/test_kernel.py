"""The compiled reader: the same numbers as pytrec_eval for any run, and a library that is made and kept with care."""

from __future__ import annotations

import ctypes
import random
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import pytrec_eval

from evaluation.collections.document_ids import DocumentIds
from evaluation.core.problems import InvalidContent, KernelUnavailable
from evaluation.judgements.qrels import Qrels
from evaluation.kernel import building
from evaluation.runs.score import ScoringTarget, check_run, score_run

MEASURES = {"nDCG@10": "ndcg_cut_10", "AP": "map", "RR": "recip_rank", "R@100": "recall_100", "P@10": "P_10"}
ROOT = Path(__file__).resolve().parents[3]
LETTERS = "ab01é漢"


def some_ids(generator: random.Random, count: int) -> list[str]:
    """Ids of all the lengths that the hash treats differently."""
    found: set[str] = set()
    while len(found) < count:
        length = generator.choice((2, 3, 7, 8, 9, 15, 16, 17, 24, 25))
        found.add("".join(generator.choice(LETTERS) for _ in range(length)))
    return sorted(found)


def a_score(generator: random.Random) -> str:
    """Ties are frequent, in float32 as well."""
    return generator.choice(
        (str(generator.randint(0, 20)), f"{generator.uniform(-9, 9):.6f}", repr(generator.gauss(0, 1)),
         f"{generator.randint(0, 5)}.00000001", f"{generator.randint(1, 9)}e-3", "16777217.0000000000000000001", "-0")
    )  # fmt: skip


def a_run(generator: random.Random, queries: list[str], documents: list[str]) -> dict[str, dict[str, str]]:
    return {
        query: {document: a_score(generator) for document in generator.sample(documents, generator.randint(1, 120))}
        for query in generator.sample(queries, generator.randint(1, len(queries)))
    }


def lines_of(run: dict[str, dict[str, str]]) -> list[str]:
    return [
        f"{query} Q0 {document} {rank} {score} tag\n"
        for query, scores in run.items()
        for rank, (document, score) in enumerate(scores.items(), 1)
    ]


@pytest.mark.parametrize("seed", range(12))
def test_any_run_scores_as_pytrec_eval_has_it(seed: int, tmp_path: Path) -> None:
    generator = random.Random(seed)
    queries, documents = some_ids(generator, 6), some_ids(generator, 200)
    judged = {
        query: {document: generator.choice((0, 1, 2)) for document in generator.sample(documents, 60)}
        for query in queries
    }
    run = a_run(generator, queries, documents)
    lines = lines_of(run)
    if seed % 3 == 0:
        generator.shuffle(lines)
    (tmp_path / "run").write_text("".join(lines))
    target = ScoringTarget(
        Qrels.from_dict(judged), queries, DocumentIds.build(documents, tmp_path / "ids"), hidden=False
    )
    scored = score_run(tmp_path / "run", target, MEASURES)
    truth = pytrec_eval.RelevanceEvaluator(judged, {"ndcg_cut.10", "map", "recip_rank", "recall.100", "P.10"}).evaluate(
        {query: {document: float(score) for document, score in scores.items()} for query, scores in run.items()}
    )
    for query, values in zip(scored.query_ids, scored.per_query, strict=True):
        expected = [truth[query][name] if query in truth else 0.0 for name in MEASURES.values()]
        assert values.tolist() == pytest.approx(expected, abs=1e-9), query


@pytest.mark.parametrize("seed", range(40))
def test_bytes_of_any_kind_are_answered_with_a_report(seed: int, tmp_path: Path) -> None:
    generator = random.Random(seed)
    queries, documents = some_ids(generator, 4), some_ids(generator, 150)
    text = bytearray("".join(lines_of(a_run(generator, queries, documents))).encode())
    for _ in range(generator.randint(1, 60)):
        place = generator.randrange(len(text))
        piece = generator.choice((b"\n", b" ", b"\0", b"\xff", b"\xe6\xbc", b"9" * 400, b"x" * 5000, b"\t\v", b"e"))
        text[place : place + generator.randrange(4)] = piece
    (tmp_path / "run").write_bytes(bytes(text))
    target = ScoringTarget(query_ids=queries, document_ids=DocumentIds.build(documents, tmp_path / "ids"))
    report = check_run(tmp_path / "run", target)
    assert report.problems
    for problem in report.problems:
        assert len(problem.lines) <= 5
        assert list(problem.lines) == sorted(problem.lines)
        assert all(1 <= line <= text.count(b"\n") + 1 for line in problem.lines)


def test_the_sources_compile_without_a_warning() -> None:
    strict = ["-fsyntax-only", "-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Werror"]
    words = [*building._find_compiler(), "-std=c11", "-O2", building.DEFINITION, *strict]
    subprocess.run([*words, str(building.MAIN_SOURCE)], check=True)


def test_without_a_compiler_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("RUNBOARD_KERNEL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("CC", "no-such-compiler")
    with pytest.raises(KernelUnavailable, match=r"no-such-compiler.*Install gcc"):
        building.get_library_path()


def test_what_an_image_brings_compiled_needs_no_compiler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    brought, cache, sandbox = (tmp_path / name for name in ("brought", "cache", "sandbox"))
    subprocess.run([sys.executable, "-m", "evaluation.kernel", str(brought)], cwd=ROOT, check=True)
    (library,) = brought.iterdir()
    assert library.stat().st_mode & 0o777 == 0o755
    monkeypatch.setenv("RUNBOARD_KERNEL_PREBUILT", str(brought))
    monkeypatch.setenv("RUNBOARD_KERNEL_CACHE", str(cache))
    with monkeypatch.context() as without:
        without.setenv("PATH", str(tmp_path))
        without.setenv("CC", "no-such-compiler")
        used = building.get_library_path()
        assert used.read_bytes() == library.read_bytes()
        assert (used.parent, used.stat().st_mode & 0o777) == (cache, 0o700)
        assert ctypes.CDLL(str(used)).size_of_reading() > 0
        without.delenv("RUNBOARD_KERNEL_PREBUILT")  # as in a sandbox, which has a copy of the cache
        without.setenv("RUNBOARD_KERNEL_CACHE", str(shutil.copytree(cache, sandbox)))
        assert building.get_library_path().parent == sandbox
        without.setenv("RUNBOARD_KERNEL_CACHE", str(tmp_path / "empty"))
        without.setenv("RUNBOARD_KERNEL_PREBUILT", str(brought))
        for name, mode in ((library.name, 0o777), ("run_reader-of-other-sources.so", 0o755)):
            library = library.rename(brought / name)
            library.chmod(mode)  # others may have written to it, or it is no longer what the sources say
            with pytest.raises(KernelUnavailable):
                building.get_library_path()


@pytest.mark.parametrize(
    ("module", "kernel", "taken"),
    [(0o644, 0o755, True), (0o664, 0o775, True), (0o644, 0o775, False), (0o664, 0o777, False)],
)
def test_a_wheels_kernel_is_as_safe_as_the_modules_beside_it(
    module: int, kernel: int, taken: bool, tmp_path: Path
) -> None:
    package = shutil.copytree(
        ROOT / "evaluation", tmp_path / "evaluation", ignore=shutil.ignore_patterns("__pycache__")
    )
    folder = package / "kernel"
    for place in (folder, folder / "prebuilt"):
        place.mkdir(exist_ok=True)
        place.chmod(0o775)
    name = building._library_name(building._hash_inputs())
    (folder / "prebuilt" / name).write_bytes(b"compiled")  # only copied here
    (folder / "prebuilt" / name).chmod(kernel)
    (folder / "building.py").chmod(module)
    words = "from evaluation.kernel import building; print(building.get_library_path().read_bytes())"
    environment = {"PATH": str(tmp_path), "CC": "none", "RUNBOARD_KERNEL_CACHE": str(tmp_path / "cache")}
    done = subprocess.run(
        [sys.executable, "-c", words],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.stdout == "b'compiled'\n") == taken, done.stderr


def test_several_may_build_at_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    folder = tmp_path / "cache"
    monkeypatch.setenv("RUNBOARD_KERNEL_CACHE", str(folder))
    with ThreadPoolExecutor(3) as pool:
        built = set(pool.map(lambda _: building.get_library_path(), range(3)))
    assert list(folder.iterdir()) == list(built)
    assert folder.stat().st_mode & 0o777 == 0o700


def test_a_folder_that_others_may_write_to_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    monkeypatch.setenv("RUNBOARD_KERNEL_CACHE", str(tmp_path))
    with pytest.raises(KernelUnavailable, match="no other user may write"):
        building.get_library_path()


def test_a_damaged_set_of_ids_is_refused_and_never_read_beyond(tmp_path: Path) -> None:
    ids = DocumentIds.build(["a", "b" * 40], tmp_path / "ids")
    assert "b" * 40 in ids
    assert "b" * 39 not in ids
    assert "" not in ids
    (tmp_path / "ids").write_bytes(b"something else")
    with pytest.raises(ValueError, match="not a set"):
        DocumentIds.open(tmp_path / "ids")


def test_a_score_out_of_reach_of_float32_is_an_error_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("q Q0 a 1 3.4028234e38 t\nq Q0 b 2 3.4028236e38 t\n")
    report = check_run(tmp_path / "run", ScoringTarget(query_ids=["q"]))
    assert [(problem.code, problem.lines) for problem in report.errors] == [("score", (2,))]
    with pytest.raises(InvalidContent):
        score_run(tmp_path / "run", ScoringTarget(Qrels.from_dict({"q": {"a": 1}})), ["RR"])
