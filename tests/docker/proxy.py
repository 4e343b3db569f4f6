"""docker/nginx.conf.template as it is, with the paths and ports of this machine, run by the nginx that is here."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.servers import processes

ROOT = Path(__file__).resolve().parents[2]
TEMPLATE = ROOT / "docker/nginx.conf.template"
HOST = "leaderboard.example.org"
#: A header by which a request stands for one from another address: nothing here has addresses of IPv6 to send from.
STANDS_FOR = "X-Stands-For"
#: Names that are looked up again, and `http2 on`, are for the nginx of compose.yaml: Debian's is older, and has the
#: latter as a word of `listen`.
_SERVER = re.compile(r"server (\w+):8000 resolve;")


@dataclass(frozen=True, slots=True)
class Ports:
    """Where the proxy listens, and where what it passes on goes."""

    http: int
    https: int
    web: int
    curation: int


def find_nginx() -> str | None:
    """Its path."""
    return shutil.which("nginx", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")


def free_ports() -> Ports:
    """Four that nobody has."""
    with socket.socket() as a, socket.socket() as b, socket.socket() as c, socket.socket() as d:
        for each in (a, b, c, d):
            each.bind(("127.0.0.1", 0))
        return Ports(*(each.getsockname()[1] for each in (a, b, c, d)))


def write_configuration(folder: Path, state: Path, ports: Ports) -> Path:
    """The whole configuration. Raises ValueError where the template has changed under this."""
    text = TEMPLATE.read_text()
    upstreams = {"web": ports.web, "intake": ports.web, "curation": ports.curation}
    if set(_SERVER.findall(text)) != set(upstreams):
        raise ValueError(f"{TEMPLATE}: expected servers {sorted(upstreams)}")
    text = _SERVER.sub(lambda found: f"server 127.0.0.1:{upstreams[found[1]]};", text)
    changes: Mapping[str, str] = {
        "resolver 127.0.0.11 valid=10s;\n": "",
        "listen 8080 default_server;": f"listen 127.0.0.1:{ports.http} default_server;",
        "listen 8443 ssl default_server;": f"listen 127.0.0.1:{ports.https} ssl default_server;",
        "listen 8080;": f"listen 127.0.0.1:{ports.http};",
        "listen 8443 ssl;\n    http2 on;": f"listen 127.0.0.1:{ports.https} ssl http2;",
        "/tls/": f"{folder}/",
        "alias /errors/": f"alias {ROOT / 'docker/errors'}/",
        " /data/": f" {state}/",
        "${SITE_HOST}": HOST,
        "${UPLOAD_LIMIT}": "20m",
        "${HSTS}": "max-age=31536000",
        "/dev/stdout calm": f"{folder}/access.log calm",
    }
    for before, after in changes.items():
        if before not in text:
            raise ValueError(f"{TEMPLATE} has no {before!r}")
        text = text.replace(before, after)
    path = folder / "nginx.conf"
    temporary = "".join(f"{name}_temp_path {folder / name};\n" for name in ("fastcgi", "uwsgi", "scgi"))
    path.write_text(
        f"daemon off;\n{'user root;' if os.geteuid() == 0 else ''}\npid {folder}/pid;\nerror_log stderr warn;\n"
        "events { worker_connections 512; }\nhttp {\ninclude /etc/nginx/mime.types;\naccess_log off;\n"
        f"default_type application/octet-stream;\nsendfile on;\n{temporary}"
        f"set_real_ip_from 127.0.5.0/24;\nreal_ip_header {STANDS_FOR};\n{text}}}\n"
    )
    return path


def make_certificate(folder: Path) -> Path:
    """A key, and a certificate that it has signed itself, for a day."""
    certificate = folder / "certificate.pem"
    words = f"openssl req -x509 -newkey rsa:2048 -nodes -days 1 -subj /CN={HOST} -addext subjectAltName=DNS:{HOST}"
    files = ["-keyout", str(folder / "key.pem"), "-out", str(certificate)]
    subprocess.run([*words.split(), *files], check=True, capture_output=True)
    return certificate


@contextmanager
def running(nginx: str, configuration: Path) -> Iterator[Path]:
    """nginx, while the block lasts; gives its log. Raises CalledProcessError where it refuses the configuration."""
    command = [nginx, "-c", str(configuration), "-p", str(configuration.parent), "-e", "stderr"]
    test = subprocess.run([*command, "-t"], capture_output=True, text=True, check=False)
    if test.returncode:
        raise subprocess.CalledProcessError(test.returncode, command, test.stdout, test.stderr)
    log = configuration.parent / "nginx.log"
    process = processes.start(command, log)
    try:
        yield log
    finally:
        processes.stop(process)
