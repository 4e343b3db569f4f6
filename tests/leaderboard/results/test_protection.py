"""Policies of hidden judgements: what pages say of them, how they change, and the reveal of a private part."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from django.contrib.auth.models import Permission
from django.core.management import CommandError, call_command
from django.test import Client

from evaluation.core.problems import InvalidContent
from evaluation.judgements.qrels import Qrels as Judged
from leaderboard.core.audit import acting
from leaderboard.datasets import qrels as stored_qrels
from leaderboard.importing.collections.importer import import_dataset
from leaderboard.importing.collections.source import ImportOptions
from leaderboard.models import (
    AuditRecord,
    BoardChange,
    Dataset,
    Entry,
    Evaluation,
    Protection,
    System,
    User,
    WorkRequest,
)
from leaderboard.results.protection import coarse_step, evaluate_parts, get_policy
from leaderboard.results.publishing.protection import (
    CannotProtect,
    CannotReveal,
    compute_part_means,
    request_change,
    reveal_private,
    switch_protection,
)
from leaderboard.results.publishing.publication import publish_due, refresh_scores
from leaderboard.results.publishing.scored import publish_entry
from leaderboard.results.records import record_evaluation, record_run
from leaderboard.systems.records import house_system
from tests.factories import make_user
from tests.leaderboard.entries import make_system, scored_dataset
from tests.leaderboard.tiny_collection import write_folder

QUERIES = tuple(f"q{number:02d}" for number in range(30))


@pytest.fixture
def hidden(db: None, monkeypatch: pytest.MonkeyPatch) -> Dataset:
    """A hidden dataset of thirty judged queries."""
    dataset = scored_dataset(slug="secret", name="Secret", hidden=True, measures=["nDCG@10", "R@100"])
    judged = Judged.from_dict({query: {"d1": 1} for query in QUERIES})
    monkeypatch.setattr("leaderboard.results.protection.load_qrels", lambda row: judged)
    return dataset


@pytest.fixture
def contest(hidden: Dataset) -> Dataset:
    """The same as a competition."""
    change(hidden, "competition")
    return hidden


def change(dataset: Dataset, protection: Any, **options: Any) -> None:
    """Change the policy as a curator and the scorer do together."""
    with acting(None, "because"):
        request_change(dataset, competition=protection == "competition", **options)
        compute_part_means(dataset, lambda share: None)
        assert switch_protection(dataset, Protection(protection))


def evaluation(dataset: Dataset, system: System, public: float, private: float, number: int = 0) -> Evaluation:
    """A run with these means over the parts, or what will be the parts."""
    qrels = dataset.current_qrels
    assert qrels is not None
    assert dataset.current_version is not None
    mask = stored_qrels.load_parts(qrels).mask(QUERIES) if qrels.parts_sha256 else np.arange(30) < 10
    values = np.where(mask, public, private)
    run = record_run(
        version=dataset.current_version,
        system=system,
        sha256=f"{system.pk:032x}{number:032x}",
        origin="uploaded",  # type: ignore[arg-type]
        size=1,
        lines=1,
    )
    return record_evaluation(
        run=run,
        qrels=qrels,
        specification="1",
        measures=["nDCG@10", "R@100"],
        means={"nDCG@10": float(values.mean()), "R@100": float(values.mean())},
        per_query=np.column_stack([values, values]),
        missing_queries=3,
    )


def publish(dataset: Dataset, name: str, public: float, private: float, **fields: Any) -> Entry:
    """A result of a team of its own."""
    found = evaluation(dataset, make_system(name), public, private)
    return publish_entry(Entry(provenance=Entry.Provenance.SCORED, submission_reference=name[:12], **fields), found)


def baseline(dataset: Dataset, public: float, private: float) -> Entry:
    """The dataset's BM25."""
    system = house_system(slug="bm25", name="BM25", architecture="lexical", description="", parameters={})
    return publish_entry(
        Entry(provenance=Entry.Provenance.MEASURED),
        evaluation(dataset, system, public, private),
        is_baseline=True,
    )


def board(client: Client, view: str = "") -> Any:
    """The board as the API gives it."""
    return json.loads(client.get(f"/api/v1/datasets/secret/board/{view}").content)


def values(client: Client, system: str) -> dict[str, Any]:
    """A row's values."""
    found: dict[str, Any] = next(row for row in board(client)["rows"] if row["system"] == system)["values"]
    return found


def test_open_datasets_have_no_policy_and_hidden_ones_say_theirs(hidden: Dataset, client: Client) -> None:
    opened = scored_dataset(slug="open", name="Open")
    assert get_policy(opened).sentences == []
    assert (get_policy(opened).decimals, get_policy(hidden).decimals) == (None, 3)
    page = client.get("/datasets/secret/").content.decode()
    assert 'id="protection"' in page
    assert "rounded to 3 decimals" in page
    assert "twice a day and 10 times a month" in page
    assert "public part" not in page
    assert 'id="protection"' not in client.get("/datasets/open/").content.decode()
    assert "max(0.01, c · SE)" in client.get("/measures/").content.decode()


def test_a_competitions_board_is_of_the_public_part_bm25_included(contest: Dataset, client: Client) -> None:
    baseline(contest, 0.30011, 0.9)
    publish(contest, "Dense", 0.45019, 0.1)
    row = values(client, "Dense")
    assert (row["nDCG@10"], row["delta"]) == (0.46, 0.16)
    assert "private" not in row
    page = client.get("/datasets/secret/").content.decode()
    assert "over the public part of the judged queries" in page
    assert "about 33% of the judged queries" in page
    assert "0.217" not in page, "the mean over all queries"


def test_a_first_result_is_held_against_the_baseline_and_not_told_for_free(contest: Dataset) -> None:
    baseline(contest, 0.3, 0.9)
    assert publish(contest, "Weak", 0.24, 0.9).visibility == "held"
    assert publish(contest, "Alike", 0.309, 0.9).visibility == "held"
    assert publish(contest, "Strong", 0.34, 0.9).scores["nDCG@10"] == 0.34


def test_before_there_is_a_baseline_nothing_is_told_of_a_competition(contest: Dataset) -> None:
    strong = publish(contest, "Strong", 0.34, 0.9)
    assert (strong.visibility, strong.scores, strong.waits_for_its_turn) == ("held", {}, True)
    assert publish_due() == 0
    baseline(contest, 0.3, 0.9)
    assert publish_due() == 1
    strong.refresh_from_db()
    assert (strong.visibility, strong.scores["nDCG@10"]) == ("public", 0.34)


def test_changing_the_policy_changes_every_value_at_once_and_is_recorded(hidden: Dataset, client: Client) -> None:
    baseline(hidden, 0.2, 0.2)
    assert values(client, "BM25")["nDCG@10"] == 0.2
    before = hidden.board_revision
    change(hidden, "competition", share=0.4)
    entry = Entry.objects.get()
    assert entry.evaluation is not None
    assert entry.evaluation.parts.get(part="public").judged_queries == 12
    assert BoardChange.objects.latest("pk").kind == "protected"
    assert Dataset.objects.get(pk=hidden.pk).board_revision > before
    record = AuditRecord.objects.get(action="protection changed")
    assert (record.before["protection"], record.after["protection"], record.reason) == (
        "standard",
        "competition",
        "because",
    )
    change(hidden, "standard", although_reveals=True)
    assert values(client, "BM25")["nDCG@10"] == 0.2


def reveals() -> list[Any]:
    """What the audit record has of reveals."""
    return list(AuditRecord.objects.filter(action="private part revealed").values_list("after__results", flat=True))


def test_a_competition_is_left_only_where_its_private_part_is_known_and_that_is_a_reveal(
    contest: Dataset, client: Client
) -> None:
    baseline(contest, 0.3, 0.3)
    publish(contest, "Fitted", 0.6, 0.3)
    with pytest.raises(CannotProtect, match="would reveal the private part of 2 results on Secret"):
        request_change(contest, competition=False)
    assert not WorkRequest.objects.filter(kind="protect", payload__protection="standard").exists()
    change(contest, "standard", although_reveals=True)
    assert values(client, "Fitted")["nDCG@10"] == 0.4
    assert reveals() == [2]
    assert AuditRecord.objects.get(action="private part revealed").reason == "because"


def test_what_was_revealed_is_not_asked_for_again(contest: Dataset) -> None:
    baseline(contest, 0.3, 0.3)
    publish(contest, "Fitted", 0.6, 0.3)
    with acting(None, "the end"):
        reveal_private(contest)
    change(contest, "standard")
    assert reveals() == [2]


def test_held_results_tell_nothing_when_a_competition_is_left(contest: Dataset) -> None:
    baseline(contest, 0.3, 0.3)
    one = publish(contest, "One", 0.6, 0.3)
    held = publish_entry(Entry(provenance=Entry.Provenance.SCORED), evaluation(contest, one.system, 0.5, 0.45, 1))
    with acting(None, "the end"):
        reveal_private(contest)
    change(contest, "standard")
    held.refresh_from_db()
    assert (held.visibility, held.scores) == ("held", {})


def test_the_command_and_the_action_ask_before_a_private_part_is_told(contest: Dataset) -> None:
    baseline(contest, 0.3, 0.3)
    publish(contest, "Fitted", 0.6, 0.3)
    root = User.objects.create_superuser("root@example.org", "a long password")
    said = ("protect_dataset", "secret", "--standard", "--by", root.email, "--why", "over")
    with pytest.raises(CommandError, match="Reveal the private part first"):
        call_command(*said)
    client = Client()
    client.force_login(root)
    sent = {
        "action": "change_protection", "_selected_action": contest.pk, "confirmed": "yes",
        "protection": "standard", "share": "", "why": "over",
    }  # fmt: skip
    asked = WorkRequest.objects.filter(kind="protect", payload__protection="standard")
    assert "would reveal the private part" in client.post("/admin/leaderboard/dataset/", sent).content.decode()
    assert not asked.exists()
    assert client.post("/admin/leaderboard/dataset/", {**sent, "although_reveals": "on"}).status_code == 302
    assert asked.count() == 1
    asked.delete()
    call_command(*said, "--although-reveals")
    assert asked.count() == 1


def test_no_competition_starts_once_results_were_told_in_full_unless_that_is_known(hidden: Dataset) -> None:
    publish(hidden, "Early", 0.3, 0.5)
    with pytest.raises(CannotProtect, match="1 result on Secret disclosed the mean over all"):
        request_change(hidden, competition=True)
    request_change(hidden, competition=True, although_told=True)


def test_parts_are_drawn_once_and_with_one_share(contest: Dataset) -> None:
    assert contest.current_qrels is not None
    contest.current_qrels.refresh_from_db()
    drawn = contest.current_qrels.parts_sha256
    change(contest, "standard")
    with pytest.raises(CannotProtect, match="were drawn with a public share of"):
        request_change(contest, competition=True, share=0.5)
    change(contest, "competition")
    contest.current_qrels.refresh_from_db()
    assert contest.current_qrels.parts_sha256 == drawn


def test_open_judgements_and_the_same_policy_are_refused(contest: Dataset) -> None:
    with pytest.raises(CannotProtect, match="already under the competition policy"):
        request_change(contest, competition=True)
    with pytest.raises(CannotProtect, match="are open"):
        request_change(scored_dataset(slug="open"), competition=True)


def test_the_switch_waits_for_results_that_came_meanwhile(hidden: Dataset) -> None:
    with acting(None, "because"):
        request_change(hidden, competition=True)
        compute_part_means(hidden, lambda share: None)
        late = evaluation(hidden, make_system("Late"), 0.1, 0.2)
        assert not switch_protection(hidden, Protection.COMPETITION)
        hidden.refresh_from_db()
        assert hidden.protection == "standard"
        evaluate_parts(late)
        assert switch_protection(hidden, Protection.COMPETITION)


def test_nothing_is_revealed_of_a_dataset_in_no_competition(hidden: Dataset) -> None:
    with pytest.raises(CannotReveal, match="no private part"):
        reveal_private(hidden)


def test_the_commands_ask_for_a_person_with_the_permission_and_a_reason(hidden: Dataset) -> None:
    person = make_user("Curator")
    with pytest.raises(CommandError, match="needs the permission"):
        call_command("protect_dataset", "secret", "--competition", "--by", person.email, "--why", "a contest")
    person.user_permissions.add(Permission.objects.get(codename="reveal_dataset"))
    call_command("protect_dataset", "secret", "--competition", "--by", person.email, "--why", "a contest")
    assert WorkRequest.objects.get(kind="protect").payload == {
        "protection": "competition",
        "by": person.pk,
        "why": "a contest",
    }
    with pytest.raises(CommandError, match="no private part"):
        call_command("reveal", "secret", "--by", person.email, "--why", "the end")
    with pytest.raises(CommandError, match="no dataset with the slug nowhere"):
        call_command("reveal", "nowhere", "--by", person.email, "--why", "the end")


def test_curators_change_the_policy_by_an_action_that_asks_why_and_not_by_editing(hidden: Dataset) -> None:
    client = Client()
    client.force_login(User.objects.create_superuser("root@example.org", "a long password"))
    edit = client.get(f"/admin/leaderboard/dataset/{hidden.pk}/change/").content.decode()
    assert 'name="protection"' not in edit
    assert 'name="daily_quota"' in edit
    chosen = {"action": "change_protection", "_selected_action": hidden.pk}
    asked = client.post("/admin/leaderboard/dataset/", chosen).content.decode()
    assert "Change protection" in asked
    sent = {**chosen, "confirmed": "yes", "protection": "competition", "share": "0.4", "why": ""}
    assert client.post("/admin/leaderboard/dataset/", sent).status_code == 400
    assert client.post("/admin/leaderboard/dataset/", {**sent, "why": "a contest"}).status_code == 302
    assert WorkRequest.objects.get(kind="protect").payload["why"] == "a contest"
    hidden.refresh_from_db()
    assert (hidden.protection, hidden.public_share) == ("standard", 0.4)
    revealed = {"action": "reveal", "_selected_action": hidden.pk, "confirmed": "yes", "why": "the end"}
    assert "is not in a competition" in client.post("/admin/leaderboard/dataset/", revealed).content.decode()


def test_a_curator_without_the_right_reveals_nothing(contest: Dataset) -> None:
    curator = make_user("Curator")
    curator.is_staff = True
    curator.save()
    curator.user_permissions.add(*Permission.objects.filter(codename__in=["change_dataset", "view_dataset"]))
    client = Client()
    client.force_login(curator)
    for action in ("reveal", "change_protection"):
        sent = {"action": action, "_selected_action": contest.pk}
        assert client.post("/admin/leaderboard/dataset/", sent).status_code == 403


def test_opening_the_judgements_ends_a_competition(contest: Dataset) -> None:
    one = publish(contest, "One", 0.6, 0.4)
    publish_entry(Entry(provenance=Entry.Provenance.SCORED), evaluation(contest, one.system, 0.5, 0.45, 1))
    contest.hidden = False
    contest.save()
    refresh_scores(contest)
    assert set(Entry.objects.values_list("visibility", flat=True)) == {"public"}
    assert all(entry.scores["nDCG@10"] > 0.4 for entry in Entry.objects.all())


@pytest.mark.django_db
def test_an_import_names_the_policy_of_a_new_dataset_and_changes_none(tmp_path: Path) -> None:
    source = write_folder(tmp_path)

    def codes(**options: Any) -> list[str]:
        with pytest.raises(InvalidContent) as refused:
            import_dataset(source, ImportOptions(slug="tiny", **options))
        return [problem.code for problem in refused.value.report.problems]

    assert codes(hidden=False, protection="competition") == ["nothing_to_protect"]
    assert codes(public_share=1.5) != []
    imported = import_dataset(source, ImportOptions(slug="tiny", protection="competition", public_share=0.5))
    assert (imported.dataset.protection, imported.dataset.public_share) == ("competition", 0.5)
    assert codes(protection="standard") == ["protection_changed"]
    again = import_dataset(source, ImportOptions(slug="tiny"))
    assert again.dataset.protection == "competition"


def test_secondary_measures_beside_a_measure_of_answers_have_coarser_steps() -> None:
    steps = [coarse_step(name, competition=False) for name in ("nDCG@10", "EM", "AnswerF1", "a measure of a paper")]
    assert steps == [0.02, 0.1, 0.1, 0.02]
    assert coarse_step("EM", competition=True) == 0.02
