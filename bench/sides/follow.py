"""A client that follows the events of a daemon and notes how late each line of output arrives."""

from __future__ import annotations

import json
import time
from datetime import datetime
from typing import Any
from urllib.request import Request, urlopen

from bench.kit import percentile, serve


def follow(url: str, key: str, seconds: float) -> dict[str, Any]:
    """Read the stream of events; every line of output holds when it was written, in nanoseconds."""
    arrived: list[float] = []
    recorded: list[float] = []
    until = time.monotonic() + seconds
    asked = Request(f"{url}/v1/events", headers={"Authorization": f"Bearer {key}"})
    with urlopen(asked, timeout=seconds) as stream:
        for line in stream:
            now = time.time_ns()
            if line.startswith(b"data:"):
                _note(json.loads(line[5:]), now, arrived, recorded)
            if time.monotonic() > until:
                break
    if not arrived:
        raise RuntimeError("no line of output arrived")
    return {
        "lines": len(arrived),
        **{f"arrived_p{p}": percentile(arrived, p) for p in (50, 99)},
        **{f"recorded_p{p}": percentile(recorded, p) for p in (50, 99)},
    }


def _note(event: dict[str, Any], now: int, arrived: list[float], recorded: list[float]) -> None:
    text = (event.get("data") or {}).get("text", "")
    at = datetime.fromisoformat(event["at"]).timestamp() * 1e9
    for line in text.split():
        if line.isdigit():
            arrived.append((now - int(line)) / 1e6)
            recorded.append((at - int(line)) / 1e6)


if __name__ == "__main__":
    serve(follow)
