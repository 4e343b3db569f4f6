"""Command `python -m evaluation.kernel FOLDER`, which compiles the kernel for an image without a compiler."""

import sys
from pathlib import Path

from evaluation.kernel.building import prebuild

if __name__ == "__main__":
    print(prebuild(Path(sys.argv[1])))
