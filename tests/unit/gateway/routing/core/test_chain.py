"""Prompts as chains of keyed block hashes."""

from time import process_time

import pytest

from headrace.gateway.routing.core.chain import EDGES, chain_of, seed_of

SECRET = b"s" * 32
SEED = seed_of(SECRET, ("model",))


def shared(first: list[bytes], second: list[bytes]) -> int:
    """How many leading names two prompts have in common."""
    ours, theirs = chain_of(first, SEED).names, chain_of(second, SEED).names
    count = 0
    for one, other in zip(ours, theirs, strict=False):
        if one != other:
            break
        count += 1
    return count


def test_prompts_share_the_blocks_before_they_part() -> None:
    """The names of two prompts are equal up to the block in which they differ, and never after it."""
    text = bytes(range(256)) * 40
    other = text[:5000] + b"?" + text[5001:]
    expected = sum(1 for edge in EDGES if edge <= 5000)
    assert expected == shared([text], [other]) > 5
    assert not set(chain_of([text], SEED).names[expected:]) & set(chain_of([other], SEED).names)


@pytest.mark.parametrize("length", [0, 1, 255, 256, 257, 1024, 1025, 40_000])
def test_only_whole_blocks_have_names(length: int) -> None:
    """The last, partial block of a prompt has no name: its next turn would continue it."""
    chain = chain_of([b"x" * length], SEED)
    assert len(chain.names) == sum(1 for edge in EDGES if edge <= length)
    assert chain.length == length


def test_a_longer_conversation_begins_with_the_names_of_the_shorter() -> None:
    """What was sent for one turn is found again in the next."""
    turn = b'[{"role":"user","content":"' + b"a" * 3000 + b'"}'
    names, longer = (
        chain_of([turn + b"]"], SEED).names,
        chain_of([turn + b',{"role":"user"}]' + b" " * 999], SEED).names,
    )
    assert list(longer[: len(names)]) == list(names)


def test_parts_end_where_they_end() -> None:
    """A whole system prompt is shared though the tools after it differ, and is not confused with a longer one."""
    system, tools, more = b"s" * 300, b"t" * 400, b"u" * 400
    assert shared([system, tools, b"m" * 600], [system, more, b"m" * 600]) == 2  # 256 bytes, and the 44 left
    assert shared([system, tools, b"m" * 600], [system + b"s", tools, b"m" * 600]) == 1
    ends = chain_of([system, tools, b"m" * 600], SEED).ends
    assert list(ends)[:2] == [256, 300]
    assert list(ends)[-1] == 300 + 400 + 512


def test_another_secret_model_or_tenant_shares_nothing() -> None:
    """Names tell nothing to whoever has not the secret, and isolated tenants never share one."""
    prompt = [b"the same prompt " * 100]
    seeds = [SEED, seed_of(b"other", ("model",)), seed_of(SECRET, ("model2",)), seed_of(SECRET, ("model", "tenant"))]
    names = [set(chain_of(prompt, seed).names) for seed in seeds]
    assert all(not one & other for place, one in enumerate(names) for other in names[:place])


def test_a_prompt_of_100000_tokens_holds_nobody_up() -> None:
    """400 kB are named in far less than a millisecond of CPU (measured: 0.02; the bound leaves room for slow ones)."""
    prompt = [b"x" * 400_000]
    chain_of(prompt, SEED)
    started_s = process_time()
    for _ in range(20):
        chain_of(prompt, SEED)
    assert (process_time() - started_s) / 20 < 0.001
    assert len(chain_of(prompt, SEED).names) < 200


def test_bytes_beyond_any_context_are_not_looked_at() -> None:
    """A body of many megabytes costs no more than the longest context."""
    assert len(chain_of([b"x" * 16_000_000], SEED).names) == len(EDGES)
