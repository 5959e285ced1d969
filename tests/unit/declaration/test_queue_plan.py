"""What a pool declares of its queue, and what a worker gets."""

import pytest
from pydantic import ValidationError

from headrace.declaration.model import Pool
from headrace.declaration.queue_plan import CLASS_DEFAULTS, compile_queue_plan
from headrace.domain.request import RequestClass


def plan(**pool: object):
    return compile_queue_plan(Pool.model_validate({"model": "m", **pool}))


def test_a_remote_pool_that_declares_nothing_has_no_bound() -> None:
    """Nothing known of an engine is no bound, and every class has its defaults."""
    found = plan(engine="vllm", endpoints=["http://a:1"])
    assert (found.sequences, found.prefill_tokens, found.held_tokens) == (None, None, None)
    assert found.classes == CLASS_DEFAULTS


def test_places_come_from_what_the_engine_is_started_with() -> None:
    """An embedded engine has its 4 slots, others what batching says for each copy; queue.sequences wins."""
    assert plan().sequences == 4
    assert plan(batching={"max_sequences": 9}).sequences == 9
    remote = {"engine": "vllm", "endpoints": ["http://a:1"]}
    assert plan(**remote, batching={"max_sequences": 100}, parallel={"data": 2}).sequences == 200
    assert plan(**remote, batching={"max_sequences": 100}, queue={"sequences": 80}).sequences == 80


def test_prompts_under_way_are_two_steps_worth() -> None:
    """Twice batching.batched_tokens, at least 4096, or what is declared."""
    assert plan(batching={"batched_tokens": 8192}).prefill_tokens == 16384
    assert plan(batching={"batched_tokens": 128}).prefill_tokens == 4096
    assert plan(batching={"batched_tokens": 8192}, queue={"prefill_tokens": 1000}).prefill_tokens == 1000


def test_a_class_declares_only_what_differs() -> None:
    """What a class leaves out stays at its own default, not at another class's."""
    found = plan(queue={"classes": {"offline": {"longest_wait_s": 7200}}, "order": "deadline"})
    offline, default = found.classes[RequestClass.OFFLINE], CLASS_DEFAULTS[RequestClass.OFFLINE]
    assert (offline.longest_wait_s, offline.starvation_s) == (7200, default.starvation_s)
    assert offline.reserved_ratio == default.reserved_ratio
    assert found.is_deadline_first


def test_classes_cannot_reserve_everything() -> None:
    """Reserved shares that add up to 1 or more are refused."""
    classes = {"standard": {"reserved_ratio": 0.6}, "offline": {"reserved_ratio": 0.4}}
    with pytest.raises(ValidationError, match="must be below 1"):
        plan(queue={"classes": classes})
