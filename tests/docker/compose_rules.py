"""What docs/decisions/0008 promises of the containers, asked of compose.yaml as read or as `docker compose` prints it.

Each rule raises AssertionError with the service that breaks it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from leaderboard.management.supervisor.services import GUNICORN_CONFIG, WITHOUT_TALK
from tests.docker.dockerfile import Stage, read_stages, steps_of, words_of

Service = Mapping[str, Any]
Services = Mapping[str, Service]

WITH_JUDGEMENTS = {"setup", "curation", "scorer"}
#: What has no default: without it nothing starts.
SECRETS = (
    "SITE_HOST", "SECRET_KEY", "POSTGRES_PASSWORD", "DATABASE_OWNER_PASSWORD", "DATABASE_PASSWORD",
    "DATABASE_RETRIEVER_PASSWORD", "REDIS_PASSWORD", "REDIS_RETRIEVER_PASSWORD", "EMAIL_URL",
)  # fmt: skip
#: Who signs sessions and links; all others have a key that they forget.
SIGNING = {"setup", "web", "intake", "curation"}
#: Secrets for the same services alone, beside those of the services that people sign in with.
OF_PAGES = ("METRICS_TOKEN", "SECRET_KEY_FALLBACKS")
#: It brings everything up to date and ends.
ENDS = {"setup"}
#: Whose image is not ours: there the user is named beside it.
FOREIGN = {"proxy", "postgres", "redis"}
WITH_A_WAY_OUT = {"proxy", "notifier"}
#: Who runs what strangers wrote, and is trusted by nobody.
UNTRUSTED = {"retriever", "retriever-gpu"}
#: Where what is compiled on first use lies, and is run.
CODE = ("RUNBOARD_KERNEL_CACHE", "NUMBA_CACHE_DIR")


def read(text: str) -> dict[str, Any]:
    """What a compose file says.

    Raises yaml.YAMLError, also for a key that is there twice: Docker Compose v2 refuses it, YAML's own reader takes
    the last.
    """
    _refuse_what_is_there_twice(yaml.compose(text, yaml.SafeLoader))
    found: dict[str, Any] = yaml.safe_load(text)
    return found


def _refuse_what_is_there_twice(node: yaml.Node | None) -> None:
    if isinstance(node, yaml.MappingNode):
        seen = set()
        for key, value in node.value:
            if key.value in seen:
                raise yaml.MarkedYAMLError(problem=f"{key.value} is there twice", problem_mark=key.start_mark)
            seen.add(key.value)
            _refuse_what_is_there_twice(value)
    elif isinstance(node, yaml.SequenceNode):
        for value in node.value:
            _refuse_what_is_there_twice(value)


def volumes(service: Service) -> dict[str, str]:
    """Names of volumes or folders, by where they are mounted."""
    found = {}
    for volume in service.get("volumes") or []:
        if isinstance(volume, str):
            source, target = volume.split(":")[:2]
        else:
            source, target = volume["source"], volume["target"]
        found[target] = source
    return found


def judgements_are_for_few(services: Services) -> None:
    """Only who scores, who curates and who sets up mount `private`, and only they are told to use it."""
    mounted = {name for name, service in services.items() if "private" in volumes(service).values()}
    assert mounted == WITH_JUDGEMENTS, mounted
    for name, service in services.items():
        if name not in FOREIGN:
            expected = "on" if name in WITH_JUDGEMENTS else "off"
            assert service["environment"]["PRIVATE_STORAGE"] == expected, name
    assert "/data" not in volumes(services["notifier"]), "who sends to strangers' servers has no runs either"


def writable(service: Service) -> dict[str, str]:
    """Of `volumes` those that the service may write to."""
    found = {}
    for volume in service.get("volumes") or []:
        if isinstance(volume, str):
            source, target, *mode = volume.split(":")
            read_only = "ro" in mode
        else:
            source, target, read_only = volume["source"], volume["target"], volume.get("read_only", False)
        if not read_only:
            found[target] = source
    return found


def _lies_in(path: str, folders: Mapping[str, str]) -> str:
    """What is mounted where the path lies: of several the innermost. Empty where nothing is."""
    above = [folder for folder in folders if f"{path}/".startswith(f"{folder.rstrip('/')}/")]
    return folders[max(above, key=len)] if above else ""


def memory(service: Service) -> set[str]:
    """Where memory is mounted."""
    return {each.partition(":")[0] for each in service.get("tmpfs") or []}


def nothing_mounted_can_be_moved_away(services: Services) -> None:
    """Where a volume is mounted inside another, who may write the outer one has something mounted there too.

    The kernel refuses to move or remove a place where the mover itself has something mounted (EBUSY), and detaches it
    from everybody else where the mover has nothing: another folder, or a link, could then stand in its place.
    """
    inside: dict[str, set[str]] = {}
    for service in services.values():
        for place in volumes(service):
            for outer, volume in volumes(service).items():
                if place.startswith(f"{outer}/"):
                    inside.setdefault(volume, set()).add(place.removeprefix(outer))
    for name, service in services.items():
        for outer, volume in writable(service).items():
            needed = {f"{outer}{place}" for place in inside.get(volume, set())}
            bare = needed - set(volumes(service)) - memory(service)
            assert not bare, f"{name} could move {', '.join(sorted(bare))} away"


def code_is_in_nobody_elses_reach(services: Services) -> None:
    """What is compiled lies in memory of each container's own, from which it may be run.

    What browsers run lies where setup alone writes, and on no volume that a retriever has.
    """
    for name, service in services.items():
        if name in FOREIGN:
            continue
        places = volumes(service) | {place: place for place in memory(service)}
        for variable in CODE:
            where = service["environment"][variable]
            assert _lies_in(where, places) == "/cache", f"{name}: {variable}={where}"
        (options,) = (each for each in service["tmpfs"] if each.startswith("/cache:"))
        assert {"uid=10001", "mode=700", "exec"} <= set(options.partition(":")[2].split(",")), name
    of_scripts = _lies_in("/data/static/js", volumes(services["proxy"]))
    writers = {name for name, service in services.items() if of_scripts in writable(service).values()}
    assert writers == {"setup"}, f"{of_scripts} is written by {writers}"
    for name in UNTRUSTED & set(services):
        assert writable(services[name]) == {"/data": "data"}, name


def only_the_proxy_is_reached(services: Services) -> None:
    """No other service publishes a port, and who has judgements, models or data has no network but the inner one."""
    assert {name for name, service in services.items() if service.get("ports")} == {"proxy"}
    outside = {name for name, service in services.items() if "outside" in service["networks"]}
    assert outside == WITH_A_WAY_OUT, outside
    assert services["web"]["environment"]["ALLOWED_HOSTS"].endswith(",web"), "a scraper inside would be refused"


def nobody_has_rights_to_spare(services: Services) -> None:
    """No root, no capabilities, nothing to write to but volumes and memory."""
    for name, service in services.items():
        assert service.get("read_only") is True, f"{name} can write to its root"
        assert service.get("cap_drop") == ["ALL"], f"{name} has capabilities"
        assert any("no-new-privileges" in option for option in service.get("security_opt", [])), name
        assert not service.get("privileged"), name
        if name in FOREIGN:
            user = str(service.get("user", "root")).partition(":")[0]
            assert user not in ("root", "0"), f"{name} runs as root"
        else:
            assert "user" not in service, f"{name}: its image names the user"


def nobody_takes_the_whole_machine(services: Services) -> None:
    """Memory, processes and processors have an end; the latter but for retrievers, which measure what a machine can."""
    for name, service in services.items():
        assert service.get("mem_limit"), f"{name} may take all memory"
        assert int(service.get("pids_limit") or 0) > 0, f"{name} may start processes without end"
        assert service.get("cpus") or name in UNTRUSTED, f"{name} may take all processors"


#: What no retriever may have in the broker: whole groups of commands, channels, all keys, keys of remote control.
TOO_MUCH = (
    "+@", "allcommands", "&", "allchannels", "~*", "allkeys", "+publish", "+psubscribe", "+config", "+eval ",
)  # fmt: skip
#: Queues that retrievers may send wakeups to, and not read.
WRITE_ONLY = ("score", "dispatch", "notices")


def retrievers_have_little_of_the_broker(services: Services) -> None:
    """Check that keys and commands are named, keys in selectors only, and that others' queues can only be added to."""
    command = re.sub(r"[\"'\s]+", " ", " ".join(services["redis"]["command"])) + " "
    rules = command.partition("--user retriever ")[2]
    for rule in TOO_MUCH:
        assert f" {rule}" not in rules, f"{rule} for retrievers"
    assert "pidbox" not in rules, "remote control for retrievers"
    selectors = [set(selector.split()) for selector in re.findall(r"\(([^)]*)\)", rules)]
    assert "~" not in re.sub(r"\([^)]*\)", "", rules), "a key that retrievers may use with every command"
    for queue in WRITE_ONLY:
        commands = {rule for each in selectors if f"~{queue}*" in each for rule in each if rule[0] == "+"}
        assert commands == {"+lpush", "+llen"}, queue


def secrets_are_for_who_needs_them(services: Services) -> None:
    """The key for who signs, the owner of the tables for who migrates, the superuser for nobody of ours."""
    for name, service in services.items():
        if name in FOREIGN:
            continue
        told = service["environment"]
        assert (told["SECRET_KEY"] != "none") == (name in SIGNING), f"{name}: SECRET_KEY"
        secret = [each for each in told if each in OF_PAGES or each.endswith("_CLIENT_SECRET")]
        assert bool(secret) == (name in SIGNING), f"{name}: {', '.join(secret)}"
        role = "runboard_retriever" if name.startswith("retriever") else "runboard_site"
        assert told["DATABASE_URL"].startswith(f"postgresql://{role}:"), f"{name}: DATABASE_URL"
        assert ("OWNER_URL" in told) == (name == "setup"), f"{name}: OWNER_URL"
        assert not {"POSTGRES_PASSWORD", "DATABASE_OWNER_PASSWORD"} & set(told), name
        if name.startswith("retriever"):
            assert told["REDIS_URL"].startswith("redis://retriever:"), f"{name}: REDIS_URL"
            assert told["EMAIL_URL"] == "consolemail://", name
        else:
            assert "consolemail" not in told["EMAIL_URL"], f"{name}: keys in mails would go to the log, unasked"
    assert services["setup"]["environment"]["OWNER_URL"].startswith("postgresql://runboard_owner:")


def everybody_is_asked_how_they_are(services: Services) -> None:
    """Each service that stays has a check, which asks what the service is."""
    for name, service in services.items():
        check = service.get("healthcheck") or {}
        if name in ENDS:
            assert check.get("disable") or check.get("test") == ["NONE"], name
        else:
            assert check.get("test"), f"{name} has no check"


def images_are_named_exactly(services: Services) -> None:
    """Pinned to a patch release, perhaps by digest too; ours are built from the target that fits."""
    for name, service in services.items():
        image = service["image"]
        if name in FOREIGN:
            assert re.search(r":\d+\.\d+(\.\d+)?(-[a-z]+)?@sha256:[0-9a-f]{64}$", image), image
            continue
        target = {"retriever": "cpu-worker", "retriever-gpu": "gpu-worker"}.get(name, "web")
        assert service["build"]["target"] == target, name
        assert (image == "runboard-web") == (target == "web"), name


def the_broker_forgets_nothing(services: Services) -> None:
    """Written to a file, and never short of memory by dropping what it holds."""
    command = " ".join(services["redis"]["command"])
    for option in ("--appendonly yes", "--maxmemory-policy noeviction", "--requirepass"):
        assert option in command, option


def every_queue_has_its_worker(services: Services, dockerfile: Path) -> None:
    """And what measures runs one job at a time."""
    stages = dockerfile.read_text().split("\nFROM ")
    by_target = {stage.split(" AS ")[1].split("\n")[0]: stage for stage in stages if " AS " in stage}
    queues = {}
    for name, service in services.items():
        command = service.get("command") or ""
        if name.startswith("retriever"):
            command = re.sub(r'[\[\]",\\\s]+', " ", by_target[service["build"]["target"]].split("CMD [")[-1])
            assert "--concurrency 1 " in command, name
        found = re.search(r"--queues (\S+)", " ".join(command) if isinstance(command, list) else command)
        if found:
            queues[name] = found[1]
    expected = {"scorer": "score,dispatch", "notifier": "notices", "retriever": "cpu", "retriever-gpu": "gpu"}
    assert {name: queue for name, queue in expected.items() if name in services} == queues
    with_a_profile = {name: service["profiles"] for name, service in services.items() if service.get("profiles")}
    assert with_a_profile in ({"retriever-gpu": ["gpu"]}, {}), with_a_profile


def _command(service: Service, stages: dict[str, Stage]) -> list[str]:
    """What it runs: its own command, else its image's."""
    if command := service.get("command"):
        return command.split() if isinstance(command, str) else list(command)
    _, steps = steps_of(stages, service["build"]["target"])
    return words_of([step.text for step in steps if step.instruction == "CMD"][-1])


def processes_are_started_as_they_are_elsewhere(services: Services, dockerfile: Path) -> None:
    """Workers say nothing to each other through the broker; gunicorn has our configuration, which believes nobody."""
    stages = read_stages(dockerfile)
    commands = {name: _command(service, stages) for name, service in services.items() if name not in FOREIGN}
    workers = {name for name, words in commands.items() if "celery" in words and "worker" in words}
    servers = {name for name, words in commands.items() if "gunicorn" in words}
    assert {"scorer", "notifier", "retriever"} <= workers
    for name in workers:
        missing = set(WITHOUT_TALK) - set(commands[name])
        assert not missing, f"{name}: {missing}"
    assert servers == {"web", "intake", "curation"}
    for name in servers:
        assert GUNICORN_CONFIG in commands[name], f"{name}: --config {GUNICORN_CONFIG}"


def all_rules(services: Services, dockerfile: Path) -> None:
    """Every rule. Raises AssertionError."""
    judgements_are_for_few(services)
    code_is_in_nobody_elses_reach(services)
    nothing_mounted_can_be_moved_away(services)
    only_the_proxy_is_reached(services)
    nobody_has_rights_to_spare(services)
    nobody_takes_the_whole_machine(services)
    retrievers_have_little_of_the_broker(services)
    secrets_are_for_who_needs_them(services)
    everybody_is_asked_how_they_are(services)
    images_are_named_exactly(services)
    the_broker_forgets_nothing(services)
    every_queue_has_its_worker(services, dockerfile)
    processes_are_started_as_they_are_elsewhere(services, dockerfile)
