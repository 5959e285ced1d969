"""headrace's own units: the target that holds all, the fetching of weights, the gateway."""

from collections.abc import Sequence

from headrace.declaration.addresses import parse_listen
from headrace.declaration.model import Declaration
from headrace.fleet.deploy.render.core.container_words import GATEWAY_MARGIN_S, about_gateway, fetch_words, whole_s
from headrace.fleet.deploy.render.core.model import GatewayWorkload, Weights
from headrace.fleet.deploy.render.systemd.hardening import hardening, is_in_home
from headrace.fleet.deploy.render.systemd.unit_names import UnitNames
from headrace.fleet.deploy.render.systemd.unit_text import Line, Remark, command, quoted, unit_text

MADE = "Made by `headrace render systemd`: change the declaration and render again."
FIRST_FREE_PORT = 1024
"""Below it a process needs a capability to listen."""


def target_unit(names: UnitNames, units: Sequence[str], *, has_secrets: bool) -> str:
    """Write the target: what starts and stops everything, and how `units` are replaced one after the other."""
    head = [
        MADE,
        "To install: cp -r etc/. /etc/ && systemctl daemon-reload && systemctl enable --now " + names.target,
        *([f"Secrets: fill in the *.env.example files below {names.config_dir} first."] if has_secrets else []),
        "After a change, one after the other, stopping at the first that does not come up (an engine's unit is active",
        "only once it answers):",
        f"systemctl daemon-reload; for one in {' '.join(units)}; do systemctl restart $one || break; done",
    ]
    return unit_text(
        head, [("Unit", [("Description", "headrace: engines and gateway")]), ("Install", _wanted("multi-user.target"))]
    )


def _wanted(by: str) -> list[Line]:
    return [("WantedBy", by)]


def fetch_unit(declaration: Declaration, names: UnitNames, fetched: Sequence[Weights]) -> str:
    """Write the unit that fetches weights before engines start; what is there is only checked."""
    folder = declaration.deployment.models.host_dir
    python = declaration.deployment.gateway.python
    service: list[Line] = [("Type", "oneshot"), ("RemainAfterExit", "yes")]
    for weights in fetched:
        service.append(Remark(f"models.{weights.model}.source"))
        service.append(("ExecStart", command([python, *fetch_words(weights)[1:]])))
    service += [
        Remark("as long as it takes: a transfer without progress ends by itself"),
        ("TimeoutStartSec", "infinity"),
        Remark("deployment.models.host_dir"),
        ("Environment", quoted(f"HEADRACE_CACHE_DIR={folder}")),
        Remark("may hold HF_TOKEN, for gated models"),
        ("EnvironmentFile", f"-{names.config_dir}/models.env"),
        ("ExecStartPre", f"+/usr/bin/install -d -m 0755 {quoted(folder)}"),
        ("UMask", "0022"),
        ("NoNewPrivileges", "yes"),
        ("ProtectSystem", "strict"),
        ("ReadWritePaths", f"-{quoted(folder)}"),
        ("ProtectHome", "read-only" if is_in_home(python, folder) else "yes"),
        ("PrivateTmp", "yes"),
        ("PrivateDevices", "yes"),
    ]
    unit: list[Line] = [
        ("Description", "headrace: weights of the models"),
        ("After", "network-online.target"),
        ("Wants", "network-online.target"),
    ]
    return unit_text([MADE], [("Unit", unit), ("Service", service)])


def gateway_unit(declaration: Declaration, names: UnitNames, gateway: GatewayWorkload) -> str:
    """Write the gateway's unit. It starts beside the engines, and sends requests to those that are ready."""
    python = declaration.deployment.gateway.python
    _, port = parse_listen(declaration.gateway.listen)
    service: list[Line] = [
        ("Type", "exec"),
        ("ExecStart", command([python, "-m", "headrace", "up", "--config", f"{names.config_dir}/headrace.yaml"])),
        Remark("journal, ledger and keys: back it up. Not below the models' folder, which other users must read"),
        ("StateDirectory", names.state),
        ("StateDirectoryMode", "0700"),
        ("Environment", quoted(f"HEADRACE_STATE_DIR=/var/lib/{names.state}")),
        ("Environment", quoted(f"HEADRACE_CACHE_DIR=/var/lib/{names.state}/cache")),
    ]
    if gateway.secret_variables:
        remark = f"holds {', '.join(gateway.secret_variables)}: a template of it is beside this unit's other files"
        service += [Remark(remark), ("EnvironmentFile", f"{names.config_dir}/gateway.env")]
    for file in gateway.secret_files:
        service += [Remark(file.origin), ("LoadCredential", f"{file.name}:{file.host_path}".replace("%", "%%"))]
    service += [
        Remark("drain: gateway.drain_s, and some seconds to end"),
        ("KillSignal", "SIGTERM"),
        ("KillMode", "mixed"),
        ("TimeoutStopSec", str(whole_s(gateway.drain_s) + GATEWAY_MARGIN_S)),
        ("Restart", "on-failure"),
        ("RestartSec", "2"),
        ("LimitNOFILE", "65536"),
        *_gateway_rights(python, port),
    ]
    unit: list[Line] = [
        ("Description", "headrace: the gateway"),
        ("After", "network-online.target"),
        ("Wants", "network-online.target"),
        ("PartOf", names.target),
    ]
    head = [MADE, *about_gateway(gateway).splitlines()]
    return unit_text(head, [("Unit", unit), ("Service", service), ("Install", _wanted(names.target))])


def _gateway_rights(python: str, port: int) -> list[Line]:
    lines = hardening(needs_devices=False, needs_home=is_in_home(python))
    if port >= FIRST_FREE_PORT:
        return lines
    allowed = ("CapabilityBoundingSet", "CAP_NET_BIND_SERVICE")
    ambient: list[Line] = [Remark(f"gateway.listen: port {port}"), ("AmbientCapabilities", "CAP_NET_BIND_SERVICE")]
    return [allowed if line == ("CapabilityBoundingSet", "") else line for line in lines] + ambient
