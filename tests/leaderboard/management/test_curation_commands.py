"""Every act of curation as a command: who, why, what was done, and what is refused."""

from __future__ import annotations

from io import StringIO

import pytest
from django.core.management import CommandError, call_command
from django.test import Client

from leaderboard.core.audit import acting
from leaderboard.models import AuditRecord, Entry, System, SystemRedirect
from leaderboard.systems.challenges import TrainingCorrection, raise_challenge, settle_challenge
from leaderboard.systems.records import merge_conflicts
from submissions.models import Submission
from tests.factories import make_user
from tests.leaderboard.entries import make_source, make_system, report, score, scored_dataset

pytestmark = pytest.mark.django_db


def run(name: str, *arguments: str, by: str, why: str = "for a test", **options: object) -> str:
    """What the command writes."""
    out = StringIO()
    call_command(name, *arguments, by=by, why=why, stdout=out, **options)
    return out.getvalue()


def test_results_are_quarantined_restored_unpublished_and_named_by_commands() -> None:
    carol = make_user("Carol", is_staff=True)
    dataset = scored_dataset(slug="nuts")
    entry = score(dataset, "Doubted", ndcg=0.75)
    named = f"nuts/{entry.system.slug}"
    assert "Quarantined: Doubted" in run("quarantine", named, by=carol.email, why="looks copied")
    entry.refresh_from_db()
    assert (entry.visibility, entry.moderation_reason) == (Entry.Visibility.QUARANTINED, "looks copied")
    assert "public now" in run("restore", named, by=carol.email)
    assert "is now the baseline" in run("name_baseline", str(entry.pk), by=carol.email)
    with pytest.raises(CommandError, match="Name another baseline first"):
        run("unpublish", named, by=carol.email)
    other = score(dataset, "Other", ndcg=0.5)
    assert "Unpublished: Other" in run("unpublish", str(other.pk), by=carol.email, why="asked for by its university")
    lines = StringIO()
    call_command("audit", dataset="nuts", stdout=lines)
    text = lines.getvalue()
    assert all(part in text for part in ("quarantined", "looks copied", "Carol", "restored", "asked for by"))
    assert "scores: – → nDCG@10 0.75" in text


def test_commands_say_what_would_be_right() -> None:
    carol = make_user("Carol", is_staff=True)
    dataset = scored_dataset(slug="nuts")
    system = make_system("Twice")
    first, second = score(dataset, system, ndcg=0.5), score(dataset, system, ndcg=0.6)
    with pytest.raises(CommandError, match="no account"):
        run("quarantine", "1", by="nobody@example.org")
    with pytest.raises(CommandError, match="Give a reason with --why"):
        run("quarantine", str(first.pk), by=carol.email, why=" ")
    with pytest.raises(CommandError, match=f"{second.pk}: public"):
        run("quarantine", f"nuts/{system.slug}", by=carol.email)
    with pytest.raises(CommandError, match="has no result"):
        run("quarantine", "nuts/nobody", by=carol.email)


def test_the_measures_of_a_board_change_with_what_is_stored(client: Client) -> None:
    carol = make_user("Carol", is_staff=True)
    dataset = scored_dataset(slug="nuts")
    score(dataset, "Some", ndcg=0.5, recall=0.75, AP=0.25)
    assert "AP, R@100" in run("set_measures", "nuts", "map", "recall@100", by=carol.email)
    rows = client.get("/api/v1/datasets/nuts/board/").json()["rows"]
    assert rows[0]["values"]["AP"] == 0.25
    record = AuditRecord.objects.get(action="measures", entry=None)
    assert (record.before["measures"], record.after["measures"]) == (["nDCG@10", "R@100"], ["AP", "R@100"])
    with pytest.raises(CommandError, match="Measures"):
        run("set_measures", "nuts", "nonsense@3", by=carol.email)
    said = run("set_measures", "nuts", "RBP(p=0.8)", "AP", by=carol.email)
    assert said.strip().endswith(
        "now shows RBP(p=0.8), AP. No result has RBP(p=0.8) yet. Only runs that are scored from now on will have them."
    )
    assert "No result has" not in run("set_measures", "nuts", "AP", by=carol.email)
    scored_dataset(slug="secret", hidden=True)
    with pytest.raises(CommandError, match=r"^With hidden judgments at most 3 .* included\. Every"):
        run("set_measures", "secret", "nDCG@10", "AP", "R@100", "P@10", by=carol.email)


def test_a_duplicate_goes_into_the_system_that_it_is(client: Client) -> None:
    carol = make_user("Carol", is_staff=True)
    dataset, other = scored_dataset(slug="nuts"), scored_dataset(slug="bolts")
    into = make_system("Owl")
    duplicate = make_system("Owl v1", team=into.team)
    old = duplicate.slug
    score(dataset, duplicate, ndcg=0.5)
    score(other, into, ndcg=0.6)
    sent = Submission.objects.create(
        pk="abc", submitter=carol, team=duplicate.team, system=duplicate, kind=Submission.Kind.RUN
    )
    assert f"Owl v1 was merged into Owl ({into.slug})" in run("merge_systems", old, into.slug, by=carol.email)
    sent.refresh_from_db()
    assert sent.system == into
    assert not System.objects.filter(slug=old).exists()
    assert SystemRedirect.objects.get(slug=old).system == into
    for address in (f"/systems/{old}/", f"/api/v1/systems/{old}/", f"/systems/{old}/badge.svg?dataset=nuts"):
        answer = client.get(address)
        assert (answer.status_code, answer["Location"]) == (301, address.replace(old, into.slug))
    assert client.get("/systems/nobody/").status_code == 404
    assert client.get("/api/v1/systems/nobody/").status_code == 404
    assert {row["dataset"] for row in client.get(f"/api/v1/systems/{into.slug}/").json()["results"]} == {
        dataset.name, other.name
    }  # fmt: skip
    record = AuditRecord.objects.get(action="merged")
    assert (record.actor, record.after["entries"]) == (carol, 1)


def test_what_cannot_be_merged_is_listed_and_nothing_changes() -> None:
    carol = make_user("Carol", is_staff=True)
    dataset = scored_dataset(slug="nuts")
    into = make_system("Owl")
    duplicate = make_system("Owl v1", team=into.team)
    twin = score(dataset, duplicate, ndcg=0.5)
    score(dataset, into, ndcg=0.6)
    for state in ("private", "held", "superseded", "unpublished"):
        Entry.objects.filter(pk=twin.pk).update(visibility=state)
        assert any("Withdraw the submission" in conflict for conflict in merge_conflicts(duplicate, into))
        assert merge_conflicts(into, duplicate)
    Entry.objects.filter(pk=twin.pk).update(visibility="withdrawn")
    assert not merge_conflicts(duplicate, into)
    Entry.objects.filter(pk=twin.pk).update(visibility="public")
    elsewhere = make_system("Owl of theirs")
    score(dataset, elsewhere, ndcg=0.55)
    with pytest.raises(CommandError, match="would change their owner"):
        run("merge_systems", elsewhere.slug, into.slug, by=carol.email)
    with pytest.raises(CommandError, match=f"Both have a result on {dataset}"):
        run("merge_systems", duplicate.slug, into.slug, by=carol.email)
    report(dataset, make_source("paper"), "Printed", ndcg=0.4)
    printed = System.objects.get(name="Printed")
    with pytest.raises(CommandError, match="reported tables"):
        run("merge_systems", printed.slug, into.slug, by=carol.email)
    with pytest.raises(CommandError, match="into itself"):
        run("merge_systems", into.slug, into.slug, by=carol.email)
    with pytest.raises(CommandError, match="would change their owner"):
        run("merge_systems", duplicate.slug, printed.slug, by=carol.email)
    assert System.objects.filter(pk=duplicate.pk).exists()


def test_what_a_challenge_corrected_is_not_merged_away() -> None:
    dataset = scored_dataset(slug="nuts")
    into = make_system("Owl")
    duplicate = make_system("Owl v1", team=into.team)
    score(dataset, duplicate, ndcg=0.5)
    doubt = raise_challenge(duplicate, make_user("Bob"), "training", "Its repository names these nuts too.")
    with acting(None, "read it"):
        settle_challenge(doubt, upheld=True, decision="It does.", correction=TrainingCorrection(True, ["nuts"], []))
    duplicate.refresh_from_db()
    assert any("Correct them first" in conflict for conflict in merge_conflicts(duplicate, into))
    System.objects.filter(pk=into.pk).update(training_declared=True, training_datasets=["nuts"])
    into.refresh_from_db()
    assert not merge_conflicts(duplicate, into)


def test_a_curator_may_curate_but_not_read_hidden_judgements() -> None:
    root, dan = make_user("Root"), make_user("Dan")
    assert "is now a curator." in run("make_curator", dan.email, by=root.email)
    dan = type(dan).objects.get(pk=dan.pk)
    assert dan.is_staff
    assert dan.has_perms(
        [
            "leaderboard.change_dataset",
            "leaderboard.moderate_entry",
            "leaderboard.judge_dataset",
            "leaderboard.view_user",
        ]
    )
    assert not any(
        dan.has_perm(right)
        for right in ("leaderboard.read_qrels", "leaderboard.change_user", "submissions.view_apitoken")
    )
    run("make_curator", dan.email, by=root.email, read_qrels=True)
    assert type(dan).objects.get(pk=dan.pk).has_perm("leaderboard.read_qrels")
    assert AuditRecord.objects.filter(action="made curator", actor=root).count() == 2
