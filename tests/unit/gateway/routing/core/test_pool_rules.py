"""Which pools take a request."""

from headrace.declaration.routing_plan import AcceptsPlan
from headrace.gateway.routing.core.pool_rules import PoolRules, make_rules


def accepts(**more: object) -> AcceptsPlan:
    values: dict[str, object] = {
        "tenants": frozenset(), "classes": frozenset(), "min_input_tokens": None, "max_input_tokens": None,
        "overflow": True,
    }  # fmt: skip
    return AcceptsPlan(**{**values, **more})  # pyright: ignore[reportArgumentType]


def test_nothing_declared_is_no_rule() -> None:
    """Models whose pools take everything are not asked about."""
    assert make_rules({"a": None, "b": None}, {}) is None


def test_tenants_are_a_border_and_lengths_a_preference() -> None:
    """A foreign tenant never gets in; a prompt of the wrong length does, in need, unless the pool says never."""
    rules = PoolRules(
        accepts={
            "own": accepts(tenants=frozenset({"t"})),
            "long": accepts(min_input_tokens=100),
            "short": accepts(max_input_tokens=99, overflow=False),
            "batch": accepts(classes=frozenset({"offline"})),
        },
        split={},
    )
    pools = ["own", "long", "short", "batch", "any"]
    assert rules.sort(pools, "t", "standard", 99) == (["own", "short", "any"], ["long", "batch"])
    assert rules.sort(pools, "x", "offline", 100) == (["long", "batch", "any"], [])


def test_shares_are_kept_request_by_request() -> None:
    """Weights 3 and 1 give every fourth request to the second pool; a pool without weight gets none."""
    rules = PoolRules(accepts={}, split={"a": 3, "b": 1})
    picked = [rules.pick_split(["a", "b", "c"], None) for _ in range(8)]
    assert (picked.count("a"), picked.count("b"), picked.count("c")) == (6, 2, 0)
    assert rules.pick_split(["c"], None) is None


def test_a_conversation_stays_and_all_conversations_are_shared_out() -> None:
    """The same name leads to the same pool; over many names the shares are those declared."""
    rules = PoolRules(accepts={}, split={"a": 3, "b": 1})
    found = [rules.pick_split(["a", "b"], number * 0x9E3779B1) for number in range(4000)]
    assert found == [rules.pick_split(["a", "b"], number * 0x9E3779B1) for number in range(4000)]
    assert 0.22 < found.count("b") / len(found) < 0.28


def test_a_look_takes_nobodys_turn() -> None:
    """What is given back goes to the next request."""
    rules = make_rules({}, {"stable": 3.0, "canary": 1.0})
    assert rules is not None
    pools = ("stable", "canary")
    meant = [rules.pick_split(pools, None) for _ in range(4)]
    for pool in meant:
        looked = rules.pick_split(pools, None)
        assert looked == pool
        rules.give_back(looked)
        assert rules.pick_split(pools, None) == pool


def test_a_full_pool_spills_only_into_those_that_say_so() -> None:
    """Pools that overflow only when others are down are left alone, and so are those of other tenants."""
    night = {"tenants": frozenset(), "classes": frozenset({"offline"}), "min_input_tokens": None}
    rules = make_rules(
        {
            "full": AcceptsPlan(**night, max_input_tokens=None, overflow=True, overflows_full=True),
            "down": AcceptsPlan(**night, max_input_tokens=None, overflow=True),
            "theirs": AcceptsPlan(
                **{**night, "tenants": frozenset({"other"})}, max_input_tokens=None, overflow=True, overflows_full=True
            ),
        },
        {},
    )
    assert rules is not None
    assert rules.spill(("full", "down", "theirs", "chat"), "t", "standard", 10) == ["full"]
    assert rules.spill(("full", "down"), "t", "offline", 10) == []
