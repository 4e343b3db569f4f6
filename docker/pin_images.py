"""Pin every image in docker/ to the present digest of its tag, for all platforms.

`make pin-images` runs this script; it needs Docker and access to the registry. It prints each image. If a digest
cannot be fetched, it writes nothing and ends with status 1.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
FILES = (FOLDER / "Dockerfile", FOLDER / "compose.yaml")
#: A third-party image with its tag and, if pinned, its digest. Our own images have no tag.
IMAGE = re.compile(r"((?:^FROM|^ +image:) +)([a-z0-9./-]+:[A-Za-z0-9._-]+)(@sha256:[0-9a-f]{64})?", re.MULTILINE)


def fetch_digest(image: str) -> str:
    """Return the digest of the multi-platform index of a tag. Raises OSError or CalledProcessError."""
    command = ["docker", "buildx", "imagetools", "inspect", image, "--format", "{{.Manifest.Digest}}"]
    digest = subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
    if not re.fullmatch("sha256:[0-9a-f]{64}", digest):
        raise OSError(f"Docker returned {digest!r} instead of the digest of {image}.")
    return digest


def main() -> int:
    """Pin all images; return the exit status."""
    texts = {file: file.read_text() for file in FILES}
    images = {match[2]: match[3] or "" for text in texts.values() for match in IMAGE.finditer(text)}
    try:
        digests = {image: f"@{fetch_digest(image)}" for image in images}
    except subprocess.CalledProcessError as error:
        print(error.stderr.strip(), file=sys.stderr)
        return 1
    except OSError as error:
        print(error, file=sys.stderr)
        return 1
    for image, digest in digests.items():
        print(f"{'unchanged' if digest == images[image] else 'changed':9}  {image}{digest}")
    for file, text in texts.items():
        file.write_text(IMAGE.sub(lambda match: match[1] + match[2] + digests[match[2]], text))
    return 0


if __name__ == "__main__":
    sys.exit(main())
