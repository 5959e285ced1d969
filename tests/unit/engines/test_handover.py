"""Words of a hand-over, engine by engine: what is sent, and how answers are read."""

from collections.abc import Callable

import msgspec
import pytest

from headrace.domain.endpoint import EngineKind
from headrace.domain.request import ApiDialect
from headrace.engines.handover import LegRequest, SavedSlot, Ticket, WholeAnswer, find_handover_words
from headrace.engines.llamacpp.handover import LlamacppHandover
from headrace.engines.sglang.handover import SglangHandover
from headrace.engines.tensorrt_llm.handover import TensorrtLlmHandover, number_of
from headrace.engines.vllm.handover import VllmHandover

CHAT = ApiDialect.CHAT_COMPLETIONS
PARAMS = (
    b'{"do_remote_prefill":true,"do_remote_decode":false,"remote_block_ids":[[1, 2]],"remote_engine_id":"e",'
    b'"remote_request_id":"r","remote_host":"h","remote_port":5600,"tp_size":1}'
)


def fields_of(request: LegRequest, callers: bytes) -> dict[str, object]:
    return msgspec.json.decode(request.body(callers))


def test_only_what_the_leg_changes_is_changed() -> None:
    """Members of the caller's that a leg does not name go out byte for byte."""
    callers = b'{"messages":[{"content":"\\u00e9  x"}],"seed":12345678901234567890,"stream":true}'
    request = LegRequest(fields={"stream": False}, dropped=frozenset({"not there"}))
    expected = b'{"messages":[{"content":"\\u00e9  x"}],"seed":12345678901234567890,"stream":false}'
    assert expected == request.body(callers)


def test_a_call_of_the_engines_own_has_nothing_of_the_caller() -> None:
    """Saving a slot sends the file's name alone."""
    request = LlamacppHandover().save(3, "a.bin")
    assert (request.path, request.body(b"not even JSON")) == ("/slots/3?action=save", b'{"filename":"a.bin"}')


def test_vllm_is_asked_for_one_token_and_nothing_that_forbids_it() -> None:
    """A caller's own limits and stream options would be refused beside it."""
    callers = b'{"max_tokens":9,"max_completion_tokens":9,"min_tokens":4,"stream":true,"stream_options":{}}'
    sent = fields_of(VllmHandover().prefill("a1", CHAT), callers)
    assert {"max_tokens", "stream", "kv_transfer_params"} == set(sent)
    assert (sent["max_tokens"], sent["stream"]) == (1, False)


def test_vllms_parameters_reach_decode_byte_for_byte() -> None:
    """What prefill said of its KV is not read and written anew."""
    ticket = VllmHandover().read_prefill(b'{"id":"x","kv_transfer_params":' + PARAMS + b"}", "a1", CHAT)
    assert isinstance(ticket, Ticket)
    assert ticket.decode.body(b'{"n":1}') == b'{"n":1,"kv_transfer_params":' + PARAMS + b"}"


@pytest.mark.parametrize(
    "params",
    [
        b"null",
        b"7",
        b'{"do_remote_prefill":true}',
        PARAMS.replace(b'"remote_host":"h"', b'"remote_host":null'),
        PARAMS.replace(b'"do_remote_prefill":true', b'"do_remote_prefill":false'),
    ],
)
def test_vllm_parameters_that_would_kill_decode_are_no_ticket(params: bytes) -> None:
    """A decode engine dies of `do_remote_prefill` without the rest: it never gets it."""
    words = VllmHandover()
    assert words.read_prefill(b'{"kv_transfer_params":' + params + b"}", "a1", CHAT) is None
    assert words.read_prefill(b"<html>", "a1", CHAT) is None


def context(finish_reason: str, **params: object) -> bytes:
    choice = {"finish_reason": finish_reason, "disaggregated_params": params or None}
    return msgspec.json.encode({"choices": [choice], "prompt_token_ids": [5, 6]})


@pytest.mark.parametrize(("api", "name"), [(CHAT, "prompt_token_ids"), (ApiDialect.COMPLETIONS, "prompt")])
def test_trtllm_generates_from_the_contexts_state_and_tokens(api: ApiDialect, name: str) -> None:
    """The generation request has the context's parameters and its prompt as tokens."""
    body = context("length", encoded_opaque_state="s", request_type="context_only", ctx_request_id=2**62)
    ticket = TensorrtLlmHandover().read_prefill(body, "a1", api)
    assert isinstance(ticket, Ticket)
    params = {"encoded_opaque_state": "s", "request_type": "generation_only", "ctx_request_id": 2**62}
    assert {"disaggregated_params": params, name: [5, 6]} == fields_of(ticket.decode, b"{}")


def test_a_context_that_has_finished_is_the_answer() -> None:
    """Where the model stops at its first token nothing is left to generate."""
    assert isinstance(TensorrtLlmHandover().read_prefill(context("stop"), "a1", CHAT), WholeAnswer)
    assert TensorrtLlmHandover().read_prefill(context("length"), "a1", CHAT) is None
    assert TensorrtLlmHandover().read_prefill(b'{"choices":[]}', "a1", CHAT) is None


def test_trtllm_ids_are_positive_numbers_that_differ_by_attempt() -> None:
    """Each attempt has an id of its own, of at most 63 bits."""
    found = {number_of(f"r-{attempt}") for attempt in range(1000)}
    assert len(found) == 1000
    assert all(0 < number < 1 << 63 for number in found)


def test_sglangs_legs_carry_the_room() -> None:
    """Both legs get the same body, with the room and an id to abort them by."""
    words = SglangHandover()
    sent = fields_of(words.leg("a1", room=7, host="h", port=8998), b'{"stream":true}')
    assert sent == {
        "stream": True,
        "bootstrap_host": "h",
        "bootstrap_port": 8998,
        "bootstrap_room": 7,
        "rid": "a1",
    }
    assert fields_of(words.abort("a1"), b"") == {"rid": "a1"}
    assert words.is_transfer_error(b'{"message":"KVTransferError(...)"}')


def test_llamacpp_counts_are_read() -> None:
    """Tokens of the prompt, of the file and of the restored slot; None where the answer is another."""
    words = LlamacppHandover()
    assert words.read_prompt_tokens(b'{"usage":{"prompt_tokens":70,"completion_tokens":1}}') == 70
    assert words.read_saved(b'{"n_saved":70}') == SavedSlot(tokens=70, size_bytes=None)
    assert words.read_saved(b'{"n_saved":70,"n_written":9}') == SavedSlot(tokens=70, size_bytes=9)
    assert words.read_restored(b'{"n_restored":70}') == 70
    assert [read(b"{}") for read in (words.read_prompt_tokens, words.read_saved, words.read_restored)] == [None] * 3


def test_servers_without_a_driver_cannot_hand_over() -> None:
    """A plain OpenAI server has no words for it."""
    assert find_handover_words(EngineKind.OPENAI) is None


DEEP = b"[" * 3000 + b"]" * 3000
READERS: dict[str, Callable[[bytes], object]] = {
    "vllm": lambda body: VllmHandover().read_prefill(body, "a1", CHAT),
    "tensorrt-llm": lambda body: TensorrtLlmHandover().read_prefill(body, "a1", CHAT),
    "llamacpp": LlamacppHandover().read_prompt_tokens,
    "llamacpp save": LlamacppHandover().read_saved,
    "llamacpp restore": LlamacppHandover().read_restored,
}


@pytest.mark.parametrize("name", READERS)
@pytest.mark.parametrize(
    "answer",
    [
        b'{"kv_transfer_params":' + DEEP + b"}",
        b'{"kv_transfer_params":' + PARAMS.replace(b"5600", DEEP) + b',"choices":[]}',
        b'{"choices":[{"disaggregated_params":{"encoded_opaque_state":' + DEEP + b"}}]}",
        b'{"usage":{"x":' + DEEP + b'},"n_saved":1,"n_restored":1}',
        b'{"kv_transfer_params":' + PARAMS.replace(b'"e"', b'"\xff"').replace(b"5600", DEEP) + b"}",
        b"\xff",
        b"",
    ],
)
def test_an_answer_that_cannot_be_read_is_no_ticket(name: str, answer: bytes) -> None:
    """However deeply it is nested: the hand-over falls back, and the caller gets an answer all the same."""
    assert READERS[name](answer) is None


def test_a_ticket_whose_text_is_no_text_is_none() -> None:
    """Bytes that are not UTF-8 in vLLM's parameters end nothing either."""
    body = b'{"kv_transfer_params":' + PARAMS.replace(b'"e"', b'"\xff"') + b"}"
    assert VllmHandover().read_prefill(body, "a1", CHAT) is None
