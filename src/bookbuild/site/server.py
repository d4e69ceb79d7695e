"""Serve the built site on 127.0.0.1."""

from __future__ import annotations

import errno
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *args: object) -> None:
        """Suppress the log line of a request."""


def server(site: Path, port: int = 8000) -> ThreadingHTTPServer:
    """Return an HTTP server of the site on 127.0.0.1; uses a free port if `port` is taken."""
    handler = partial(_Quiet, directory=str(site))
    try:
        return ThreadingHTTPServer(("127.0.0.1", port), handler)
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            raise
        return ThreadingHTTPServer(("127.0.0.1", 0), handler)


def serve(site: Path, port: int = 8000) -> None:
    """Serve a folder until Ctrl+C, and print its address."""
    with server(site, port) as http:
        print(f"Reading on http://127.0.0.1:{http.server_port}/ (Ctrl+C stops)", flush=True)
        print("`make live` also runs the cells on the page.", flush=True)
        try:
            http.serve_forever()
        except KeyboardInterrupt:
            print("\nstopped", flush=True)
