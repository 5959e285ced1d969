"""How units and their folders are called."""

from dataclasses import dataclass
from pathlib import PurePosixPath

from headrace.fleet.deploy.render.core.model import Workload
from headrace.fleet.deploy.render.core.object_names import object_name


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitNames:
    """Names within one namespace."""

    namespace: str

    @property
    def target(self) -> str:
        return f"{self.namespace}.target"

    @property
    def fetch(self) -> str:
        return f"{self.namespace}-models.service"

    @property
    def gateway(self) -> str:
        return f"{self.namespace}-gateway.service"

    @property
    def state(self) -> str:
        return f"{self.namespace}-gateway"

    @property
    def credentials(self) -> PurePosixPath:
        """Where systemd shows the gateway what LoadCredential= names. Source: systemd.exec(5)."""
        return PurePosixPath("/run/credentials") / self.gateway

    @property
    def config_dir(self) -> str:
        return f"/etc/{self.namespace}"

    def engine(self, workload: Workload) -> str:
        return f"{self.namespace}-{self.stem(workload)}.service"

    def stem(self, workload: Workload) -> str:
        return f"{object_name(workload.pool)}-{workload.number}"

    def secrets(self, workload: Workload) -> str:
        return f"{self.config_dir}/{self.stem(workload)}.env"
