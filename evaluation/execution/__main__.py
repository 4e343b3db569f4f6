"""Command `python -I -m evaluation.execution JOB.json`, which the sandbox runs."""

import sys
from pathlib import Path

from evaluation.execution.child import main

sys.exit(main(Path(sys.argv[1])))
