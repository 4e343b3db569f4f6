"""How the whole site bears readers and large uploads at once: `make load-test`, or `python tests/load/run.py --help`.

nginx with docker/nginx.conf.template, gunicorn, PostgreSQL (with its own defaults, so every commit is synced), Valkey,
and the workers, on one machine together with what makes the load: readers who keep their connections, read a page with
its files and think for five seconds, and people who send runs of 100 MB at 5 MB/s, all at once. Ends with status 1
where a promise is broken. Only this machine is talked to.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import signal
import sys
import time
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.figures import Figures, add_option  # noqa: E402
from tests.load import filling, proxy, report, runs  # noqa: E402
from tests.load.site import Site, make_folder  # noqa: E402
from tests.load.usage import Watch  # noqa: E402

#: Small runs on the dataset of the large ones, so that its board has rows.
SMALL_RUNS = 8
#: Readers, and seconds, that fill caches before anything is measured.
WARM_READERS, WARM_SECONDS = 40, 30.0


def main() -> None:
    """Measure, print the tables, and write them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--readers", type=int, default=200)
    parser.add_argument("--think", type=float, default=5.0, help="seconds between two pages, ± half")
    parser.add_argument("--systems", type=int, default=filling.SYSTEMS, help="of the generated board")
    parser.add_argument("--datasets", type=int, default=filling.DATASETS, help="of the generated board")
    parser.add_argument("--uploads", type=int, default=20)
    parser.add_argument("--apart", type=float, default=0.0, help="seconds between two uploads' beginnings")
    parser.add_argument("--depth", type=int, default=runs.DEPTH, help="documents of a query in large runs")
    parser.add_argument("--megabytes-per-second", type=float, default=5.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", type=Path, help="a folder for logs, and records of every request and of memory")
    add_option(parser)
    options = parser.parse_args()
    figures = Figures(__file__)
    proxy.find_nginx()  # before minutes are spent
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that all is ended and removed then too
    with ExitStack() as after:
        folder = Path(make_folder())
        after.callback(shutil.rmtree, folder, ignore_errors=True)
        site = Site(folder, after)
        if options.keep:
            after.callback(shutil.copytree, site.logs, options.keep, dirs_exist_ok=True)
        found = measure(site, options)
    figures.say(report.as_markdown(found))
    figures.missed += found.broken()
    sys.exit(figures.finish(options.write))


def measure(site: Site, options: argparse.Namespace) -> report.Findings:
    """Fill the site, load it, and say what was found."""
    prepare(site, options)
    say("writing runs")
    blocks = runs.write_blocks(site.folder / "runs", options.depth)
    small = runs.write_blocks(site.folder / "runs", runs.SMALL_DEPTH)
    say("sending small runs")
    send(site, "small", small, filling.tokens(SMALL_RUNS, "small"), {"apart": 0.5, "bytes_per_second": 1e9})
    say("waiting for the workers to have done what a first start asks for")
    if not filling.wait_for(filling.work_is_done):
        say("they have not done all of it; going on")
    say("filling caches")
    addresses, systems = filling.sitemap()
    reading = {"address": site.address, "think": options.think, "addresses": addresses, "systems": systems}
    warm = {"readers": min(WARM_READERS, options.readers), "seconds": WARM_SECONDS, "seed": 0}
    read(site, "warm", {**reading, **warm, "think": 0.2}).wait()
    seconds = options.minutes * 60
    say(f"{options.readers} readers for {options.minutes:g} minutes, {options.uploads} uploads")
    watch = Watch(site.groups)
    plan = {**reading, "readers": options.readers, "seconds": seconds, "seed": options.seed}
    people = filling.tokens(options.uploads, "large")
    pace = {"apart": options.apart, "bytes_per_second": options.megabytes_per_second * 1e6}
    watch.start()
    readers = read(site, "readers", plan)
    senders = send(site, "large", blocks, people, {**pace, "first_at": seconds * 0.1}, wait=False)
    watch.add("load generator: readers", [readers.pid])
    watch.add("load generator: senders", [senders.pid])
    began = time.monotonic()
    if senders.wait() or readers_failed(site):
        raise SystemExit(site.last_words())
    uploads = json.loads((site.folder / "large.result").read_text())
    identifiers = [each["identifier"] for each in uploads if each["identifier"]]
    filling.wait_for(lambda: not filling.under_way(identifiers))
    scored = time.monotonic() - began
    if readers.wait():
        raise SystemExit(site.last_words())
    watch.stop()
    usage = watch.count()
    rows = json.loads((site.folder / "readers.result").read_text())
    if options.keep:
        options.keep.mkdir(parents=True, exist_ok=True)
        (options.keep / "requests.json").write_text(json.dumps(rows))
        (options.keep / "uploads.json").write_text(json.dumps(uploads))
        (options.keep / "memory.json").write_text(json.dumps([asdict(each) for each in usage.samples]))
    return report.Findings(
        seconds=seconds,
        readers=options.readers,
        requests=[report.Request(*row) for row in rows],
        uploads=uploads,
        upload_bytes=blocks.run_bytes,
        uploading=(min((each["began"] for each in uploads), default=0.0), scored),
        scored=filling.states(identifiers),
        usage=usage,
        machine=f"{os.cpu_count()} cores, {platform.machine()}, {site.database.description}",
    )


def readers_failed(site: Site) -> bool:
    """Whether the readers said that they cannot go on."""
    log = site.logs / "tests.load.readers.log"
    return log.exists() and "Traceback" in log.read_text(errors="replace")


def prepare(site: Site, options: argparse.Namespace) -> None:
    """The database, the static files, the processes, and what the site has."""
    import django
    from django.core.management import call_command

    django.setup()
    say("preparing the database")
    call_command("migrate", verbosity=0)
    call_command("collectstatic", verbosity=0, interactive=False)
    site.start()
    say("filling the site")
    filling.fill(site.folder / "collection", options.systems, options.datasets)


def read(site: Site, name: str, plan: dict[str, Any]) -> Any:
    """Start readers."""
    return _generate(site, "tests.load.readers", name, plan)


def send(
    site: Site,
    name: str,
    blocks: runs.Blocks,
    tokens: list[str],
    pace: dict[str, float],
    *,
    wait: bool = True,
) -> Any:
    """Start people who submit, and wait for them to have done so. Raises SystemExit where one was refused."""
    plan = {
        "address": site.address,
        "name": f"{name} run",
        "dataset": runs.DATASET,
        "tokens": tokens,
        "paths": [str(path) for path in blocks.paths],
        "block_bytes": blocks.block_bytes,
        "first_at": 0.0,
        **pace,
    }
    process = _generate(site, "tests.load.senders", name, plan)
    if wait:
        process.wait()
        found = json.loads((site.folder / f"{name}.result").read_text())
        if refused := [each for each in found if each["status"] != 201]:
            raise SystemExit(f"{refused[0]}\n{site.last_words()}")
    return process


def _generate(site: Site, module: str, name: str, plan: dict[str, Any]) -> Any:
    path = site.folder / f"{name}.plan"
    path.write_text(json.dumps(plan))
    return site.generator(module, path, site.folder / f"{name}.result")


def say(text: str) -> None:
    """Tell whoever waits."""
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
