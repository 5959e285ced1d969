"""Says whether a key is right, over HTTP: vllm-router checks its callers' keys by asking such a server."""

import threading
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from benchmarks.targets.contract import KEY


class _Answers(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200 if self.headers.get("authorization") == f"Bearer {KEY}" else 401)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """Say nothing: a wrong key is asked about on purpose."""


@cache
def key_server_url() -> str:
    """The URL of the one server of this process, started on first use; it ends with the process."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Answers)
    threading.Thread(target=server.serve_forever, name="key-server", daemon=True).start()
    return f"http://127.0.0.1:{server.server_address[1]}/"
