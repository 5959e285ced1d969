"""What `headrace up` shows: progress while engines load, then everything needed for a first request."""

import json
import re
import shlex
from dataclasses import dataclass

from rich.console import Group, RenderableType
from rich.live import Live

from headrace.cli.output import console
from headrace.cli.status_view import endpoint_table, replica_table
from headrace.control_api.operations import EndpointSummary, InstanceStatus
from headrace.declaration.model import Declaration
from headrace.domain.endpoint import ReplicaPhase

QUESTION = "Say hello in five words."
PERCENT = re.compile(r"(\d+)\s?%")
PERCENT_STEP = 10
"""Without a terminal, a download is reported this often."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Welcome:
    """What an operator needs for a first request; `headrace up --json` prints it."""

    is_ready: bool
    reason: str
    inference_url: str
    control_url: str
    model: str | None
    api_key: str | None
    """None: shown before, and kept nowhere."""
    admin_key: str | None
    curl: str | None
    log_dir: str
    is_key_kept: bool
    """The key can be shown again by the next `headrace up`."""
    headline: str = ""
    """What is said before all else: that nothing was started, and what runs."""
    note: str = ""


def make_curl(declaration: Declaration, url: str, model: str, api_key: str | None) -> str:
    """One line that streams a first answer, ready to paste into a shell."""
    body = {"model": model, "stream": True, "messages": [{"role": "user", "content": QUESTION}]}
    path = "/v1/chat/completions"
    if _is_embedding(declaration, model):
        path, body = "/v1/embeddings", {"model": model, "input": QUESTION}
    key = f"'Authorization: Bearer {api_key}'" if api_key else '"Authorization: Bearer $HEADRACE_API_KEY"'
    trust = f" --cacert {shlex.quote(declaration.gateway.tls.certificate)}" if declaration.gateway.tls else ""
    json_text = shlex.quote(json.dumps(body))
    return f"curl -N{trust} {url}{path} -H {key} -H 'Content-Type: application/json' -d {json_text}"


def first_model(declaration: Declaration, status: InstanceStatus) -> str | None:
    """Choose the model of the first request: one that chats and is ready, where there is one."""
    served = [model for model in status.models if model.pools]
    order = sorted(served, key=lambda model: (model.embeddings, model.ready_endpoints == 0))
    return order[0].model if order else None


def welcome_text(welcome: Welcome) -> str:
    """The lines printed at the end of `headrace up`."""
    lines = ["", *([welcome.headline] if welcome.headline else [])]
    lines += ["headrace is ready" if welcome.is_ready else f"headrace is up, but not ready: {welcome.reason}", ""]
    lines.append(f"  URL      {welcome.inference_url}/v1")
    if welcome.api_key:
        kept = (
            "kept in run/first-key for this user, since it is the built-in declaration on loopback"
            if welcome.is_key_kept
            else "shown this once: note it down"
        )
        lines.append(f"  key      {welcome.api_key}  ({kept})")
    else:
        lines.append("  key      shown when it was made; `headrace keys create` makes another")
    if welcome.admin_key:
        lines.append(f"  admin    {welcome.admin_key}  (for the control API; shown this once)")
    lines += [f"  control  {welcome.control_url}", f"  logs     {welcome.log_dir}  (headrace logs -f)"]
    if welcome.curl:
        lines += ["", welcome.curl]
    lines += ["", "headrace status shows what runs, headrace chat talks to it, headrace down stops it."]
    if welcome.note:
        lines += ["", welcome.note]
    return "\n".join(lines)


class Progress:
    """Shows how far replicas and attached engines are: a live table on a terminal, else one line for each change."""

    def __init__(self, *, is_silent: bool) -> None:
        self._is_silent = is_silent
        self._out = console(stderr=True)
        self._live = Live(console=self._out, auto_refresh=False, transient=True) if self._out.is_terminal else None
        self._said: dict[str, str] = {}
        self._is_started = False

    def show(self, status: InstanceStatus) -> None:
        if self._is_silent:
            return
        if self._live is not None:
            if not self._is_started:
                self._live.start()
                self._is_started = True
            self._live.update(self._table(status), refresh=True)
            return
        for replica in status.replicas:
            earlier = ", ".join(f"{span.phase} {span.duration_s:.1f} s" for span in replica.spans[:-1])
            is_ready = replica.phase == ReplicaPhase.READY.value
            text = f"ready ({earlier})" if is_ready else f"{replica.phase}: {replica.reason}"
            self._say(replica.endpoint, text, key=f"{replica.phase} {_coarse(replica.reason)}")
        for endpoint in attached(status):
            text = f"{endpoint.state}: {endpoint.reason}"
            self._say(endpoint.endpoint, text, key=text)

    def _say(self, name: str, text: str, *, key: str) -> None:
        """Once for each `key` that follows another."""
        if self._said.get(name) != key:
            self._said[name] = key
            self._out.print(f"{name}  {text}", soft_wrap=True)

    @staticmethod
    def _table(status: InstanceStatus) -> RenderableType:
        elsewhere = attached(status)
        if not elsewhere:
            return replica_table(status.replicas)
        if not status.replicas:
            return endpoint_table(elsewhere)
        return Group(replica_table(status.replicas), endpoint_table(elsewhere))

    def close(self) -> None:
        if self._live is not None and self._is_started:
            self._live.stop()
            self._is_started = False


def attached(status: InstanceStatus) -> list[EndpointSummary]:
    """Engines that run elsewhere: they are no replicas of ours, and may be away for all that is known here."""
    own = {replica.endpoint for replica in status.replicas}
    return [endpoint for endpoint in status.endpoints if endpoint.endpoint not in own]


def failing_replicas(status: InstanceStatus) -> list[str]:
    """Say of each replica in a crash loop what it said last."""
    lines: list[str] = []
    for replica in status.replicas:
        if replica.phase == ReplicaPhase.CRASH_LOOP.value:
            lines.append(f"{replica.endpoint}: {replica.reason}")
            lines += [f"    {line}" for line in replica.last_lines[-10:]]
    return lines


def is_settled(status: InstanceStatus) -> bool:
    """Whether every model that is served has an endpoint that answers."""
    return status.is_ready and status.reason == "ready"


def _is_embedding(declaration: Declaration, model: str) -> bool:
    pools = [pool for pool in declaration.pools.values() if pool.model == model]
    return bool(pools) and all(pool.embeddings for pool in pools)


def _coarse(reason: str) -> str:
    """A reason with its percentage rounded down and its rate left out, so that a download is not a thousand lines."""
    found = PERCENT.search(reason)
    return f"{reason[: found.start()]}{int(found[1]) // PERCENT_STEP}" if found else reason
