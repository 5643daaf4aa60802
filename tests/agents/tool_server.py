"""A tool server on stdin and stdout with one tool, which says what it was told and its secret."""

import json
import os
import sys

ECHO = {
    "name": "echo",
    "description": "says it again",
    "inputSchema": {"type": "object", "properties": {"text": {"type": "string"}}},
}


def answer(method, params):
    if method == "initialize":
        return {
            "protocolVersion": params.get("protocolVersion", "2025-06-18"),
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "echo", "version": "1"},
        }
    if method == "tools/list":
        return {"tools": [ECHO]}
    if method == "tools/call":
        said = f"{params['arguments'].get('text')} {os.environ.get('ECHO_SECRET')}"
        return {"content": [{"type": "text", "text": said}]}
    return {}


for line in sys.stdin:
    request = json.loads(line)
    if "id" in request:
        result = answer(request.get("method"), request.get("params") or {})
        print(json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": result}), flush=True)
