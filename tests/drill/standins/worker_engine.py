"""A tiny real process with vLLM's and SGLang's manners for drills: flags that must exist, workers of its own, a drain.

Started as `standin vllm serve MODEL ...` or `standin sglang --model-path MODEL ...`. It refuses flags that are not in
the recorded --help. SIGTERM drains: vLLM then answers new requests with 500 while /health stays 200, SGLang goes on
accepting while /ready is 503. Its worker cuts everything when it hears SIGTERM itself (it then writes `worker-heard`
into STANDIN_NOTES, as `request-arrived` is at a slow request), and is left behind at the end, as vLLM's are.
While `core-dead` is in STANDIN_NOTES, /health says 503. Behaviour: STANDIN_LOAD_S.
"""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from http.server import ThreadingHTTPServer
from pathlib import Path

from json_answers import JsonAnswers

CAPTURES = Path(__file__).parents[2] / "captures"
FLAGS = {"vllm": "vllm/serve_flags.txt", "sglang": "sglang/launch_server_flags.txt"}
NOTES = Path(os.environ.get("STANDIN_NOTES", "."))
LOAD_S = float(os.environ.get("STANDIN_LOAD_S", "0"))
STARTED = time.monotonic()
ENGINE = sys.argv[1] if len(sys.argv) > 1 else ""
running = 0
is_leaving = False
lock = threading.Lock()


class Answers(JsonAnswers):
    def do_GET(self):
        if ENGINE == "sglang" and self.path == "/ready":
            self.reply(503 if is_leaving or time.monotonic() - STARTED < LOAD_S else 200, {})
        elif self.path == "/health" and (NOTES / "core-dead").exists():
            self.reply(503, {})
        elif self.path in ("/health", "/v1/models"):
            self.reply(200, {})
        else:
            self.reply(404, {"detail": "Not Found"})

    def do_POST(self):
        global running
        if is_leaving and ENGINE == "vllm":
            self.reply(500, {"error": {"message": "cannot schedule new futures after shutdown", "code": 500}})
            return
        with lock:
            running += 1
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        sleep_s = float(body.get("metadata", {}).get("sleep_s", 0))
        if sleep_s:
            (NOTES / "request-arrived").touch()
        time.sleep(sleep_s)
        choice = {"index": 0, "message": {"role": "assistant", "content": "ok"}, "finish_reason": "stop"}
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        self.reply(200, {"id": "1", "object": "chat.completion", "choices": [choice], "usage": usage})
        with lock:
            running -= 1


def work():
    """The worker: deaf to everything but SIGTERM, which ends it and what it computes."""

    def hear(*_):
        (NOTES / "worker-heard").touch()
        sys.exit(1)

    signal.signal(signal.SIGTERM, hear)
    while True:
        time.sleep(60)


def drain(*_):
    global is_leaving
    is_leaving = True

    def end_when_idle():
        while running:
            time.sleep(0.02)
        os._exit(0)  # the worker is left behind

    threading.Thread(target=end_when_idle).start()


def main():
    if ENGINE == "worker":
        work()
    known = {line.split()[0] for line in (CAPTURES / FLAGS[ENGINE]).read_text().splitlines() if line.startswith("--")}
    unknown = [word for word in sys.argv if word.startswith("--") and word not in known]
    if unknown:
        sys.exit(f"{ENGINE}: error: unrecognized arguments: {' '.join(unknown)}")
    if ENGINE == "vllm":
        time.sleep(LOAD_S)  # listens only once it has loaded
    (NOTES / "core-dead").unlink(missing_ok=True)
    (NOTES / "argv.json").write_text(json.dumps(sys.argv[2:]))
    subprocess.Popen([sys.executable, __file__, "worker"])
    signal.signal(signal.SIGTERM, drain)
    port = int(sys.argv[sys.argv.index("--port") + 1])
    ThreadingHTTPServer(("127.0.0.1", port), Answers).serve_forever()


if __name__ == "__main__":
    main()
