"""Tasks, domains, and licenses: values in use are suggested, and other spellings give a warning."""

from __future__ import annotations

from io import StringIO
from pathlib import Path

import pytest
from django.core.management import call_command
from django.test import Client
from django.utils.datastructures import MultiValueDict

from leaderboard.admin.import_form import ImportForm
from leaderboard.core.permissions import make_curator
from leaderboard.datasets.terms import near_duplicates, stored_spelling, suggest_terms, terms_in_use
from leaderboard.models import Dataset
from tests.curating import save
from tests.factories import make_user
from tests.importing import choose
from tests.leaderboard.entries import scored_dataset
from tests.leaderboard.tiny_collection import write_folder, write_zip

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize(
    ("field", "one", "other", "similar"),
    [
        ("task", "Bio-Medical IR", "Bio-medical retrieval", True),
        ("task", "Biomedical Information Retrieval", "Bio-Medical IR", True),
        ("task", "Question Answering", "question answering", True),
        ("task", "QA", "Question Answering", True),
        ("task", "Fact Checking", "Fact-checking", True),
        ("task", "Fact Checking", "Fact Cheking", True),
        ("task", "Fact Checking", "Tweet Retrieval", False),
        ("domain", "Science", "Finance", False),
        ("licence", "CC BY 4.0", "CC-BY-4.0", True),
        ("licence", "CC BY 4.0", "CC BY-SA 4.0", False),
        ("licence", "GPL-2.0", "GPL-3.0", False),
    ],
)
def test_another_spelling_of_a_term_is_remarked(field: str, one: str, other: str, similar: bool) -> None:
    scored_dataset(**{field: one})
    dataset = scored_dataset(**{field: other})
    warnings = near_duplicates(dataset)
    assert bool(warnings) is similar
    if similar:
        assert warnings[0].startswith(f"The {field} “{other}” is similar to “{one}”, which 1 dataset has.")
    Dataset.objects.filter(pk=dataset.pk).update(**{field: ""})
    assert near_duplicates(scored_dataset(**{field: one})) == []


def test_the_form_offers_what_is_in_use_and_remarks_a_near_duplicate(client: Client, tmp_path: Path) -> None:
    person = make_user("Carol")
    make_curator(person)
    client.force_login(person)
    scored_dataset(task="Bio-Medical IR", domain="Bio-Medical", licence="CC BY 4.0")
    dataset = scored_dataset(task="Fact Checking")
    assert terms_in_use(Dataset, "task") == {"Bio-Medical IR": 1, "Fact Checking": 1}
    address = f"/admin/leaderboard/dataset/{dataset.pk}/change/"
    page = client.get(address).content.decode()
    for offered in ("Bio-Medical IR", "Bio-Medical", "CC BY 4.0"):
        assert f'<option value="{offered}"></option>' in page
    assert 'list="known-task"' in page
    confirmed = choose(client, write_zip(tmp_path / "a.zip")).content.decode()
    for name, offered in (("task", "Bio-Medical IR"), ("domain", "Wikipedia"), ("language", "de")):
        assert f'list="known-{name}"' in confirmed
        assert f'<option value="{offered}">' in confirmed
    assert ">German</option>" in confirmed
    assert '<option value="Bio-Medical"></option>' in confirmed
    save(client, address, task="Biomedical retrieval")
    saved = client.get(address).content.decode()
    assert "The task “Biomedical retrieval” is similar to “Bio-Medical IR”, which 1 dataset has." in saved
    save(client, address, domain="Science")
    assert "is similar to" not in client.get(address).content.decode(), "only what was changed is remarked"


def test_the_command_remarks_it_too(tmp_path: Path) -> None:
    scored_dataset(task="Bio-Medical IR")
    errors = StringIO()
    folder = str(write_folder(tmp_path))
    call_command("import_dataset", folder, slug="tiny", task="Bio-medicall retrieval", stdout=StringIO(), stderr=errors)
    assert "similar to “Bio-Medical IR”" in errors.getvalue()
    call_command("import_dataset", folder, slug="other", task="Bio-medical retrieval", stdout=StringIO())
    assert Dataset.objects.get(slug="other").task == "Bio-Medical IR"


def test_an_import_uses_the_stored_spelling_of_a_term() -> None:
    for task in ("Bio-Medical IR", "Bio-Medical IR", "Bio-medical retrieval"):
        scored_dataset(task=task)
    suggested = suggest_terms(Dataset, "task")
    assert "Bio-Medical IR" in suggested
    assert "Bio-medical retrieval" not in suggested, "only the most frequent spelling is suggested"
    assert stored_spelling("task", "bio medical retrieval") == "Bio-Medical IR"
    assert stored_spelling("task", "Chess") == "Chess"
    form = ImportForm(MultiValueDict({"slug": ["tiny"], "split": ["test"], "task": ["bio medical retrieval"]}))
    assert form.is_valid(), form.errors
    assert form.options().task == "Bio-Medical IR"


def test_measures_are_chosen_or_entered() -> None:
    data = {"slug": ["tiny"], "split": ["test"], "primary": ["AP", ""], "measures": ["R@100", "nDCG@10", "P(rel=2)@5"]}
    form = ImportForm(MultiValueDict(data))
    assert form.is_valid(), form.errors
    assert form.options().primary == "AP"
    assert form.options().measures == ("R@100", "nDCG@10", "P(rel=2)@5")
    page = str(form["measures"])
    assert '<input type="checkbox" name="measures" value="R@100" checked>' in page
    assert 'value="P(rel=2)@5"' in page
    data["primary"] = ["AP", "P@7"]
    assert ImportForm(MultiValueDict(data))["primary"].value() == "P@7"
