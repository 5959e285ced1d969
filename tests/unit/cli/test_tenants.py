"""`headrace tenants`: made, changed, suspended, deleted without an instance; what the file owns is left alone."""

import json
from pathlib import Path

import pytest

DECLARATION = """
version: 1
models: {small: {}}
pools:
  p: {model: small, engine: vllm, endpoints: ["http://127.0.0.1:1"]}
tenants:
  team-a: {}
  team-b: {models: [small], limits: {requests_per_min: 0, concurrent_requests: 3}}
"""


@pytest.fixture
def declared(run):
    """A command in a folder with a declaration."""
    Path("headrace.yaml").write_text(DECLARATION)
    return run


def printed(ran):
    assert ran.code == 0, ran.err
    return json.loads(ran.out)["data"]


def test_tenants_show_limits_and_keys(declared):
    """A limit of 0 is a limit; none is "no limit"; the place says where to edit."""
    declared("keys", "create", "--tenant", "team-b")
    ran = declared("tenants")
    [one] = [line for line in ran.out.splitlines() if line.startswith("team-a")]
    [other] = [line for line in ran.out.splitlines() if line.startswith("team-b")]
    assert "no limit" in one
    assert "0 requests/min" in other
    rows = {row["name"]: row for row in printed(declared("tenants", "--json"))}
    assert (rows["team-b"]["active_keys"], rows["team-b"]["managed_by"]) == (1, "file")
    assert rows["team-b"]["place"].endswith("headrace.yaml:8")


def test_a_tenant_is_made_changed_and_deleted(declared):
    """In the words of headrace.yaml; each step is in the audit log with the user's name."""
    made = printed(
        declared("tenants", "create", "ads", "--set", "limits.requests_per_min=60", "--set", "weight=2", "--json")
    )
    assert (made["managed_by"], made["section"]) == ("api", {"limits": {"requests_per_min": 60}, "weight": 2.0})
    changed = declared("tenants", "change", "ads", "--set", "limits.requests_per_min=null", "--set", "budget.per_day=5")
    assert "limits.requests_per_min: 60 -> none" in changed.out
    assert printed(declared("tenants", "show", "ads", "--json"))["section"]["budget"] == {"per_day": 5.0}
    assert declared("tenants", "delete", "ads").code == 0
    entries = printed(declared("audit", "--json"))
    assert [entry["action"] for entry in entries] == ["tenant.delete", "tenant.change", "tenant.create"]
    assert {entry["channel"] for entry in entries} == {"local"}
    assert all(entry["subject"].startswith("local:") for entry in entries)


def test_dry_runs_change_nothing(declared):
    """What would be is shown, and checked."""
    ran = declared("tenants", "create", "ads", "--set", "limits.requests_per_min=0", "--dry-run")
    assert (ran.code, "Would create" in ran.out, "warning: " in ran.out) == (0, True, True)
    assert declared("tenants", "create", "ads", "--set", "wieght=1", "--dry-run").code == 2
    printed(declared("tenants", "create", "ads", "--json"))
    assert "dry run" in declared("tenants", "change", "ads", "--set", "weight=3", "--dry-run").out
    assert "Would delete" in declared("tenants", "delete", "ads", "--dry-run").out
    assert [entry["action"] for entry in printed(declared("audit", "--json"))] == ["tenant.create"]


def test_what_the_file_owns_is_answered_with_its_line(declared):
    """Neither changed nor deleted here."""
    for words in (("change", "team-b", "--set", "weight=2"), ("delete", "team-b")):
        ran = declared("tenants", *words)
        assert (ran.code, "headrace.yaml:8" in ran.err) == (1, True), ran.err


def test_suspended_with_a_reason_and_resumed(declared):
    """Also what the file owns."""
    assert declared("tenants", "suspend", "team-b", "--reason", "ticket 4711").code == 0
    ran = declared("tenants", "show", "team-b")
    assert ("suspended" in ran.out, "ticket 4711" in ran.out) == (True, True)
    assert printed(declared("tenants", "--json"))[1]["is_suspended"] is True
    assert printed(declared("tenants", "resume", "team-b", "--json"))["is_suspended"] is False


def test_organisations_are_made_and_shown_too(declared):
    """And a tenant may belong to one."""
    assert declared("tenants", "create", "acme", "--kind", "organisation", "--set", "budget.per_month=100").code == 0
    assert declared("tenants", "create", "ads", "--set", "organisation=acme").code == 0
    assert "100.0 per month" in declared("tenants", "list", "--kind", "organisation").out
    ran = declared("tenants", "delete", "acme", "--kind", "organisation")
    assert (ran.code, "still has tenants: ads" in ran.err) == (1, True)


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("show", "taem-a"), 2, 'Did you mean "team-a"?'),
        (("create", "team-a"), 1, "headrace.yaml:7"),
        (("create", "x", "--set", "models=[smal]"), 2, 'Did you mean "small"?'),
        (("create", "x", "--set", "weight"), 2, "KEY.PATH=VALUE"),
        (("suspend", "team-a", "--project", "web"), 2, 'has no project "web"'),
        (("change", "nobody", "--set", "weight=2"), 2, "there is no tenant"),
    ],
)
def test_a_slip_of_the_finger_is_answered_with_what_was_meant(declared, words, code, said):
    """And changes nothing."""
    ran = declared("tenants", *words)
    assert (ran.code, said in ran.err) == (code, True), ran.err
    assert printed(declared("audit", "--json")) == []


def test_keys_of_a_removed_tenant_are_pointed_out(declared):
    """A tenant taken out of the file may have left keys behind."""
    declared("keys", "create", "--tenant", "team-b")
    Path("headrace.yaml").write_text(DECLARATION.replace("team-b", "team-c"))
    rows = {row["name"]: row for row in printed(declared("tenants", "--json"))}
    assert (rows["team-b"]["managed_by"], rows["team-b"]["active_keys"]) == ("nobody", 1)
    assert "keys are refused" in declared("tenants").out


@pytest.mark.parametrize("verb", ["usage", "audit"])
def test_a_tenant_that_never_was_has_no_past(declared, verb):
    """A slip in --tenant is answered with the nearest name, not with an empty table; who was idle has an empty one."""
    ran = declared(verb, "--tenant", "taem-a")
    assert (ran.code, 'there is no tenant "taem-a"' in ran.err, 'Did you mean "team-a"?' in ran.err) == (2, True, True)
    assert declared(verb, "--tenant", "team-a").code == 0


def test_the_past_of_a_removed_tenant_is_still_shown(declared):
    """What the audit log knows of a tenant that is gone is no slip."""
    declared("tenants", "create", "gone")
    declared("tenants", "delete", "gone")
    assert [each["action"] for each in printed(declared("audit", "--tenant", "gone", "--json"))] != []


def test_the_built_in_tenant_says_how_to_get_a_file(run):
    """Nobody is sent to edit a file that does not exist: `init` writes one."""
    ran = run("tenants", "change", "default", "--set", "weight=2")
    assert ran.code == 1
    assert "belongs to the built-in declaration, which no file holds" in ran.err
    assert "`headrace init` writes headrace.yaml" in " ".join(ran.err.split())


def test_active_keys_are_those_that_deleting_would_revoke(declared):
    """Its callers' keys and its own operators': `show` and `delete` count the same; operators of all are none of it."""
    declared("tenants", "create", "team-x")
    declared("keys", "create", "--tenant", "team-x")
    declared("keys", "create", "--tenant", "team-x", "--scope", "admin", "--only-tenant")
    declared("keys", "create", "--tenant", "team-x", "--scope", "admin")
    assert "active keys: 2" in declared("tenants", "show", "team-x").out
    assert "2 active key(s)" in declared("tenants", "delete", "team-x").err


def test_suspending_twice_says_so(declared):
    """What would change nothing is not told as done."""
    assert "was not suspended" in declared("tenants", "resume", "team-b").out
    assert declared("tenants", "suspend", "team-b").out.startswith("Suspended")
    assert "was suspended already" in declared("tenants", "suspend", "team-b").out
    assert declared("tenants", "resume", "team-b").out.startswith("Resumed")
