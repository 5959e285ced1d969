"""Keys over HTTP: a key's clear text appears once."""

import pytest


async def test_a_key_is_created_shown_once_and_known_to_the_workers(api):
    """The answer holds the key; no later one does, and the workers hear of it."""
    created = await api.local.post(
        "/api/v1/keys", json={"tenant": "team-b", "models": ["small"], "name": "ci", "expires_in_s": 3600}
    )
    assert created.status_code == 201
    key, record = created.json()["data"]["key"], created.json()["data"]["record"]
    assert key.startswith(f"hr-{record['key_id']}-")
    assert (record["tenant"], record["scope"], record["state"], record["allowed_models"]) == (
        "team-b",
        "inference",
        "active",
        ["small"],
    )
    assert api.operations.calls == ["callers_changed"]
    for path in (
        "/api/v1/keys",
        f"/api/v1/keys/{record['key_id']}",
        "/api/v1/tenants",
        "/api/v1/usage?by=key",
        "/api/v1/audit",
        "/api/v1/requests",
    ):
        answer = await api.local.get(path)
        assert answer.status_code == 200
        assert key[14:] not in answer.text
        assert "sha256" not in answer.text
    assert key[14:].encode() not in api.database_path.read_bytes()


async def test_keys_are_prolonged_and_revoked(api):
    """The state follows."""
    created = await api.local.post("/api/v1/keys", json={"tenant": "team-a"})
    path = f"/api/v1/keys/{created.json()['data']['record']['key_id']}"
    changed = await api.local.patch(path, json={"expires_in_s": 60})
    assert changed.json()["data"]["expires_at"] is not None
    assert (await api.local.patch(path, json={"expires_in_s": None})).json()["data"]["expires_at"] is None
    revoked = await api.local.delete(path)
    assert revoked.json()["data"]["state"] == "revoked"
    assert (await api.local.get(path)).json()["data"]["state"] == "revoked"
    assert api.operations.calls == ["callers_changed"] * 4


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({}, "tenant"),
        ({"tenant": "team-c"}, 'tenant "team-c" is not declared'),
        ({"tenant": "taem-a"}, 'Did you mean "team-a"?'),
        ({"tenant": "team-a", "models": ["smal"]}, 'Did you mean "small"?'),
        ({"tenant": "team-b", "models": ["large"]}, 'may not use model "large"'),
        ({"tenant": "team-a", "scope": "root"}, "scope"),
        ({"tenant": "team-a", "scope": "admin", "models": ["small"]}, "calls no models"),
        ({"tenant": "team-a", "expires_in_s": 0}, "between 1 second and 100 years"),
        ({"tenant": "team-a", "expires_in_s": -1}, "between 1 second and 100 years"),
        ({"tenant": "team-a", "name": "x" * 129}, "at most 128"),
        ({"tenant": "team-a", "nmae": "x"}, "nmae"),
    ],
)
async def test_a_key_that_would_be_of_no_use_is_not_made(api, body, words):
    """The refusal names the value and what would be right."""
    before = api.keys.read_version()
    answer = await api.local.post("/api/v1/keys", json=body)
    assert answer.status_code == 400
    assert words in answer.json()["error"]["message"]
    assert api.keys.read_version() == before


@pytest.mark.parametrize("method", ["GET", "DELETE"])
async def test_an_unknown_key_is_404(api, method):
    """Nothing is revoked by mistake."""
    answer = await api.local.request(method, "/api/v1/keys/zzzzzzzzzz")
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "route_not_found")


async def test_the_command_line_may_announce_changed_keys(api):
    """A key made beside the supervisor is known to the workers at once."""
    assert (await api.local.post("/api/v1/callers-changed")).status_code == 200
    assert api.operations.calls == ["callers_changed"]
