"""The admin's own pages of curation: moderating, merging, measures, reading judgements, the record."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from django.contrib import admin
from django.contrib.auth.models import Permission
from django.test import Client, RequestFactory
from django.urls import reverse

from leaderboard.core.audit import acting
from leaderboard.core.permissions import make_curator
from leaderboard.importing.collections.importer import import_dataset
from leaderboard.importing.collections.source import ImportOptions
from leaderboard.models import AuditRecord, Dataset, Entry, HardwareClass, Membership, Qrels, System, Team, User
from leaderboard.systems.challenges import raise_challenge
from tests.curating import save
from tests.factories import make_user
from tests.leaderboard.entries import cost, make_system, record_boards, score, scored_dataset
from tests.leaderboard.tiny_collection import good_files, write_folder
from tests.pages import one_line

pytestmark = pytest.mark.django_db

ENTRIES = "/admin/leaderboard/entry/"


def signed_in(person: User) -> Client:
    """The person at a browser of their own."""
    client = Client()
    client.force_login(person)
    return client


@pytest.fixture
def curator() -> Client:
    """A curator as `make_curator` makes them: without the right to read hidden judgements."""
    person = make_user("Carol")
    make_curator(person)
    return signed_in(person)


def act(client: Client, action: str, *entries: Entry, **fields: Any) -> str:
    """Choose entries in the list and an action, and follow what comes."""
    data = {"action": action, "_selected_action": [entry.pk for entry in entries], **fields}
    return client.post(ENTRIES, data, follow=True).content.decode()


def test_moderating_asks_why_first_and_does_all_or_nothing(curator: Client) -> None:
    dataset = scored_dataset()
    first, second = score(dataset, "First", ndcg=0.5), score(dataset, "Second", ndcg=0.6, baseline=True)
    page = act(curator, "quarantine", first, second)
    assert "Quarantine results" in page
    assert "First on" in page
    assert "Give a reason in a few words" in act(curator, "quarantine", first, confirmed="yes", why="")
    refused = act(curator, "quarantine", first, second, confirmed="yes", why="copied")
    assert "Name another baseline first" in refused
    assert not Entry.objects.exclude(visibility="public").exists()
    assert "is quarantined" in act(curator, "quarantine", first, confirmed="yes", why="copied")
    first.refresh_from_db()
    assert (first.visibility, first.moderation_reason) == ("quarantined", "copied")
    assert "is restored" in act(curator, "restore", first, confirmed="yes", why="it was not")
    assert AuditRecord.objects.get(action="restored").reason == "it was not"
    assert "is now the baseline" in act(curator, "make_baseline", first, confirmed="yes", why="the stronger one")


def test_who_may_only_look_at_entries_is_offered_no_action() -> None:
    sam = make_user("Sam", is_staff=True)
    sam.user_permissions.add(Permission.objects.get(codename="view_entry"))
    entry = score(scored_dataset(), "First", ndcg=0.5)
    client = signed_in(sam)
    assert "quarantine" not in client.get(ENTRIES).content.decode().lower().replace("quarantined", "")
    act(client, "quarantine", entry, confirmed="yes", why="copied")
    entry.refresh_from_db()
    assert entry.visibility == "public"


def test_systems_are_merged_on_a_page_that_lists_what_stands_against_it(curator: Client) -> None:
    dataset = scored_dataset()
    into = make_system("Owl")
    duplicate, other = (make_system(name, team=into.team) for name in ("Owl v1", "Else"))
    score(dataset, duplicate, ndcg=0.5)
    score(dataset, other, ndcg=0.6)
    address = reverse("admin:leaderboard_system_merge", args=[duplicate.pk])
    assert "cannot be undone" in curator.get(address).content.decode()
    refused = curator.post(address, {"into": other.slug, "why": "the same"})
    assert refused.status_code == 400
    assert "Both have a result" in refused.content.decode()
    assert (
        "Owl v1 was merged into Owl"
        in curator.post(address, {"into": into.slug, "why": "the same"}, follow=True).content.decode()
    )
    assert not System.objects.filter(name="Owl v1").exists()


@pytest.mark.parametrize("given", ["abc", "²", "-1", "9" * 25])
def test_an_address_with_no_number_in_it_is_not_found(given: str) -> None:
    root = signed_in(make_user("Root", is_staff=True, is_superuser=True))
    for model in (
        "system", "dataset", "round", "rescore", "pool", "judgementimport", "challenge", "team", "entry", "qrels",
        "auditrecord",
    ):  # fmt: skip
        address = f"/admin/leaderboard/{model}/{given}"
        for page in ("change", "history", "delete"):
            found = [
                root.get(f"{address}/{page}/").status_code,
                root.post(f"{address}/{page}/", {"why": "x"}).status_code,
            ]
            assert found in ([404, 404], [404, 405], [403, 403]), (model, page, found)


def test_no_team_is_left_without_an_owner(curator: Client) -> None:
    root = signed_in(make_user("Root", is_staff=True, is_superuser=True))
    team = Team.objects.create(slug="owls", name="Owls")
    owner, member = make_user("Olga"), make_user("Max")
    Membership.objects.create(team=team, user=owner, owner=True)
    second = Membership.objects.create(team=team, user=member)
    address = reverse("admin:leaderboard_team_change", args=[team.pk])
    for changes in ({"memberships-0-owner": None}, {"memberships-0-DELETE": "on"}):
        refused = save(root, address, **changes)
        assert refused.status_code == 200
        assert "needs an owner" in refused.content.decode()
    assert Membership.objects.get(team=team, owner=True).user == owner
    handed_over = {"memberships-0-DELETE": "on", "memberships-1-owner": "on"}
    assert save(root, address, **handed_over).status_code == 302
    assert Membership.objects.get(team=team) == second
    nobodys = save(root, reverse("admin:leaderboard_team_add"), name="Nobody's", slug="nobodys")
    assert "needs an owner" in nobodys.content.decode()


def test_measures_are_changed_on_their_own_page(curator: Client) -> None:
    dataset = scored_dataset(hidden=True)
    address = reverse("admin:leaderboard_dataset_measures", args=[dataset.pk])
    refused = curator.post(address, {"primary": "nDCG@10", "others": "AP, P@5, R@10, Hole@10", "why": "more"})
    text = refused.content.decode()
    assert "reveals which documents or queries are judged" in text
    assert curator.post(address, {"primary": "AP", "others": "P@5", "why": "as agreed"}).status_code == 302
    dataset.refresh_from_db()
    assert dataset.measures == ["AP", "P@5"]
    assert AuditRecord.objects.get(action="measures", entry=None).reason == "as agreed"


def test_hidden_judgements_are_read_with_a_right_of_its_own_and_each_reading_is_recorded(
    tmp_path: Path, curator: Client
) -> None:
    named = {name: content.replace("d3", "judged-document") for name, content in good_files().items()}
    import_dataset(write_folder(tmp_path, named), ImportOptions(slug="tiny"))
    qrels = Qrels.objects.get()
    address = reverse("admin:leaderboard_qrels_read", args=[qrels.pk])
    page = reverse("admin:leaderboard_qrels_change", args=[qrels.pk])
    assert curator.get(address).status_code == 403
    assert address not in curator.get(page).content.decode()
    assert not AuditRecord.objects.filter(action="read judgements").exists()
    dan = make_user("Dan")
    make_curator(dan, read_qrels=True)
    reader = signed_in(dan)
    assert address in reader.get(page).content.decode()
    assert reader.post(address).status_code == 404
    answer = reader.get(address, {"why": "to answer a question of the authors"})
    record = AuditRecord.objects.get(action="read judgements")
    assert (record.actor, record.dataset.slug, record.reason) == (
        dan, "tiny", "to answer a question of the authors"
    )  # fmt: skip
    assert "no-store" in answer["Cache-Control"]
    assert answer["Content-Disposition"] == 'attachment; filename="tiny-test-1.qrels"'
    assert b"judged-document" in b"".join(answer.streaming_content)
    assert Client().get(address).status_code == 302


def test_the_record_is_read_and_never_edited(curator: Client) -> None:
    dataset = scored_dataset(slug="nuts")
    entry = score(dataset, "First", ndcg=0.5)
    act(curator, "quarantine", entry, confirmed="yes", why="copied")
    text = curator.get("/admin/leaderboard/auditrecord/?action=quarantined").content.decode()
    assert re.search(r"\d\d:\d\d UTC", text)
    assert all(part in text for part in ("Carol", "copied", "nuts"))
    record = AuditRecord.objects.get(action="quarantined")
    page = curator.get(reverse("admin:leaderboard_auditrecord_change", args=[record.pk])).content.decode()
    assert "“public”" in page
    assert "“quarantined”" in page
    assert 'name="_save"' not in page
    with pytest.raises(TypeError):
        record.save()


def test_a_changed_price_and_a_machines_name_are_recorded_and_shown(curator: Client) -> None:
    entry = score(scored_dataset(slug="nuts"), "First", ndcg=0.5)
    cost(entry, 5.0)
    hardware = HardwareClass.objects.get()
    assert save(curator, "/admin/leaderboard/price/add/", why="list price", hardware=hardware.pk, per_hour="1.25",
                currency="USD", valid_from="2026-01-01").status_code == 302  # fmt: skip
    record = AuditRecord.objects.get(action="added")
    assert (record.after["per_hour"], record.reason) == ("1.25", "list price")
    address = reverse("admin:leaderboard_hardwareclass_change", args=[hardware.pk])
    assert save(curator, address, name="The big one").status_code == 302
    assert "The big one" in Client().get("/datasets/nuts/").content.decode()


def test_the_first_page_says_what_waits_for_a_decision(admin_client: Client) -> None:
    page = one_line(admin_client.get("/admin/").content.decode())
    empty = page.partition('<div class="empty">')[2].partition("</div>")[0]
    assert "Nothing to review." in empty
    assert 'in the <a href="/admin/leaderboard/auditrecord/">audit records</a>.' in empty
    system = score(scored_dataset(), "Doubted", ndcg=0.5).system
    with acting(None):
        raise_challenge(system, make_user("Carol"), claim="training", text="It was trained on the test queries.")
    page = one_line(admin_client.get("/admin/").content.decode())
    assert "<strong>1</strong> challenge is open" in page
    assert re.search(r'its training data of Doubted,\s*<time datetime="[^"]+">(now|[^<]+ ago)</time>', page)
    groups = re.findall(r'<h2 id="[a-z-]+">([^<]+)</h2>', page)[1:]
    assert groups == ["Status of the site", "Datasets", "Submissions", "Accounts", "Operation"]
    total = r'<span class="note">1<span class="visually-hidden">\s*row</span></span>'
    row = rf'Challenges</a>\s*{total}\s*<a class="count" href="[^"]+">1<'
    assert re.search(f'href="/admin/leaderboard/challenge/">{row}', page)
    listed = admin_client.get("/admin/leaderboard/challenge/?state__exact=open").content.decode()
    assert "Doubted" in listed
    assert "It was trained on the test queries." in listed
    assert [*re.findall(r'name="action" value="(\w+)">', listed)] == ["uphold", "reject", "take_words_out"]


def test_a_single_item_to_review_opens_with_its_decisions_and_several_as_a_list(admin_client: Client) -> None:
    system = score(scored_dataset(), "Doubted", ndcg=0.5).system
    for name in ("Carol", "Dave"):
        with acting(None):
            raise_challenge(system, make_user(name), claim="training", text="It was trained on the test queries.")
        waiting = re.search(
            r'<a href="([^"]+)"><strong>(\d)</strong> challenge', admin_client.get("/admin/").content.decode()
        )
        assert waiting is not None
        page = admin_client.get(waiting[1]).content.decode()
        button = ">Uphold the challenge<" if waiting[2] == "1" else "Uphold …"
        assert one_line(page).count(button) == int(waiting[2])
    assert waiting[1] == "/admin/leaderboard/challenge/?state__exact=open"


def test_a_challenge_shows_what_is_at_stake_and_later_corrections(admin_client: Client) -> None:
    dataset = scored_dataset()
    system = score(dataset, "Doubted", ndcg=0.5).system
    score(dataset, "Second", ndcg=0.4)
    record_boards()
    with acting(None):
        raise_challenge(system, make_user("Carol"), claim="training", text="It was trained on the test queries.")
    address = f"/admin/leaderboard/challenge/{system.challenges.get().pk}/change/"
    page = one_line(admin_client.get(address).content.decode())
    assert "<b>1st of 2</b>" in page
    assert "Second is the best result ranked below." in page
    assert "was notified, and can correct the description" in page
    assert "Ranks and scores stay until you quarantine a result." in page
    system.save()
    assert "None yet." in admin_client.get(address).content.decode(), "nothing public has changed"
    system.description = "Trained on the test queries"
    system.save()
    assert '#corrections">Corrections</a>' in admin_client.get(address).content.decode()


def test_lists_name_the_searched_columns_and_show_states_as_badges(admin_client: Client) -> None:
    scored_dataset()
    page = one_line(admin_client.get("/admin/leaderboard/dataset/").content.decode())
    assert 'placeholder="Name, slug, task, domain"' in page
    assert '<span class="badge is-published">published</span>' in page
    assert '<details class="all-pages"><summary>Curation menu</summary>' in page


def test_lists_label_their_cells_for_phones(admin_client: Client) -> None:
    scored_dataset()
    page = one_line(admin_client.get("/admin/leaderboard/dataset/").content.decode())
    assert '<td data-label="State" class="field-state"><span class="badge is-published">published' in page
    assert '<td data-label="Primary measure" class="field-primary_measure">' in page
    assert '<td class="action-checkbox">' in page


def test_datasets_with_hosted_content_are_listed_before_those_with_reported_figures(admin_client: Client) -> None:
    Dataset.objects.create(slug="arguana", name="ArguAna", state=Dataset.State.REPORTED)
    hosted = scored_dataset()
    page = admin_client.get("/admin/leaderboard/dataset/").content.decode()
    assert page.index(f">{hosted.name}</a>") < page.index(">ArguAna</a>")


def test_an_empty_list_explains_itself(admin_client: Client) -> None:
    page = one_line(admin_client.get("/admin/leaderboard/pool/").content.decode())
    assert "Draw one with “Draw a pool”." in page
    page = admin_client.get("/admin/leaderboard/pool/?q=owls").content.decode()
    assert "Nothing matches the search and the filters." in page
    assert '<a href="/admin/leaderboard/pool/">Show all</a>' in page


@pytest.mark.parametrize(
    ("name", "rows"), [("leaderboard/round", "rounds"), ("submissions/quotaexception", "quota exceptions")]
)
def test_an_empty_list_offers_to_add_a_row_and_nothing_else(admin_client: Client, name: str, rows: str) -> None:
    page = one_line(admin_client.get(f"/admin/{name}/").content.decode())
    assert f"<b>No {rows} yet.</b>" in page
    assert f'<a href="/admin/{name}/add/">Add one</a>' in page
    for other in ('id="changelist-search"', '<details class="filters"', f"0 {rows}", "Date:"):
        assert other not in page
    assert 'id="changelist-search"' in admin_client.get(f"/admin/{name}/?q=owls").content.decode()
    assert "Add one" not in admin_client.get("/admin/submissions/flag/").content.decode(), "the site adds the rows"


def test_fields_without_a_value_are_hidden_on_pages_that_cannot_be_edited(curator: Client) -> None:
    entry = score(scored_dataset(), "First", ndcg=0.5)
    page = curator.get(f"{ENTRIES}{entry.pk}/change/").content.decode()
    shown, folded = page.split("<details><summary>")
    assert "Technical details" in folded
    assert ">Comparison group</label>" in folded
    assert ">Comparison group</label>" not in shown
    for label in ("Moderation reason", "Configuration", "Facts"):
        assert f">{label}</label>" not in page
    assert ">Scores</label>" in shown
    assert "single run" in shown
    assert "Open the board" in shown


def test_index_links_to_tasks_and_offers_no_add_form_for_records(curator: Client) -> None:
    page = one_line(curator.get("/admin/").content.decode())
    tasks = re.findall(r'<a (?:class="button is-small" )?href="([^"]+)">([^<]+)</a>', page)
    buttons = re.findall(r'<a class="button is-small" href="([^"]+)">', page)
    assert ("/admin/leaderboard/dataset/import/", "Import dataset") in tasks
    assert ("/admin/leaderboard/pool/draw/", "Draw a pool") in tasks
    assert re.search('href="/admin/leaderboard/rescore/add/">Add<span class="visually-hidden"> ?Rescores', page)
    assert "/admin/leaderboard/pool/draw/" in buttons
    assert "/admin/leaderboard/rescore/add/" not in buttons
    assert "addlink" not in page
    records = re.findall(r'<p class="note records">(.*?)</p>', page)
    assert "Qrels</a>" in records[0]
    assert not re.search("/(source|emailaddress)/add/", page)


def test_the_list_of_datasets_is_sorted_without_regard_to_case(admin_client: Client) -> None:
    dataset = scored_dataset()
    score(dataset, "First", ndcg=0.5)
    score(dataset, "Second", ndcg=0.4)
    for name in ("beta", "Alpha", "Zeta"):
        Dataset.objects.create(slug=name.lower(), name=name, state=Dataset.State.REPORTED)
    page = one_line(admin_client.get("/admin/leaderboard/dataset/").content.decode())
    names = re.findall(r'<th data-label="Name" class="field-name"><a href="[^"]+">([^<]+)</a>', page)
    assert names == [dataset.name, "Alpha", "beta", "Zeta"]
    assert "aria-sort" not in page, "those with content come first"
    assert 'class="field-results">2</td>' in page
    assert f'<a href="/datasets/{dataset.slug}/">View board</a>' in page
    assert ">remove<" not in page
    page = one_line(admin_client.get("/admin/leaderboard/dataset/?o=1").content.decode())
    assert page.count('aria-sort="ascending"') == 1
    assert ">remove<" in page


def test_the_list_of_entries_explains_its_search_and_its_dates(admin_client: Client) -> None:
    score(scored_dataset(), "First", ndcg=0.5)
    page = one_line(admin_client.get(ENTRIES).content.decode())
    assert 'placeholder="System, dataset, publication, submission reference"' in page
    assert re.search(r'<nav class="toplinks" aria-label="Date">\s*<span>Date:</span>', page)


def test_the_list_of_entries_shows_its_order_and_dates_as_other_pages_do(admin_client: Client) -> None:
    dataset = scored_dataset()
    for name, day in (("First", 2), ("Second", 1)):
        entry = score(dataset, name, ndcg=0.5)
        Entry.objects.filter(pk=entry.pk).update(published_at=datetime(2026, 9, day, tzinfo=UTC))
    page = one_line(admin_client.get(ENTRIES).content.decode())
    assert re.search(r'aria-sort="descending"><a href="[^"]+">Published at</a> ?↓', page)
    assert page.count("aria-sort") == 1
    assert page.index(">First</a>") < page.index(">Second</a>")
    dates = page.partition('<nav class="toplinks"')[2].partition("</nav>")[0]
    assert re.findall(r"<a[^>]*>([^<]+)</a>", dates) == ["‹ 2026", "1 Sep", "2 Sep"]
    page = one_line(admin_client.get(f"{ENTRIES}?published_at__year=2026").content.decode())
    dates = page.partition('<nav class="toplinks"')[2].partition("</nav>")[0]
    assert "Sep 2026</a>" in dates


def test_lists_separate_thousands_of_rows(admin_client: Client) -> None:
    HardwareClass.objects.bulk_create(HardwareClass(slug=f"m{n}", name=f"Machine {n}") for n in range(1_001))
    page = one_line(admin_client.get("/admin/leaderboard/hardwareclass/").content.decode())
    assert "1,001 hardware classes" in page
    assert "1001 hardware classes" not in page


def test_the_header_of_curation_leads_back_to_the_site(curator: Client) -> None:
    header = one_line(curator.get(ENTRIES).content.decode()).split("<header")[1].split("</header>")[0]
    assert '<a class="brand" href="/">' in header
    for address, words in (("/benchmarks/", "Leaderboards"), ("/submit/", "Submit"), ("/docs/", "Docs")):
        assert f'<a href="{address}">{words}</a>' in header
    assert f'href="{reverse("account_logout")}">Sign out</a>' in header


def test_no_list_is_filtered_by_a_column_that_it_does_not_offer(client: Client) -> None:
    client.force_login(make_user("Root", is_staff=True, is_superuser=True))
    request = RequestFactory().get("/admin/")
    for model, page in admin.site._registry.items():
        offered = {each[0] if isinstance(each, tuple) else each for each in page.get_list_filter(request)}
        offered.add(page.date_hierarchy)
        for field in model._meta.concrete_fields:
            for lookup in (field.name, f"{field.name}__startswith", f"{field.name}__new"):
                allowed = page.lookup_allowed(lookup, "1", request)
                assert allowed == (field.name in offered), f"{model.__name__} {lookup}"
    lists = {
        "judgementimport/": "counts__new=1",
        "qrels/": "sha256__startswith=a",
        "user/": "password__startswith=p",
    }
    for address, lookup in lists.items():
        assert client.get(f"/admin/leaderboard/{address}?{lookup}").status_code == 400
    assert client.get("/admin/leaderboard/judgementimport/?state__exact=ready").status_code == 200


@pytest.mark.parametrize(
    ("typed", "told"),
    [
        ("9" * 5_000, "a number has 5,000 digits; the maximum is 300"),
        (r'{"a": "\ud800"}', "it has an unpaired surrogate"),
        ('{"a"', "Expecting"),
    ],
)
def test_json_that_cannot_be_kept_is_refused_in_a_line_and_shown_again(curator: Client, typed: str, told: str) -> None:
    system = make_system("Odd")
    address = reverse("admin:leaderboard_system_change", args=[system.pk])
    page = save(curator, address, parameters=typed).context["adminform"].form
    assert told in page.errors["parameters"][0]
    assert len(page.errors["parameters"]) == 1
    assert page["parameters"].value() == typed
    assert save(curator, address, parameters="", training_datasets="", adapted_to="").status_code == 302
    system.refresh_from_db()
    assert (system.parameters, system.training_datasets) == ({}, [])


def test_lists_of_a_system_are_entered_as_lines(curator: Client) -> None:
    system = make_system("Lined", training_datasets=["msmarco", "NQ, train"], parameters={"k1": 0.9})
    address = reverse("admin:leaderboard_system_change", args=[system.pk])
    form = curator.get(address).context["adminform"].form
    assert form["training_datasets"].value() == "msmarco\nNQ, train"
    assert form["adapted_to"].value() == ""
    assert form["parameters"].value() == '{\n  "k1": 0.9\n}'
    assert save(curator, address, training_datasets="msmarco\r\n fever \r\n\r\n").status_code == 302
    system.refresh_from_db()
    assert (system.training_datasets, system.parameters) == (["msmarco", "fever"], {"k1": 0.9})


def test_entries_are_listed_with_score_and_difference_from_their_baseline(curator: Client) -> None:
    dataset = scored_dataset()
    baseline = score(dataset, "Base", ndcg=0.4)
    Entry.objects.filter(pk=baseline.pk).update(is_baseline=True)
    score(dataset, "Better", ndcg=0.5)
    page = curator.get(ENTRIES).content.decode()
    scores = re.findall('class="field-score">(.*?)</td>.*?class="field-difference">(.*?)</td>', page, re.DOTALL)
    assert sorted(scores) == [("nDCG@10 0.400", "baseline"), ("nDCG@10 0.500", "+0.100")]
    assert "is baseline" not in page
    assert "---------" not in page


def test_a_badge_with_a_long_label_shows_the_stored_value(curator: Client) -> None:
    entry = score(scored_dataset(), "Base", ndcg=0.4)
    Entry.objects.filter(pk=entry.pk).update(visibility=Entry.Visibility.SUPERSEDED)
    page = curator.get(ENTRIES).content.decode()
    title = Entry.Visibility.SUPERSEDED.label
    assert f'<span class="badge is-superseded" title="{title}">superseded</span>' in page
    assert "column-configuration" not in page


def test_an_optional_choice_of_a_row_can_be_none(curator: Client) -> None:
    page = curator.get("/admin/leaderboard/round/add/").content.decode()
    assert '<option value="" selected>None</option>' in page
    assert "---------" not in page


def test_lists_and_pages_are_titled_by_their_objects_and_json_is_a_table(curator: Client) -> None:
    entry = score(scored_dataset(), "First", ndcg=0.5)
    entry.facts = {"similarity": "<dot>", "dimension": 768, "peak_ms": {"mean": 0.25}, "other": None}
    entry.save()
    assert "<h1>Entries</h1>" in curator.get(ENTRIES).content.decode()
    page = curator.get(f"{ENTRIES}{entry.pk}/change/").content.decode()
    assert f"<h1>{entry}</h1>" in page
    assert "View entry" not in page
    assert '<tr><th scope="row">similarity</th><td>&lt;dot&gt;</td></tr>' in page
    assert '<tr><th scope="row">dimension</th><td>768</td></tr>' in page
    assert '<tr><th scope="row">peak ms</th><td>mean 0.25</td></tr>' in page
    assert "None" not in page
    assert "engines.FACTS" not in page


def test_a_dataset_form_spells_names_of_libraries(curator: Client) -> None:
    page = curator.get(f"/admin/leaderboard/dataset/{scored_dataset().pk}/change/").content.decode()
    assert ">ir_datasets id</label>" in page
    assert ">BEIR name</label>" in page
