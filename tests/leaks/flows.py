"""Every act of the admin and every command, as a curator would try out with it whether a pair is judged.

`FLOWS` is complete: `test_flows.py` holds it against the admin's own addresses and actions and the commands that there
are. The pages that Django gives every model are derived from the admin (`standard_flows`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from django.apps import apps
from django.contrib import admin
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.core.management import get_commands
from django.db.models import Model
from django.test import RequestFactory
from django.urls import NoReverseMatch, reverse

from leaderboard.models import Challenge, Entry, Rescore, System, Team, User
from submissions.accounts.teams import personal_team
from tests.curating import filled
from tests.leaderboard.tiny_collection import HEADER, lines_of, write_zip
from tests.leaks.routes import routes
from tests.leaks.worlds import CORPUS, GUESS, PROBE, QUERY, Stage

Flow = Callable[[Stage], None]

#: What Django gives every model, by the end of an address's name.
STANDARD = ("changelist", "add", "change", "delete", "history", "simple_history")

#: What neither takes nor shows anything of a dataset, and what only an operator can do who has the files anyway.
ELSEWHERE = {
    "login", "logout", "password_change", "password_change_done", "auth_user_password_change", "jsi18n",
    "view_on_site", "",
    "account.EmailAddress:make_verified",
    "leaderboard.Acceptance:approve", "leaderboard.Acceptance:withdraw",
    "leaderboard.Team:approve", "leaderboard.Team:withdraw_approval", "leaderboard.TopicSource:renew_now",
    "leaderboard.User:approve", "approve_teams",
    "adopt_history", "api_token", "backup", "database_rights", "import_benchmark", "load_reported", "make_curator",
    "measure_again",
    "renew_topics", "restore_backup", "reset_second_factor", "runboard", "send_store", "sweep", "team", "worker",
}  # fmt: skip


def acts() -> set[str]:
    """The real ones: addresses of the admin by name, actions as `app.Model:action`, and commands of the project."""
    found = {route.name for route in routes() if route.text.startswith("admin/")}
    request = RequestFactory().get("/admin/")
    request.user = User(is_staff=True, is_superuser=True, is_active=True)
    for model, page in admin.site._registry.items():
        found |= {f"{model._meta.label}:{name}" for name in page.get_actions(request)}
    own = {"leaderboard", "submissions"}
    return found | {name for name, app in get_commands().items() if app in own}


def standard_names() -> set[str]:
    """The names of the addresses that `standard_flows` asks."""
    models = [model._meta for model in admin.site._registry]
    return {f"{each.app_label}_{each.model_name}_{kind}" for each in models for kind in STANDARD}


def standard_flows(stage: Stage, *, short: bool) -> Iterator[tuple[str, Flow]]:
    """The list of every model, searched for the pair; each row's page, sent as it is; its history; deleting it.

    Short: two of the hidden dataset's rows, to look at.
    """
    for model in admin.site._registry:
        name = f"{model._meta.app_label}_{model._meta.model_name}"
        rows = [row for row in model._default_manager.all() if _is_about(row, stage)]
        others = () if short else model._default_manager.all()[:2]
        rows = [*(rows[:2] if short else rows), *(row for row in others if row not in rows)]
        if not rows:
            continue
        yield f"{name}_changelist", partial(_list, name=name, queries=("",) if short else ("", f"?q={PROBE}"))
        if not short and f"{name}_add" in acts():
            yield f"{name}_add", partial(_form, address=reverse(f"admin:{name}_add"))
        for row in rows:
            yield f"{name}_change {row.pk}", partial(_row, name=name, key=row.pk, short=short)


def _is_about(row: Model, stage: Stage) -> bool:
    return (
        row == stage.dataset
        or getattr(row, "dataset", None) == stage.dataset
        or (getattr(getattr(row, "version", None), "dataset", None) == stage.dataset)
    )


def _list(stage: Stage, name: str, queries: Iterable[str]) -> None:
    for query in queries:
        stage.get(reverse(f"admin:{name}_changelist") + query)


def _row(stage: Stage, name: str, key: Any, short: bool) -> None:
    try:
        change = reverse(f"admin:{name}_change", args=[key])
    except NoReverseMatch:  # workers have a list alone
        return
    stage.get(change)
    if short:
        return
    _form(stage, change)
    stage.get(reverse(f"admin:{name}_history", args=[key]))
    stage.get(reverse(f"admin:{name}_delete", args=[key]))
    stage.post(reverse(f"admin:{name}_delete", args=[key]), post="yes")


def _form(stage: Stage, address: str) -> None:
    try:
        sent = filled(stage.client, address)
    except (KeyError, TypeError):  # no form, or none for this person
        sent = {}
    stage.post(address, **sent)


def _import(stage: Stage, split: str, **fields: Any) -> None:
    changes = {
        "corpus.jsonl": CORPUS,
        "queries.jsonl": lines_of([{"_id": QUERY, "text": "a question"}]),
        "qrels/test.tsv": None,
        "qrels/train.tsv": None,
        f"qrels/{split}.tsv": HEADER + GUESS,
    }
    path = write_zip(stage.folder / "guess.zip", changes)
    _send(stage, path, slug="secret", **fields)
    for named in (True, False):
        stage.run("import_dataset", str(path), slug="secret", **fields, named=named)


def _send(stage: Stage, path: Path, **fields: Any) -> None:
    address = reverse("admin:leaderboard_dataset_import")
    with path.open("rb") as archive:
        told = stage.post(f"{address}?dataset={fields['slug']}", archive=archive)
    if staged := re.search(r"staged=\w+", told):
        stage.post(f"{address}?{staged[0]}", split="test", **fields)


def _imported(stage: Stage) -> None:
    stage.get(reverse("admin:leaderboard_dataset_imported", args=[stage.dataset.pk]))


def _import_others(stage: Stage) -> None:
    _import(stage, "dev", collecting=True)


def _import_scored(stage: Stage) -> None:
    _import(stage, "test")


def _import_twin(stage: Stage) -> None:
    """An open half that has the topic, over the corpus of the hidden dataset, and its hidden half; and both at once."""
    for name, topics in (
        ("half", [QUERY, *(f"open{n}" for n in range(12))]),
        ("rest", [f"other{n}" for n in range(12)]),
        ("whole", [QUERY, *(f"each{n}" for n in range(60))]),
    ):
        changes = {
            "corpus.jsonl": CORPUS,
            "queries.jsonl": lines_of([{"_id": topic, "text": f"about {topic}"} for topic in topics]),
            "qrels/test.tsv": HEADER + "".join(f"{topic}\td1\t1\n" for topic in topics),
            "qrels/train.tsv": None,
        }
        write_zip(stage.folder / f"{name}.zip", changes)
    half, rest, whole = (stage.folder / f"{name}.zip" for name in ("half", "rest", "whole"))
    _send(stage, half, slug="half", judgements="open")
    _send(stage, rest, slug="rest", judgements="hidden", twin_of="half")
    _send(stage, whole, slug="whole", twin=0.8)
    for named in (True, False):
        stage.run("import_dataset", str(rest), slug="rest", hidden=True, twin_of="half", named=named)
        stage.run("import_dataset", str(whole), slug="whole", twin=0.8, seed=0, named=named)


def _bring(stage: Stage) -> None:
    """Not compared yet: the scorer does that."""
    address = reverse("admin:leaderboard_judgementimport_bring")
    for text in (f"{QUERY} 0 {PROBE} 1\n", f"{QUERY} 0 {PROBE} 9\n", f"{QUERY} 0 nowhere 1\n"):
        stage.post(address, dataset="secret", file=stage.file(text), judge_kind="people", judge_name="I")


def _settle_import(stage: Stage) -> None:
    """A colleague's, compared: looked at, merged, thrown away; the lists beside it."""
    address = reverse("admin:leaderboard_judgementimport_change", args=[stage.brought.pk])
    stage.get(address)
    stage.post(address, policy="keep", merge="Merge")
    stage.post(address, discard="Discard")
    stage.get(reverse("admin:leaderboard_judgementimport_changelist"))


def _merge(stage: Stage) -> None:
    """From the file to the rescore's preview."""
    _act_on_rescore(stage, "discard")
    address = reverse("admin:leaderboard_judgementimport_change", args=[stage.brought.pk])
    stage.post(address, again="Compare again")
    stage.settle()
    stage.post(address, policy="replace", merge="Merge")
    stage.settle()
    stage.get(address)
    for rescore in Rescore.objects.filter(dataset=stage.dataset):
        stage.get(reverse("admin:leaderboard_rescore_change", args=[rescore.pk]))


def _draw(stage: Stage) -> None:
    stage.post(f"{reverse('admin:leaderboard_pool_draw')}?dataset=secret", dataset="secret", depth=5)
    stage.settle()
    stage.get(reverse("admin:leaderboard_pool_changelist"))


def _pool(stage: Stage) -> None:
    address = reverse("admin:leaderboard_pool_change", args=[stage.pool.pk])
    stage.get(address)
    stage.post(address)


def _pool_files(stage: Stage) -> None:
    for form in ("csv", "trec"):
        stage.get(reverse("admin:leaderboard_pool_file", args=[stage.pool.pk, form]))


def _read(stage: Stage) -> None:
    stage.get(reverse("admin:leaderboard_qrels_read", args=[stage.dataset.current_qrels_id]))


def _preview(stage: Stage) -> None:
    stage.get(reverse("admin:leaderboard_rescore_change", args=[stage.rescore.pk]))


def _preview_file(stage: Stage) -> None:
    stage.get(reverse("admin:leaderboard_rescore_csv", args=[stage.rescore.pk]))


def _act_on_rescore(stage: Stage, act: str) -> None:
    address = reverse(f"admin:leaderboard_rescore_{act}", args=[stage.rescore.pk])
    stage.get(address)
    stage.post(address)
    stage.get(reverse("dataset", args=["secret"]))


def _start_rescore(stage: Stage) -> None:
    stage.post(reverse("admin:leaderboard_rescore_add"), qrels=stage.rescore.to_qrels_id)


def _report(stage: Stage) -> None:
    """A figure of a publication on the hidden board."""
    source = {"key": "told", "title": "T", "authors": "A", "year": 2026}
    figure = {
        "dataset": "secret",
        "system": "Told",
        "measure": "nDCG@10",
        "value": "0.5",
        "locator": "Table 1",
    }
    for confirmed in ({}, {"confirmed": "Store"}):
        stage.post(reverse("admin:leaderboard_entry_report"), **source, **figure, **confirmed, architecture="dense")


def _measures(stage: Stage) -> None:
    address = reverse("admin:leaderboard_dataset_measures", args=[stage.dataset.pk])
    for primary in ("Hole@10", "Judged@10", "RR@10"):
        stage.post(address, primary=primary, others="")


def _export(stage: Stage, table: str) -> None:
    for ending in ("csv", "json"):
        stage.get(reverse(f"admin:leaderboard_{table}_export", args=[ending]))


def _table(stage: Stage, table: str) -> None:
    """A table as it was exported, shown and stored."""
    text = stage.client.get(reverse(f"admin:leaderboard_{table}_export", args=["csv"])).content.decode()
    address = reverse(f"admin:leaderboard_{table}_table")
    stage.post(address, text=text)
    stage.post(address, text=text, confirmed="on")


def _act_on_rows(stage: Stage, label: str, action: str, **said: Any) -> None:
    """An action of a list on each of its rows: what is asked first, then the act."""
    model = apps.get_model(label)
    address = reverse(f"admin:{model._meta.app_label}_{model._meta.model_name}_changelist")
    for row in model._default_manager.all()[:5]:
        chosen = {"action": action, ACTION_CHECKBOX_NAME: str(row.pk)}
        stage.post(address, **chosen)
        stage.post(address, **chosen, confirmed="on", **said)


def _merge_systems(stage: Stage) -> None:
    mine = System.objects.get(name="Mine")
    stage.post(reverse("admin:leaderboard_system_merge", args=[mine.pk]), into="shown")


def _complete(stage: Stage) -> None:
    stage.get(f"{reverse('admin:autocomplete')}?app_label=leaderboard&model_name=qrels&field_name=version&term={PROBE}")


def _lists(stage: Stage) -> None:
    stage.get(reverse("admin:index"))
    stage.get(reverse("admin:app_list", args=["leaderboard"]))


def _command(stage: Stage, command: str, *arguments: str, named: bool = True, **options: Any) -> None:
    stage.run(command, *arguments, named=named, **options)


def _judge_by_command(stage: Stage) -> None:
    path = stage.on_disk(f"{QUERY} 0 {PROBE} 1\n")
    stage.run("import_judgements", "secret", path, dry_run=True)
    stage.run("import_judgements", "secret", path, judge="I")
    stage.run("import_judgements", "secret", path, judge="I", conflicts="keep")


def _import_runs(stage: Stage) -> None:
    folder = stage.folder / "runs"
    folder.mkdir(exist_ok=True)
    (folder / "guess.txt").write_text(f"{QUERY} Q0 {PROBE} 1 2.5 guess\n")
    team = Team.objects.filter(memberships__user=stage.curator).first() or personal_team(stage.curator)
    stage.run("import_runs", str(folder), dataset="secret", team=team.slug, architecture="dense")


def _on_entry(stage: Stage, command: str) -> None:
    stage.run(command, str(Entry.objects.get(dataset=stage.dataset).pk))


def _on_challenge(stage: Stage, command: str, **options: Any) -> None:
    stage.run(command, str(Challenge.objects.earliest("pk").pk), **options)


def _bring_table(stage: Stage) -> None:
    path = stage.folder / "table.csv"
    stage.run("export_table", "datasets", to=path, named=False)
    for dry_run in (True, False):
        stage.run("import_table", "datasets", str(path), dry_run=dry_run)


def _bring_mteb(stage: Stage) -> None:
    folder = stage.folder / "mteb" / "org__model" / "1"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "model_meta.json").write_text('{"name": "org/model"}')
    scores = {"test": [{"hf_subset": "default", "ndcg_at_10": 0.5}]}
    result = {"task_name": "Guess", "dataset_revision": "1", "mteb_version": "2", "scores": scores}
    (folder / "Guess.json").write_text(json.dumps(result))
    stage.run(
        "import_mteb_results",
        str(stage.folder / "mteb"),
        source="https://example.org/",
        tasks=["Guess=secret"],
    )


def _bring_reported(stage: Stage) -> None:
    path = stage.folder / "reported.csv"
    path.write_text(
        "dataset,system,architecture,measure,value,locator,cost\nsecret,Paper,dense,nDCG@10,0.5,Table 1,0.2\n"
    )
    for dry_run in (True, False):
        stage.run("import_reported", str(path), title="On it", authors="A B", year="2026", dry_run=dry_run)


def _act_on_flags(stage: Stage) -> None:
    stage.run("flags", "list", "--all", named=False)


def _quota(stage: Stage) -> None:
    stage.run("quota", "show", stage.curator.email, named=False)


def _withdraw(stage: Stage) -> None:
    stage.run("withdraw", str(Entry.objects.get(dataset=stage.dataset).submission_reference))


_TABLES = ("benchmark", "dataset", "hardwareclass", "price", "system")

FLOWS: Mapping[str, Flow] = {
    "index": _lists,
    "app_list": _lists,
    "autocomplete": _complete,
    "leaderboard_dataset_import": _import_others,
    "leaderboard_dataset_import, scored": _import_scored,
    "leaderboard_dataset_import, twin": _import_twin,
    "leaderboard_dataset_imported": _imported,
    "leaderboard_dataset_measures": _measures,
    "leaderboard_entry_report": _report,
    **{f"leaderboard_{table}_export": partial(_export, table=table) for table in _TABLES},
    **{f"leaderboard_{table}_table": partial(_table, table=table) for table in _TABLES},
    "leaderboard_judgementimport_bring": _bring,
    "leaderboard_judgementimport_bring, to the page": _settle_import,
    "leaderboard_judgementimport_bring, to the rescore": _merge,
    "leaderboard_pool_draw": _draw,
    "leaderboard_pool_draw, the page": _pool,
    "leaderboard_pool_file": _pool_files,
    "leaderboard_qrels_read": _read,
    "leaderboard_rescore_csv": _preview_file,
    "leaderboard_rescore_csv, the page": _preview,
    "leaderboard_rescore_csv, another": _start_rescore,
    **{
        f"leaderboard_rescore_{act}": partial(_act_on_rescore, act=act)
        for act in ("switch", "discard", "evaluate")
    },
    "leaderboard_system_merge": _merge_systems,
    "leaderboard.Dataset:make_baseline": partial(_act_on_rows, label="leaderboard.Dataset", action="make_baseline"),
    "leaderboard.Dataset:change_protection": partial(
        _act_on_rows, label="leaderboard.Dataset", action="change_protection", protection="competition",
        although_told="on",
    ),
    "leaderboard.Dataset:tag_queries": partial(_act_on_rows, label="leaderboard.Dataset", action="tag_queries"),
    "leaderboard.Dataset:reveal": partial(_act_on_rows, label="leaderboard.Dataset", action="reveal"),
    **{
        f"leaderboard.Challenge:{action}": partial(
            _act_on_rows, label="leaderboard.Challenge", action=action, decision="So it is.", text="Other words"
        )
        for action in ("uphold", "reject", "take_words_out")
    },
    **{
        f"leaderboard.Entry:{action}": partial(_act_on_rows, label="leaderboard.Entry", action=action)
        for action in ("make_baseline", "measure_again", "quarantine", "restore", "unpublish", "withdraw")
    },
    "leaderboard.Round:reveal_round": partial(_act_on_rows, label="leaderboard.Round", action="reveal_round"),
    **{
        f"submissions.Flag:{action}": partial(_act_on_rows, label="submissions.Flag", action=action)
        for action in ("clear", "confirm", "quarantine")
    },
    "submissions.QuotaUse:refund": partial(_act_on_rows, label="submissions.QuotaUse", action="refund"),
    "audit": partial(_command, command="audit", named=False),
    "discard_rescore": lambda stage: stage.run("discard_rescore", "secret"),
    "draw_pool": lambda stage: stage.run("draw_pool", "secret", to=stage.folder),
    "export_table": _bring_table,
    "flags": _act_on_flags,
    "import_dataset": _import_others,
    "import_judgements": _judge_by_command,
    "import_mteb_results": _bring_mteb,
    "import_reported": _bring_reported,
    "import_runs": _import_runs,
    "import_table": _bring_table,
    "label_answers": lambda stage: stage.run(
        "label_answers", "secret", endpoint="http://127.0.0.1:9", model="m", judge="J", output=stage.folder / "labels"
    ),
    "merge_systems": lambda stage: stage.run("merge_systems", System.objects.get(name="Mine").slug, "shown"),
    **{
        command: partial(_on_entry, command=command)
        for command in ("name_baseline", "quarantine", "restore", "unpublish")
    },
    "prepare_query_pages": lambda stage: stage.run("prepare_query_pages", "secret", named=False),
    "protect_dataset": lambda stage: stage.run("protect_dataset", "secret", competition=True, although_told=True),
    "quota": _quota,
    "redact_challenge": partial(_on_challenge, command="redact_challenge", text="Other words"),
    "rescore": lambda stage: stage.run("rescore", "secret"),
    "reveal": lambda stage: stage.run("reveal", "secret"),
    "round": lambda stage: stage.run("round", "reveal", "autumn"),
    "set_measures": lambda stage: stage.run("set_measures", "secret", "Hole@10"),
    "settle_challenge": partial(_on_challenge, command="settle_challenge", reject=True, decision="So it is."),
    "switch_board": lambda stage: stage.run("switch_board", "secret"),
    "tag_queries": lambda stage: stage.run("tag_queries", "secret"),
    "withdraw": _withdraw,
}  # fmt: skip
