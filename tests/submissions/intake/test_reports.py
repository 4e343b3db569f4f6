"""Every class of error and warning in a run file, each with the message its sender reads."""

from __future__ import annotations

import csv
import gzip
import io
import json
import re
from typing import Any

import pytest
from django.test import Client

from leaderboard.models import Benchmark, BenchmarkMember, CollectionProfile, Dataset, System, Visibility
from tests.submissions.clients import Api, upload
from tests.submissions.collections import DOCUMENTS, QUERIES, run_text
from tests.submissions.workers import work

pytestmark = pytest.mark.django_db

GOOD = run_text()
LINE = "q1 Q0 d500 99 0.25 test\n"
FIRST = GOOD.splitlines(keepends=True)[0]

#: Error → (file, code, words of the message, first lines named).
ERRORS: dict[str, tuple[str | bytes, str, str, list[int]]] = {
    "five fields": ("q1 Q0 d500 99 0.25\n" + GOOD, "fields", "six fields", [1]),
    "seven fields": (GOOD + "q1 Q0 d500 99 0.25 my tag\n", "fields", "six fields", [241]),
    "not UTF-8": (GOOD.encode() + b"q1 Q0 d500 99 0.25 caf\xe9\n", "encoding", "UTF-8", [241]),
    "score nan": (GOOD + LINE.replace("0.25", "nan"), "score", "not a finite number", [241]),
    "score inf": (GOOD + LINE.replace("0.25", "-inf"), "score", "not a finite number", [241]),
    "score with underscore": (GOOD + LINE.replace("0.25", "1_000"), "score", "not a finite number", [241]),
    "score in full-width digits": (
        GOOD + LINE.replace("0.25", "１２"),
        "score",
        "not a finite number",
        [241],
    ),
    "score beyond float32": (GOOD + LINE.replace("0.25", "1e39"), "score", "single precision", [241]),
    "score in words": (GOOD + LINE.replace("0.25", "high"), "score", "not a finite number", [241]),
    "duplicate": (GOOD + FIRST, "duplicate", "already", [241]),
    "other queries": (run_text(["x1", "x2"]), "no_known_query", "none of the run's queries", []),
    "empty": ("", "empty", "no lines", []),
    "line too long": (
        GOOD + LINE.replace("test", "t" * 2000),
        "line_length",
        "longer than 1,024 bytes",
        [241],
    ),
    "other documents": (GOOD.replace(" Q0 d", " Q0 doc-"), "unknown_documents", "not in the dataset", []),
}

WARNINGS: dict[str, tuple[str, str, str]] = {
    "query missing": (run_text(QUERIES[1:]), "queries_missing", "missing; judged ones score 0"),
    "query not in the dataset": (GOOD + run_text(["x1"]), "unknown_queries", "queries, ignored"),
    "deeper than 1,000": (run_text(depth=1001), "depth", "more than 1,000 documents"),
    "rank against score": (GOOD.replace(" 1 999.5", " 7 999.5"), "rank_order", "rank disagrees with the scores"),
    "many ties": (re.sub(r" \d+\.5", " 7.5", GOOD), "ties", "the same score"),
    "several tags": (run_text(QUERIES[:6]) + run_text(QUERIES[6:], tag="b"), "several_tags", "2 different tags"),
    "a few other documents": (GOOD + LINE.replace("d500", "zzz"), "unknown_documents", "count as not relevant"),
}  # fmt: skip


@pytest.mark.parametrize("case", ERRORS)
def test_an_error_is_named_with_its_lines_and_what_would_be_right(case: str, demo: Dataset, api: Api) -> None:
    content, code, words, lines = ERRORS[case]
    answer = api.check(content)
    assert answer.status == 200
    assert answer.body["valid"] is False
    problem = answer.problem(code)
    assert problem["severity"] == "error"
    assert words in problem["message"]
    assert problem["hint"]
    assert problem["count"] >= 1
    if lines:
        assert problem["lines"] == lines


@pytest.mark.parametrize("case", WARNINGS)
def test_a_warning_is_named_and_the_run_still_counts(case: str, demo: Dataset, api: Api) -> None:
    content, code, words = WARNINGS[case]
    answer = api.check(content)
    assert answer.body["valid"] is True, answer.body
    problem = answer.problem(code)
    assert problem["severity"] == "warning"
    assert words in problem["message"]
    assert problem["hint"]


def read_twenty_documents(dataset: Dataset) -> None:
    """Have the dataset show no measure that reads deeper than the runs here are."""
    Dataset.objects.filter(pk=dataset.pk).update(measures=["nDCG@10", "RR@10", "P@20"])


def test_judged_queries_that_are_missing_are_told_once_the_run_is_scored(demo: Dataset, api: Api) -> None:
    read_twenty_documents(demo)
    identifier = api.submit(run_text(QUERIES[3:])).body["id"]
    work()
    job = api.get(f"submissions/{identifier}/").body["jobs"][0]
    assert job["missing_queries"] == 3
    [problem] = job["problems"]
    assert (problem["code"], problem["count"]) == ("judged_queries_missing", 3)
    assert "judged queries are missing; they score 0" in problem["message"]


def test_a_good_run_has_no_problems_and_is_counted(demo: Dataset, api: Api) -> None:
    read_twenty_documents(demo)
    answer = api.check(GOOD)
    assert answer.body["valid"] is True
    assert answer.body["problems"] == []
    statistics = answer.body["statistics"]
    assert (statistics["lines"], statistics["queries"], statistics["tags"]) == (240, 12, ["test"])


def test_all_problems_come_at_once_with_at_most_five_lines_each(demo: Dataset, api: Api) -> None:
    broken = GOOD + "too short\n" * 7 + FIRST * 2 + LINE.replace("0.25", "nan")
    answer = api.check(broken)
    assert {problem["code"] for problem in answer.body["problems"]} >= {"fields", "duplicate", "score"}
    fields = answer.problem("fields")
    assert fields["count"] == 7
    assert fields["lines"] == [241, 242, 243, 244, 245]


def test_header_comments_are_metadata_and_not_lines(demo: Dataset, api: Api) -> None:
    read_twenty_documents(demo)
    header = "# ir_metadata.start\n# tag: mine\n# platform:\n#   os: linux\n# ir_metadata.end\n"
    answer = api.check(header + GOOD)
    assert answer.body["valid"] is True
    assert answer.body["problems"] == []
    assert answer.body["statistics"]["lines"] == 240
    assert answer.body["statistics"]["metadata"]["tag"] == "mine"


@pytest.mark.parametrize(
    "header",
    ["# ir_metadata.start\n# tag: a\0b\n", "# ir_metadata.start\n# tag: " + "[" * 3000 + "]" * 3000 + "\n"],
)
def test_strange_header_comments_do_no_harm(header: str, demo: Dataset, api: Api) -> None:
    answer = api.submit(header + GOOD)
    assert answer.status == 201
    work()
    assert api.get(f"submissions/{answer.body['id']}/").body["state"] == "done"


def test_a_report_on_hidden_judgements_says_nothing_of_what_is_judged(secret: Dataset, api: Api) -> None:
    without_judged = api.check(run_text(QUERIES[1:]), "secret")
    without_unjudged = api.check(run_text(QUERIES[:-1]), "secret")
    said = [json.dumps(answer.body["problems"]) for answer in (without_judged, without_unjudged)]
    # each names the query that its own run misses, and says nothing else that differs
    assert said[0].replace(f"({QUERIES[0]})", "()") == said[1].replace(f"({QUERIES[-1]})", "()")
    assert "judged_queries_missing" not in str(without_judged.body)


def test_the_page_shows_the_same_report_and_keeps_what_was_entered(demo: Dataset, signed_in: Any) -> None:
    response = signed_in.post(
        "/submit/",
        {"action": "check", "new-name": "Careful", "run:demo": upload(GOOD + FIRST, "mine.txt")},
    )
    page = response.content.decode()
    assert response.status_code == 200
    assert "mine.txt" in page
    assert "The run cannot be scored" in page
    assert "List each document once per query" in page
    assert "line 241" in " ".join(page.split())
    assert 'value="Careful"' in page
    assert f"<code>{FIRST.strip()}</code>" in page


def test_documents_are_known_by_their_exact_ids(demo: Dataset, api: Api) -> None:
    assert f"d{len(DOCUMENTS)}" in DOCUMENTS
    close = run_text().replace(" Q0 d1 ", " Q0 d01 ")
    assert api.check(close).problem("unknown_documents")["count"] == 12


def test_the_hint_about_unknown_documents_shows_an_id_of_a_public_corpus(demo: Dataset, api: Api) -> None:
    CollectionProfile.objects.update_or_create(
        version=demo.current_version,
        defaults={"tokens": 1, "vocabulary": 1, "document_lengths": {}, "example": {"document": {"id": "d-7"}}},
    )
    unknown = GOOD.replace(" Q0 d", " Q0 doc-")
    assert "such as `d-7`." in api.check(unknown).problem("unknown_documents")["hint"]
    Dataset.objects.filter(pk=demo.pk).update(documents_visibility=Visibility.CURATORS)
    assert "such as" not in api.check(unknown).problem("unknown_documents")["hint"]


HEADER_OF_CLOSED = (
    "# ir_metadata.start\n# method:\n#   retrieval:\n#     - name: dense\n#       closed_interface: true\n"
    "# resources:\n#   self_reported: true\n#   tokens: 1234\n#   cost_usd: 0.0012\n# ir_metadata.end\n"
)


def test_the_board_shows_the_cost_of_1000_queries_that_a_run_states(demo: Dataset, api: Api, client: Client) -> None:
    price = "#   price_usd_per_million_tokens: 0.12\n"
    stated = HEADER_OF_CLOSED.replace("#   cost_usd", f"{price}#   cost_usd_per_1000_queries: 0.00025\n#   cost_usd")
    assert api.submit(stated + GOOD, system="Rented").status == 201
    assert api.submit(HEADER_OF_CLOSED + run_text(depth=9), system="Older client").status == 201
    work()
    answer = client.get(f"/api/v1/datasets/{demo.slug}/board/").json()
    rows = {row["slug"]: row for row in answer["rows"]}
    assert (rows["rented"]["values"]["cost"], rows["older-client"]["values"]["cost"]) == (0.00025, None)
    whole_job = 1000 * 0.0012 / demo.current_version.statistics["queries"]  # type: ignore[union-attr]
    assert rows["older-client"]["doubtful"] == [f"Cost: {whole_job:.6g}"]
    page = client.get(f"/datasets/{demo.slug}/").content.decode()
    assert "USD per 1,000 queries, self-reported" in page
    assert "cost of the whole job, documents included, over its queries" in page
    assert "0.00025" in client.get(f"/datasets/{demo.slug}/board.tex?columns=cost").content.decode()
    cheapest_first = client.get(f"/api/v1/datasets/{demo.slug}/board/?sort=cost").json()["rows"]
    assert cheapest_first[0]["slug"] == "rented"
    assert (rows["rented"]["values"]["price"], rows["older-client"]["values"]["price"]) == (0.12, None)
    assert "USD per million tokens, self-reported" in page
    table = csv.DictReader(io.StringIO(client.get(f"/datasets/{demo.slug}/board.csv").content.decode()))
    prices = {row["system"]: row["price [USD per million tokens, self-reported]"] for row in table}
    assert prices == {"Rented": "0.12", "Older client": ""}


def test_the_figure_of_costs_shows_those_that_runs_state(demo: Dataset, api: Api, client: Client) -> None:
    for name, text, amount in (("Rented", GOOD, 0.00025), ("Leased", run_text(depth=9), 0.5)):
        stated = HEADER_OF_CLOSED.replace("#   cost_usd", f"#   cost_usd_per_1000_queries: {amount}\n#   cost_usd")
        assert api.submit(stated + text, system=name).status == 201
    work()
    benchmark = Benchmark.objects.create(slug="all", name="All")
    BenchmarkMember.objects.create(benchmark=benchmark, dataset=demo, position=0)
    for subject in (f"dataset={demo.slug}", "benchmark=all"):
        figure = client.get(f"/figures/pareto.json?{subject}&x=cost").json()
        number = figure["table"]["heads"].index("Cost (USD per 1,000 queries, self-reported)")
        assert {row[0]: row[number] for row in figure["table"]["rows"]} == {"Rented": 0.00025, "Leased": 0.5}
        assert f"Reported by teams in their runs, {demo.name}." in figure["caption"]


@pytest.mark.parametrize("packed", [False, True])
def test_a_run_of_a_closed_interface_marks_its_new_system(
    packed: bool, demo: Dataset, api: Api, client: Client, settings: Any
) -> None:
    text = (HEADER_OF_CLOSED + GOOD).encode()
    if packed:  # and a worker is the first who reads it whole
        settings.VALIDATE_AT_ONCE_BYTES, text = 1_000, gzip.compress(text)
    assert api.submit(text, system="Rented").status == 201
    work()
    system = System.objects.get(name="Rented")
    assert system.closed_api
    page = " ".join(client.get("/systems/rented/").content.decode().split())
    assert "Closed API (not reproducible)" in page
    assert "Demo: 1,234 tokens, 0.001200 US dollars" in page


COMMIT = "0123456789abcdef0123456789abcdef01234567"
HEADER_OF_OPEN = (
    '# ir_metadata.start\n# method:\n#   retrieval:\n#     - name: dense\n#       model: "served"\n'
    f'#       open_weights: true\n#       hub_model: "acme/small"\n#       hub_commit: "{COMMIT}"\n'
    "#       dimension: 384\n# resources:\n#   self_reported: true\n#   tokens: 1234\n"
    "#   cost_usd_per_1000_queries: 0.002500\n# ir_metadata.end\n"
)


@pytest.mark.parametrize("packed", [False, True])
def test_the_header_of_a_run_describes_its_new_system(
    packed: bool, demo: Dataset, api: Api, client: Client, settings: Any
) -> None:
    text = (HEADER_OF_OPEN + GOOD).encode()
    if packed:
        settings.VALIDATE_AT_ONCE_BYTES, text = 1_000, gzip.compress(text)
    assert api.submit(text, system="Served", architecture=None).status == 201
    work()
    system = System.objects.get(name="Served")
    assert (system.architecture, system.dimension, system.closed_api) == ("dense", 384, False)
    assert (system.open_weights, system.model_url) == (True, f"https://huggingface.co/acme/small/tree/{COMMIT}")
    page = " ".join(client.get("/systems/served/").content.decode().split())
    assert "Closed API" not in page
    assert "<dt>Cost (self-reported)</dt>" in page
    assert "Demo: 1,234 tokens" in page
    assert "Demo: 0.002500 US dollars per 1,000 queries" in page


def test_what_a_submitter_sends_precedes_the_header_of_the_run(demo: Dataset, api: Api) -> None:
    fields = {"architecture": "late-interaction", "dimension": "64", "model": "https://example.org/m"}
    assert api.submit(HEADER_OF_OPEN + GOOD, system="Mine", open_weights="no", **fields).status == 201
    system = System.objects.get(name="Mine")
    assert (system.architecture, system.dimension, system.open_weights) == ("late-interaction", 64, False)
    assert system.model_url == "https://example.org/m"
    again = HEADER_OF_OPEN + run_text(depth=9)
    assert api.submit(again, system="Mine", configuration="again", architecture=None).status == 201
    system.refresh_from_db()
    assert (system.architecture, system.dimension) == ("late-interaction", 64), "an existing system does not change"


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("acme/small", "acme", (True, "", 384)),
        ("acme/small", "acme/small/../../x", (True, "", 384)),
        (COMMIT, "main", (True, "", 384)),
        ("dimension: 384", "dimension: 99999999", (True, f"https://huggingface.co/acme/small/tree/{COMMIT}", None)),
        ("open_weights: true", "closed_interface: true", (None, "", 384)),
    ],
)
def test_invalid_facts_in_a_header_are_ignored(
    old: str, new: str, expected: tuple[bool | None, str, int | None], demo: Dataset, api: Api
) -> None:
    header = HEADER_OF_OPEN.replace(old, new)
    assert api.submit(header + GOOD, system="Served", architecture=None).status == 201
    system = System.objects.get(name="Served")
    assert (system.open_weights, system.model_url, system.dimension) == expected


def test_a_header_without_a_known_architecture_does_not_replace_it(demo: Dataset, api: Api) -> None:
    answer = api.submit(HEADER_OF_OPEN.replace("dense", "magic") + GOOD, system="Served", architecture=None)
    assert answer.problem("invalid_architecture")["message"].startswith("You have no system")


def test_a_run_of_a_closed_interface_is_refused_for_a_system_that_says_otherwise(demo: Dataset, api: Api) -> None:
    assert api.submit(system="Open").status == 201
    refused = api.submit(HEADER_OF_CLOSED + run_text(depth=9), system="open", configuration="rented")
    assert "“Open” is not marked" in refused.problem("closed_interface")["message"]
    assert (
        api.submit(
            HEADER_OF_CLOSED.replace("true", "false") + run_text(depth=9), system="open", configuration="own"
        ).status
        == 201
    )
