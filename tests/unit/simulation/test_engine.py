"""The engine model: what a real scheduler does, request by request and step by step."""

import pytest
from tests.unit.simulation.runs import Run, request, run_all, run_until_idle, small_model

from headrace.simulation.engine import SimulatedEngine
from headrace.simulation.model import AdmissionOrder, CacheKind, HostTier, Speculation
from headrace.simulation.outcome import FinishReason, Refusal, RefusalReason

KINDS = [
    pytest.param({"kind": CacheKind.BLOCK_HASH, "block_tokens": 4}, id="block-hash"),
    pytest.param({"kind": CacheKind.RADIX, "block_tokens": 1, "blocks": 256}, id="radix"),
    pytest.param({"kind": CacheKind.SLOTS, "block_tokens": 1, "blocks": 256}, id="slots"),
]


def test_a_request_gets_its_tokens_and_ends() -> None:
    """Prompt in one step, one token with it, one more with each step after."""
    _engine, run = run_all(small_model(), request("a", prompt=8, output=4))

    assert run.tokens == {"a": 4}
    assert run.finish == {"a": FinishReason.STOP}
    assert [step.prefill_tokens for step in run.steps] == [8, 0, 0, 0]
    assert run.first_at_s["a"] == pytest.approx(1.08)
    assert run.end_at_s["a"] == pytest.approx(1.08 + 3 * 1.1)


@pytest.mark.parametrize(
    ("limit", "tokens", "reason"),
    [(3, 3, FinishReason.LENGTH), (4, 4, FinishReason.STOP), (5, 4, FinishReason.STOP), (None, 4, FinishReason.STOP)],
)
def test_the_callers_limit_bounds_the_output(limit, tokens: int, reason: FinishReason) -> None:
    """Below, at and above what the model would say."""
    _engine, run = run_all(small_model(), request("a", output=4, max_output_tokens=limit))

    assert run.tokens["a"] == tokens
    assert run.finish["a"] is reason


def test_the_context_bounds_the_output() -> None:
    """Without a limit of the caller, generation ends where the context does."""
    _engine, run = run_all(small_model(context_tokens=20), request("a", prompt=15, output=50))

    assert run.tokens["a"] == 5
    assert run.finish["a"] is FinishReason.LENGTH


@pytest.mark.parametrize(("prompt", "limit", "is_refused"), [(99, 1, False), (100, 1, True), (90, 11, True)])
def test_too_long_is_refused_with_both_numbers(prompt: int, limit: int, is_refused: bool) -> None:
    """The refusal says what was asked for and what there is."""
    refusal = SimulatedEngine(small_model()).submit(request("a", prompt=prompt, max_output_tokens=limit), 0.0)

    if is_refused:
        assert refusal == Refusal(reason=RefusalReason.CONTEXT_TOO_LONG, requested=prompt + limit, limit=100)
    else:
        assert refusal is None


def test_a_queue_bound_refuses_what_does_not_fit() -> None:
    """With one place in the queue, the second of two that arrive together is refused; later there is room again."""
    engine = SimulatedEngine(small_model(max_queued_requests=1))

    assert engine.submit(request("a"), 0.0) is None
    assert engine.submit(request("b"), 0.0) == Refusal(reason=RefusalReason.QUEUE_FULL, requested=2, limit=1)
    engine.step(0.0)
    assert engine.submit(request("b"), 1.0) is None


def test_a_bound_on_queued_tokens() -> None:
    """The backlog of prompt tokens is bounded to the token."""
    engine = SimulatedEngine(small_model(max_queued_tokens=20))

    assert engine.submit(request("a", prompt=12), 0.0) is None
    assert engine.submit(request("b", prompt=8), 0.0) is None
    assert engine.submit(request("c", prompt=1), 0.0) == Refusal(
        reason=RefusalReason.QUEUE_FULL, requested=21, limit=20
    )


def test_what_would_not_fit_an_empty_engine_is_refused() -> None:
    """Waiting would not help a request that needs more KV than there is."""
    refusal = SimulatedEngine(small_model(blocks=5)).submit(request("a", prompt=18, output=10), 0.0)

    assert refusal == Refusal(reason=RefusalReason.KV_TOO_SMALL, requested=27, limit=20)


def test_a_long_prompt_is_computed_in_chunks_while_others_generate() -> None:
    """Generating sequences come first in the budget; the prompt takes what is left."""
    engine = SimulatedEngine(small_model())
    engine.submit(request("short", prompt=4, output=10), 0.0)
    run = Run()
    run.take(engine.step(0.0))
    engine.submit(request("long", prompt=40), run.now_s)
    run_until_idle(engine, run)

    assert [step.prefill_tokens for step in run.steps[:5]] == [4, 15, 15, 10, 0]
    assert [step.decode_sequences for step in run.steps[:5]] == [0, 1, 1, 1, 2]


def test_without_chunks_a_prompt_waits_for_a_budget_that_holds_it() -> None:
    """Two prompts of 60 do not share a step of 100 tokens."""
    model = small_model(is_prefill_chunked=False, max_batched_tokens=100)
    _engine, run = run_all(model, request("a", prompt=60), request("b", prompt=60))

    assert [step.prefill_tokens for step in run.steps[:2]] == [60, 60]


def test_an_engine_that_does_not_mix_computes_prompts_first() -> None:
    """While a prompt is computed, those that generate wait."""
    engine = SimulatedEngine(small_model(is_prefill_mixed=False))
    engine.submit(request("a", prompt=4, output=10), 0.0)
    run = Run()
    run.take(engine.step(0.0))
    engine.submit(request("b", prompt=20), run.now_s)
    run_until_idle(engine, run)

    assert [(step.prefill_tokens, step.decode_sequences) for step in run.steps[:4]] == [(4, 0), (16, 0), (4, 0), (0, 2)]


def test_first_come_first_served() -> None:
    """Nobody overtakes, not even a short one that would fit beside a long one that waits for room."""
    model = small_model(blocks=20, is_prefix_cached=False)
    _engine, run = run_all(
        model, request("big", prompt=60, output=16), request("wide", prompt=60, output=2), request("tiny", prompt=2)
    )

    assert run.first_at_s["big"] < run.first_at_s["wide"]
    assert run.firsts["wide"].admitted_at_s <= run.firsts["tiny"].admitted_at_s


def test_slots_are_gone_through_in_their_order() -> None:
    """llama.cpp computes prompts by slot: who got the lower slot goes on first, even if it came later."""
    engine = SimulatedEngine(small_model(kind=CacheKind.SLOTS, block_tokens=1, blocks=256, max_sequences=2))
    run = Run()
    engine.submit(request("slot 0", prompt=4, output=4), 0.0)
    engine.submit(request("slot 1", prompt=4, output=1), 0.0)
    run.take(engine.step(run.now_s))
    engine.submit(request("came first", prompt=60, output=1), run.now_s)
    while "slot 0" not in run.finish:
        run.take(engine.step(run.now_s))
    engine.submit(request("came second", prompt=8, output=1), run.now_s)
    run_until_idle(engine, run)

    assert run.first_at_s["came second"] < run.first_at_s["came first"]


def test_priority_overtakes_where_it_is_the_order() -> None:
    """The lowest number starts first; equal ones in the order of arrival."""
    model = small_model(max_sequences=1, order=AdmissionOrder.PRIORITY)
    _engine, run = run_all(
        model, request("later", priority=5), request("urgent", priority=-1), request("normal", priority=0)
    )

    assert sorted(run.end_at_s, key=run.end_at_s.__getitem__) == ["urgent", "normal", "later"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_prompt_seen_before_is_not_computed_again(kind) -> None:
    """The same prompt a second time computes only what cannot be reused: at least its last token."""
    engine, run = run_all(small_model(**kind), request("a", prompt=range(32), output=2))
    engine.submit(request("b", prompt=range(32), output=2), run.now_s)
    run_until_idle(engine, run)

    cached = run.firsts["b"].cached_tokens
    assert cached == (28 if kind["block_tokens"] == 4 else 31)
    assert run.steps[-2].prefill_tokens == 32 - cached
    assert engine.load().prefix_query_tokens == 64
    assert engine.load().prefix_hit_tokens == cached


@pytest.mark.parametrize("kind", KINDS)
def test_the_reply_is_found_in_the_next_turn(kind) -> None:
    """A conversation's next prompt begins with the last prompt and its reply."""
    engine, run = run_all(small_model(**kind), request("a", prompt=range(8), output=8, reply_tokens=range(100, 108)))
    engine.submit(request("b", prompt=(*range(8), *range(100, 108), 7, 7), output=2), run.now_s)
    run_until_idle(engine, run)

    assert run.firsts["b"].cached_tokens == (12 if kind["block_tokens"] == 4 else 15)


@pytest.mark.parametrize("kind", KINDS[:2])
def test_salts_do_not_share(kind) -> None:
    """What one tenant computed is not found by another."""
    engine, run = run_all(small_model(**kind), request("a", prompt=range(32), salt="red"))
    engine.submit(request("b", prompt=range(32), salt="blue"), run.now_s)
    engine.submit(request("c", prompt=range(32), salt="red"), run.now_s)
    run_until_idle(engine, run)

    assert run.firsts["b"].cached_tokens == 0
    assert run.firsts["c"].cached_tokens > 0


def test_traces_name_their_blocks() -> None:
    """A trace without text says which blocks are equal; prefixes are found by these names."""
    engine, run = run_all(small_model(), request("a", prompt=range(12), prompt_blocks=(1, 2, 3)))
    engine.submit(request("b", prompt=range(500, 514), prompt_blocks=(1, 2, 9)), run.now_s)
    run_until_idle(engine, run)

    assert run.firsts["b"].cached_tokens == 8


def test_requests_at_the_same_time_share_a_prefix() -> None:
    """The second of two equal prompts in one step finds the blocks that the first has just been given."""
    engine, run = run_all(
        small_model(max_batched_tokens=64), request("a", prompt=range(32)), request("b", prompt=range(32))
    )

    assert run.firsts["b"].cached_tokens == 28
    assert run.steps[0].prefill_tokens == 32 + 4
    assert engine.load().kv_blocks_used == 0


def test_without_a_prefix_cache_everything_is_computed() -> None:
    """Switched off, nothing is found."""
    engine, run = run_all(small_model(is_prefix_cached=False), request("a", prompt=range(32)))
    engine.submit(request("b", prompt=range(32)), run.now_s)
    run_until_idle(engine, run)

    assert run.firsts["b"].cached_tokens == 0
    assert engine.load().kv_blocks_cached == 0


def test_least_recently_used_blocks_go_first() -> None:
    """With room for two prompts, the one not used for longest is forgotten, its end before its beginning."""
    engine, run = run_all(small_model(blocks=16), request("old", prompt=range(28)))
    engine.submit(request("young", prompt=range(100, 128)), run.now_s)
    run_until_idle(engine, run)
    engine.submit(request("third", prompt=range(200, 216)), run.now_s)
    run_until_idle(engine, run)
    for name, start in (("young again", 100), ("old again", 0)):
        engine.submit(request(name, prompt=range(start, start + 28)), run.now_s)
        run_until_idle(engine, run)

    assert run.firsts["young again"].cached_tokens == 24
    assert run.firsts["old again"].cached_tokens < 24
    assert engine.load().evicted_blocks > 0


def test_clearing_forgets_what_nobody_uses() -> None:
    """After clearing, a known prompt is computed anew."""
    engine, run = run_all(small_model(), request("a", prompt=range(32)))
    engine.clear_prefix_cache()
    engine.submit(request("b", prompt=range(32)), run.now_s)
    run_until_idle(engine, run)

    assert run.firsts["b"].cached_tokens == 0


def test_the_newest_gives_way_when_blocks_run_out() -> None:
    """Two that grow past memory: the second is preempted, computed again and ends with all its tokens."""
    model = small_model(blocks=10, is_prefix_cached=False)
    engine, run = run_all(model, request("a", prompt=15, output=18), request("b", prompt=15, output=18))

    assert engine.load().preemptions >= 1
    assert {name for step in run.steps for name in step.preempted} == {"b"}
    assert run.tokens == {"a": 18, "b": 18}
    assert run.end_at_s["a"] < run.end_at_s["b"]


def test_what_was_computed_before_a_preemption_is_found_again() -> None:
    """With a prefix cache, a preempted request computes again only what was evicted meanwhile."""
    cached, plain = (
        run_all(
            small_model(blocks=10, is_prefix_cached=is_cached),
            request("a", prompt=15, output=14),
            request("b", prompt=15, output=14),
        )[1]
        for is_cached in (True, False)
    )

    assert sum(step.prefill_tokens for step in cached.steps) < sum(step.prefill_tokens for step in plain.steps)


def test_reserving_the_whole_output_never_preempts() -> None:
    """TensorRT-LLM's default starts a request only when it can be finished."""
    model = small_model(blocks=10, is_prefix_cached=False, reserved_output_ratio=1.0)
    engine, run = run_all(
        model,
        request("a", prompt=15, output=18, max_output_tokens=18),
        request("b", prompt=15, output=18, max_output_tokens=18),
    )

    assert engine.load().preemptions == 0
    assert run.firsts["b"].admitted_at_s >= run.end_at_s["a"] - 1.2


def test_accepted_drafts_make_several_tokens_a_step() -> None:
    """Three drafts, all accepted: four tokens a step. None accepted: one."""
    for ratio, steps in ((1.0, 1 + 4), (0.0, 1 + 16)):
        model = small_model(speculation=Speculation(draft_tokens=3, acceptance_ratio=ratio))
        engine, run = run_all(model, request("a", output=17))
        assert len(run.steps) == steps
        assert engine.load().draft_tokens == 3 * (steps - 1)


def test_acceptance_is_what_was_declared() -> None:
    """Over many steps the share of accepted drafts is that of a chain of independent matches, and repeatable."""
    model = small_model(
        context_tokens=20_000, blocks=6000, speculation=Speculation(draft_tokens=2, acceptance_ratio=0.6, seed=3)
    )
    first, again = (run_all(model, request("a", output=10_000)) for _ in range(2))
    load = first[0].load()

    assert load.accepted_tokens / load.draft_tokens == pytest.approx((0.6 + 0.36) / 2, rel=0.03)
    assert [step.emissions for step in first[1].steps] == [step.emissions for step in again[1].steps]


@pytest.mark.parametrize("steps", [0, 1, 3], ids=["waiting", "in its prompt", "generating"])
def test_a_cancelled_request_leaves_nothing_behind(steps: int) -> None:
    """In every phase: no more tokens, no blocks, and the others go on."""
    engine, run = SimulatedEngine(small_model()), Run()
    engine.submit(request("stays", prompt=4), 0.0)
    engine.submit(request("goes", prompt=20, output=20), 0.0)
    for _ in range(steps):
        run.take(engine.step(run.now_s))

    assert engine.cancel("goes")
    assert not engine.cancel("goes")
    run_until_idle(engine, run)

    assert run.finish == {"stays": FinishReason.STOP}
    assert engine.load().kv_blocks_used == 0
    assert engine.load().cancelled == 1


def test_the_prefill_leg_ends_with_one_token_and_holds_its_kv() -> None:
    """KV waits for the decode engine, and is gone once fetched or after its time."""
    for leave in ("fetched", "expired"):
        engine, run = run_all(small_model(), request("a", prompt=10, output=50, is_prefill_only=True))
        assert run.tokens == {"a": 1}
        assert run.finish == {"a": FinishReason.LENGTH}
        assert engine.held_bytes("a") == 1000
        assert engine.load().kv_blocks_held == engine.load().kv_blocks_used == 3
        if leave == "fetched":
            assert engine.release_held("a")
            assert not engine.release_held("a")
        else:
            engine.step(run.now_s + 30.0)
        assert engine.held_bytes("a") is None
        assert engine.load().kv_blocks_used == 0


def test_the_decode_leg_waits_for_its_kv_and_computes_one_token() -> None:
    """What comes from the prefill engine is not computed: bytes over the link, then the last prompt token."""
    engine, run = run_all(small_model(), request("a", prompt=10, output=3, transferred_tokens=10))

    assert run.steps[0].is_wait
    assert run.steps[0].duration_s == pytest.approx(900 / 25e9)
    assert run.steps[1].prefill_tokens == 1
    assert run.firsts["a"].transferred_tokens == 9
    assert run.tokens == {"a": 3}
    assert engine.load().kv_blocks_used == 0


@pytest.mark.parametrize("is_recomputed", [True, False])
def test_a_lost_transfer_is_recomputed_or_an_error(is_recomputed: bool) -> None:
    """As vLLM's kv_load_failure_policy: fail, or compute the prompt here."""
    engine = SimulatedEngine(small_model())
    engine.submit(
        request("a", prompt=10, output=3, transferred_tokens=10, is_recomputed_on_transfer_loss=is_recomputed), 0.0
    )
    run = Run()
    run.take(engine.step(0.0))
    assert engine.lose_transfer("a")
    assert not engine.lose_transfer("nobody")
    run_until_idle(engine, run)

    if is_recomputed:
        assert run.tokens == {"a": 3}
        assert run.firsts["a"].cached_tokens == 0
    else:
        assert run.finish == {"a": FinishReason.ERROR}
    assert engine.load().kv_blocks_used == 0


@pytest.mark.parametrize("kind", KINDS[:2])
def test_evicted_blocks_come_back_from_the_host(kind) -> None:
    """KV that was spilled is read back instead of computed: a wait by its size, then the rest of the prompt."""
    size = kind["block_tokens"]
    host = HostTier(total_blocks=200 // size, return_bytes_per_s=1000.0)
    model = small_model(**{**kind, "blocks": 48 // size}, host=host)
    engine, run = run_all(model, request("a", prompt=range(32)))
    engine.submit(request("b", prompt=range(100, 140)), run.now_s)
    run_until_idle(engine, run)
    assert engine.load().host_blocks_used > 0
    engine.submit(request("c", prompt=range(32)), run.now_s)
    before = len(run.steps)
    run_until_idle(engine, run)

    first = run.firsts["c"]
    assert first.host_tokens > 0
    assert first.cached_tokens == (28 if size == 4 else 31)
    assert run.steps[before].is_wait
    assert run.steps[before].duration_s == pytest.approx(first.host_tokens * 100 / 1000.0)
    assert engine.load().host_hit_tokens == first.host_tokens


def test_load_counts_what_runs_and_what_waits() -> None:
    """The numbers that an engine's metrics show."""
    engine = SimulatedEngine(small_model(max_sequences=1))
    for name in "abc":
        engine.submit(request(name, prompt=8, output=4), 0.0)
    engine.step(0.0)
    load = engine.load()

    assert (load.running, load.waiting, load.waiting_tokens) == (1, 2, 16)
    assert (load.kv_blocks_used, load.kv_blocks_total) == (2, 64)
    assert load.kv_utilization_ratio == pytest.approx(2 / 64)
    assert (load.prompt_tokens, load.generation_tokens) == (8, 1)


def test_a_request_cannot_be_there_twice() -> None:
    """Ids are the caller's promise; a second one is a mistake that would mix two answers."""
    engine = SimulatedEngine(small_model())
    engine.submit(request("a"), 0.0)

    with pytest.raises(ValueError, match="request a is here already"):
        engine.submit(request("a"), 0.0)
