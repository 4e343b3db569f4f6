"""What the tools of others say of our files.

Two are no requirements, and each has a test that runs where it is installed: Every Eval Ever needs Python 3.12, and
repro_eval imports `pkg_resources`, which setuptools no longer has.
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import random
import subprocess
import sys
import uuid
from pathlib import Path

import pytest
from django.test import Client

from evaluation.measures.registry import DEFAULT_MEASURES
from runboard import embeddings
from tests.leaderboard.certainty import compute_certainty
from tests.leaderboard.entries import make_system, score, scored_dataset
from tests.leaderboard.entries_by_query import score_queries
from tests.reported_boards import load_reported

pytestmark = pytest.mark.long  # they take seconds to import

#: Measures that go by other names elsewhere, or by none: the page of measures defines them.
OURS_ALONE = {"R_cap@100", "Hole@10"}


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    """Judgements and a run over them, with graded and unjudged documents, and no two scores alike."""
    rng = random.Random(7)
    qrels, run = [], []
    for query in range(1, 31):
        documents = [f"d{number}" for number in range(200)]
        qrels += [f"{query} 0 {each} {rng.randint(0, 3)}\n" for each in rng.sample(documents, 40)]
        ranked = enumerate(rng.sample(documents, 150))
        run += [f"{query} Q0 {each} {rank + 1} {1000 - rank} mine\n" for rank, each in ranked]
    (tmp_path / "qrels.txt").write_text("".join(qrels))
    (tmp_path / "run.txt").write_text("".join(run))
    return tmp_path / "qrels.txt", tmp_path / "run.txt"


def test_ir_measures_finds_the_same_values_under_the_same_names(files: tuple[Path, Path]) -> None:
    import ir_measures

    others = ("Rprec", "Bpref", "Judged@10", "ERR@20", "IPrec@0.1", "SetP", "SetR", "SetF", "SetAP")
    names = [name for name in (*DEFAULT_MEASURES, *others) if name not in OURS_ALONE]
    providers = [provider for provider in ir_measures.DefaultPipeline.providers if provider.is_available()]
    measures = list(map(ir_measures.parse_measure, names))
    measures = [each for each in measures if any(provider.supports(each) for provider in providers)]
    assert [name for name in names if name not in map(str, measures)] in ([], ["ERR@20"]), "gdeval requires Perl"
    qrels, run = (list(read(str(file))) for read, file in zip(
        (ir_measures.read_trec_qrels, ir_measures.read_trec_run), files, strict=True
    ))  # fmt: skip
    theirs = {str(each): value for each, value in ir_measures.calc_aggregate(measures, qrels, run).items()}
    command = [
        sys.executable,
        "-m",
        "evaluation",
        "score",
        "--json",
        "--qrels",
        str(files[0]),
        "--run",
        str(files[1]),
    ]
    told = subprocess.run(
        [*command, "--measures", ",".join(map(str, measures))], check=True, capture_output=True, timeout=120
    )
    for name, value in json.loads(told.stdout)["means"].items():
        # gdeval prints five decimals of each query.
        assert theirs.pop(name) == pytest.approx(value, abs=5e-6 if name == "ERR@20" else 1e-9), name
    assert not theirs


def test_pyterrier_reads_runs_and_has_our_columns(client: Client, files: tuple[Path, Path], db: None) -> None:
    import pyterrier as pt
    from ir_measures import nDCG

    run, qrels = pt.io.read_results(str(files[1])), pt.io.read_qrels(str(files[0]))
    topics = run[["qid"]].drop_duplicates().assign(query="")
    worse = run.assign(score=-run["score"])
    table = pt.Experiment(
        [pt.Transformer.from_df(run), pt.Transformer.from_df(worse)], topics, qrels, [nDCG @ 10],
        names=["a", "b"], baseline=0, correction="holm",
    )  # fmt: skip
    dataset = scored_dataset()
    score_queries(dataset, "BM25", [0.2] * 40, baseline=True)
    score_queries(dataset, "Better", [0.8] * 40)
    compute_certainty(dataset)
    text = client.get(f"/datasets/{dataset.slug}/board.csv").content.decode()
    columns = csv.DictReader(io.StringIO(text)).fieldnames or ()
    assert {each for each in table.columns if each.startswith("nDCG@10")} <= set(columns)


def test_repro_eval_reads_what_a_run_says_of_itself(files: tuple[Path, Path], tmp_path: Path) -> None:
    metadata = pytest.importorskip("repro_eval.metadata")
    arguments = argparse.Namespace(model="owl: large", query_prefix="q: ", document_prefix="", price=0.02)
    endpoint = embeddings.Endpoint("https://api.example.org/v1", "owl: large", "")
    run = tmp_path / "with_header.txt"
    run.write_text(embeddings._header(arguments, endpoint, 8, embeddings.Cost(120, 1.5)) + files[1].read_text())
    said = metadata.MetadataHandler.read_metadata(str(run))
    assert said["method"]["retrieval"][0]["model"] == "owl: large"
    assert said["resources"]["tokens"] == 120


@pytest.mark.django_db
def test_the_validator_of_every_eval_ever_takes_every_record(client: Client, tmp_path: Path) -> None:
    pytest.importorskip("every_eval_ever")
    load_reported()
    system = make_system("Dense", open_weights=True)
    score(scored_dataset(), system, ndcg=0.25, recall=0.5)
    paths = []
    for slug in (system.slug, "colbert-beir-2021"):
        answer = client.get(f"/systems/{slug}/every_eval_ever.json")
        folder = Path("data", "runboard", *answer.json()["model_info"]["id"].split("/"))
        (tmp_path / folder).mkdir(parents=True)
        paths.append(folder / f"{uuid.uuid4()}.json")
        (tmp_path / paths[-1]).write_bytes(answer.content)
    command = [sys.executable, "-m", "every_eval_ever", "validate", *map(str, paths)]
    # It exits with 2 where it only warns.
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, timeout=120)
