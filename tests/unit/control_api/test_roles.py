"""Every route against every role: who may use it, and that a role scoped to a tenant learns of nobody else."""

from dataclasses import dataclass

import pytest
from tests.unit.batch.test_look import batch as stored_batch

from headrace.batch.objects import BatchStatus
from headrace.batch.store import BatchStore
from headrace.control_api.access import Access
from headrace.control_api.routes import ROUTES, ControlRoute
from headrace.domain.admin import Grant, Role
from headrace.domain.errors import ErrorCode
from headrace.domain.ids import TenantId
from headrace.domain.quota import NANOS, Level, Unit
from headrace.domain.quota_status import LimitStatus
from headrace.domain.tenant import Scope

MINE, OTHER = TenantId("team-a"), TenantId("team-b")
GUARDED = [route for route in ROUTES if route.access is not Access.PUBLIC]
BODIES = {
    "/api/v1/keys": {"tenant": MINE},
    "/api/v1/tenants": {"name": "made"},
    "/api/v1/organisations": {"name": "made"},
    "/api/v1/tenants/{name:path}": {"section": {}},
    "/api/v1/organisations/{name:path}": {"section": {}},
}


@dataclass
class Cast:
    """A key of each role, global and scoped to `MINE`, and keys to look at."""

    headers: dict[tuple[Role, bool], dict[str, str]]
    my_key: str
    other_key: str


@pytest.fixture
def people(api) -> Cast:
    headers = {}
    for role in Role:
        for is_scoped in (False, True):
            grant = Grant(role=role, tenant=MINE if is_scoped else None)
            clear_text, _ = api.keys.create_key(tenant=MINE, scope=Scope.ADMIN, grant=grant)
            headers[role, is_scoped] = {"authorization": f"Bearer {clear_text}"}
    _, mine = api.keys.create_key(tenant=MINE, scope=Scope.INFERENCE, name="mine")
    _, other = api.keys.create_key(tenant=OTHER, scope=Scope.INFERENCE, name="secret-of-b")
    return Cast(headers, mine.key_id, other.key_id)


def path_of(route: ControlRoute, key_id: str) -> str:
    name = "acme" if "organisations" in route.path else str(MINE)
    path = route.path.replace("{key_id}", key_id).replace("{name:path}", name)
    return path.replace("{replica:path}", "chat/0")


async def test_a_route_is_open_to_its_role_and_those_above(api, people):
    """Every route by every role, global and scoped: who has the right is let in, the others get 403."""
    for route in GUARDED:
        wanted = Role(route.access.value)
        for (role, is_scoped), headers in people.headers.items():
            may = role.includes(wanted) and (route.is_scoped or not is_scoped)
            answer = await api.tcp.request(
                route.method, path_of(route, people.my_key), headers=headers, json=BODIES.get(route.path)
            )
            assert (answer.status_code == 403) == (not may), (route.path, role, is_scoped, answer.text)
            if not may:
                assert answer.json()["error"]["code"] == ErrorCode.FORBIDDEN.value


async def test_a_scoped_role_gets_the_same_answer_for_every_path_it_may_not_use(api, people):
    """Whether a tenant, organisation or replica of that name exists is not told."""
    headers = people.headers[Role.OWNER, True]
    texts = set()
    for path in ("organisations/acme", "organisations/nothing", "status", "endpoints", "organisations"):
        answer = await api.tcp.get(f"/api/v1/{path}", headers=headers)
        texts.add((answer.status_code, answer.text))
    assert len(texts) == 1


@pytest.mark.parametrize("role", list(Role))
async def test_other_tenants_are_not_there_for_a_scoped_role(api, people, role):
    """What exists and what does not get the same answer, but for the name that was asked for."""
    headers = people.headers[role, True]
    pairs = [
        (f"tenants/{OTHER}", "tenants/nothing"),
        (f"keys/{people.other_key}", "keys/zzzzzzzzzz"),
        (f"usage?tenant={OTHER}", "usage?tenant=nothing"),
        (f"requests?tenant={OTHER}", "requests?tenant=nothing"),
        (f"audit?tenant={OTHER}", "audit?tenant=nothing"),
        (f"quota?tenant={OTHER}", "quota?tenant=nothing"),
    ]
    for real, made_up in pairs:
        one = await api.tcp.get(f"/api/v1/{real}", headers=headers)
        two = await api.tcp.get(f"/api/v1/{made_up}", headers=headers)
        assert one.status_code == two.status_code == 404
        asked, invented = (path.rpartition("/" if "?" not in path else "=")[2] for path in (real, made_up))
        assert one.text.replace(asked, "X") == two.text.replace(invented, "X")


async def test_a_scoped_role_sees_its_own_part_alone(api, people):
    """Tenants, keys, audit, usage, requests, quota: nothing names anybody else."""
    api.operations.limits = tuple(
        LimitStatus(level=level, name=name, unit=Unit.REQUESTS_PER_MIN, limit=10, used=3, reset_s=1.0)
        for level, name in (
            (Level.GATEWAY, ""),
            (Level.ORGANISATION, "acme"),
            (Level.TENANT, MINE),
            (Level.TENANT, OTHER),
            (Level.PROJECT, f"{MINE}/web"),
            (Level.KEY, people.my_key),
            (Level.KEY, people.other_key),
        )
    )
    headers = people.headers[Role.VIEWER, True]
    seen = {
        path: (await api.tcp.get(f"/api/v1/{path}", headers=headers)).json()["data"]
        for path in ("tenants", "keys", "audit", "quota")
    }
    assert [one["name"] for one in seen["tenants"]] == [MINE]
    assert {one["tenant"] for one in seen["keys"]} == {MINE}
    admins = [one for one in seen["keys"] if one["scope"] == "admin"]
    assert {one["grant"]["tenant"] for one in admins} == {MINE}
    assert {one["tenant"] for one in seen["audit"]} == {MINE}
    assert [(one["level"], one["name"]) for one in seen["quota"]] == [
        ("tenant", MINE),
        ("project", f"{MINE}/web"),
        ("key", people.my_key),
    ]
    for path in ("tenants", "keys", "audit", "quota", "usage?by=key", "requests"):
        text = (await api.tcp.get(f"/api/v1/{path}", headers=headers)).text
        assert OTHER not in text
        assert people.other_key not in text


async def test_nobody_makes_a_key_that_may_more_than_its_maker(api, people):
    """Operators make keys for callers only; an owner of a tenant makes operators of that tenant only."""

    async def create(maker: Role, is_scoped: bool, **wish: object) -> tuple[int, dict]:
        headers = people.headers[maker, is_scoped]
        answer = await api.tcp.post("/api/v1/keys", headers=headers, json={"tenant": MINE, **wish})
        return answer.status_code, answer.json()

    assert (await create(Role.OPERATOR, False))[0] == 201
    assert (await create(Role.OPERATOR, False, scope="admin", role="viewer"))[0] == 403
    assert (await create(Role.OPERATOR, True, tenant=OTHER))[0] == 403
    assert (await create(Role.OWNER, False, role="viewer"))[0] == 400
    status, body = await create(Role.OWNER, True, scope="admin", role="owner")
    assert (status, body["data"]["record"]["grant"]) == (201, {"role": "owner", "tenant": MINE})
    status, body = await create(Role.OWNER, False, scope="admin", role="operator")
    assert (status, body["data"]["record"]["grant"]) == (201, {"role": "operator", "tenant": None})


@pytest.mark.parametrize("path", ["", "/suspend", "/resume"])
async def test_only_an_owner_touches_the_keys_of_operators(api, people, path):
    """An operator cannot lock out an owner, nor a tenant's owner the operators of all."""
    _, admin = api.keys.create_key(tenant=MINE, scope=Scope.ADMIN)
    method = "POST" if path else "DELETE"
    url = f"/api/v1/keys/{admin.key_id}{path}"
    for who, status in (((Role.OPERATOR, False), 403), ((Role.OWNER, True), 404), ((Role.OWNER, False), 200)):
        assert (await api.tcp.request(method, url, headers=people.headers[who])).status_code == status


async def test_a_suspended_admin_key_is_refused_until_resumed(api):
    """With a code of its own, and at the next request."""
    clear_text, record = api.keys.create_key(tenant=MINE, scope=Scope.ADMIN)
    headers = {"authorization": f"Bearer {clear_text}"}
    api.keys.suspend_key(record.key_id)
    answer = await api.tcp.get("/api/v1/keys", headers=headers)
    assert (answer.status_code, answer.json()["error"]["code"]) == (403, "suspended")
    api.keys.resume_key(record.key_id)
    assert (await api.tcp.get("/api/v1/keys", headers=headers)).status_code == 200


async def test_the_audit_log_names_the_key_that_did_it(api, people):
    """Who, by which way in, with which role."""
    headers = people.headers[Role.OPERATOR, False]
    await api.tcp.post(f"/api/v1/keys/{people.my_key}/suspend", headers=headers)
    await api.tcp.post("/api/v1/reload", headers=headers)
    [reload, entry] = (await api.local.get("/api/v1/audit?limit=2")).json()["data"]
    assert (entry["action"], entry["name"], entry["role"], entry["channel"]) == (
        "key.suspend",
        people.my_key,
        "operator",
        "api",
    )
    assert entry["subject"] == f"key:{headers['authorization'][10:20]}"
    assert (reload["action"], reload["subject"]) == ("instance.reload", entry["subject"])


async def test_budgets_carry_their_marks(api):
    """80 and 100 % of a budget are seen without arithmetic."""
    used = {"a": 79, "b": 80, "c": 100, "d": 130}
    api.operations.limits = tuple(
        LimitStatus(level=Level.TENANT, name=name, unit=unit, limit=100 * NANOS, used=spent * NANOS, reset_s=None)
        for name, spent in used.items()
        for unit in (Unit.BUDGET_PER_DAY, Unit.REQUESTS_PER_MIN)
    )
    seen = (await api.local.get("/api/v1/budget")).json()["data"]
    assert [(one["name"], one["limit_name"], one["passed_mark"]) for one in seen] == [
        ("a", "per_day", None),
        ("b", "per_day", 0.8),
        ("c", "per_day", 1.0),
        ("d", "per_day", 1.0),
    ]
    assert [(one["used"], one["remaining"]) for one in seen][-1] == (130.0, 0.0)


@pytest.mark.parametrize("path", ["quota", "budget"])
async def test_limits_of_what_does_not_exist_are_not_shown_as_none(api, people, path):
    """A slip in the name of a tenant, project or key is answered with the nearest one."""
    answer = await api.local.get(f"/api/v1/{path}?tenant=taem-a")
    assert answer.status_code == 404
    assert 'there is no tenant "taem-a". Did you mean "team-a"?' in answer.json()["error"]["message"]
    assert (await api.local.get(f"/api/v1/{path}?tenant={MINE}")).status_code == 200
    for asked, known in (("project=wbe", "web"), ("key=nope", people.my_key)):
        answer = await api.local.get(f"/api/v1/{path}?{asked}")
        assert (answer.status_code, known in answer.text) == (404, True)
    assert (await api.local.get(f"/api/v1/{path}?tenant={MINE}&project=web")).status_code == 200
    hidden = await api.tcp.get(f"/api/v1/{path}?key=nope", headers=people.headers[Role.VIEWER, True])
    assert (hidden.status_code, people.my_key in hidden.text, people.other_key in hidden.text) == (404, True, False)


async def test_a_scoped_role_does_not_learn_where_files_lie(api, people):
    """No answer and no refusal names a folder of the machine; the name of the file and the line stay."""
    headers = people.headers[Role.OWNER, True]
    folder = str(api.operations.config.parent)
    answers = [
        await api.tcp.request(route.method, path_of(route, people.my_key), headers=headers, json=BODIES.get(route.path))
        for route in GUARDED
    ]
    refused = await api.tcp.post(f"/api/v1/tenants/{MINE}/resume", headers=headers, json={"project": "no"})
    shown = await api.tcp.get(f"/api/v1/tenants/{MINE}", headers=headers)
    for answer in (*answers, refused, shown):
        assert folder not in answer.text
    name = api.operations.config.name
    assert shown.json()["data"]["place"] == f"{name}:6"
    whole = await api.tcp.get(f"/api/v1/tenants/{MINE}", headers=people.headers[Role.OWNER, False])
    assert whole.json()["data"]["place"] == f"{api.operations.config}:6"


async def test_where_the_database_is_is_told_to_global_roles_alone(api, people):
    """Whoever is scoped, or nobody yet, learns that it is away, and not its path or address."""
    scoped, whole = people.headers[Role.VIEWER, True], people.headers[Role.VIEWER, False]
    for headers in (scoped, whole):
        assert (await api.tcp.get("/api/v1/keys", headers=headers)).status_code == 200
    api.database.close()
    api.database_path.rename(api.database_path.with_suffix(".away"))
    lost = await api.tcp.get("/api/v1/keys", headers=scoped)
    assert lost.status_code == 503
    assert str(api.database_path) not in lost.text
    seen = await api.tcp.get("/api/v1/keys", headers=whole)
    assert (seen.status_code, str(api.database_path) in seen.text) == (503, True)


async def test_files_and_batches_are_those_of_the_roles_tenant(api, people, tmp_path):
    """A global role sees all, or one tenant's; a scoped one its own, whatever it asks for."""
    api.operations.batch_dir = tmp_path / "batch"
    store = BatchStore(api.operations.batch_dir)
    for number, tenant in enumerate((MINE, OTHER)):
        store.put_batch(stored_batch(number, tenant, BatchStatus.IN_PROGRESS))
    store.close()
    whole, scoped = people.headers[Role.VIEWER, False], people.headers[Role.VIEWER, True]

    async def seen(headers: dict[str, str], query: str = "") -> list[str]:
        answer = await api.tcp.get(f"/api/v1/batches?open=true{query}", headers=headers)
        assert answer.status_code == 200, answer.text
        return [one["tenant"] for one in answer.json()["data"]]

    assert await seen(whole) == [OTHER, MINE]
    assert await seen(whole, f"&tenant={MINE}") == [MINE]
    assert await seen(scoped) == [MINE]
    refused = await api.tcp.get(f"/api/v1/batches?tenant={OTHER}", headers=scoped)
    assert refused.status_code == 404
    assert (await api.tcp.get("/api/v1/files", headers=scoped)).json()["data"] == []
