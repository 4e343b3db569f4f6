"""Unpacked images with this machine's Python, and hostile programs in them."""

from __future__ import annotations

import json
import textwrap
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from evaluation.images.archive import ImageArchive, ImageConfig
from submissions.sandbox.backends import Backend, SandboxLimits
from submissions.sandbox.containers import ImageTask, run_image
from submissions.sandbox.running import SandboxOutcome
from tests.evaluation.images.builder import docker_archive, layer, python_layer
from tests.submissions.sandboxes import TOOLS

LIMITS = SandboxLimits(
    memory_bytes=256 << 20, wall_clock_seconds=60, output_bytes=20 << 20, processes=48, reserve_bytes=0
)
PYTHON = "/usr/bin/python3"
_PRELUDE = f"""{TOOLS}
out = os.environ["TIRA_OUTPUT_DIR"]
"""


def unpack_python(folder: Path) -> Path:
    """Return the root of an image with this machine's Python and a few files."""
    files = layer(
        {
            "etc/passwd": b"root:x:0:0::/root:/bin/sh\nuser:x:1234:1234::/home/user:/bin/sh\n",
            "data.txt": b"of the image",
        }
    )
    ImageArchive(docker_archive(folder / "image.tar", [python_layer(), files])).unpack(folder / "root")
    return folder / "root"


@dataclass
class HostileImage:
    """An image whose command is a program. `run` runs it; `found` is what it told."""

    backend: Backend
    root: Path
    folder: Path
    found: dict[str, Any] = field(default_factory=dict)
    count: int = 0

    def task(self, program: str, **changes: Any) -> ImageTask:
        self.count += 1
        folder = self.folder / f"job-{self.count}"
        folder.mkdir()
        command = (PYTHON, "-c", _PRELUDE + textwrap.dedent(program))
        environment = {"TIRA_OUTPUT_DIR": "/tira-data/output"}
        config = ImageConfig(command=command, environment={"PATH": "/usr/bin", "OWN": "set by the image"})
        return replace(ImageTask(root=self.root, config=config, folder=folder, environment=environment), **changes)

    def run(self, program: str, limits: SandboxLimits = LIMITS, **changes: Any) -> SandboxOutcome:
        task = self.task(program, **changes)
        outcome = run_image(self.backend, task, limits, lambda stage, share, note: None)
        told = task.out / "found.json"
        self.found = json.loads(told.read_text()) if told.is_file() else {}
        return outcome


#: Program of a batch image: documents by the number of words shared with the query, from TIREx's files.
BATCH = r"""
import gzip, json, os
folder, out = os.environ["TIRA_INPUT_DATASET"], os.environ["TIRA_OUTPUT_DIR"]
with gzip.open(folder + "/documents.jsonl.gz", "rt") as file:
    documents = {row["docno"]: set(row["text"].split()) for row in map(json.loads, file)}
with open(folder + "/queries.jsonl") as file, open(out + "/run.txt", "w") as run:
    for query in map(json.loads, file):
        words = set(query["query"].split())
        ranking = sorted(documents, key=lambda name: (-len(words & documents[name]), name))
        for rank, name in enumerate(ranking[:20], 1):
            run.write(f"{query['qid']} Q0 {name} {rank} {100 - rank} image\n")
"""
#: Program of a server image: vectors that count words by their bytes, and scores by shared words.
SERVER = r"""
import json, os
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

def vector(text):
    counts = [0.0] * 31
    for word in text.lower().split():
        counts[sum(word.encode()) % 31] += 1.0
    return counts or [1.0]

class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self.answer({"data": [{"id": "words"}]})

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path == "/v1/embeddings":
            assert body["model"] == "words"
            rows = [{"index": n, "embedding": vector(text)} for n, text in enumerate(body["input"])]
            self.answer({"data": rows})
        else:
            words = set(body["query"].lower().split())
            scores = [len(words & set(text.lower().split())) + len(text) / 1e6 for text in body["documents"]]
            self.answer({"results": [{"index": n, "relevance_score": s} for n, s in enumerate(scores)]})

    def answer(self, value):
        content = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *words):
        pass

ThreadingHTTPServer(("127.0.0.1", int(os.environ["PORT"])), Handler).serve_forever()
"""


def write_image(path: Path, program: str, **labels: str) -> Path:
    """Write an image with this machine's Python whose command is a program."""
    layers = [python_layer(), layer({"app/main.py": program.encode()})]
    return docker_archive(path, layers, Entrypoint=[PYTHON], Cmd=["/app/main.py"], Labels=labels, WorkingDir="/app")
