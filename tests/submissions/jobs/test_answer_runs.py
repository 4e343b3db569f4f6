"""Answer runs from upload to board, on datasets with open and with hidden answers."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.test import Client

from leaderboard.boards.news import news_page
from leaderboard.comparison.selection import entries_of_systems
from leaderboard.comparison.table import compare
from leaderboard.core.audit import acting
from leaderboard.core.storage.runs import run_path
from leaderboard.importing.collections.importer import import_dataset
from leaderboard.importing.collections.source import ImportOptions
from leaderboard.judgements.rescoring.switch import switch_board
from leaderboard.models import Benchmark, Dataset, Entry, Rescore, Run
from leaderboard.results.measures import RefusedMeasures, describe_shown, set_measures
from leaderboard.results.publishing.protection import request_change
from leaderboard.results.publishing.publication import best_shown_result, publish_due
from leaderboard.results.publishing.visibility import name_baseline
from submissions.jobs.runner import drain_queue
from submissions.models import Flag, Submission
from submissions.queue.queue import create_requested_jobs
from tests.factories import make_user
from tests.submissions.answer_collections import ANSWERS, SLUG, answer_run, import_capitals
from tests.submissions.clients import Api
from tests.submissions.workers import work

pytestmark = pytest.mark.django_db


def submit(api: Api, run: bytes, **fields: Any) -> dict[str, Any]:
    """Submit a run through the API, and return its submission after the worker has scored it."""
    identifier = api.submit(run, dataset=SLUG, **fields).body["id"]
    work()
    body: dict[str, Any] = api.get(f"submissions/{identifier}/").body
    return body


def test_an_answer_run_is_scored_by_its_answers_and_citations(tmp_path: Path, api: Api, client: Client) -> None:
    import_capitals(tmp_path)
    run = answer_run(
        {
            "q0": {"answer": "the Paris."},
            "q1": {"answer": "It is Berlin", "citations": ["d1", "d9"]},
            "q5": {"answer": "?"},
        },
        search_calls=3, seconds=1.5, cost=0.02, confidence=0.9,
    )  # fmt: skip
    assert submit(api, run)["state"] == "done"
    entry = Entry.objects.get(is_baseline=False)
    assert entry.evaluation is not None
    means = entry.evaluation.means
    assert entry.scores["EM"] == pytest.approx(4 / 6)
    assert means["AnswerF1"] == pytest.approx((4 + 2 / 4) / 6)
    assert means["AnswerIn"] == pytest.approx(5 / 6)
    assert entry.scores["CiteP"] == pytest.approx((5 + 0.5) / 6)
    assert entry.scores["CiteR"] == pytest.approx(0.5)
    assert means["ECE"] == pytest.approx(abs(5 / 6 - 0.9))
    assert (means["SearchCalls"], means["Cost"]) == (3, pytest.approx(0.02))
    assert means["nDCG@10"] > 0.7
    page = client.get(f"/datasets/{SLUG}/").content.decode()
    assert "EM" in page
    rows = client.get(f"/datasets/{SLUG}/board.json").json()["rows"]
    assert [row["rank"] for row in rows if row["values"].get("EM") is not None] == [1]


def test_a_ranking_beside_the_answers_is_scored_as_a_run(tmp_path: Path, api: Api) -> None:
    import_capitals(tmp_path)
    ranking = [{"docid": "d20", "score": 2.0}, {"docid": "d21", "score": 1.0}]
    assert submit(api, answer_run(ranking=ranking))["state"] == "done"
    entry = Entry.objects.get(is_baseline=False)
    assert entry.evaluation is not None
    assert entry.evaluation.means["nDCG@10"] == 0
    assert entry.scores["CiteP"] == 1


def test_closed_book_answers_need_no_citations(tmp_path: Path, api: Api) -> None:
    import_capitals(tmp_path)
    body = submit(api, answer_run(citations=[]))
    assert body["state"] == "done"
    entry = Entry.objects.get(is_baseline=False)
    assert (entry.scores["EM"], entry.scores["CiteP"]) == (1, 0)
    assert entry.evaluation is not None
    assert entry.evaluation.missing_queries == 0


def test_a_ranking_is_accepted_without_a_rank(tmp_path: Path, api: Api, client: Client) -> None:
    import_capitals(tmp_path)
    run = "".join(f"{query} Q0 d{query[1:]} 1 1.0 mine\n" for query in ANSWERS)
    problem = api.check(run, dataset=SLUG).problem("not_an_answer_run")
    assert problem["severity"] == "warning"
    assert submit(api, run.encode())["state"] == "done"
    rows = client.get(f"/datasets/{SLUG}/board.json").json()["rows"]
    assert [row["rank"] for row in rows] == [None, None]


def test_all_problems_of_an_answer_run_are_told_with_their_lines(tmp_path: Path, api: Api) -> None:
    import_capitals(tmp_path)
    lines = [
        {"query_id": "q0", "answer": "Paris"},
        {"query_id": "q0", "answer": "Paris"},
        {"query_id": "q1", "answer": 7},
        {"query_id": "q2", "answer": "Rome", "confidence": 85},
        {"query_id": "q3", "answer": "x", "citations": "d1"},
        {"query_id": "q4", "answer": [{"text": "Oslo", "citations": [3]}], "references": ["d1"]},
        {"query_id": "q5", "answer": "x", "ranking": ["d1", "d1"]},
    ]
    run = "".join(json.dumps(line) + "\n" for line in lines) + "{not json}\n"
    problems = {problem["code"]: problem["lines"] for problem in api.check(run, dataset=SLUG).body["problems"]}
    assert problems == {
        "repeated_response": [2],
        "not_a_response": [3, 8],
        "figure": [4],
        "citations": [5, 6],
        "response_ranking": [7],
    }


@pytest.mark.parametrize(
    "line",
    [
        '{"query_id": "q5", "answer": "\\ud800"}',
        '{"query_id": "q5", "answer": "x", "answer": "y"}',
        '{"query_id": "q5", "answer": "x", "citations": ["a\\u0000b"]}',
        '{"query_id": "q5", "answer": "x", "cost": Infinity}',
        '{"query_id": "q5", "answer": "x", "z": ' + "[" * 50_000 + "]" * 50_000 + "}",
        '{"query_id": "q5", "retrieved_docids": 7, "result": [{"type": "output_text", "output": "x"}]}',
    ],
)
def test_hostile_answers_are_refused_and_stored_nowhere(line: str, tmp_path: Path, api: Api) -> None:
    import_capitals(tmp_path)
    runs = set(Run.objects.values_list("sha256", flat=True))
    refused = api.submit(b"".join(answer_run().splitlines(keepends=True)[:5]) + line.encode(), dataset=SLUG)
    assert (refused.status, refused.body["code"]) == (400, "invalid_run")
    assert [problem["lines"] for file in refused.body["files"] for problem in file["problems"]] == [[6]]
    assert set(Run.objects.values_list("sha256", flat=True)) == runs
    assert not Submission.objects.exists()


def test_unknown_citations_and_queries_name_the_lines_of_the_responses(tmp_path: Path, api: Api) -> None:
    import_capitals(tmp_path)
    run = answer_run({"q4": {"citations": ["absent"], "query_id": "q4"}}) + b'{"query_id": "zz", "answer": "x"}\n'
    answer = api.check(run.decode(), dataset=SLUG)
    assert answer.problem("unknown_documents")["lines"] == [5]
    assert answer.problem("unknown_queries")["lines"] == [7]


@pytest.mark.parametrize(
    "record",
    [
        {"topic_id": "q0", "run_id": "r", "references": ["d0"], "answer": [{"text": "Paris", "citations": [0]}]},
        {"metadata": {"narrative_id": "q0"}, "references": ["d0"], "answer": [{"text": "Paris", "citations": [0]}]},
        {
            "query_id": "q0", "status": "completed", "tool_call_counts": {"search": 2},
            "retrieved_docids": ["d0", "d1"],
            "result": [{"type": "output_text", "output": "See [d0].\nExact Answer: Paris\nConfidence: 90%"}],
        },
    ],
    ids=["TREC RAG 2024", "TREC RAG 2025", "BrowseComp-Plus"],
)  # fmt: skip
def test_forms_of_tracks_are_accepted(record: dict[str, Any], tmp_path: Path, api: Api) -> None:
    import_capitals(tmp_path)
    assert submit(api, (json.dumps(record) + "\n").encode())["state"] == "done"
    entry = Entry.objects.get(is_baseline=False)
    assert entry.scores["EM"] == pytest.approx(1 / 6)
    assert entry.scores["CiteP"] == pytest.approx(1 / 6)


def test_hidden_answers_are_scored_and_shown_nowhere(tmp_path: Path, api: Api, client: Client) -> None:
    import_capitals(tmp_path, hidden=True, primary="EM", measures=("CiteP",))
    body = submit(api, answer_run(citations=["d0"]))
    assert body["state"] == "done"
    entry = Entry.objects.get(is_baseline=False)
    assert entry.scores["EM"] == 1
    assert not Flag.objects.filter(kind__in=[Flag.Kind.FEW_QUERIES, Flag.Kind.FEW_DOCUMENTS]).exists()
    for address in (f"/datasets/{SLUG}/", f"/submissions/{body['id']}/", f"/datasets/{SLUG}/board.json"):
        page = client.get(address).content.decode()
        assert not any(f">{answer}<" in page or f'"{answer}"' in page for answer in ("Paris", "Oslo", "Lima"))


def make_competition(folder: Path) -> Entry:
    """Create a competition, and return the entry that becomes its baseline."""
    dataset = import_capitals(folder, hidden=True).dataset
    assert dataset is not None
    submit(Api(make_user("Carol", is_superuser=True)), answer_run(answer="?"), system="Floor")
    with acting(None, "a competition"):
        request_change(dataset, competition=True, share=0.5, although_told=True)
    Dataset.objects.update(daily_quota=None, monthly_quota=None)
    create_requested_jobs()
    work()
    return Entry.objects.get(is_baseline=False)


def test_a_competition_of_answers_waits_for_a_baseline_with_answers(tmp_path: Path, api: Api) -> None:
    floor = make_competition(tmp_path)
    agent = Entry.objects.get(submission_reference=submit(api, answer_run(cost=0.02), system="Agent")["id"])
    assert agent.visibility == Entry.Visibility.HELD
    assert agent.evaluation is not None
    assert [part.means["Cost"] for part in agent.evaluation.parts.all()] == pytest.approx([0.02, 0.02])
    call_command("name_baseline", str(floor.pk), by=floor.submitter.email, why="a floor")
    assert publish_due() == 1
    agent.refresh_from_db()
    assert agent.scores == {"EM": 1}


def test_references_in_a_competition_hold_only_references(tmp_path: Path, api: Api) -> None:
    """A reference does not prevent a result of its team, and is no second reading of an equal one."""
    floor = make_competition(tmp_path)
    call_command("name_baseline", str(floor.pk), by=floor.submitter.email, why="a floor")
    wrong = {f"q{number}": {"answer": "?"} for number in range(6)}

    def send(run: bytes, **fields: str) -> Entry:
        entry = Entry.objects.get(submission_reference=submit(api, run, **fields)["id"])
        assert not publish_due()
        return entry

    gold = send(answer_run(), system="Gold", run_type="gold")
    assert gold.scores == {"EM": 1}
    probe = send(answer_run(wrong), system="Probe")
    assert (probe.visibility, best_shown_result(probe)) == (Entry.Visibility.HELD, None)
    agent = send(answer_run({"q0": {"answer": "paris"}}), system="Agent")
    assert (agent.visibility, agent.scores) == (Entry.Visibility.PUBLIC, {"EM": 1})
    again = send(answer_run({"q1": {"answer": "berlin"}}), system="Again", run_type="closed")
    assert (again.visibility, best_shown_result(again)) == (Entry.Visibility.HELD, gold)


def test_other_measures_of_hidden_answers_are_published_in_coarse_steps(tmp_path: Path, api: Api) -> None:
    import_capitals(tmp_path, hidden=True, measures=("AnswerF1",))
    submit(api, answer_run({"q0": {"answer": "?"}}))
    assert Entry.objects.get(is_baseline=False).scores == {"EM": 0.833, "AnswerF1": 0.8}


def test_stated_costs_are_published_with_hidden_answers(tmp_path: Path, api: Api, client: Client) -> None:
    import_capitals(tmp_path, hidden=True, measures=("SearchCalls", "Cost"))
    submit(api, answer_run({"q0": {"answer": "?", "cost": 0.05}}, search_calls=3, cost=0.02))
    scores = {"EM": 0.833, "SearchCalls": 3, "Cost": 0.025}
    assert Entry.objects.get(is_baseline=False).scores == scores
    page = " ".join(client.get(f"/datasets/{SLUG}/").content.decode().split())
    assert "Published: EM, SearchCalls and Cost, rounded to 3 decimals." in page
    row = next(row for row in client.get(f"/datasets/{SLUG}/board.json").json()["rows"] if not row["baseline"])
    assert {name: row["values"][name] for name in scores} == scores


def test_stated_costs_are_shown_only_as_the_judgments_of_the_board_require(
    tmp_path: Path, api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = import_capitals(tmp_path, hidden=True, measures=("Cost",)).dataset
    assert dataset is not None
    with monkeypatch.context() as earlier:  # Earlier code stored values of judged queries.
        earlier.setattr("submissions.jobs.kinds.score.STATED_FIGURES", {})
        submit(api, answer_run(cost=0.02), system="Old")
    assert "No result has Cost yet." in describe_shown(dataset, ["EM", "Cost"])
    submit(api, answer_run({"q0": {"answer": "?"}}, cost=0.03), system="New")
    assert "No result has" not in describe_shown(dataset, ["EM", "Cost"])
    rows = Entry.objects.filter(is_baseline=False).order_by("pk")
    assert [row.scores.get("Cost") for row in rows] == [None, 0.03], "means over judged queries would reveal these"
    import_dataset(tmp_path, ImportOptions(slug=SLUG, primary="EM", measures=("Cost",), hidden=False))
    assert [row.scores.get("Cost") for row in rows.all()] == [0.02, None], "tests need values by query"


def test_probes_of_hidden_answers_are_flagged(tmp_path: Path, api: Api) -> None:
    """Two closed-book runs differ in one answer."""
    import_capitals(tmp_path, hidden=True, primary="EM", measures=("CiteP",))
    submit(api, answer_run(citations=[]), system="First")
    submit(api, answer_run({"q3": {"answer": "Mumbai"}}, citations=[]), system="Second")
    assert Flag.objects.filter(kind=Flag.Kind.NEARLY_THE_SAME).exists()


def test_references_are_shown_without_a_rank_and_the_verdict_names_them(
    tmp_path: Path, api: Api, client: Client
) -> None:
    import_capitals(tmp_path, measures=("CiteP", "SearchCalls", "Cost"))
    wrong = {"q4": {"answer": "?"}, "q5": {"answer": "?"}}
    submit(api, answer_run(wrong, search_calls=4, cost=0.5), system="Agent")
    submit(api, answer_run(citations=[]), system="Gold", run_type="gold")
    submit(api, answer_run({**wrong, "q3": {"answer": "?"}}, citations=[]), system="Floor", run_type="closed")
    board = client.get(f"/datasets/{SLUG}/board.json").json()
    ranks = {row["system"]: row["rank"] for row in board["rows"] if row["values"].get("EM") is not None}
    assert ranks == {"Agent": 1, "Gold": None, "Floor": None}
    page = " ".join(re.sub("<[^>]*>", "", client.get(f"/datasets/{SLUG}/").content.decode()).split())
    assert "gold evidence 1.000 (Gold), closed book 0.500 (Floor)" in page
    assert "4 searches per query, 0.5 USD per query, as stated" in page
    assert "They show the range in which other systems are expected." in page
    with acting(None, "a floor"):
        name_baseline(Entry.objects.get(system__name="Floor"))
    page = " ".join(re.sub("<[^>]*>", "", client.get(f"/datasets/{SLUG}/").content.decode()).split())
    assert "leads Floor by 33%" in page
    results = [row["certainty"] for row in board["rows"] if row["system"] == "Gold"]
    assert results == [None] or results[0]["rank_low"] is None


def test_a_reference_is_not_used_as_the_result_of_its_system(tmp_path: Path, api: Api, client: Client) -> None:
    import_capitals(tmp_path)
    wrong = {"q4": {"answer": "?"}, "q5": {"answer": "?"}}
    submit(api, answer_run({**wrong, "q3": {"answer": "?"}}), system="Rival")
    submit(api, answer_run(wrong), system="Agent")
    for name, changes in (("all", {}), ("some", {"q0": {"answer": "?"}})):
        submit(api, answer_run(changes), system="Agent", run_type="gold", configuration=name)
    page = " ".join(re.sub("<[^>]*>", "", client.get(f"/datasets/{SLUG}/").content.decode()).split())
    assert "References: gold evidence 1.000 (Agent (all), best of 2)" in page
    assert {item.note.partition(" ")[2][:5]: item.new_best for item in news_page(1)[1] if item.system} == {
        "0.500": False, "0.667": True, "1.000": False, "0.833": False
    }  # fmt: skip
    comparison = compare(["rival", "agent"], entries_of_systems(["rival", "agent"]), "EM")
    assert [cell.value for row in comparison.rows for cell in row.cells] == [0.5, pytest.approx(2 / 3)]
    page = client.get(f"/datasets/{SLUG}/queries/q4/").content.decode()
    assert "Oslo</b>\n" not in page.split("rankings")[1]
    assert "0.667 · 1 of 2" in client.get(f"/systems/agent/badge.svg?dataset={SLUG}").content.decode()
    submit(api, answer_run(citations=[]), system="Floor", run_type="closed")
    assert "1.000, closed book" in client.get(f"/systems/floor/badge.svg?dataset={SLUG}").content.decode()
    assert "<small>closed book</small>" in client.get("/compare/?system=agent&system=floor").content.decode()
    assert "<small>closed book</small>" in client.get(f"/datasets/{SLUG}/queries/q4/").content.decode()


def test_query_pages_show_the_answers_that_the_scores_used(tmp_path: Path, api: Api, client: Client) -> None:
    import_capitals(tmp_path)
    submit(api, answer_run(), system="Agent")
    answers = tmp_path / "answers.jsonl"
    answers.write_text(answers.read_text().replace("Oslo", "Kristiania"))
    import_dataset(tmp_path, ImportOptions(slug=SLUG, primary="EM", hidden=False))
    page = client.get(f"/datasets/{SLUG}/queries/q4/").content.decode()
    assert "EM 1.000" in page
    assert "<b>Oslo</b>" in " ".join(page.split("pager")[0].split())
    assert "Kristiania" not in page
    create_requested_jobs()
    drain_queue("score", "test-worker")
    with acting(None, "other answers"):
        switch_board(Rescore.objects.get(state=Rescore.State.READY))
    page = client.get(f"/datasets/{SLUG}/queries/q4/").content.decode()
    assert "EM 0.000" in page
    assert "<b>Kristiania</b>" in page


def test_figures_draw_quality_against_stated_costs(tmp_path: Path, api: Api, client: Client) -> None:
    import_capitals(tmp_path, measures=("CiteP", "SearchCalls", "Cost"))
    for number, name in enumerate(["One", "Two", "Three"], 1):
        wrong = {f"q{each}": {"answer": "?"} for each in range(number)}
        submit(api, answer_run(wrong, search_calls=number, cost=0.1 * number), system=name)
    figure = client.get(f"/figures/pareto/?dataset={SLUG}&x=searches")
    assert figure.status_code == 200
    page = figure.content.decode()
    assert "Search calls per query" in page
    assert "Stated in the runs" in page


def test_query_pages_show_answers_side_by_side(tmp_path: Path, api: Api, client: Client) -> None:
    import_capitals(tmp_path)
    long_answer = "<script>alert(1)</script> " + "word " * 500
    submit(api, answer_run({"q2": {"answer": long_answer}}, confidence=0.25), system="Talkative")
    submit(api, answer_run(citations=[]), system="Terse")
    page = client.get(f"/datasets/{SLUG}/queries/q2/").content.decode()
    assert "<b>Rome</b> · <b>Roma</b>" in " ".join(page.split())
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    assert "<script>alert" not in page
    assert "Confidence: 0.25" in page
    assert page.count("word ") < 200
    assert client.get(f"/datasets/{SLUG}/queries/q9/").status_code == 404


def test_references_do_not_break_benchmarks_and_home(tmp_path: Path, api: Api, client: Client) -> None:
    dataset = import_capitals(tmp_path).dataset
    benchmark = Benchmark.objects.create(slug="answers", name="Answers", measure="EM")
    benchmark.members.create(dataset=dataset, position=0)
    submit(api, answer_run(), system="Agent")
    submit(api, answer_run(citations=[]), system="Gold", run_type="gold")
    for address in ("/", "/datasets/", "/benchmarks/answers/", f"/datasets/{SLUG}/"):
        assert client.get(address).status_code == 200
    rows = client.get("/benchmarks/answers/board.json").json()["rows"]
    assert {row["system"]: row["rank"] for row in rows if row["system"] != "BM25"} == {"Agent": 1, "Gold": None}


def test_calibration_errors_are_not_tested_and_not_shown_with_hidden_answers(
    tmp_path: Path, api: Api, client: Client
) -> None:
    dataset = import_capitals(tmp_path, measures=("ECE",)).dataset
    submit(api, answer_run(confidence=0.9), system="Agent")
    submit(api, answer_run({"q0": {"answer": "?"}}, confidence=0.9), system="Other")
    rows = client.get(f"/datasets/{SLUG}/board.json?measure=ECE").json()["rows"]
    assert [row["certainty"] for row in rows] == [None] * 3
    Dataset.objects.filter(pk=dataset.pk).update(hidden=True)
    with acting(None, "a measure"), pytest.raises(RefusedMeasures, match="ECE reveals"):
        set_measures(Dataset.objects.get(pk=dataset.pk), "EM", ["ECE"])


def test_a_missing_run_does_not_prevent_the_page_of_a_query(tmp_path: Path, api: Api, client: Client) -> None:
    import_capitals(tmp_path)
    submit(api, answer_run())
    run_path(Run.objects.get(origin="uploaded").sha256).unlink()
    page = client.get(f"/datasets/{SLUG}/queries/q2/")
    assert page.status_code == 200
    assert "Rome" in page.content.decode()
