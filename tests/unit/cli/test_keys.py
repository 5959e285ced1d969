"""`headrace keys`: made, listed and ended, without a running instance; the secret is shown once and kept nowhere."""

import json
import re
from pathlib import Path

DECLARATION = """
version: 1
models:
  small: {}
  large: {}
pools:
  p: {model: small, engine: vllm, endpoints: ["http://127.0.0.1:1"]}
  q: {model: large, engine: vllm, endpoints: ["http://127.0.0.1:2"]}
tenants:
  team-a: {}
  team-b: {models: [small], limits: {requests_per_min: 7}}
"""


def _created(run, *arguments):
    ran = run("keys", "create", "--json", *arguments)
    assert ran.code == 0, ran.err
    return json.loads(ran.out)["data"]


def test_a_key_is_shown_once(run):
    """`create` prints the key on its own line; `list` never does."""
    ran = run("keys", "create", "--tenant", "default", "--name", "laptop")
    key = ran.out.splitlines()[0]
    assert re.fullmatch(r"hr-[a-z2-7]{10}-[A-Za-z0-9_-]{43}", key)
    listed = run("keys", "list")
    assert key[3:13] in listed.out
    assert "laptop" in listed.out
    assert key[14:] not in listed.out


def test_a_key_has_what_was_asked_for(run):
    """Tenant, scope, models, name and end."""
    Path("headrace.yaml").write_text(DECLARATION)
    record = _created(run, "--tenant", "team-b", "--model", "small", "--expires-in", "30d", "--name", "ci")["record"]
    assert (record["tenant"], record["scope"], record["allowed_models"]) == ("team-b", "inference", ["small"])
    assert record["expires_at"] > record["created_at"]
    assert _created(run, "--tenant", "team-a", "--scope", "admin")["record"]["scope"] == "admin"


def test_a_slip_of_the_finger_is_answered_with_what_was_meant(run):
    """Wrong usage exits with 2 and makes no key."""
    Path("headrace.yaml").write_text(DECLARATION)
    for arguments, words in (
        (("--tenant", "taem-a"), 'Did you mean "team-a"?'),
        (("--tenant", "team-a", "--model", "smal"), 'Did you mean "small"?'),
        (("--tenant", "team-b", "--model", "large"), "It may use: small."),
        (("--tenant", "team-a", "--expires-in", "soon"), "90m, 12h, 30d or 2w"),
        (("--tenant", "team-a", "--scope", "root"), "root"),
    ):
        ran = run("keys", "create", *arguments)
        assert (ran.code, words in ran.err) == (2, True), ran.err
    assert json.loads(run("keys", "list", "--json").out)["data"] == []


def test_revoking_ends_a_key_by_id_or_by_itself(run):
    """The id is enough; a whole key is understood and not repeated."""
    one, other = (_created(run, "--tenant", "default") for _ in range(2))
    assert run("keys", "revoke", one["record"]["key_id"]).code == 0
    ran = run("keys", "revoke", other["key"])
    assert (ran.code, other["key"][14:] in ran.out) == (0, False)
    states = [key["state"] for key in json.loads(run("keys", "list", "--json").out)["data"]]
    assert states == ["revoked", "revoked"]


def test_revoking_an_unknown_key_fails(run):
    """Nothing is ended by mistake."""
    ran = run("keys", "revoke", "zzzzzzzzzz")
    assert ran.code == 2
    assert '"zzzzzzzzzz"' in ran.err


def test_keys_are_listed_by_tenant(run):
    """One team's keys alone."""
    Path("headrace.yaml").write_text(DECLARATION)
    _created(run, "--tenant", "team-a")
    _created(run, "--tenant", "team-b")
    listed = json.loads(run("keys", "list", "--tenant", "team-b", "--json").out)
    assert listed["schema"] == "headrace/keys/v1"
    assert [key["tenant"] for key in listed["data"]] == ["team-b"]


def test_the_secret_is_in_no_file(run, tmp_path):
    """Canary: neither the key nor its secret part is anywhere below the state folder."""
    key = _created(run, "--tenant", "default")["key"]
    run("keys", "list")
    run("usage", "verify")
    run("tenants")
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert files
    assert [path for path in files if key[14:].encode() in path.read_bytes()] == []


def test_a_database_that_cannot_be_used_is_named(run, monkeypatch):
    """The operator reads which, and no password."""
    Path("headrace.yaml").write_text(DECLARATION + "ledger: {database: '${env:LEDGER}'}\n")
    monkeypatch.setenv("LEDGER", "postgresql://u:hunter2@127.0.0.1:1/d")
    ran = run("keys", "list")
    assert (ran.code, "u:***@127.0.0.1:1/d" in ran.err, "hunter2" in ran.err) == (1, True, False)


def test_a_key_is_limited_changed_suspended_and_resumed(run):
    """What is not said stays; the audit log has each step."""
    Path("headrace.yaml").write_text(DECLARATION)
    words = ("--tenant", "team-a", "--set", "limits.requests_per_min=60", "--set", "budget.per_day=5")
    key_id = _created(run, *words)["record"]["key_id"]

    def did(*arguments):
        ran = run("keys", *arguments, "--json")
        assert ran.code == 0, ran.err
        return json.loads(ran.out)["data"]

    changed = did("change", key_id, "--set", "limits.requests_per_min=null", "--name", "ci", "--expires-in", "30d")
    assert (changed["limits"], changed["budget"], changed["name"]) == ({}, {"per_day": 5.0}, "ci")
    assert did("change", key_id, "--expires-in", "never")["expires_at"] is None
    assert did("suspend", key_id)["state"] == "suspended"
    assert did("resume", key_id)["state"] == "active"
    actions = [entry["action"] for entry in json.loads(run("audit", "--json").out)["data"]]
    assert actions == ["key.resume", "key.suspend", "key.change", "key.change", "key.create"]
    shown = run("audit").out
    assert "tenant: team-a" in shown  # of key.create
    assert "budget.per_day: 5.0 ->" not in shown


def test_an_admin_key_has_a_role_and_a_reach(run, monkeypatch):
    """Shown in the list; neither belongs to a key for callers."""
    Path("headrace.yaml").write_text(DECLARATION)
    words = ("--tenant", "team-a", "--scope", "admin", "--role", "viewer", "--only-tenant")
    assert _created(run, *words)["record"]["grant"] == {"role": "viewer", "tenant": "team-a"}
    assert _created(run, "--tenant", "team-a", "--scope", "admin")["record"]["grant"] == {
        "role": "owner",
        "tenant": None,
    }
    monkeypatch.setenv("COLUMNS", "200")
    assert "viewer of its tenant" in run("keys", "list").out
    assert run("keys", "create", "--tenant", "team-a", "--role", "viewer").code == 2


def test_a_limit_that_is_none_is_refused_by_name(run):
    """Nothing is made."""
    for setting, words in (
        ("limits.request_per_min=1", "limits.request_per_min"),
        ("limits.requests_per_min=-1", "limits.requests_per_min"),
        ("weight=2", 'no "weight" of its own'),
    ):
        ran = run("keys", "create", "--tenant", "default", "--set", setting)
        assert (ran.code, words in ran.err) == (2, True), ran.err
    assert json.loads(run("keys", "list", "--json").out)["data"] == []


def test_what_a_key_was_already_is_said(run):
    """A second revocation says since when; so do the others that would change nothing."""
    key = _made(run)
    assert "was not suspended; nothing was changed" in run("keys", "resume", key).out
    assert run("keys", "suspend", key).out.startswith("Suspended")
    assert "was suspended already, at 20" in run("keys", "suspend", key).out
    assert run("keys", "revoke", key).out.startswith("Revoked")
    again = run("keys", "revoke", key)
    assert (again.code, "was revoked already, at 20" in again.out) == (0, True)


def _made(run) -> str:
    return json.loads(run("keys", "create", "--tenant", "default", "--json").out)["data"]["record"]["key_id"]
