"""A tiny real engine process for drills: loads for a while, answers, leaves children behind, dies when told.

Speaks enough of llama-server's command line to be found as `llama-server` on PATH. Its behaviour comes from the
environment: STANDIN_LOAD_S, STANDIN_LOAD_UNTIL (a file exists), STANDIN_DIE (exit status at start), STANDIN_CHILD
(starts `sleep SECONDS` twice, once in a session of its own), STANDIN_STUBBORN (ignores SIGTERM). A request's `metadata`
may say `sleep_s`, before a whole answer, and `until`, a file: a stream sends numbered events until it exists.
"""

import json
import os
import signal
import subprocess
import sys
import time
from http.server import ThreadingHTTPServer

from json_answers import JsonAnswers

STARTED = time.monotonic()
LOAD_S = float(os.environ.get("STANDIN_LOAD_S", "0"))
LOAD_UNTIL = os.environ.get("STANDIN_LOAD_UNTIL")


def is_loading():
    return time.monotonic() - STARTED < LOAD_S or (LOAD_UNTIL is not None and not os.path.exists(LOAD_UNTIL))


class Answers(JsonAnswers):
    def do_GET(self):
        if is_loading():
            self.reply(503, {"status": "loading"})
        else:
            self.reply(200, {"status": "ok"})

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        metadata = body.get("metadata", {})
        if body.get("stream"):
            self._stream(metadata.get("until"))
            return
        time.sleep(float(metadata.get("sleep_s", 0)))
        choice = {"index": 0, "message": {"role": "assistant", "content": "ok"}, "finish_reason": "stop"}
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        self.reply(200, {"id": "1", "object": "chat.completion", "choices": [choice], "usage": usage})

    def _stream(self, until):
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        number = 0
        while until is not None and not os.path.exists(until):
            self._event(json.dumps(chunk({"content": f"{number} "})))
            number += 1
            time.sleep(0.05)
        self._event(json.dumps(chunk({}, "stop")))
        self._event("[DONE]")
        self.wfile.write(b"0\r\n\r\n")

    def _event(self, text):
        event = f"data: {text}\n\n".encode()
        self.wfile.write(b"%x\r\n%b\r\n" % (len(event), event))


def chunk(delta, finish=None):
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return {"id": "1", "object": "chat.completion.chunk", "choices": [choice]}


def say(*words):
    sys.stderr.write(" ".join(words) + "\n")
    sys.stderr.flush()


def main():
    words = sys.argv
    say("standin: loading", words[words.index("--alias") + 1] if "--alias" in words else "")
    if status := os.environ.get("STANDIN_DIE"):
        say("standin: out of memory while allocating the KV cache")
        sys.exit(int(status))
    if seconds := os.environ.get("STANDIN_CHILD"):
        for is_own_session in (False, True):
            subprocess.Popen(["sleep", seconds], start_new_session=is_own_session)
    if os.environ.get("STANDIN_STUBBORN"):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        say("standin: stubborn")
    ThreadingHTTPServer(("127.0.0.1", int(words[words.index("--port") + 1])), Answers).serve_forever()


if __name__ == "__main__":
    main()
