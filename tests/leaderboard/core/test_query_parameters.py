"""Query parameters that a page does not read are refused, with the ones that it reads."""

from __future__ import annotations

import re
from html import unescape

import pytest
from django.test import Client
from drf_spectacular.generators import SchemaGenerator

from leaderboard.api.boards import VIEW_PARAMETERS
from leaderboard.boards.state import PARAMETERS
from leaderboard.core.http.query_parameters import TRACKING_PARAMETERS, declared_parameters
from leaderboard.models import Dataset
from leaderboard.urls import api_calls
from submissions.urls import api_calls as api_calls_that_write
from tests.factories import make_user
from tests.leaderboard.entries import score, scored_dataset
from tests.pages import one_line

pytestmark = pytest.mark.django_db


@pytest.fixture
def slug() -> str:
    dataset = scored_dataset(name="Nuts")
    score(dataset, "BM25", baseline=True, ndcg=0.25)
    score(dataset, "Dense", ndcg=0.5)
    return dataset.slug


def read(client: Client, address: str, parameters: dict[str, str] | None = None) -> str:
    """The page without line breaks."""
    return one_line(client.get(address, parameters).content.decode())


@pytest.mark.parametrize(
    ("address", "near", "valid"),
    [
        ("/datasets/{}/?mesure=AP", "measure", "zero-shot"),
        ("/datasets/{}/?Sort=AP", "sort", "hardware"),
        ("/datasets/{}/?metric=AP", "measure", "other names"),
        ("/datasets/{}/?columm=all", "columns", "measured without a GPU"),
        ("/datasets/{}/?pages=2", "page", "pin"),
        ("/benchmarks/?domains=Law", "domain", "judgements"),
        ("/compare/?systems=bm25", "system", "benchmark"),
        ("/search/?query=bm25", "q", "kind"),
        ("/figures/pareto/?devise=gpu", "device", "hardware"),
        ("/datasets/{}/queries/?searh=x", "", "sort"),
        ("/news/?pge=2", "page", "page"),
        ("/measures/?name=nDCG", "", ""),
        ("/?measure=nDCG@10", "", ""),
    ],
)
def test_a_page_names_an_unknown_parameter_and_the_ones_that_it_reads(
    client: Client, slug: str, address: str, near: str, valid: str
) -> None:
    answer = client.get(address.format(slug))
    page = unescape(answer.content.decode())
    assert answer.status_code == 400
    assert f"has no option “{address.partition('?')[2].partition('=')[0]}”." in page
    assert ("Did you mean" in page) == bool(near)
    assert f">{near}</a>" in page or not near
    assert valid in page
    assert "min-*" not in page
    assert "no-cache" in answer["Cache-Control"]


def test_the_suggestion_is_a_link_that_keeps_the_rest_of_the_address(client: Client, slug: str) -> None:
    page = client.get(f"/datasets/{slug}/?mesure=AP&zero-shot=1").content.decode()
    assert f'href="/datasets/{slug}/?zero-shot=1&amp;measure=AP">measure</a>' in page
    assert "<code>measure</code>" not in page, "the list below omits the suggestion"
    assert "Your other choices are kept." in page
    assert "choices are kept" not in client.get(f"/datasets/{slug}/?mesure=AP").content.decode()


def test_the_page_names_the_board_all_unknown_options_and_what_the_valid_ones_do(client: Client, slug: str) -> None:
    page = read(client, f"/datasets/{slug}/?group=effectiveness&mesure=AP&zero-shot=1")
    assert "The board of Nuts has no option “group”." in page
    assert f'<a href="/datasets/{slug}/?zero-shot=1&amp;columns=effectiveness">columns</a>' in page
    assert "The board of Nuts has no option “mesure”." in page
    assert f'<a class="button is-primary" href="/datasets/{slug}/?zero-shot=1">Open Nuts</a>' in page
    assert "<dt><code>gap</code></dt><dd>Gap between the open and the hidden half</dd>" in page
    assert "<dt><code>min-…</code></dt><dd>Minimum of a column</dd>" in page
    assert "This page has no option “x”." in read(client, "/news/?x=1")
    scored_dataset(name="Secret nuts", slug="secret", state=Dataset.State.PREPARING)
    assert "Secret nuts" not in read(client, "/datasets/secret/?group=1")


def test_each_option_of_a_page_has_a_description(client: Client, slug: str) -> None:
    client.force_login(make_user())
    addresses = [
        *("/benchmarks/", f"/datasets/{slug}/", f"/datasets/{slug}/queries/", f"/datasets/{slug}/queries/q1/"),
        *("/compare/", "/search/", "/figures/pareto/", "/figures/deltas/", "/news/", "/submit/", "/submit/model/"),
        *("/submissions/", "/inbox/"),
    ]
    for address in addresses:
        page = read(client, address, {"zzzzzz": "1"})
        options = re.findall(r"<dt><code>([^<]*)</code></dt><dd>(.*?)</dd>", page)
        assert options, address
        assert [name for name, description in options if not description] == [], address


def test_a_page_whose_parameter_is_not_in_the_address_opens_without_any(client: Client, slug: str) -> None:
    page = read(client, f"/datasets/{slug}/queries/q1/?{'&'.join(f'system=s{n}' for n in range(40))}")
    assert "Unknown value in the address" in page
    assert f'href="/datasets/{slug}/queries/q1/">Open Nuts</a>' in page


def test_an_unknown_view_is_answered_with_links_to_the_views(client: Client, slug: str) -> None:
    page = client.get(f"/datasets/{slug}/?view=all&sort=nDCG@10").content.decode()
    assert "The board of Nuts has no view “all”." in one_line(page)
    for view in ("score", "delta", "relative", "rank"):
        assert f'href="/datasets/{slug}/?sort=nDCG@10&amp;view={view}">{view}</a>' in page
    near = client.get(f"/datasets/{slug}/?view=Relativ").content.decode()
    assert near.index("Did you mean") < near.index(">relative</a>")


@pytest.mark.parametrize(
    ("address", "code", "valid"),
    [
        ("/api/v1/datasets/{}/board/?mesure=AP", "unknown_parameter", "measure"),
        ("/api/v1/datasets/?page=2", "unknown_parameter", "no parameters"),
        ("/api/v1/search/?q=x&kind=system", "unknown_parameter", "q"),
        ("/datasets/{}/board.json?colums=all", "unknown_parameter", "columns"),
        ("/figures/deltas.json?dataset={}&cost=index", "unknown_parameter", "benchmark"),
        ("/api/v1/datasets/{}/board/?min-nDGC@10=1", "unknown_parameter", "min-nDCG@10"),
        ("/api/v1/datasets/{}/board/?rows=some", "unknown_choice", "all"),
        ("/api/v1/datasets/{}/board/?zero-shot=maybe", "unknown_choice", "true"),
        ("/api/v1/submissions/?limit=many", "unknown_choice", "a whole number"),
        ("/api/v1/submissions/?limt=5", "unknown_parameter", "limit"),
        ("/api/v1/notices/?unread=1&offst=5", "unknown_parameter", "offset"),
        ("/api/v1/quotas/?dataset=nowhere", "unknown_choice", "{}"),
    ],
)
def test_a_program_gets_a_code_and_what_is_valid(
    client: Client, slug: str, address: str, code: str, valid: str
) -> None:
    client.force_login(make_user())
    answer = client.get(address.format(slug))
    assert answer.status_code == 400
    error = answer.json()
    assert error["code"] == error["problems"][0]["code"] == code
    assert valid.format(slug) in error["problems"][0]["hint"]
    assert valid.format(slug) in error["detail"]


def test_a_text_is_answered_in_text(client: Client, slug: str) -> None:
    answer = client.get(f"/datasets/{slug}/board.csv?utm=x&mesure=AP")
    assert answer.status_code == 400
    assert answer["Content-Type"].startswith("text/plain")
    start = "Unknown parameter “utm”. Unknown parameter “mesure”. Did you mean “measure”? Choose one of: measure, "
    assert answer.content.decode().startswith(start)


@pytest.mark.parametrize("name", sorted(TRACKING_PARAMETERS))
def test_parameters_of_mails_and_social_networks_change_nothing(client: Client, slug: str, name: str) -> None:
    for address in ("/", f"/datasets/{slug}/", f"/datasets/{slug}/board.csv", f"/api/v1/datasets/{slug}/"):
        answer = client.get(address, {name: "x"})
        assert answer.status_code == 200
        assert answer.content == client.get(address).content


def test_forms_that_are_sent_and_foreign_pages_read_their_own(client: Client) -> None:
    assert client.post("/submit/?whatever=1").status_code == 302
    assert client.get("/account/login/?whatever=1").status_code == 200
    assert client.get("/healthz?probe=1").status_code == 200


@pytest.mark.parametrize(
    "address",
    ["/search/?q=x&kind=systems", "/news/?page=two", "/submit/model/?engine=dence", "/inbox/?page=x"],
)
def test_an_unknown_value_is_refused(client: Client, address: str) -> None:
    client.force_login(make_user())
    page = client.get(address).content.decode()
    assert "Unknown " in page
    assert "choose one of" in page.lower() or "Valid: a whole number." in page


def test_the_api_reads_the_parameters_that_its_schema_lists() -> None:
    paths = SchemaGenerator().get_schema(request=None, public=True)["paths"]
    views = {f"/api/v1/{each.pattern}": each.callback for each in (*api_calls, *api_calls_that_write)}
    checked = 0
    for path, view in views.items():
        operation = paths.get(path.replace("<slug:", "{").replace("<int:", "{").replace(">", "}"), {}).get("get")
        if operation is None:
            continue
        listed = {each["name"] for each in operation.get("parameters", ()) if each["in"] == "query"}
        declared = {name.replace("min-*", "min-mean") for name in declared_parameters(view, {})}
        assert declared - {"max-*", "order"} == listed, path
        checked += 1
    assert checked > 15


def test_the_schema_of_boards_lists_every_parameter() -> None:
    listed = {each.name for each in VIEW_PARAMETERS}
    assert set(PARAMETERS) - listed == {"min-*", "max-*", "order"}
