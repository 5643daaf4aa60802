"""A tool server with one tool, which says what it was told and its secret: a program, or over HTTP."""

import json
import os
import sys
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

ECHO = {
    "name": "echo",
    "description": "says it again",
    "inputSchema": {"type": "object", "properties": {"text": {"type": "string"}}},
}


def answer(request, secret):
    """Return the answer to a request, or None to a notice."""
    if "id" not in request:
        return None
    params = request.get("params") or {}
    result = {}
    match request.get("method"):
        case "initialize":
            result = {
                "protocolVersion": params.get("protocolVersion", "2025-06-18"),
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "echo", "version": "1"},
            }
        case "tools/list":
            result = {"tools": [ECHO]}
        case "tools/call":
            said = f"{params['arguments'].get('text')} {secret}"
            result = {"content": [{"type": "text", "text": said}]}
    return {"jsonrpc": "2.0", "id": request["id"], "result": result}


class Handler(BaseHTTPRequestHandler):
    def log_message(self, *args):
        pass

    def do_GET(self):
        self.send_response(405)
        self.end_headers()

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        secret = (self.headers.get("Authorization") or "").removeprefix("Bearer ")
        reply = answer(json.loads(body), secret)
        self.send_response(202 if reply is None else 200)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        if reply is not None:
            self.wfile.write(json.dumps(reply).encode())


@contextmanager
def serving():
    """Serve on a free port of loopback."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), name="rota-tool-server")
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/mcp"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


if __name__ == "__main__":
    for line in sys.stdin:
        reply = answer(json.loads(line), os.environ.get("ECHO_SECRET"))
        if reply is not None:
            print(json.dumps(reply), flush=True)
