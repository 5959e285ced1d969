"""Who is refused is on record where that is certain: an operator sees in log and ledger who keeps hammering."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
from tests.harness.journal_records import records_of
from tests.harness.raw_client import ask, post
from tests.harness.running_gateway import RunningGateway, declare, new_key, remote_pool
from tests.harness.scripted_engine import ScriptedEngine

from headrace.domain.ids import TenantId
from headrace.domain.tenant import KeyRecord, Scope

NOW = datetime.now(tz=UTC)
TENANTS = {
    "default": {},
    "off": {"suspended": True},
    "narrow": {"models": ["other"], "classes": ["offline"], "default_class": "offline"},
    "abroad": {"regions": ["nowhere"]},
}


def chat(model: str = "m") -> dict[str, Any]:
    return {"model": model, "max_tokens": 3, "messages": [{"role": "user", "content": "script:"}]}


async def test_every_refusal_of_a_known_caller_names_it(tmp_path: Path) -> None:
    """Suspended, expired, revoked or of the wrong scope, or not allowed what it asks: log and ledger have its key."""
    keys: dict[str, tuple[str, KeyRecord]] = {
        name: new_key(tenant) for name, tenant in (("off", "off"), ("narrow", "narrow"), ("class", "narrow"))
    }
    keys["gone"] = new_key("gone")
    keys["admin"] = new_key("default", Scope.ADMIN)
    keys["expired"] = new_key("default", expires_at=NOW - timedelta(days=1))
    for name, change in (("revoked", {"revoked_at": NOW}), ("held", {"suspended_at": NOW})):
        text, record = new_key("default")
        keys[name] = (text, msgspec.structs.replace(record, **change))
    keys["abroad"] = new_key("abroad")
    models: dict[str, dict[str, Any]] = {"m": {}, "other": {}}
    async with ScriptedEngine() as engine:
        pools = {"p": remote_pool(engine.url), "q": remote_pool(engine.url, model="other")}
        declaration = declare(pools, models=models, tenants=TENANTS)
        records = tuple(record for _, record in keys.values())
        async with RunningGateway(tmp_path, declaration, records) as gateway:
            await gateway.wait_ready(endpoints=2)
            wanted: dict[str, str | None] = {}
            for name, (text, _) in keys.items():
                request = post(chat(), text)
                if name == "class":
                    request = post(chat("other"), text, x_headrace_class="interactive")
                answer = await ask(gateway.port, request)
                assert answer.status in (401, 403, 404, 503), (name, answer.status, answer.body)
                wanted[name] = answer.code
            forged = keys["off"][0][:-1] + ("A" if keys["off"][0][-1] != "A" else "B")
            assert (await ask(gateway.port, post(chat(), forged))).status == 401
    rows = records_of(gateway.settings.journal_dir)
    by_key = {row["key_id"]: row for row in rows if row["key_id"] is not None}
    for name, (_, record) in keys.items():
        row = by_key[record.key_id]
        assert (row["tenant"], row["code"], row["outcome"]) == (record.tenant, wanted[name], "rejected"), name
    assert by_key[keys["narrow"][1].key_id]["requested_model"] == "m"
    assert by_key[keys["class"][1].key_id]["requested_model"] == "other"
    assert [row["tenant"] for row in rows if row["key_id"] is None] == [None], "a key without its secret names nobody"
    log = "".join(path.read_text() for path in gateway.settings.log_dir.rglob("requests*"))
    assert all(record.key_id in log for _, record in keys.values())
    assert TenantId("off") in log
