"""Entry point of `python -m runboard`, the same as the command `runboard`."""

import sys

from runboard.cli import main

sys.exit(main())
