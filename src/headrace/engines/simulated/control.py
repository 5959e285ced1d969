"""The simulated engine's own paths below `/sim/`: faults, timing, and KV for other simulated engines.

| path | what |
| --- | --- |
| `GET /sim/faults` | the faults that are set |
| `POST /sim/faults` | set `{"faults": [...]}` (or one fault) instead of those; an empty list clears them |
| `GET /sim/timing` | how exactly tokens are written in time, and the engine's load |
| `POST /sim/kv/<key>` | another engine fetches KV |
| `POST /sim/kv-events` | `{"lose": 3}`: the next three messages of KV events are kept for who asks again, not sent |
"""

import time
from itertools import accumulate
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import msgspec

from headrace.domain.quantiles import upper_bound
from headrace.domain.undecodable import UNDECODABLE
from headrace.engines.simulated.faults import Fault
from headrace.engines.simulated.http import Connection, HttpRequest, Reply
from headrace.engines.simulated.stats import Histogram
from headrace.engines.simulated.transfer import Held

if TYPE_CHECKING:
    from headrace.engines.simulated.service import Service


def control_reply(service: "Service", connection: Connection, request: HttpRequest) -> None:
    """Answer a request below `/sim/`."""
    match request.method, request.path:
        case "GET", "/sim/faults":
            connection.reply(_faults(service))
        case "POST", "/sim/faults":
            connection.reply(_set_faults(service, request))
        case "GET", "/sim/timing":
            connection.reply(Reply.json(timing(service)))
        case "POST", "/sim/kv-events":
            connection.reply(_lose_events(service, request))
        case "POST", path if path.startswith("/sim/kv/"):
            _give(service, connection, unquote(path.removeprefix("/sim/kv/")), waits=request.query.get("wait") == "1")
        case _:
            connection.reply(Reply.json({"error": f"no such path: {request.method} {request.path}"}, 404))


def timing(service: "Service") -> dict[str, object]:
    """How far tokens were from when they were due, in milliseconds, since the start or the last read."""
    error, load = service.pump.timing_error, service.engine.load()
    shares = (("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p999", 0.999))
    found: dict[str, object] = {
        "tokens": error.count,
        "error_ms": {name: _bound_ms(error, share) for name, share in shares},
        "error_mean_ms": round(error.sum / error.count * 1e3, 3) if error.count else None,
        "lags": service.pump.lags,
        "steps": service.pump.steps,
        "running": load.running,
        "waiting": load.waiting,
        "phase": service.phase.value,
        "cpu_s": round(time.process_time(), 3),
    }
    service.pump.timing_error = Histogram(error.bounds)
    return found


def _bound_ms(histogram: Histogram, share: float) -> float | None:
    """None where nothing was written, or it is beyond the last bound."""
    reached = zip(histogram.bounds, accumulate(histogram.counts), strict=False)  # but for what is beyond
    bound_s = upper_bound(reached, histogram.count, share)
    return None if bound_s is None else round(bound_s * 1e3, 3)


def _faults(service: "Service") -> Reply:
    return Reply.json({"faults": service.faults.view(time.monotonic())})


def _set_faults(service: "Service", request: HttpRequest) -> Reply:
    try:
        body: Any = msgspec.json.decode(request.body or b"[]")
        members = body.get("faults", [body]) if isinstance(body, dict) else body  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
        faults = msgspec.convert(members, list[Fault])
    except (*UNDECODABLE, ValueError) as error:
        return Reply.json({"error": str(error)}, 400)
    service.faults.put(faults, time.monotonic())
    service.on_faults_changed()
    return _faults(service)


def _lose_events(service: "Service", request: HttpRequest) -> Reply:
    try:
        wish = msgspec.json.decode(request.body or b"{}", type=dict[str, int])
    except UNDECODABLE as error:
        return Reply.json({"error": str(error)}, 400)
    lost = max(0, wish.get("lose", 0))
    if service.cache_events is None or not service.cache_events.lose(lost):
        return Reply.json({"error": "this engine publishes no KV events"}, 404)
    return Reply.json({"lose": lost})


def _give(service: "Service", connection: Connection, key: str, *, waits: bool) -> None:
    def answer(held: Held | None) -> None:
        if held is None:
            connection.reply(Reply.json({"error": f"no KV is held for {key}"}, 404))
        else:
            connection.reply(Reply(body=msgspec.json.encode(held)))

    held = service.handover.give(key)
    if held is None and waits:
        service.handover.shelf.wait(key, answer)
    else:
        answer(held)
