"""What `headrace up` prints: a line that works as pasted, keys only where they may be shown."""

import json
import shlex

import msgspec

from headrace.cli.up_view import Progress, Welcome, failing_replicas, is_settled, make_curl, welcome_text
from headrace.control_api.operations import EndpointSummary, InstanceStatus, LedgerSummary, PhaseSpan, ReplicaStatus
from headrace.declaration.model import Declaration

DECLARATION = Declaration.model_validate(
    {"models": {"tiny": {"source": "file:/m"}, "embed": {"source": "file:/e"}},
     "pools": {"chat": {"model": "tiny"}, "vectors": {"model": "embed", "embeddings": True}}}
)  # fmt: skip
LEDGER = LedgerSummary(is_running=True, waiting_records=0, waiting_bytes=0, lag_s=None, dropped=0, rows=0, error=None)


def status(phase: str = "ready", reason: str = "ready", lines: tuple[str, ...] = ()) -> InstanceStatus:
    replica = ReplicaStatus(
        endpoint="chat/0",
        pool="chat",
        engine="llamacpp",
        launch="",
        url=None,
        pid=None,
        phase=phase,
        reason=reason,
        since_at=0.0,
        spans=(PhaseSpan(phase=phase, duration_s=1.0),),
        last_lines=lines,
    )
    return InstanceStatus(
        version="1",
        pid=1,
        started_at=0.0,
        config_file=None,
        inference_url="http://127.0.0.1:1",
        control_url="http://127.0.0.1:2",
        plan_revision=1,
        is_ready=phase == "ready",
        reason=reason,
        models=(),
        replicas=(replica,),
        endpoints=(),
        workers=(),
        ledger=LEDGER,
    )


def welcome(**changes: object) -> Welcome:
    values: dict[str, object] = {
        "is_ready": True,
        "reason": "ready",
        "inference_url": "http://127.0.0.1:1",
        "control_url": "http://127.0.0.1:2",
        "model": "tiny",
        "api_key": "hr-key",
        "admin_key": None,
        "curl": "curl ...",
        "log_dir": "/logs",
        "is_key_kept": False,
    }
    return Welcome(**{**values, **changes})  # type: ignore[arg-type]


def test_the_curl_line_survives_a_shell() -> None:
    """Pasted into a shell, the line is one command with a whole JSON body."""
    words = shlex.split(make_curl(DECLARATION, "http://127.0.0.1:1", "tiny", "hr-key"))
    assert words[:3] == ["curl", "-N", "http://127.0.0.1:1/v1/chat/completions"]
    assert "Authorization: Bearer hr-key" in words
    body = json.loads(words[words.index("-d") + 1])
    assert (body["model"], body["stream"]) == ("tiny", True)


def test_an_embedding_model_is_asked_for_embeddings() -> None:
    """A model that only embeds is not asked to chat."""
    assert "/v1/embeddings" in make_curl(DECLARATION, "http://127.0.0.1:1", "embed", "hr-key")


def test_without_a_key_the_line_takes_it_from_the_environment() -> None:
    """A key that was shown before is not shown again; the line still works with a key of one's own."""
    assert "$HEADRACE_API_KEY" in make_curl(DECLARATION, "http://127.0.0.1:1", "tiny", None)
    assert "headrace keys create" in welcome_text(welcome(api_key=None))


def test_a_kept_key_says_that_it_is_kept() -> None:
    """The one case in which a key stays on disk is said where the key is shown."""
    assert "kept in run/first-key" in welcome_text(welcome(is_key_kept=True))
    assert "shown this once" in welcome_text(welcome(is_key_kept=False))


def test_what_is_not_ready_is_said() -> None:
    """An instance that is up but cannot answer says what it waits for."""
    assert "not ready: tiny: loading" in welcome_text(welcome(is_ready=False, reason="tiny: loading"))
    assert not is_settled(status("loading", "tiny: loading"))
    assert is_settled(status())


def test_a_crash_loop_shows_the_last_words() -> None:
    """A replica in a crash loop is reported with what its engine said last."""
    assert failing_replicas(status()) == []
    assert failing_replicas(status("crash-loop", "5 deaths", ("out of memory",))) == [
        "chat/0: 5 deaths",
        "    out of memory",
    ]


def test_an_attached_engine_that_is_away_is_named_while_up_waits(capsys):
    """Whoever waits sees within seconds which engine it is that does not answer, and why; once for each change."""
    away = EndpointSummary(
        endpoint="far/10.0.0.5:8000", pool="far", model="m", engine="vllm", url="http://10.0.0.5:8000",
        state="not-ready", reason="no connection: Connection refused", since_at=0.0, in_flight=0, requests=0,
        failures=0,
    )  # fmt: skip
    own = msgspec.structs.replace(away, endpoint="chat/0", state="ready", reason="answers probes")
    seen = msgspec.structs.replace(status(), endpoints=(own, away))
    progress = Progress(is_silent=False)
    for _ in range(3):
        progress.show(seen)
    back = msgspec.structs.replace(away, state="ready", reason="answers probes")
    progress.show(msgspec.structs.replace(seen, endpoints=(own, back)))
    assert capsys.readouterr().err.splitlines() == [
        "chat/0  ready ()",
        "far/10.0.0.5:8000  not-ready: no connection: Connection refused",
        "far/10.0.0.5:8000  ready: answers probes",
    ]
