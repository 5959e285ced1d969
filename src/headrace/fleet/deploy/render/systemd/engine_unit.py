"""The unit of one replica: the same command that `headrace up` would start, watched by systemd instead."""

from headrace.declaration.model import Declaration
from headrace.declaration.model_source import FileSource
from headrace.fleet.deploy.render.core.container_words import PROBE_TIMEOUT_S, about_replica, whole_s
from headrace.fleet.deploy.render.core.devices import VISIBLE
from headrace.fleet.deploy.render.core.model import EnvVar, SecretVariable, Workload
from headrace.fleet.deploy.render.systemd.hardening import hardening, is_in_home
from headrace.fleet.deploy.render.systemd.unit_names import UnitNames
from headrace.fleet.deploy.render.systemd.unit_text import Line, Remark, command, quoted, unit_text

RESTART_S = 5
"""Between the end of a process and its next start."""
STARTS, STARTS_WITHIN_S = 5, 3600
"""A replica that ends so often within the time stays down, as `failed`: a crash loop is for people."""


def engine_unit(declaration: Declaration, names: UnitNames, workload: Workload, gpus: tuple[str, ...]) -> str:
    """Write the unit; `gpus` are its devices."""
    head = ["Made by `headrace render systemd`: change the declaration and render again."]
    head += about_replica(workload, workload.number).splitlines()
    return unit_text(
        head,
        [
            ("Unit", _unit_lines(names, workload)),
            ("Service", [*_service_lines(workload), *_environment(names, workload, gpus), *_rights(workload)]),
            ("Install", [("WantedBy", names.target)]),
        ],
    )


def _unit_lines(names: UnitNames, workload: Workload) -> list[Line]:
    has_fetch = any(weights.relative_path is not None for weights in workload.weights)
    wait = [names.fetch] if has_fetch else []
    lines: list[Line] = [
        ("Description", f"headrace: replica {workload.number} of {workload.pool} ({workload.engine.value})"),
        ("After", " ".join(["network-online.target", *wait])),
        ("Wants", "network-online.target"),
    ]
    if wait:
        lines += [Remark(f"models.{workload.model}.source"), ("Requires", " ".join(wait))]
    return [
        *lines,
        ("PartOf", names.target),
        ("StartLimitIntervalSec", str(STARTS_WITHIN_S)),
        ("StartLimitBurst", str(STARTS)),
    ]


def _service_lines(workload: Workload) -> list[Line]:
    key = f"pools.{workload.pool}"
    url = f"http://127.0.0.1:{workload.http_port}{workload.health.started}"
    ask = f"curl -fsS -o /dev/null -m {PROBE_TIMEOUT_S} --retry-all-errors --retry-delay 1"
    patience = whole_s(workload.load_timeout_s)
    return [
        ("Type", "exec"),
        ("ExecStart", command(workload.args)),
        Remark(f"active once the engine answers, within {key}.load_timeout_s"),
        ("ExecStartPost", f"{ask} --retry {patience} {url}"),
        ("TimeoutStartSec", str(patience)),
        Remark(f"drain: {key}.stop_s, then the whole group is killed"),
        ("KillSignal", "SIGTERM"),
        ("KillMode", "mixed"),
        ("TimeoutStopSec", str(whole_s(workload.stop_s))),
        ("Restart", "always"),
        ("RestartSec", str(RESTART_S)),
        ("LimitNOFILE", "65536"),
        *([("LimitMEMLOCK", "infinity")] if workload.gpus else []),
    ]


def _environment(names: UnitNames, workload: Workload, gpus: tuple[str, ...]) -> list[Line]:
    folder = f"{names.namespace}/{names.stem(workload)}"
    lines: list[Line] = [
        Remark("what the engine compiles and keeps"),
        ("CacheDirectory", folder),
        ("Environment", quoted(f"HOME=/var/cache/{folder}")),
    ]
    lines += [("RuntimeDirectory", str(path).removeprefix("/run/")) for path in workload.scratch_dirs]
    if gpus:
        lines += [Remark(f"{workload.gpus} GPU(s): pools.{workload.pool}.parallel")]
        lines += [("Environment", quoted(f"{VISIBLE}={','.join(gpus)}"))]
    env = [one for one in workload.env if not (gpus and one.name == VISIBLE)]
    lines += [("Environment", quoted(f"{one.name}={one.value}")) for one in env if isinstance(one.value, str)]
    if any(isinstance(one.value, SecretVariable) for one in env):
        lines += [Remark(_secret_names(env)), ("EnvironmentFile", names.secrets(workload))]
    return lines


def _secret_names(env: list[EnvVar]) -> str:
    secrets = [one.name for one in env if isinstance(one.value, SecretVariable)]
    return f"holds {', '.join(secrets)}: a template of it is beside this unit's other files"


def _rights(workload: Workload) -> list[Line]:
    weights = [str(one.source.path) for one in workload.weights if isinstance(one.source, FileSource)]
    in_home = is_in_home(workload.args[0], *weights)
    return hardening(needs_devices=workload.gpus > 0, needs_home=in_home)
