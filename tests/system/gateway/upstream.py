"""A provider on loopback that notes what it was shown, and streams as slowly as a test wants."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import struct
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

PATIENCE = 30.0
CHUNK = 64 * 1024
NO_CONTENT = 204


@dataclass
class Noted:
    method: str
    path: str
    headers: dict[str, list[str]]
    body: int = 0


@dataclass
class Script:
    go: threading.Event = field(default_factory=threading.Event)
    begun: threading.Event = field(default_factory=threading.Event)
    noted: list[Noted] = field(default_factory=list)
    flood: int = 0


class Upstream:
    """Listens on a free port of loopback as long as the block lasts."""

    def __init__(self):
        self.script = Script()
        handler = type("Bound", (_Handler,), {"script": self.script})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))

    @property
    def port(self):
        return self._server.server_address[1]

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *fault):
        self.script.go.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    script: Script

    def log_message(self, *said):
        pass

    def handle(self):
        with contextlib.suppress(OSError):  # the gateway hangs up, as some tests want
            super().handle()

    def _note(self):
        headers: dict[str, list[str]] = {}
        for name, value in self.headers.items():
            headers.setdefault(name.lower(), []).append(value)
        noted = Noted(self.command, self.path, headers)
        self.script.noted.append(noted)
        return noted

    def do_GET(self):
        self._note()
        path = self.path.partition("?")[0]
        if path == "/v1/moved":
            self._send(302, {}, ("Location", "http://169.254.169.254/latest/meta-data"))
        elif path == "/v1/flood":
            self._begin()
            for _ in range(self.script.flood // CHUNK):
                self._part(b"x" * CHUNK)
            self._part(b"")
        elif path == "/v1/cut":
            self._begin()
            self._part(b"data: half")
            self.connection.shutdown(socket.SHUT_RDWR)
        elif path == "/v1/reset":
            self.wfile.write(b"HTTP/1.1 200 OK\r\n\r\nhalf")
            self._reset()
        else:
            self._send(200, {"path": self.path})

    def do_HEAD(self):
        self.do_GET()

    def do_POST(self):
        noted = self._note()
        if self.path.startswith("/v1/early"):
            self._answer_early()
            return
        for part in self._read():
            noted.body += len(part)
        status = self.path.removeprefix("/v1/")
        if self.path == "/v1/messages":
            self._begin()
            self._part(b"data: first\n\n")
            self.script.begun.set()
            self.script.go.wait(PATIENCE)
            self._part(b"data: last\n\n")
            self._part(b"")
        elif self.path == "/v1/slow":
            self.script.begun.set()
            self.script.go.wait(PATIENCE)
            self._send(201, {"order": len(self.script.noted)}, ("Set-Cookie", "a=b"))
        elif self.path == "/v1/hangs-up":
            self.connection.shutdown(socket.SHUT_RDWR)
        elif self.path == "/v1/cut":
            self._begin()
            self._part(b"data: half")
            self.connection.shutdown(socket.SHUT_RDWR)
        elif self.path == "/v1/long":
            self._send(200, "x" * self.script.flood)
        elif status.isdigit():
            self._send(int(status), {"order": len(self.script.noted)}, ("Rota-Effect", "mine"))
        else:
            self._send(200, {"received": noted.body})

    def _answer_early(self):
        self.close_connection = True
        if self.path == "/v1/early-empty":
            self.send_response(413)
            self.send_header("Content-Length", "0")
            self.end_headers()
        elif self.path == "/v1/early-cut":
            self._begin()
            self._part(b"data: half")
        else:
            self._send(400, {"error": "no"}, ("Connection", "close"))

    def _reset(self):
        self.close_connection = True
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        os.close(self.connection.detach())

    def _read(self):
        left = int(self.headers.get("Content-Length") or 0)
        while left:
            part = self.rfile.read(min(CHUNK, left))
            if not part:
                return
            left -= len(part)
            yield part
        if self.headers.get("Transfer-Encoding") == "chunked":
            while size := int(self.rfile.readline() or b"0", 16):
                yield self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()

    def _begin(self):
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()

    def _part(self, data):
        self.wfile.write(b"%x\r\n%b\r\n" % (len(data), data))
        self.wfile.flush()

    def _send(self, status, body, *more):
        data = json.dumps(body).encode()
        self.send_response(status)
        for name, value in (("Content-Type", "application/json"), *more):
            self.send_header(name, value)
        if status != NO_CONTENT:
            self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD" and status != NO_CONTENT:
            self.wfile.write(data)
