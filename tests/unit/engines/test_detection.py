"""What kind of engine answers at a URL."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.domain.endpoint import EngineKind
from headrace.engines.contract import ProbeReply
from headrace.engines.detection import DETECTION_PATHS, detect


def reply(document: object, status: int = 200) -> ProbeReply:
    return ProbeReply(status=status, body=json.dumps(document).encode())


def models(owner: str, *names: str) -> ProbeReply:
    return reply({"object": "list", "data": [{"id": name, "owned_by": owner} for name in names]})


@pytest.mark.parametrize(
    ("owner", "kind"),
    [
        ("llamacpp", EngineKind.LLAMACPP),
        ("vllm", EngineKind.VLLM),
        ("sglang", EngineKind.SGLANG),
        ("tensorrt_llm", EngineKind.TENSORRT_LLM),
        ("openai", EngineKind.OPENAI),
    ],
)
def test_the_list_of_models_names_the_engine(owner: str, kind: EngineKind):
    """Each engine signs its model list."""
    found = detect({"/v1/models": models(owner, "a", "b"), "/version": reply({"version": "1.2"})})
    assert (found.engine, found.models, found.version) == (kind, ("a", "b"), "1.2")


def test_engines_that_list_nothing_are_known_by_their_marks():
    """llama.cpp by its slots, SGLang by its server arguments."""
    assert detect({"/props": reply({"total_slots": 4})}).engine is EngineKind.LLAMACPP
    info = {"tokenizer_path": "m", "disaggregation_mode": "null", "version": "0.5.23"}
    found = detect({"/v1/models": ProbeReply(status=404), "/get_server_info": reply(info)})
    assert (found.engine, found.version) == (EngineKind.SGLANG, "0.5.23")


def test_missing_credentials_are_told_apart_from_a_dead_server():
    """401 is alive and wants a key; silence is not alive."""
    locked = detect({"/v1/models": reply({"error": "Unauthorized"}, 401)})
    assert (locked.needs_credentials, locked.is_alive, locked.models) == (True, True, ())
    silent = detect(dict.fromkeys(DETECTION_PATHS, ProbeReply(status=None, is_refused=True)))
    assert (silent.needs_credentials, silent.is_alive) == (False, False)


@pytest.mark.parametrize("listing", [ProbeReply(status=404), reply({"data": []}), ProbeReply(status=200, body=b"<p>")])
def test_a_server_that_lists_no_models_is_no_engine(listing: ProbeReply):
    """A web server answers every GET, with 404 or a page."""
    found = detect({**dict.fromkeys(DETECTION_PATHS, ProbeReply(status=404)), "/v1/models": listing})
    assert (found.is_alive, found.is_engine) == (True, False)
    assert detect({"/v1/models": models("somebody", "m")}).is_engine
    assert detect({"/props": reply({"total_slots": 4})}).is_engine
    assert detect({"/v1/models": ProbeReply(status=401)}).is_engine
    assert detect({"/v1/models": reply({"error": {"message": "Loading model"}}, 503)}).is_engine
    assert not detect({"/v1/models": ProbeReply(status=503, body=b"<p>")}).is_engine


@given(
    replies=st.dictionaries(
        st.sampled_from(DETECTION_PATHS),
        st.builds(ProbeReply, status=st.sampled_from([None, 200, 404, 503]), body=st.binary()),
    )
)
def test_any_answers_are_survived(replies: dict[str, ProbeReply]):
    """Whatever a server says, it is at least some server of OpenAI's API."""
    assert detect(replies).engine in EngineKind


@pytest.mark.parametrize(
    "document", [[], 5, {"data": 5}, {"data": [5, {"id": 7}, {}]}, {"data": [{"id": "a", "owned_by": 3}]}]
)
def test_lists_of_odd_shape_are_survived(document: object):
    """Wrong types in the list are skipped."""
    assert detect({"/v1/models": reply(document)}).engine is EngineKind.OPENAI
