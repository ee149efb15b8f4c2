"""A schema registry on this machine."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@contextmanager
def running_registry(schemas: dict[int, str]) -> Iterator[str]:
    """Run one with these schemas; yields its address."""

    class Schemas(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            text = schemas.get(int(self.path.removeprefix("/schemas/ids/")))
            self.send_response(404 if text is None else 200)
            self.end_headers()
            self.wfile.write(json.dumps({"schema": text}).encode())

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Schemas)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
