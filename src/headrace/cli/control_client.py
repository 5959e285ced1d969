"""How verbs reach the running instance: its Unix socket, the control API's words."""

import http.client
import json
import socket
import time
from dataclasses import dataclass
from http import HTTPStatus
from types import TracebackType
from typing import Any, Self, TypeVar
from urllib.parse import quote, urlencode

import msgspec

from headrace.control_api.operations import InstanceStatus, ReloadReport, RestartReport
from headrace.domain.miss_status import MissStatus
from headrace.domain.operator_error import OperatorError, UnknownNameError
from headrace.domain.queue_status import QueueStatus
from headrace.domain.routing_status import RouteExplanation, RoutingStatus
from headrace.domain.split_advice import SplitAdvice
from headrace.fleet.deploy.state_files import SupervisorFile, find_supervisor
from headrace.settings import Settings
from headrace.tenancy.quota_view import LimitView

TIMEOUT_S = 30.0
PATIENCE_S = 15.0
"""A supervisor that executes its successor (`reload --upgrade`) closes its socket for a second or two."""
RETRY_S = 0.1
_Answer = TypeVar("_Answer")


class NotRunningError(OperatorError):
    """No instance runs on the state folder."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(f"headrace is not running on {settings.state_dir}", hint="`headrace up` starts it.")


@dataclass(frozen=True, slots=True)
class Reply:
    """What the control API answered."""

    status: int
    body: bytes

    @property
    def message(self) -> str:
        """Its error, in its own words."""
        try:
            return str(json.loads(self.body)["error"]["message"])
        except (ValueError, RecursionError, KeyError, TypeError):
            return self.body[:200].decode(errors="replace")


class UnixConnection(http.client.HTTPConnection):
    """HTTP over a Unix socket. Not httpx, which loses the socket of a connection that cannot be made."""

    def __init__(self, path: str, timeout_s: float) -> None:
        super().__init__("headrace", timeout=timeout_s)
        self._path = path

    def connect(self) -> None:
        """Raises: OSError; nothing is left open then."""
        made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            made.settimeout(self.timeout)
            made.connect(self._path)
        except BaseException:
            made.close()
            raise
        self.sock = made


class ControlClient:
    """Asks the instance that runs on `settings`. Close it, or use it as a context manager."""

    def __init__(self, settings: Settings, *, timeout_s: float = TIMEOUT_S) -> None:
        self._connection = UnixConnection(str(settings.control_socket), timeout_s)
        self._settings = settings

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._connection.close()

    def status(self) -> InstanceStatus:
        """Raises: OperatorError where nothing runs, or does not answer in time."""
        return self._ask("GET", "/api/v1/status", InstanceStatus)

    def try_status(self) -> InstanceStatus | None:
        """Ask an instance that may be starting or restarting; None where it does not answer yet."""
        try:
            return self._ask("GET", "/api/v1/status", InstanceStatus, patience_s=0.0)
        except OperatorError:
            return None

    def reload(self, *, is_dry_run: bool, is_upgrade: bool) -> ReloadReport:
        body = {"dry_run": is_dry_run, "upgrade": is_upgrade}
        return self._ask("POST", "/api/v1/reload", ReloadReport, body=body, accepted=(200, 400))

    def cache(self) -> RoutingStatus:
        """Prefix cache hits by model, tenant, family and endpoint."""
        return self._ask("GET", "/api/v1/cache", RoutingStatus)

    def misses(self) -> MissStatus:
        """Why prompts missed the engines' caches."""
        return self._ask("GET", "/api/v1/cache/misses", MissStatus)

    def split_advice(self) -> SplitAdvice:
        """Whether prefill and decode apart pay, and in what ratio."""
        return self._ask("GET", "/api/v1/route/advice", SplitAdvice)

    def explain_route(self, body: str, *, path: str, tenant: str, request_class: str | None) -> RouteExplanation:
        """Where a request would go now."""
        wish = {"path": path, "body": body, "tenant": tenant, "request_class": request_class}
        return self._ask("POST", "/api/v1/route/explain", RouteExplanation, body=wish)

    def restart(self, replica: str) -> RestartReport:
        path = f"/api/v1/replicas/{quote(replica)}/restart"
        return self._ask("POST", path, RestartReport, accepted=(200, 409))

    def queues(self) -> tuple[QueueStatus, ...]:
        """The queue of each model."""
        return self._ask("GET", "/api/v1/queue", tuple[QueueStatus, ...])

    def limits(self, path: str, query: dict[str, str]) -> tuple[LimitView, ...]:
        """What `path`, quota or budget, says of the limits that `query` asks for."""
        return self._ask("GET", f"/api/v1/{path}?{urlencode(query)}", tuple[LimitView, ...])

    def try_announce_callers(self) -> bool:
        """Tell the instance that keys or tenants have changed in its database; False where none answers."""
        if find_supervisor(self._settings) is None:
            return False
        try:
            return 200 <= self._send("POST", "/api/v1/callers-changed", None).status < 300
        except (OSError, http.client.HTTPException):
            return False

    def _ask(
        self,
        method: str,
        path: str,
        kind: type[_Answer],
        *,
        body: dict[str, Any] | None = None,
        accepted: tuple[int, ...] = (200,),
        patience_s: float = PATIENCE_S,
    ) -> _Answer:
        is_kept = self._connection.sock is not None
        self._connect(patience_s)
        try:
            reply = self._send(method, path, body)
        except (OSError, http.client.HTTPException) as error:
            if is_kept and method == "GET":  # closed since, as by an upgrade: asked again on a fresh one
                return self._ask(method, path, kind, body=body, accepted=accepted, patience_s=patience_s)
            raise self._unanswered(error) from error
        if reply.status not in accepted:
            is_said = 400 <= reply.status < 500  # what was asked for is at fault: the answer says why in our own words
            failure = UnknownNameError if reply.status == HTTPStatus.NOT_FOUND else OperatorError
            raise failure(reply.message if is_said else f"the supervisor answered {reply.status}: {reply.message}")
        try:
            return msgspec.convert(json.loads(reply.body)["data"], kind)
        except (ValueError, RecursionError, KeyError, TypeError) as error:
            raise OperatorError(f"the supervisor answered {reply.status}: {reply.message}") from error

    def _connect(self, patience_s: float) -> None:
        """Connect, waiting for a supervisor that lives and does not listen yet."""
        end_mono_s = time.monotonic() + patience_s
        while self._connection.sock is None:
            if find_supervisor(self._settings) is None:  # a killed one leaves its socket's path behind
                raise NotRunningError(self._settings)
            try:
                self._connection.connect()
            except OSError as error:
                if time.monotonic() >= end_mono_s:
                    raise self._unanswered(error) from error
                time.sleep(RETRY_S)

    def _send(self, method: str, path: str, body: dict[str, Any] | None) -> Reply:
        """Raises: OSError, http.client.HTTPException; the connection is closed then."""
        content = None if body is None else json.dumps(body)
        try:
            self._connection.request(method, path, content, {"content-type": "application/json"})
            response = self._connection.getresponse()
            return Reply(response.status, response.read())
        except BaseException:
            self._connection.close()
            raise

    def _unanswered(self, error: Exception) -> OperatorError:
        if find_supervisor(self._settings) is None:
            return NotRunningError(self._settings)
        return OperatorError(f"the supervisor does not answer: {error}", hint="See `headrace logs`.")


def get_supervisor(settings: Settings) -> SupervisorFile:
    """Return the running supervisor. Raises: NotRunningError."""
    found = find_supervisor(settings)
    if found is None:
        raise NotRunningError(settings)
    return found
