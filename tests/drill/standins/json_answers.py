"""How the stand-in engines answer: whole JSON documents, and nothing on the terminal."""

import json
from http.server import BaseHTTPRequestHandler


class JsonAnswers(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def reply(self, status, document):
        content = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_):
        pass
