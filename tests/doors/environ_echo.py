"""An application that says what gunicorn told it of a request, in place of the site, which takes longer to start."""

from __future__ import annotations

import json
from collections.abc import Iterable
from wsgiref.types import StartResponse, WSGIEnvironment


def application(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
    """Where the site is said to begin, by which scheme, and which page is asked for."""
    told = json.dumps([environ["SCRIPT_NAME"], environ["wsgi.url_scheme"], environ["PATH_INFO"]]).encode()
    start_response("200 OK", [("Content-Length", str(len(told)))])
    return [told]
