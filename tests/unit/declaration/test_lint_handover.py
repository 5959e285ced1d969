"""Prefill and decode pools in a declaration: halves without their other half, folders, and settings without effect."""

import pytest

from headrace.declaration.problem import Problem


def pool(name: str, role: str | None, *, engine: str = "vllm", more: str = "") -> str:
    part = f", disaggregation: {{role: {role}}}" if role else ""
    return f"  {name}: {{model: m, engine: {engine}, endpoints: ['http://127.0.0.1:9']{part}{more}}}\n"


def told(problems, *pools: str, top: str = "") -> list[tuple[str, str]]:
    found: tuple[Problem, ...] = problems(f"version: 1\n{top}models: {{m: {{}}}}\npools:\n" + "".join(pools))
    return [(one.severity.value, one.key) for one in found]


def test_a_pair_of_pools_is_fine(problems) -> None:
    """Prefill and decode of one model have nothing said against them; nor has one that does both."""
    assert told(problems, pool("p", "prefill"), pool("d", "decode")) == []
    assert told(problems, pool("p", "prefill"), pool("d", "both")) == []
    assert told(problems, pool("b", "both")) == []


@pytest.mark.parametrize("role", ["prefill", "decode"])
@pytest.mark.parametrize(("engine", "severity"), [("vllm", "warning"), ("sglang", "error")])
def test_a_half_without_its_other_half_is_told(problems, role: str, engine: str, severity: str) -> None:
    """Nothing would be handed over; SGLang's halves would not answer at all."""
    assert told(problems, pool("p", role, engine=engine)) == [(severity, "pools.p.disaggregation.role")]


def test_settings_of_a_handover_need_a_role(problems) -> None:
    """They would have no effect."""
    found = told(problems, pool("p", None, more=", handover: {min_tokens: 5}"))
    assert found == [("warning", "pools.p.handover")]


def test_llamacpp_elsewhere_needs_the_shared_folder(problems) -> None:
    """The gateway removes the files of slots, and must find them."""
    pair = [pool(name, role, engine="llamacpp") for name, role in (("p", "prefill"), ("d", "decode"))]
    assert told(problems, *pair) == [("error", "pools.p.handover.folder"), ("error", "pools.d.handover.folder")]
    named = [part.replace("}}\n", "}, handover: {folder: /slots}}\n") for part in pair]
    assert told(problems, *named) == []


def test_each_worker_needs_a_slot(problems) -> None:
    """Workers share the slots of an engine out among themselves."""
    more = ", handover: {folder: /slots, slots: 2}"
    pair = [pool(name, role, engine="llamacpp", more=more) for name, role in (("p", "prefill"), ("d", "decode"))]
    assert told(problems, *pair, top="gateway: {workers: 2}\n") == []
    found = told(problems, *pair, top="gateway: {workers: 3}\n")
    assert found == [("warning", "pools.p.handover.slots"), ("warning", "pools.d.handover.slots")]
