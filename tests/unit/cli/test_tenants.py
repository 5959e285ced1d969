"""`headrace tenants`: who is declared, with which limits and how many keys."""

import json
from pathlib import Path

DECLARATION = """
version: 1
models: {small: {}}
pools:
  p: {model: small, engine: vllm, endpoints: ["http://127.0.0.1:1"]}
tenants:
  team-a: {}
  team-b: {models: [small], limits: {requests_per_min: 0, concurrent_requests: 3}}
"""


def test_tenants_show_limits_and_keys(run):
    """A limit of 0 is a limit; none is "no limit"."""
    Path("headrace.yaml").write_text(DECLARATION)
    run("keys", "create", "--tenant", "team-b")
    ran = run("tenants")
    rows = [line.split() for line in ran.out.splitlines()]
    assert ["team-a", "all", "no", "limit", "no", "limit", "0"] in rows
    assert ["team-b", "small", "0", "3", "1"] in rows


def test_keys_of_a_removed_tenant_are_pointed_out(run):
    """A tenant taken out of the file may have left keys behind."""
    Path("headrace.yaml").write_text(DECLARATION)
    run("keys", "create", "--tenant", "team-b")
    Path("headrace.yaml").write_text(DECLARATION.replace("team-b", "team-c"))
    tenants = {row["tenant"]: row for row in json.loads(run("tenants", "--json").out)["data"]}
    assert tenants["team-b"]["is_declared"] is False
    assert (tenants["team-b"]["active_keys"], tenants["team-c"]["is_declared"]) == (1, True)
