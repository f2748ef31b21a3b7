"""A loopback LangSmith: datasets, runs and feedback, over the plainest of the protocols that its client speaks."""

import json
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from reflexion.testing.fake_langsmith_datasets import FakeDatasets
from reflexion.testing.wire import Request

LIMITS = {
    "use_multipart_endpoint": False,
    "scale_up_qsize_trigger": 1000,
    "scale_up_nthreads_limit": 4,
    "scale_down_nempty_trigger": 4,
    "size_limit": 100,
    "size_limit_bytes": 20_000_000,
}


class Server(ThreadingHTTPServer):
    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.routes = []
        self.store = FakeDatasets()
        self.store.mount(self)
        self.lock = threading.Lock()
        self.runs = {}
        self.feedback = []

    def route(self, method, path, answer):
        self.routes.append((method, re.compile(path), answer))

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server

    def handle_any(self):
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        with self.server.lock:
            status, answer = self.respond(body)
        payload = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(payload)))
        self.end_headers()
        self.wfile.write(payload)

    do_GET = do_POST = do_PATCH = handle_any  # noqa: N815

    def respond(self, body):
        path = self.path.partition("?")[0]
        if path == "/info":
            return 200, {"version": "0", "batch_ingest_config": LIMITS}
        if path == "/runs/batch":
            for run in [part for parts in json.loads(body).values() for part in parts]:
                self.server.runs.setdefault(run["id"], {}).update(run)
            return 202, {}
        if path == "/feedback":
            self.server.feedback.append(json.loads(body))
            return 200, {}
        request = Request(self.command, self.path, {}, body)
        for method, pattern, answer in self.server.routes:
            if method == self.command and (match := pattern.fullmatch(path)):
                reply = answer(request, body, match)
                return reply.status, reply.body
        return 404, {"detail": self.path}

    def log_message(self, *_):
        pass
