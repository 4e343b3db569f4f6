"""The card of a result on its submission's page."""

from __future__ import annotations

import re

import pytest
from django.template.loader import render_to_string
from django.test import Client

from leaderboard.boards.system.standing import Standing
from leaderboard.boards.wording import exceeds_bound, unjudged_text
from leaderboard.core.text.numbers import signed
from leaderboard.models import Dataset, Entry, System
from leaderboard.results.significance.statements import Statement
from submissions.models import Submission
from tests.leaderboard.entries import make_source, record_boards, report
from tests.pages import one_line
from tests.submissions.clients import upload
from tests.submissions.collections import run_text
from tests.submissions.workers import work

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize(("better", "green"), [(True, True), (False, False), (None, False)])
def test_only_what_is_shown_to_be_better_than_the_baseline_is_green(better: bool | None, green: bool) -> None:
    said = Statement(better=better)
    standing = Standing("Demo", "demo", "nDCG@10", 0.3, 0.1, "BM25", is_baseline=False, statement=said)
    assert ("is-good" in render_to_string("submissions/_result.html", {"standing": standing})) is green


def test_the_card_states_the_effect_of_unjudged_documents() -> None:
    values = {"nDCG@10": 0.2, "Upper(nDCG)@10": 0.35}
    for score, effect in ((0.3, "could reverse the lead over BM25"), (0.4, "cannot reverse the lead over BM25")):
        text = unjudged_text(bool(exceeds_bound("nDCG@10", score, values.get)), "BM25")
        standing = Standing(
            "Demo",
            "demo",
            "nDCG@10",
            score,
            0.1,
            "BM25",
            is_baseline=False,
            statement=Statement(better=True),
            unjudged=text,
        )
        page = one_line(render_to_string("submissions/_result.html", {"standing": standing}))
        assert f"Unjudged documents {effect}." in page
    assert exceeds_bound("nDCG@10", 0.3, {"nDCG@10": 0.2}.get) is None


def test_a_result_is_compared_with_the_leader_and_the_baseline() -> None:
    def links(leader: str, baseline: str) -> list[str]:
        standing = Standing(
            "Demo", "demo", "nDCG@10", 0.3, 0.1, "BM25", is_baseline=False, statement=Statement(), slug="mine",
            against=(leader, leader), baseline_slug=baseline,
        )  # fmt: skip
        return re.findall(
            r"/compare/\?system=(\S+?)&", render_to_string("submissions/_result.html", {"standing": standing})
        )

    assert links("best", "bm25") == ["best", "bm25"]
    assert links("bm25", "bm25") == ["bm25"]


@pytest.mark.parametrize("public", ["yes", ""])
def test_the_published_score_of_the_same_model_is_below_the_result(
    demo: Dataset, baseline: None, signed_in: Client, public: str
) -> None:
    model = "https://huggingface.co/BAAI/bge-small-en-v1.5"
    new = {"new-name": "Careful", "new-architecture": "dense", "new-training_none": "on", "new-model_url": f"{model}/"}
    signed_in.post("/submit/", {"action": "submit", **new, "public": public, "run:demo": upload(run_text())})
    work()
    address = Submission.objects.get().get_absolute_url()
    assert "Published:" not in signed_in.get(address).content.decode()
    report(demo, make_source("paper"), "printed", **{demo.primary_measure: 0.453})
    System.objects.filter(source__key="paper").update(model_url=model.upper().replace("HTTPS", "https"))
    record_boards()
    score = Entry.objects.get(system__name="Careful").scores[demo.primary_measure]
    page = one_line(signed_in.get(address).content.decode())
    assert f"Published: 0.453 (Lovelace and Hopper 2020), difference {signed(score - 0.453, 3)}" in page
