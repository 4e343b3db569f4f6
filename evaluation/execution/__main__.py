"""`python -I -m evaluation.execution JOB.json`: what the sandbox starts."""

import sys

from evaluation.execution.child import run

sys.exit(run(sys.argv[1:]))
