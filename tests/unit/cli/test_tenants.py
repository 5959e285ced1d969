"""`headrace tenants`: who is declared, with which limits and how many keys."""

DECLARATION = """
version: 1
models: {small: {}}
pools:
  p: {model: small, engine: vllm, endpoints: ["http://127.0.0.1:1"]}
tenants:
  team-a: {}
  team-b: {models: [small], limits: {requests_per_min: 0, concurrent_requests: 3}}
"""
