"""A collection of millions of passages from its import to its runs: time, memory of each process, and disk.

    python tests/benchmarks/large_corpus.py --folder build/large [--documents 8841823] [--threads 2]

Passages of 55 words are drawn from a Zipfian vocabulary of 300,000, with a seed; queries of 6 words begin passages.
They are imported into a site of their own, and searched with BM25, with static embeddings of 256 dimensions exactly and
through inverted lists (IVF), and exactly in four parts, one after the other, which are merged: the bytes must be those
of one search. Every step is a process, and writes its figures into the folder: a step that is there is not done again.

8.8 million passages take hours and 60 GiB, so that nothing runs without a folder. Memory is what a process holds for
itself (RssAnon of /proc, four times a second): pages of mapped files belong to the system, which takes them back.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.figures import SKIPPED, Figures, add_option  # noqa: E402

WORDS, VOCABULARY, DIMENSION, AT_ONCE, PARTS = 55, 300_000, 256, 50_000, 4
QUERIES, QUERY_WORDS, DEPTH = 1_000, 6, 100
SEED = 8_841_823
MAX_GIB = 4.0
GIB = 2**30
#: Prints where the store has the only corpus.
FIND_CORPUS = (
    "from leaderboard.models.datasets import DatasetVersion; from leaderboard.core.storage.store import Area, path_of; "
    "print(path_of(Area.FILES, DatasetVersion.objects.get().corpus_sha256))"
)


def words_of() -> list[str]:
    """A vocabulary of words that no stemmer shortens to the same, the commonest first."""
    letters = np.array(list("bcdfgklmnprstvz"))
    vowels = np.array(list("aeou"))
    numbers = np.arange(VOCABULARY)
    parts = []
    for place in range(3):
        parts += [letters[numbers // 60**place % 15], vowels[numbers // 60**place // 15 % 4]]
    parts.append(letters[numbers // 216_000 % 15])
    return ["".join(row) for row in zip(*parts, strict=True)]


def draw(number: int, count: int, words: int) -> np.ndarray:
    """Places in the vocabulary (count × words), drawn as 1 / (rank + 2.7)."""
    share = np.cumsum(1 / (np.arange(VOCABULARY) + 2.7))
    drawn = np.random.default_rng([SEED, number]).random((count, words)) * share[-1]
    return np.minimum(np.searchsorted(share, drawn), VOCABULARY - 1)


def make_collection(folder: Path, documents: int, length: int = WORDS) -> None:
    """Write the collection in BEIR layout; each query is made of a passage, which is relevant to it."""
    (folder / "qrels").mkdir(parents=True, exist_ok=True)
    words = words_of()

    def text(row: np.ndarray) -> str:
        return " ".join([words[place] for place in row.tolist()])

    queries, judgements = [], ["query-id\tcorpus-id\tscore"]
    asked = {number * documents // QUERIES: number for number in range(QUERIES)}
    with (folder / "corpus.jsonl").open("w", encoding="utf-8") as corpus:
        for first in range(0, documents, AT_ONCE):
            rows = draw(first // AT_ONCE, min(AT_ONCE, documents - first), length)
            for number, row in enumerate(rows, first):
                corpus.write(f'{{"_id": "p{number}", "title": "", "text": "{text(row)}"}}\n')
                if number in asked:
                    query = row[:QUERY_WORDS]
                    queries.append(json.dumps({"_id": f"q{asked[number]}", "text": text(query)}))
                    judgements.append(f"q{asked[number]}\tp{number}\t1")
    (folder / "queries.jsonl").write_text("\n".join(queries) + "\n", "utf-8")
    (folder / "qrels" / "test.tsv").write_text("\n".join(judgements) + "\n", "utf-8")


def make_model(folder: Path) -> None:
    """Static embeddings of random values, a vector a word."""
    import torch
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import StaticEmbedding
    from tokenizers import Tokenizer, models, pre_tokenizers

    vocabulary = {word: number for number, word in enumerate(["[UNK]", *words_of()])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    torch.manual_seed(SEED)
    weights = torch.randn(len(vocabulary), DIMENSION)
    module = StaticEmbedding(tokenizer, embedding_weights=weights)
    SentenceTransformer(modules=[module], device="cpu", similarity_fn_name="cosine").save(str(folder))


def anonymous_bytes(process: int) -> int:
    """Bytes that a process and its children hold for themselves."""
    try:
        lines = Path(f"/proc/{process}/status").read_text().splitlines()
        children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    except OSError:
        return 0
    held = sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon"))
    return max([held, *(anonymous_bytes(int(child)) for child in children)])


def run(words: list[str], log: Path, environment: dict[str, str]) -> dict[str, float]:
    """Wall and CPU seconds of a process, and the most bytes that one process held."""
    started, peak = time.perf_counter(), 0
    with log.open("ab") as output:
        process = subprocess.Popen(words, stdout=output, stderr=output, env=environment, cwd=ROOT)
        while True:
            found, status, usage = os.wait4(process.pid, os.WNOHANG)
            if found:
                break
            peak = max(peak, anonymous_bytes(process.pid))
            time.sleep(0.25)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        sys.exit(f"{' '.join(words)}\n{log.read_text()[-4_000:]}")
    return {
        "wall": time.perf_counter() - started,
        "cpu": usage.ru_utime + usage.ru_stime,
        "memory": peak,
    }


def size_of(folder: Path) -> int:
    """Bytes that a folder takes on the disk."""
    files = (path.stat() for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
    return sum(512 * one.st_blocks for one in files)


class Trial:
    """The steps, in a folder that remembers what was done."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.folder: Path = arguments.folder.resolve()
        self.documents, self.threads = arguments.documents, str(arguments.threads)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.environment = {**os.environ, "PYTHONPATH": str(ROOT), "RUNBOARD_VAR": str(self.folder / "var")}

    def step(self, name: str, *commands: list[str]) -> dict[str, float]:
        """What the commands took, all together, and the disk behind them; as it was noted where they ran before."""
        note = self.folder / f"{name}.json"
        if not note.exists():
            print(name, flush=True)
            each = [run([sys.executable, *words], self.folder / f"{name}.log", self.environment) for words in commands]
            figures = {key: sum(one[key] for one in each) for key in ("wall", "cpu")}
            figures |= {"memory": max(one["memory"] for one in each), "disk": size_of(self.folder)}
            note.write_text(json.dumps(figures))
        done: dict[str, float] = json.loads(note.read_text())
        return done

    def retrieve(self, out: str, *options: str) -> list[str]:
        """The command of a search over the imported corpus."""
        given = ["--corpus", str(self.corpus), "--queries", str(self.folder / "raw" / "queries.jsonl")]
        given += ["--out", str(self.folder / f"{out}.txt"), "--depth", str(DEPTH), "--threads", self.threads]
        return ["-m", "evaluation", "retrieve", *given, *options]

    def steps(self) -> Iterator[tuple[str, dict[str, float]]]:
        """Each step's name and figures, in their order."""
        raw, model = self.folder / "raw", self.folder / "model"
        own = [__file__, "--folder", str(self.folder), "--documents", str(self.documents)]
        yield "made", self.step("made", [*own, "--make"])
        options = ["--slug", "large", "--open"]
        migrate, take = (
            ["manage.py", "migrate", "-v", "0"],
            ["manage.py", "import_dataset", str(raw), *options],
        )
        yield "import", self.step("import", migrate, take)
        command = [sys.executable, "manage.py", "shell", "-v", "0", "-c", FIND_CORPUS]
        found = subprocess.run(command, cwd=ROOT, env=self.environment, capture_output=True, text=True, check=True)
        self.corpus = Path(found.stdout.split()[-1])
        yield "BM25", self.step("bm25", self.retrieve("bm25"))
        dense = ["--engine", "dense", "--checkpoint", str(model), "--device", "cpu"]
        dense += ["--shards", str(self.folder / "shards")]
        encode = [
            "-m",
            "evaluation",
            "encode",
            "--corpus",
            str(self.corpus),
            *dense,
            "--threads",
            self.threads,
        ]
        yield "encode", self.step("encode", encode)
        yield "exact", self.step("exact", self.retrieve("exact", *dense))
        count = min(PARTS, -(-self.documents // AT_ONCE))
        parts = [f"part-{number}" for number in range(1, count + 1)]
        searches = [self.retrieve(name, *dense, "--part", f"{number}/{count}") for number, name in enumerate(parts, 1)]
        merge = ["-m", "evaluation", "merge", *(str(self.folder / f"{name}.txt") for name in parts)]
        merge += ["--queries", str(raw / "queries.jsonl"), "--out", str(self.folder / "merged.txt")]
        yield f"exact, {count} parts and merge", self.step("parts", *searches, merge)
        yield "IVF", self.step("ivf", self.retrieve("ivf", *dense, "--search", "ivf"))

    def found(self, name: str) -> set[tuple[str, str]]:
        """(query, document) of a run."""
        lines = (self.folder / f"{name}.txt").read_text().splitlines()
        return {(line.split()[0], line.split()[2]) for line in lines}


def report(trial: Trial, figures: Figures, bound: Callable[[str, float, float, str], str]) -> None:
    """All steps as a table, and what the runs say of each other."""
    rows = []
    for name, done in trial.steps():
        cells = [f"{done['wall']:,.0f}", f"{done['cpu']:,.0f}", f"{done['memory'] / GIB:.2f}"]
        rows.append([name, *cells, bound(name, done["memory"] / GIB, MAX_GIB, " GiB"), f"{done['disk'] / GIB:.1f}"])
    figures.say(
        f"{trial.documents:,} passages of {WORDS} words, {QUERIES:,} queries, depth {DEPTH}, {trial.threads} threads; "
        f"{DIMENSION} dimensions."
    )
    figures.table(["", "wall s", "CPU s", "GiB a process", "bound", "disk behind it, GiB"], rows)
    same = (trial.folder / "merged.txt").read_bytes() == (trial.folder / "exact.txt").read_bytes()
    bound("parts that do not merge to the bytes of one search", float(not same), 0, "")
    exact = trial.found("exact")
    figures.say(
        f"Parts merged to {'the same' if same else 'other'} bytes. Recall of the exact top {DEPTH}: IVF "
        f"{len(exact & trial.found('ivf')) / len(exact):.4f}."
    )


def read_arguments(description: str | None, documents: int) -> argparse.Namespace:
    """What the command line asks of a trial, which has so many documents unless it says otherwise."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, help="for everything, and to go on after an interruption")
    parser.add_argument("--documents", type=int, default=documents)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--make", action="store_true", help=argparse.SUPPRESS)
    add_option(parser)
    return parser.parse_args()


def main() -> None:
    """Do what is not done yet, and show all figures."""
    arguments = read_arguments(__doc__, SEED)
    if arguments.folder is None:
        print(f"{SKIPPED}{SEED:,} passages take hours and 60 GiB; name a folder: --folder")
        return
    if arguments.make:
        make_collection(arguments.folder / "raw", arguments.documents)
        make_model(arguments.folder / "model")
        return
    figures = Figures(__file__)
    report(Trial(arguments), figures, figures.bound)
    sys.exit(figures.finish(arguments.write))


if __name__ == "__main__":
    main()
