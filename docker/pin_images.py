"""Write the digest of every image that docker/ names: what its tag leads to now, on every platform.

`make pin-images` runs this where Docker and its registry can be reached. Prints each image, and ends with 1 where one
cannot be asked for; then nothing is written.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
FILES = (FOLDER / "Dockerfile", FOLDER / "compose.yaml")
#: An image of somebody else, by tag and, where it was pinned, by digest. Ours have no tag.
IMAGE = re.compile(
    r"((?:^FROM|^ +image:) +)([a-z0-9./-]+:[A-Za-z0-9._-]+)(@sha256:[0-9a-f]{64})?", re.MULTILINE
)


def digest_of(image: str) -> str:
    """What a tag leads to: the digest of the index of all its platforms. Raises OSError or CalledProcessError."""
    command = ["docker", "buildx", "imagetools", "inspect", image, "--format", "{{.Manifest.Digest}}"]
    found = subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
    if not re.fullmatch("sha256:[0-9a-f]{64}", found):
        raise OSError(f"Docker answered {found!r} when asked for the digest of {image}.")
    return found


def main() -> int:
    """0 where every digest was found and written."""
    texts = {file: file.read_text() for file in FILES}
    images = {match[2]: match[3] or "" for text in texts.values() for match in IMAGE.finditer(text)}
    try:
        digests = {image: f"@{digest_of(image)}" for image in images}
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
