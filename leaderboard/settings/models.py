"""Running models: shards, embeddings and the sandbox (docs/decisions/0008)."""

from __future__ import annotations

import os
import tempfile

from leaderboard.environment import three_quarters_of_memory, usable_cores
from leaderboard.settings.queue import JOB_WALL_CLOCK_SECONDS
from leaderboard.settings.site import env

#: Documents that are encoded as one piece of work; larger corpora are shared out between workers.
SHARD_SIZE = env.int("SHARD_SIZE", default=50_000)
#: What kept embeddings may take on disk, in bytes; those that were used longest ago go first.
EMBEDDINGS_CACHE_BYTES = env.int("EMBEDDINGS_CACHE_BYTES", default=50 * 2**30)

#: auto (the first of bwrap and docker that works), bwrap, docker, or none (staff on this machine only).
SANDBOX = env.str("SANDBOX", default="auto")
#: The image that the docker sandbox runs.
SANDBOX_IMAGE = env.str("SANDBOX_IMAGE", default="runboard")
#: A control group, version 2, whose children have memory.max and pids.max; empty: the worker's own.
SANDBOX_CGROUP = env.str("SANDBOX_CGROUP", default="")
#: What one model may use: memory, wall clock, bytes written (index and run), and cores.
MODEL_MEMORY_BYTES = env.int("MODEL_MEMORY_BYTES", default=three_quarters_of_memory())
MODEL_WALL_CLOCK_SECONDS = env.int("MODEL_WALL_CLOCK_SECONDS", default=JOB_WALL_CLOCK_SECONDS * 9 // 10)
MODEL_OUTPUT_BYTES = env.int("MODEL_OUTPUT_BYTES", default=64 * 1024**3)
MODEL_THREADS = env.int("MODEL_THREADS", default=usable_cores())
#: How long, in seconds, a model may wait for the machine to itself; then it goes on without being measured.
MEASURING_WAIT_SECONDS = env.int("MEASURING_WAIT_SECONDS", default=30 * 60)
#: The lock of everybody who works or measures on this machine; containers on one machine must share it.
TIMING_LOCK = env.str("TIMING_LOCK", default=f"{tempfile.gettempdir()}/runboard-timing-{os.geteuid()}.lock")
