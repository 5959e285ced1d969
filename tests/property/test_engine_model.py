"""What always holds in the engine model, whatever is asked of it and in whatever order."""

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.simulation.runs import Run

from headrace.simulation.engine import SimulatedEngine
from headrace.simulation.linear_clock import LinearClock
from headrace.simulation.model import (
    AdmissionOrder,
    CacheKind,
    EngineModel,
    HostTier,
    KvModel,
    SchedulingBounds,
    Speculation,
)
from headrace.simulation.outcome import FinishReason
from headrace.simulation.request import SimulatedRequest

CONTEXT_TOKENS = 64


@st.composite
def models(draw) -> EngineModel:
    kind = draw(st.sampled_from(list(CacheKind)))
    block_tokens = 1 if kind is CacheKind.SLOTS else draw(st.sampled_from((1, 3, 4)))
    drafts = draw(st.sampled_from((0, 0, 2)))
    max_sequences = draw(st.integers(1, 5))
    is_chunked = draw(st.booleans())
    least_tokens = max_sequences * (1 + drafts) if is_chunked else max(CONTEXT_TOKENS, max_sequences * (1 + drafts))
    host = HostTier(total_blocks=8, return_bytes_per_s=100.0) if kind is not CacheKind.SLOTS else None
    return EngineModel(
        clock=LinearClock(
            fixed_s=1.0, prefill_token_s=0.01, prefill_pair_s=0.001, decode_token_s=0.1, kv_token_s=0.001
        ),
        bounds=SchedulingBounds(
            max_sequences=max_sequences,
            max_batched_tokens=least_tokens + draw(st.integers(0, 20)),
            context_tokens=CONTEXT_TOKENS,
            is_prefill_chunked=is_chunked,
            is_prefill_mixed=draw(st.booleans()),
            order=draw(st.sampled_from(list(AdmissionOrder))),
            reserved_output_ratio=draw(st.sampled_from((0.0, 0.5, 1.0))),
        ),
        kv=KvModel(
            total_blocks=draw(st.integers(CONTEXT_TOKENS // block_tokens + 1, 3 * CONTEXT_TOKENS // block_tokens)),
            block_tokens=block_tokens,
            kind=kind,
            is_prefix_cached=draw(st.booleans()),
            bytes_per_token=10,
        ),
        host=host if draw(st.booleans()) else None,
        speculation=Speculation(draft_tokens=drafts, acceptance_ratio=0.6) if drafts else None,
        hold_s=20.0,
    )


@st.composite
def requests(draw, name: str) -> SimulatedRequest:
    """Prompts from a small alphabet with long runs, so that many share prefixes."""
    stem = draw(st.integers(0, 2))
    shared = draw(st.integers(0, 20))
    own = draw(st.integers(1, 15))
    prompt = (stem,) * shared + tuple(draw(st.integers(0, 1)) for _ in range(own))
    output = draw(st.integers(1, 20))
    return SimulatedRequest(
        request_id=name,
        prompt_tokens=prompt,
        output_tokens=output,
        max_output_tokens=draw(st.none() | st.integers(1, 20)),
        salt=draw(st.sampled_from(("", "", "tenant"))),
        priority=draw(st.integers(0, 2)),
        reply_tokens=draw(st.none() | st.just(tuple(i % 2 for i in range(output)))),
        is_prefill_only=draw(st.integers(0, 9)) == 0,
        transferred_tokens=draw(st.sampled_from((0, 0, 0, len(prompt)))),
        is_recomputed_on_transfer_loss=draw(st.booleans()),
    )


@st.composite
def scripts(draw):
    """What happens between steps: arrivals, departures, lost transfers, fetched KV."""
    count = draw(st.integers(1, 12))
    names = [f"r{index}" for index in range(count)]
    script = [("submit", draw(requests(name)), draw(st.integers(0, 3))) for name in names]
    for verb in ("cancel", "lose", "fetch"):
        for name in draw(st.lists(st.sampled_from(names), max_size=2)):
            script.insert(draw(st.integers(0, len(script))), (verb, name, draw(st.integers(0, 3))))
    return script


def check_books(engine: SimulatedEngine) -> None:
    """Blocks add up, and none is both used and free."""
    kv = engine._scheduler.kv
    load = engine.load()
    assert 0 <= kv.available_blocks <= kv.total_blocks
    assert kv.private_blocks >= 0
    assert 0 <= kv.idle_blocks <= kv.shared_blocks
    assert load.kv_blocks_used + kv.available_blocks == kv.total_blocks
    assert load.running <= engine.model.bounds.max_sequences
    assert load.host_blocks_used <= load.host_blocks_total
    assert load.waiting_tokens >= 0


def check_step(engine: SimulatedEngine, step) -> None:
    """No step computes more than its budget."""
    drafts = engine.model.speculation.draft_tokens if engine.model.speculation else 0
    computed = step.prefill_tokens + step.decode_sequences * (1 + drafts)
    assert computed <= engine.model.bounds.max_batched_tokens
    if not engine.model.bounds.is_prefill_mixed:
        assert not (step.prefill_tokens and step.decode_sequences)


@given(model=models(), script=scripts())
@settings(max_examples=200, deadline=None)
def test_every_request_ends_once_and_no_block_is_lost(model: EngineModel, script) -> None:
    """Whatever comes and goes: each request ends once with the tokens it was to get, and all memory is free again."""
    engine, run = SimulatedEngine(model), Run()
    asked: dict[str, SimulatedRequest] = {}
    gone: set[str] = set()
    for verb, subject, steps in script:
        if verb == "submit":
            if engine.submit(subject, run.now_s) is None:
                asked[subject.request_id] = subject
        elif verb == "cancel" and engine.cancel(subject):
            gone.add(subject)
        elif verb == "lose":
            engine.lose_transfer(subject)
        elif verb == "fetch":
            engine.release_held(subject)
        for _ in range(steps):
            step = engine.step(run.now_s)
            if step is not None:
                check_step(engine, step)
                run.take(step)
            check_books(engine)
    for _ in range(5000):
        step = engine.step(run.now_s)
        if step is None:
            break
        check_step(engine, step)
        run.take(step)
        check_books(engine)
    assert engine.step(run.now_s) is None

    for name, request in asked.items():
        if name in gone:
            assert name not in run.finish
            continue
        expected = min(request.output_tokens, request.max_output_tokens or CONTEXT_TOKENS)
        expected = min(expected, CONTEXT_TOKENS - request.input_tokens)
        if run.finish[name] is FinishReason.ERROR:
            assert request.transferred_tokens
        else:
            assert run.tokens[name] == (1 if request.is_prefill_only else expected)
    engine.step(run.now_s + model.hold_s)
    load = engine.load()
    assert (load.running, load.waiting, load.waiting_tokens, load.kv_blocks_used, load.kv_blocks_held) == (0,) * 5
    assert load.finished == sum(1 for reason in run.finish.values() if reason)
    assert load.generation_tokens >= sum(run.tokens.values())
    engine.clear_prefix_cache()
    assert engine.load().kv_blocks_cached == engine.load().host_blocks_used == 0
    assert engine._scheduler.kv.available_blocks == model.kv.total_blocks
