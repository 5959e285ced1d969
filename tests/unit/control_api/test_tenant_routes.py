"""Tenants and organisations over HTTP: made, changed, suspended, deleted; those of the file point to their line."""

import asyncio
import os
from typing import Any

import pytest

from headrace.domain.admin import ITSELF
from headrace.domain.errors import ErrorCode
from headrace.settings import user_name
from headrace.tenancy.overlay import EntryKind

ME = f"local:{user_name(os.getuid())}"
"""Whoever runs the tests, as the audit log names them."""
TENANTS = "/api/v1/tenants"


async def made(api, name: str = "search", **section: Any) -> dict[str, Any]:
    answer = await api.local.post(TENANTS, json={"name": name, "section": section})
    assert answer.status_code == 201, answer.text
    return answer.json()["data"]


async def audited(api) -> list[str]:
    """What was done over the API; the fixture's own keys are not."""
    entries = (await api.local.get("/api/v1/audit")).json()["data"]
    return [entry["action"] for entry in entries if entry["subject"] == ME]


async def test_a_tenant_is_made_changed_and_deleted(api):
    """Each change counts its version up, is in force at once and has its line in the audit log."""
    data = await made(api, limits={"requests_per_min": 60})
    assert (data["managed_by"], data["version"], data["section"]) == ("api", 1, {"limits": {"requests_per_min": 60}})
    assert "search" in api.operations.declaration().tenants
    changed = await api.local.patch(
        f"{TENANTS}/search", json={"section": {"weight": 2, "limits": {"requests_per_min": None}}}
    )
    assert (changed.status_code, changed.headers["etag"]) == (200, '"2"')
    assert changed.json()["data"]["section"] == {"weight": 2.0, "limits": {}}
    assert (await api.local.delete(f"{TENANTS}/search")).status_code == 200
    assert (await api.local.get(f"{TENANTS}/search")).status_code == 404
    assert api.operations.calls == ["callers_changed"] * 3
    log = (await api.local.get("/api/v1/audit?tenant=search")).json()["data"]
    assert [(one["action"], one["subject"]) for one in log] == [
        ("tenant.delete", ME),
        ("tenant.change", ME),
        ("tenant.create", ME),
    ]
    assert log[1]["before"] == {"limits": {"requests_per_min": 60}}
    assert log[1]["after"] == {"weight": 2.0, "limits": {}}


@pytest.mark.parametrize(
    ("method", "path", "body", "line"),
    [
        ("PATCH", f"{TENANTS}/team-b", {"section": {"weight": 2}}, 8),
        ("DELETE", f"{TENANTS}/team-b", None, 8),
        ("POST", TENANTS, {"name": "team-b"}, None),
        ("PATCH", "/api/v1/organisations/acme", {"section": {}}, 13),
        ("POST", f"{TENANTS}/frozen/resume", {}, 11),
    ],
)
async def test_what_the_file_owns_is_changed_there(api, method, path, body, line):
    """409 names the file and the line to edit, and nothing has changed."""
    answer = await api.local.request(method, path, json=body)
    error = answer.json()["error"]
    assert (answer.status_code, error["code"]) == (409, ErrorCode.CONFLICT.value) == (409, "conflict")
    assert f"{api.operations.config}:{line or 8}" in error["message"]
    assert error.get("line") == line
    assert api.operations.calls == []
    assert await audited(api) == []


async def test_the_line_is_that_of_the_file_as_it_is_now(api):
    """Somebody may have edited the file since it was loaded."""
    api.operations.config.write_text("\n\n" + api.operations.config.read_text())
    error = (await api.local.patch(f"{TENANTS}/team-b", json={"section": {}})).json()["error"]
    assert error["line"] == 10
    api.operations.config.unlink()
    error = (await api.local.patch(f"{TENANTS}/team-b", json={"section": {}})).json()["error"]
    assert ("line" in error, "managed by the file" in error["message"]) == (False, True)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"name": "no spaces"}, "not a valid name"),
        ({"name": ""}, "not a valid name"),
        ({"name": "x", "section": {"wieght": 1}}, 'wieght: there is no such key. Did you mean "weight"?'),
        ({"name": "x", "section": {"limits": {"requests": 1}}}, "limits.requests: there is no such key"),
        ({"name": "x", "section": {"limits": {"requests_per_min": -1}}}, "limits.requests_per_min: "),
        ({"name": "x", "section": {"models": ["smal"]}}, 'Did you mean "small"?'),
        ({"name": "x", "section": {"organisation": "acm"}}, 'Did you mean "acme"?'),
        ({"name": "x", "section": {"suspended": True}}, "Use suspend and resume."),
        ({"name": "x", "section": {"classes": []}}, "Name at least one."),
        ({"name": "x", "managed_by": "file"}, "managed_by"),
        ({}, "name"),
    ],
)
async def test_a_tenant_that_cannot_be_is_not_made(api, body, words):
    """The refusal names the key and what would be right."""
    answer = await api.local.post(TENANTS, json=body)
    assert answer.status_code == 400, answer.text
    assert words in answer.json()["error"]["message"]
    assert await audited(api) == []


async def test_two_who_change_one_tenant_at_once_do_not_undo_each_other(api):
    """The second one gets 409 with both versions, and the first change stays."""
    await made(api)
    seen = (await api.local.get(f"{TENANTS}/search")).headers["etag"]
    answers = await asyncio.gather(
        *(
            api.local.patch(f"{TENANTS}/search", json={"section": {"weight": weight}}, headers={"if-match": seen})
            for weight in (2, 3, 4)
        )
    )
    assert sorted(answer.status_code for answer in answers) == [200, 409, 409]
    [late, _] = [answer for answer in answers if answer.status_code == 409]
    assert "it is at version 2, your change was made from 1" in late.json()["error"]["message"]
    [won] = [answer for answer in answers if answer.status_code == 200]
    now = (await api.local.get(f"{TENANTS}/search")).json()["data"]
    assert (now["version"], now["section"]) == (2, won.json()["data"]["section"])


async def test_without_if_match_changes_of_different_keys_both_count(api):
    """A patch touches what it names."""
    await made(api)
    await api.local.patch(f"{TENANTS}/search", json={"section": {"weight": 2}})
    await api.local.patch(f"{TENANTS}/search", json={"section": {"budget": {"per_day": 5}}})
    now = (await api.local.get(f"{TENANTS}/search")).json()["data"]["section"]
    assert now == {"weight": 2.0, "budget": {"per_day": 5.0}}


@pytest.mark.parametrize("tag", ["1", "W/1", '"x"', '"1", "2"'])
async def test_an_if_match_that_is_no_version_is_refused(api, tag):
    """Better than ignoring it."""
    await made(api)
    answer = await api.local.patch(f"{TENANTS}/search", json={"section": {}}, headers={"if-match": tag})
    assert answer.status_code == 400


async def test_a_dry_run_checks_and_changes_nothing(api):
    """What would come of it is shown, warnings included."""
    wish = {"name": "search", "section": {"limits": {"requests_per_min": 0}}}
    answer = await api.local.post(f"{TENANTS}?dry_run=true", json=wish)
    assert (answer.status_code, len(answer.json()["data"]["warnings"])) == (200, 1)
    assert (await api.local.get(f"{TENANTS}/search")).status_code == 404
    assert api.operations.calls == []


async def test_a_tenant_is_suspended_wherever_it_is_declared(api):
    """Of file or API: refused with a reason, and taken again."""
    await made(api)
    for name in ("search", "team-b"):
        path = f"{TENANTS}/{name}"
        data = (await api.local.post(f"{path}/suspend", json={"reason": "ticket 4711"})).json()["data"]
        assert (data["is_suspended"], data["reason"]) == (True, "ticket 4711")
        assert api.operations.declaration().tenants[name].suspended is True
        assert (await api.local.post(f"{path}/resume")).json()["data"]["is_suspended"] is False
        assert api.operations.declaration().tenants[name].suspended is False
        log = (await api.local.get(f"/api/v1/audit?tenant={name}&limit=2")).json()["data"]
        assert [one["action"] for one in log] == ["tenant.resume", "tenant.suspend"]


async def test_a_project_is_suspended_alone(api):
    """Its tenant goes on."""
    path = f"{TENANTS}/team-a"
    data = (await api.local.post(f"{path}/suspend", json={"project": "web"})).json()["data"]
    assert (data["is_suspended"], data["suspended_projects"]) == (False, ["web"])
    answer = await api.local.post(f"{path}/suspend", json={"project": "wep"})
    assert (answer.status_code, 'Did you mean "web"?' in answer.text.replace("\\", "")) == (404, True)


async def test_an_organisation_with_tenants_and_a_tenant_with_keys_are_not_deleted(api):
    """Nothing is left hanging; keys are ended with their tenant when that is said."""
    organisations = "/api/v1/organisations"
    assert (await api.local.post(organisations, json={"name": "globex"})).status_code == 201
    await made(api, organisation="globex")
    key = (await api.local.post("/api/v1/keys", json={"tenant": "search"})).json()["data"]["record"]
    refused = await api.local.delete(f"{organisations}/globex")
    assert (refused.status_code, "still has tenants: search" in refused.text) == (409, True)
    refused = await api.local.delete(f"{TENANTS}/search")
    assert (refused.status_code, "1 active key" in refused.text) == (409, True)
    assert (await api.local.delete(f"{TENANTS}/search?revoke_keys=true")).status_code == 200
    assert (await api.local.get(f"/api/v1/keys/{key['key_id']}")).json()["data"]["state"] == "revoked"
    assert (await api.local.delete(f"{organisations}/globex")).status_code == 200


async def test_a_tenant_takes_no_key_with_it_that_reaches_further(api):
    """An owner's key that happens to be made under it stays; one that reaches only it ends."""
    await made(api)
    wish = {"tenant": "search", "scope": "admin", "role": "owner"}
    ids = {}
    for is_narrow in (False, True):
        answer = await api.local.post("/api/v1/keys", json={**wish, "only_tenant": is_narrow})
        ids[is_narrow] = answer.json()["data"]["record"]["key_id"]
    assert (await api.local.get(f"{TENANTS}/search")).json()["data"]["active_keys"] == 1, "of these"
    assert (await api.local.delete(f"{TENANTS}/search?revoke_keys=true")).status_code == 200
    states = {key["key_id"]: key["state"] for key in (await api.local.get("/api/v1/keys")).json()["data"]}
    assert (states[ids[False]], states[ids[True]]) == ("active", "revoked")


async def test_names_with_slashes_and_strange_ones_have_routes(api):
    """What the declaration allows as a name, the API serves."""
    await made(api, name="org/team:x@y")
    assert (await api.local.get(f"{TENANTS}/org/team:x@y")).json()["data"]["name"] == "org/team:x@y"
    assert (await api.local.post(f"{TENANTS}/org/team:x@y/suspend")).json()["data"]["is_suspended"] is True


async def test_keys_of_a_tenant_that_nobody_declares_are_pointed_out(api):
    """A tenant taken out of the file may have left keys behind."""
    await made(api)
    await api.local.post("/api/v1/keys", json={"tenant": "search"})
    api.entries.delete_entry(EntryKind.TENANT, "search", ITSELF)
    rows = {row["name"]: row for row in (await api.local.get(TENANTS)).json()["data"]}
    assert (rows["search"]["managed_by"], rows["search"]["active_keys"]) == ("nobody", 1)
    assert (rows["team-b"]["managed_by"], rows["team-b"]["place"]) == ("file", f"{api.operations.config}:8")


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("PATCH", f"{TENANTS}/search"),
        ("POST", TENANTS),
        ("PATCH", "/api/v1/keys/nobody"),
        ("POST", "/api/v1/keys"),
        ("POST", "/api/v1/route/explain"),
        ("POST", "/api/v1/reload"),
        ("POST", f"{TENANTS}/search/suspend"),
    ],
)
async def test_a_body_nested_too_deeply_is_its_senders_fault(api, method: str, path: str):
    """However deep, and whoever reads it: refused or not to be found, never a bug of headrace's."""
    await made(api)
    for depth in (50, 200, 300, 450, 700, 900, 970, 990, 1200, 3000):
        deep = b'{"a":' * depth + b"1" + b"}" * depth
        content = b'{"name":"deep","tenant":%b,"section":%b,"limits":%b}' % (deep, deep, deep)
        answer = await api.local.request(method, path, content=content)
        assert answer.status_code in (400, 404), answer.text
