"""Who may use the control API: every route declares it, and the wire keeps to it."""

import stat

import pytest

from headrace.control_api.access import Access
from headrace.control_api.routes import ROUTES

PUBLIC = {("GET", "/health"), ("GET", "/ready"), ("GET", "/metrics")}
ADMIN_ROUTES = [route for route in ROUTES if route.access is not Access.PUBLIC]


def test_only_probes_and_metrics_are_public():
    """A route added without thought is not public."""
    assert {(route.method, route.path) for route in ROUTES if route.access is Access.PUBLIC} == PUBLIC


def test_every_route_is_listed_once():
    """Method and path decide."""
    assert len({(route.method, route.path) for route in ROUTES}) == len(ROUTES)


async def test_admin_routes_refuse_strangers_and_inference_keys(api):
    """Over TCP, no key is 401 and the wrong scope is 403, on every route, and nothing happens."""
    for route in ADMIN_ROUTES:
        path = route.path.replace("{key_id}", "aaaaaaaaaa").replace("{name:path}", "team-a")
        stranger = await api.tcp.request(route.method, path)
        caller = await api.tcp.request(route.method, path, headers=api.inference)
        assert (stranger.status_code, stranger.json()["error"]["code"]) == (401, "unauthenticated"), path
        assert stranger.headers["www-authenticate"] == "Bearer"
        assert (caller.status_code, caller.json()["error"]["code"]) == (403, "forbidden"), path
    assert api.operations.calls == []


@pytest.mark.parametrize(
    "authorization",
    [
        "",
        "Bearer",
        "Bearer hr-x",
        "Basic aGk6aGk=",
        "Bearer hr-" + "a" * 10 + "-" + "b" * 43,
        "Bearer " + "é" * 57,
    ],
)
async def test_malformed_credentials_are_refused(api, authorization):
    """Whatever is sent as a credential, the answer is 401."""
    answer = await api.tcp.get("/api/v1/keys", headers={"authorization": authorization.encode()})
    assert answer.status_code == 401


async def test_an_admin_key_opens_the_tcp_port(api):
    """With the key, the same data as over the socket."""
    assert (await api.tcp.get("/api/v1/status", headers=api.admin)).json()["data"]["plan_revision"] == 3


async def test_the_local_socket_needs_no_key_and_belongs_to_its_user(api):
    """The command line works at once; other users of the machine cannot connect."""
    assert (await api.local.get("/api/v1/status")).status_code == 200
    assert stat.S_IMODE(api.socket_path.stat().st_mode) == 0o600


async def test_a_revoked_admin_key_is_refused_at_once(api):
    """Revocation does not wait for anything."""
    created = await api.local.post("/api/v1/keys", json={"tenant": "team-a", "scope": "admin"})
    header = {"authorization": f"Bearer {created.json()['data']['key']}"}
    assert (await api.tcp.get("/api/v1/keys", headers=header)).status_code == 200
    await api.local.delete(f"/api/v1/keys/{created.json()['data']['record']['key_id']}")
    assert (await api.tcp.get("/api/v1/keys", headers=header)).status_code == 401


async def test_without_its_database_the_api_says_so_and_known_admins_keep_status(api):
    """A lost database takes keys and usage away, not the view of what runs."""
    assert (await api.tcp.get("/api/v1/status", headers=api.admin)).status_code == 200
    for suffix in ("", "-wal", "-shm"):
        api.database_path.with_name(api.database_path.name + suffix).unlink(missing_ok=True)
    api.database_path.mkdir()
    lost = await api.tcp.get("/api/v1/keys", headers=api.admin)
    assert (lost.status_code, lost.json()["error"]["code"]) == (503, "database_unavailable")
    assert str(api.database_path) in lost.json()["error"]["message"]
    assert (await api.tcp.get("/api/v1/status", headers=api.admin)).status_code == 200
