"""Command `python -I -m evaluation.execution JOB.json`, which the sandbox runs."""

import sys

from evaluation.execution.child import run

sys.exit(run(sys.argv[1:]))
