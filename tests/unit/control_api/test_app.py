"""What the control API answers: probes, metrics, status, reload, and errors in the one table's shape."""

import pytest


async def test_health_and_metrics_need_no_key(api):
    """A probe and Prometheus get their text."""
    health = await api.tcp.get("/health")
    metrics = await api.tcp.get("/metrics")
    assert (health.status_code, health.text) == (200, "ok\n")
    assert metrics.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert "headrace_up 1" in metrics.text


async def test_ready_follows_the_pools(api):
    """503 until a pool can answer, with when to ask again."""
    assert (await api.tcp.get("/ready")).status_code == 200
    api.operations.ready = False
    answer = await api.tcp.get("/ready")
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "no_ready_endpoint")
    assert answer.headers["retry-after"] == "5"


async def test_answers_carry_a_versioned_schema_and_are_not_cached(api):
    """Programs can rely on the shape; nothing is kept on the way."""
    answer = await api.local.get("/api/v1/models")
    assert answer.json()["schema"] == "headrace/models/v1"
    assert [model["model"] for model in answer.json()["data"]] == ["small"]
    assert answer.headers["cache-control"] == "no-store"
    assert "access-control-allow-origin" not in answer.headers


async def test_reload_passes_what_was_asked_for(api):
    """Dry run and upgrade reach the supervisor; an empty body asks for neither."""
    assert (await api.local.post("/api/v1/reload")).json()["data"]["ok"] is True
    await api.local.post("/api/v1/reload", json={"dry_run": True, "upgrade": True})
    assert api.operations.calls == ["reload dry_run=False upgrade=False", "reload dry_run=True upgrade=True"]


async def test_a_refused_reload_is_400_with_the_reasons(api):
    """A script notices; a person reads why."""
    api.operations.ready = False
    answer = await api.local.post("/api/v1/reload")
    assert (answer.status_code, answer.json()["data"]["errors"]) == (400, ["pools: none"])


async def test_a_replica_is_restarted_by_its_name(api):
    """Names of replicas hold slashes; where it cannot be done now, the answer is 409 and says why."""
    answer = await api.local.post("/api/v1/replicas/chat/0/restart")
    assert (answer.status_code, answer.json()["data"]["replica"]) == (200, "chat/0")
    api.operations.ready = False
    answer = await api.local.post("/api/v1/replicas/org/chat/1/restart")
    assert (answer.status_code, answer.json()["data"]["message"]) == (409, "so be it")
    assert api.operations.calls == ["restart chat/0", "restart org/chat/1"]


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "code"),
    [
        ("GET", "/nowhere", None, 404, "route_not_found"),
        ("POST", "/health", None, 405, "method_not_allowed"),
        ("TRACE", "/api/v1/keys", None, 405, "method_not_allowed"),
        ("POST", "/api/v1/reload", b"{", 400, "invalid_request"),
        ("POST", "/api/v1/reload", b"[]", 400, "invalid_request"),
        ("POST", "/api/v1/reload", b'{"dry_run": 1}', 400, "invalid_request"),
        ("POST", "/api/v1/reload", b'{"dryrun": true}', 400, "invalid_request"),
        ("POST", "/api/v1/reload", b"\xff", 400, "invalid_request"),
        ("POST", "/api/v1/reload", b" " * 65537, 413, "body_too_large"),
        ("GET", "/api/v1/usage?by=colour", None, 400, "invalid_request"),
        ("GET", "/api/v1/usage?since_at=yesterday", None, 400, "invalid_request"),
    ],
)
async def test_wrong_requests_get_an_error_of_the_table(api, method, path, body, status, code):
    """Every refusal has OpenAI's shape and our code."""
    answer = await api.local.request(method, path, content=body)
    assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)


async def test_a_body_at_its_bound_is_read(api):
    """The limit itself is allowed."""
    assert (await api.local.post("/api/v1/reload", content=b"{}".ljust(65536))).status_code == 200


async def test_a_wrong_method_is_told_the_right_ones(api):
    """`Allow` lists what the path takes."""
    assert (await api.local.put("/api/v1/keys")).headers["allow"] == "GET, POST"


async def test_a_bug_is_500_with_an_id_and_without_its_text(api):
    """What failed inside is in the log, not in the answer."""
    api.operations.failure = RuntimeError("canary-4711")
    answer = await api.local.get("/api/v1/status")
    assert (answer.status_code, answer.json()["error"]["code"]) == (500, "internal_bug")
    assert "canary-4711" not in answer.text
