"""The routes that look into the gateway's choices."""

from tests.unit.control_api.conftest import RunningApi


async def test_a_choice_is_explained_to_operators_only(api: RunningApi) -> None:
    """An admin key gets the explanation of the request it sends; an inference key gets none."""
    wish = {"body": '{"model":"small"}', "tenant": "team-a", "request_class": "offline"}
    answer = await api.tcp.post("/api/v1/route/explain", json=wish, headers=api.admin)
    assert answer.status_code == 200
    assert answer.json()["schema"] == "headrace/route/v1"
    assert answer.json()["data"]["reason"] == "no endpoint is ready"
    assert api.operations.calls == ["explain /v1/chat/completions team-a offline 17"]
    assert (await api.tcp.post("/api/v1/route/explain", json=wish, headers=api.inference)).status_code == 403
    assert (await api.tcp.post("/api/v1/route/explain", json=wish)).status_code == 401


async def test_requests_larger_than_other_bodies_are_explained(api: RunningApi) -> None:
    """A prompt of a hundred thousand tokens can be asked about; an unknown class or field cannot."""
    body = '{"model":"small","messages":[{"role":"user","content":"' + "x" * 400_000 + '"}]}'
    answer = await api.tcp.post("/api/v1/route/explain", json={"body": body}, headers=api.admin)
    assert answer.status_code == 200
    for wrong in ({"body": "{}", "request_class": "soon"}, {"body": "{}", "colour": "red"}, {}):
        assert (await api.tcp.post("/api/v1/route/explain", json=wrong, headers=api.admin)).status_code == 400


async def test_queues_are_shown(api: RunningApi) -> None:
    """Who waits is for admin keys only."""
    answer = await api.tcp.get("/api/v1/queue", headers=api.admin)
    assert answer.json() == {"schema": "headrace/queue/v1", "data": []}
    assert (await api.tcp.get("/api/v1/queue", headers=api.inference)).status_code == 403


async def test_cache_hits_are_shown(api: RunningApi) -> None:
    """The counts of all workers come added up."""
    answer = await api.tcp.get("/api/v1/cache", headers=api.admin)
    assert answer.json() == {
        "schema": "headrace/cache/v1",
        "data": {"workers": 1, "tenants": [], "families": [], "endpoints": []},
    }


async def test_advice_on_prefill_and_decode_is_shown(api: RunningApi) -> None:
    """`GET /api/v1/route/advice` answers admin keys with what all workers measured together."""
    answer = await api.tcp.get("/api/v1/route/advice", headers=api.admin)
    assert answer.json() == {"schema": "headrace/route-advise/v1", "data": {"workers": 1, "models": []}}
    assert (await api.tcp.get("/api/v1/route/advice", headers=api.inference)).status_code == 403


async def test_cache_misses_are_shown(api: RunningApi) -> None:
    """`GET /api/v1/cache/misses` answers with what all workers found."""
    answer = await api.tcp.get("/api/v1/cache/misses", headers=api.admin)
    assert (answer.status_code, answer.json()["schema"], answer.json()["data"]["rows"]) == (
        200,
        "headrace/cache-misses/v1",
        [],
    )
