"""How verbs reach the running instance: its Unix socket, the control API's words."""

from types import TracebackType
from typing import Any, Self, TypeVar

import httpx
import msgspec

from headrace.control_api.operations import InstanceStatus, ReloadReport
from headrace.domain.operator_error import OperatorError
from headrace.fleet.deploy.state_files import SupervisorFile, find_supervisor
from headrace.settings import Settings

TIMEOUT_S = 30.0
_Answer = TypeVar("_Answer")


class NotRunningError(OperatorError):
    """No instance runs on the state folder."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(f"headrace is not running on {settings.state_dir}", hint="`headrace up` starts it.")


class ControlClient:
    """Asks the instance that runs on `settings`. Close it, or use it as a context manager."""

    def __init__(self, settings: Settings, *, timeout_s: float = TIMEOUT_S) -> None:
        transport = httpx.HTTPTransport(uds=str(settings.control_socket))
        self._client = httpx.Client(transport=transport, base_url="http://headrace", timeout=timeout_s)
        self._settings = settings

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._client.close()

    def status(self) -> InstanceStatus:
        return self._ask("GET", "/api/v1/status", InstanceStatus)

    def try_status(self) -> InstanceStatus | None:
        """Ask an instance that may be starting or restarting; None where it does not answer yet."""
        try:
            return self.status()
        except OperatorError:
            return None

    def reload(self, *, is_dry_run: bool, is_upgrade: bool) -> ReloadReport:
        body = {"dry_run": is_dry_run, "upgrade": is_upgrade}
        return self._ask("POST", "/api/v1/reload", ReloadReport, body=body, accepted=(200, 400))

    def try_announce_keys(self) -> bool:
        """Tell the instance that keys have changed in its database; False where none answers."""
        if find_supervisor(self._settings) is None or not self._settings.control_socket.exists():
            return False
        try:
            return self._client.post("/api/v1/keys-changed").is_success
        except httpx.TransportError:
            return False

    def _ask(
        self,
        method: str,
        path: str,
        kind: type[_Answer],
        *,
        body: dict[str, Any] | None = None,
        accepted: tuple[int, ...] = (200,),
    ) -> _Answer:
        # Both asked first, as httpx leaks a socket that cannot connect; a killed supervisor leaves its path behind.
        if find_supervisor(self._settings) is None:
            raise NotRunningError(self._settings)
        if not self._settings.control_socket.exists():
            raise OperatorError("the supervisor does not answer yet", hint="See `headrace logs`.")
        try:
            response = self._client.request(method, path, json=body)
        except httpx.TransportError as error:
            if find_supervisor(self._settings) is None:
                raise NotRunningError(self._settings) from error
            raise OperatorError(f"the supervisor does not answer: {error}", hint="See `headrace logs`.") from error
        if response.status_code not in accepted:
            raise OperatorError(f"the supervisor answered {response.status_code}: {_message_of(response)}")
        try:
            return msgspec.convert(response.json()["data"], kind)
        except (ValueError, KeyError) as error:
            raise OperatorError(f"the supervisor answered {response.status_code}: {_message_of(response)}") from error


def get_supervisor(settings: Settings) -> SupervisorFile:
    """Return the running supervisor. Raises: NotRunningError."""
    found = find_supervisor(settings)
    if found is None:
        raise NotRunningError(settings)
    return found


def _message_of(response: httpx.Response) -> str:
    try:
        return str(response.json()["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return response.text[:200]
