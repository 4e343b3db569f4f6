"""nginx in front, with what docker/nginx.conf.template says: its limits, its locations, its buffers. Without TLS."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TEMPLATE = ROOT / "docker" / "nginx.conf.template"
MISSING = (
    "There is no nginx on PATH. This test measures the site behind it; Debian: "
    "apt-get install --no-install-recommends nginx-light"
)
#: What compose's version knows and Debian's does not, and what only TLS and Docker's own names need.
_LEFT_OUT = re.compile(r"^\s*(http2|ssl_\w+|resolver)\s.*;\n", re.MULTILINE)
_WITHOUT_TLS = re.compile(r"^server \{\n\s*listen 8080[ ;].*?^\}\n", re.MULTILINE | re.DOTALL)
_UPSTREAM = re.compile(r"upstream (\w+) \{ zone [^;]*; server \w+:8000 resolve;")


def find_nginx() -> str:
    """Its path. Raises SystemExit with what to do."""
    if found := shutil.which("nginx", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin"):
        return found
    raise SystemExit(MISSING)


def upstreams() -> set[str]:
    """The servers that the template names."""
    return set(_UPSTREAM.findall(TEMPLATE.read_text()))


def write_configuration(folder: Path, port: int, servers: Mapping[str, int], state: Path) -> Path:
    """The configuration, in a folder of its own; `servers` are the ports of those that the template names.

    Raises ValueError where the template is not what is expected here, so that nothing else is measured unnoticed.
    """
    text = TEMPLATE.read_text()
    text, without_tls = _WITHOUT_TLS.subn("", text)
    text = _LEFT_OUT.sub("", text)
    text = _UPSTREAM.sub(lambda found: _server(found[1], servers[found[1]]), text)
    changes = {
        "listen 8443 ssl;": f"listen 127.0.0.1:{port} backlog=1024;",
        "/data/": f"{state}/",
        "/dev/stdout calm": f"{folder}/access.log calm",
        "${HSTS}": "max-age=0",
        "${SITE_HOST}": "127.0.0.1",
        "${UPLOAD_LIMIT}": "2200m",
    }
    missing = [before for before in changes if before not in text]
    if without_tls != 2 or missing or upstreams() != set(servers) or re.search(r"\$\{\w", _changed(text, changes)):
        raise ValueError(f"{TEMPLATE} has changed: {without_tls=}, {upstreams()=}, {missing=}")
    folder.mkdir(parents=True, exist_ok=True)
    (state / "incoming").mkdir(parents=True, exist_ok=True)  # a volume of its own in Compose
    path = folder / "nginx.conf"
    path.write_text(_main(folder) + _indented(_changed(text, changes)) + "}\n")
    return path


def command(nginx: str, configuration: Path) -> list[str]:
    """How to run it, in the foreground."""
    return [nginx, "-c", str(configuration), "-p", str(configuration.parent), "-e", "stderr"]


def _server(name: str, port: int) -> str:
    return f"upstream {name} {{ zone {name} 64k; server 127.0.0.1:{port};"


def _changed(text: str, changes: Mapping[str, str]) -> str:
    for before, after in changes.items():
        text = text.replace(before, after)
    return text


def _main(folder: Path) -> str:
    """What nginx's image has around the template: as many processes as cores, and where it may write."""
    temporary = "".join(
        f"    {kind}_temp_path {folder / kind};\n" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    user = "user root;\n" if os.geteuid() == 0 else ""
    return (
        f"daemon off;\n{user}worker_processes auto;\npid {folder / 'nginx.pid'};\nerror_log stderr warn;\n"
        "events { worker_connections 4096; }\n"
        "http {\n    include /etc/nginx/mime.types;\n    default_type application/octet-stream;\n"
        f"    access_log off;\n    sendfile on;\n{temporary}"
    )


def _indented(text: str) -> str:
    return "".join(f"    {line}\n" if line else "\n" for line in text.splitlines())
