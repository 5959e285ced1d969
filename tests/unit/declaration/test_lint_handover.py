"""Prefill and decode pools in a declaration: halves without their other half, folders, and settings without effect."""

import pytest

from headrace.declaration.problem import Problem


def pool(name: str, role: str | None, *, engine: str = "vllm", more: str = "", host: str = "") -> str:
    part = f", disaggregation: {{role: {role}}}" if role else ""
    return f"  {name}: {{model: m, engine: {engine}, endpoints: ['http://{host or name}:9']{part}{more}}}\n"


def told(problems, *pools: str, top: str = "") -> list[tuple[str, str]]:
    found: tuple[Problem, ...] = problems(f"version: 1\n{top}models: {{m: {{}}}}\npools:\n" + "".join(pools))
    return [(one.severity.value, one.key) for one in found]


def test_a_pair_of_pools_is_fine(problems) -> None:
    """Prefill and decode of one model have nothing said against them; nor has one that does both."""
    assert told(problems, pool("p", "prefill"), pool("d", "decode")) == []
    assert told(problems, pool("p", "prefill"), pool("d", "both")) == []
    assert told(problems, pool("b", "both").replace("['http://b:9']", "['http://b:9', 'http://c:9']")) == []
    assert told(problems, pool("b", "both"), pool("c", "both")) == []


def test_one_engine_of_both_roles_has_nobody_to_hand_to(problems) -> None:
    """Also where it is declared as two halves: an engine hands nothing over to itself."""
    assert told(problems, pool("b", "both")) == [("warning", "pools.b.disaggregation.role")]
    found = told(problems, pool("p", "prefill", host="one"), pool("d", "decode", host="one"))
    assert found == [("error", "pools.d.endpoints[0]")]


def test_an_engine_without_words_for_a_handover_is_told(problems) -> None:
    """Nothing says how an unknown engine hands over."""
    found = told(problems, pool("p", "prefill", engine="openai"), pool("d", "decode", engine="openai"))
    assert found == [("error", "pools.p.disaggregation.role"), ("error", "pools.d.disaggregation.role")]


@pytest.mark.parametrize(
    ("one", "other", "engine", "found"),
    [
        ("accepts: {tenants: [a]}", "accepts: {tenants: [b]}", "vllm", [("warning", "pools.p.disaggregation.role")]),
        ("accepts: {tenants: [a]}", "accepts: {tenants: [b]}", "sglang", [("error", "pools.p.disaggregation.role")]),
        ("accepts: {classes: [offline]}", "accepts: {classes: [interactive]}", "vllm",
         [("warning", "pools.p.disaggregation.role")]),
        ("accepts: {min_input_tokens: 900}", "accepts: {max_input_tokens: 800}", "vllm",
         [("warning", "pools.p.disaggregation.role")]),
        ("region: east", "region: west", "vllm", [("warning", "pools.p.region")]),
        ("accepts: {tenants: [a, b]}", "accepts: {tenants: [b]}", "vllm", []),
        ("region: east", "region: east", "sglang", []),
    ],
)  # fmt: skip
def test_halves_that_can_never_pair_are_told(
    problems, one: str, other: str, engine: str, found: list[tuple[str, str]]
) -> None:
    """No request may use both pools, or only those of keys that no region binds."""
    pair = (pool("p", "prefill", engine=engine, more=f", {one}"), pool("d", "decode", engine=engine, more=f", {other}"))
    assert told(problems, *pair, top="tenants: {a: {}, b: {}}\n") == found


def test_slots_and_folders_of_llamacpp_that_differ_are_told(problems) -> None:
    """A file that one engine saves in a folder of its own is never found by the other."""

    def pair(one: str, other: str) -> list[str]:
        return [
            pool(name, role, engine="llamacpp", more=f", handover: {{{more}}}")
            for name, role, more in (("p", "prefill", one), ("d", "decode", other))
        ]

    folders = pair("folder: /one, slots: 2", "folder: /other, slots: 2")
    assert told(problems, *folders) == [("error", "pools.p.handover.folder")]
    slots = pair("folder: /one, slots: 4", "folder: /one, slots: 2")
    assert told(problems, *slots) == [("warning", "pools.p.handover.slots")]


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
