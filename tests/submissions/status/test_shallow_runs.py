"""A run that is less deep than a measure's cutoff: its check and its status page say so."""

from __future__ import annotations

import pytest

from leaderboard.models import Dataset
from tests.pages import one_line
from tests.submissions.clients import Api
from tests.submissions.collections import run_text
from tests.submissions.workers import work

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.mark.usefixtures("baseline")
def test_measures_that_read_deeper_than_the_run_are_remarked_and_marked(demo: Dataset, api: Api) -> None:
    shallow, deep = run_text(depth=50), run_text(depth=100)
    (problem,) = api.check(shallow).body["problems"]
    assert (problem["code"], problem["severity"], problem["count"]) == ("shallow", "warning", 1)
    assert problem["message"] == "at most 50 documents for a query: R@100 may be lower than with more documents"
    assert api.check(deep).body["problems"] == []
    for text, marks in ((shallow, 1), (deep, 0)):
        identifier = api.submit(text, system=f"System {marks}").body["id"]
        work()
        assert api.user is not None
        api.client.force_login(api.user)
        page = one_line(api.client.get(f"/submissions/{identifier}/").content.decode())
        assert page.count('class="is-capped"') == marks
        assert page.count("</a><sup>†</sup>") == marks
        assert page.count("† capped: the run has at most 50 documents for a query") == marks
        assert ("R@100 may be lower" in page) == bool(marks)
