"""`python -m evaluation.kernel FOLDER`: compile the kernel for an image that has no compiler."""

import sys
from pathlib import Path

from evaluation.kernel.building import prebuild

if __name__ == "__main__":
    print(prebuild(Path(sys.argv[1])))
