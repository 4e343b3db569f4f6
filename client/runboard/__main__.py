"""`python -m runboard`: as the command `runboard`."""

import sys

from runboard.cli import main

sys.exit(main())
