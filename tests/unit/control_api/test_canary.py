"""Secrets are looked for in every answer, in the database and in the log, whatever is done with the control API."""

import json
from pathlib import Path

from structlog.testing import capture_logs

from headrace.domain.ids import TenantId
from headrace.domain.tenant import Scope

TENANTS = "/api/v1/tenants"


async def test_no_secret_is_in_an_answer_the_database_or_the_log(api):
    """Keys made, pasted where they do not belong, changed and ended; an error of every kind; a bug; the audit log."""
    clear_text, record = api.keys.create_key(tenant=TenantId("team-a"), scope=Scope.INFERENCE)
    admin = api.admin["authorization"].removeprefix("Bearer ")
    made = await api.local.post("/api/v1/keys", json={"tenant": "team-a", "name": "ci"})
    fresh = made.json()["data"]["key"]
    path = f"/api/v1/keys/{record.key_id}"
    texts: list[str] = []

    async def do(method: str, url: str, **more: object) -> None:
        for client in (api.local, api.tcp):
            answer = await client.request(method, url, **more)
            texts.extend((answer.text, repr(answer.headers)))

    with capture_logs() as logged:
        await do("PATCH", path, json={"name": "renamed", "limits": {"requests_per_min": 5}})
        await do("PATCH", path, json={"name": 7, clear_text: 1})
        await do("PATCH", path, json={"limits": {clear_text: 1}}, headers={"if-match": '"99"'})
        for pasted in (clear_text, admin, fresh):
            for method in ("GET", "PATCH", "DELETE"):
                await do(method, f"/api/v1/keys/{pasted}", json={"name": "x"})
            await do("POST", f"/api/v1/keys/{pasted}/suspend")
            await do("GET", f"/api/v1/kyes/{pasted}")
            await do("TRACE", f"/api/v1/keys/{pasted}")
            await do("GET", f"{TENANTS}/{pasted[3:13]}")
            await do("GET", "/api/v1/usage", headers={"authorization": f"Bearer {pasted}"})
            await do("GET", "/api/v1/status", headers={"authorization": f"bearer {pasted[:-1]}x"})
        await do("POST", TENANTS, json={"name": "ads", "section": {"weight": clear_text}})
        await do("POST", f"{path}/suspend")
        await do("DELETE", path)
        api.operations.failure = RuntimeError(f"bug with {clear_text} and {admin} in its text")
        await do("GET", f"/api/v1/status?key={fresh}")
        api.operations.failure = None
        for name in ("audit?limit=1000", "keys", "tenants", "requests", "usage?by=key", "quota", "status"):
            await do("GET", f"/api/v1/{name}", headers=api.admin)
    texts.append(json.dumps(logged, default=repr))
    stored = b"".join(file.read_bytes() for file in Path(api.database_path.parent).rglob("*") if file.is_file())
    for secret in (clear_text, admin, fresh):
        assert not [text for text in texts if secret[14:] in text]
        assert secret[14:].encode() not in stored
    assert any("control_request_failed" in text for text in texts)
