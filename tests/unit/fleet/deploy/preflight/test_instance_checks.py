"""What would stop `headrace up` before any engine is started."""

import os
from pathlib import Path
from typing import Any

import pytest
import trustme
from tests.harness.ports import free_port

from headrace import extras
from headrace.declaration.model import Declaration
from headrace.fleet.deploy.ports import bind_listener
from headrace.fleet.deploy.preflight.core.finding import Finding, Level
from headrace.fleet.deploy.preflight.instance_checks import check_instance
from headrace.fleet.deploy.process_identity import own_identity
from headrace.fleet.deploy.state_files import SupervisorFile, prepare_folders, write_supervisor_file
from headrace.settings import Settings

POOL = {"model": "m", "engine": "vllm", "endpoints": ["https://h"]}


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(state_dir=tmp_path / "state", cache_dir=tmp_path / "cache")


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    """A certificate with its key, another one's key, and garbage."""
    made: dict[str, str] = {}
    for name in ("one", "other"):
        leaf = trustme.CA().issue_cert("localhost")
        made[f"{name}.crt"], made[f"{name}.key"] = str(tmp_path / f"{name}.crt"), str(tmp_path / f"{name}.key")
        leaf.cert_chain_pems[0].write_to_path(made[f"{name}.crt"])
        leaf.private_key_pem.write_to_path(made[f"{name}.key"])
    made["garbage"] = str(tmp_path / "garbage")
    Path(made["garbage"]).write_text("garbage")
    return made


def found(settings: Settings, code: str, pool: dict[str, Any] | None = None, **sections: Any) -> list[Finding]:
    gateway = {"listen": "127.0.0.1:0", "control": "127.0.0.1:0", **sections.pop("gateway", {})}
    declaration = Declaration.model_validate(
        {"models": {"m": {}}, "pools": {"p": {**POOL, **(pool or {})}}, "gateway": gateway, **sections}
    )
    return [finding for finding in check_instance(declaration, settings) if finding.code == code]


@pytest.mark.parametrize(("name", "level"), [("s", Level.OK), ("file/s", Level.FAIL), ("x" * 110, Level.FAIL)])
def test_the_state_folder_can_be_used_or_made(tmp_path: Path, name: str, level: Level) -> None:
    """A file in its way, or a path too long for sockets, is said before `up` ends on it; nothing is made."""
    (tmp_path / "file").write_text("")
    settings = Settings(state_dir=tmp_path / name, cache_dir=tmp_path / "cache")
    [finding] = found(settings, "state")
    assert finding.level is level
    assert level is Level.OK or "HEADRACE_STATE_DIR" in finding.remedy
    assert not (tmp_path / name).exists()


def test_an_address_is_free_taken_or_our_own(settings: Settings) -> None:
    """A taken one is named with its holder; what the headrace that runs here holds is no fault."""
    listen = f"127.0.0.1:{free_port()}"
    assert [one.level for one in found(settings, "listen", gateway={"listen": listen})] == [Level.OK]
    with bind_listener(listen, key="x"):
        [taken] = found(settings, "listen", gateway={"listen": listen})
        assert taken.level is Level.FAIL
        assert f"gateway.listen: cannot listen on {listen}" in taken.seen
        assert f"pid {os.getpid()}" in taken.seen
        assert "set gateway.listen" in taken.remedy
        prepare_folders(settings)
        write_supervisor_file(
            settings,
            SupervisorFile(
                process=own_identity(), version="1", started_at=0.0, config_file=None, on_supervisor_loss="stop",
                inference_url=f"http://{listen}", control_url="http://127.0.0.1:9", declaration_digest="",
            ),
        )  # fmt: skip
        assert [one.level for one in found(settings, "listen", gateway={"listen": listen})] == [Level.OK]


def test_an_address_of_another_machine_says_so(settings: Settings) -> None:
    """Not "stop that process", where there is none."""
    [control] = found(settings, "control", gateway={"control": "192.0.2.1:7071"})
    assert (control.level, "no such address" in control.remedy) == (Level.FAIL, True)


@pytest.mark.parametrize(
    ("certificate", "key", "said"),
    [("one.crt", "one.key", None), ("one.crt", "other.key", "is not the key of"), ("garbage", "garbage", "no PEM")],
)
def test_certificates_load_and_belong_to_their_keys(
    settings: Settings, files: dict[str, str], certificate: str, key: str, said: str | None
) -> None:
    """The gateway's, and those that are shown to engines elsewhere."""
    pair = {"certificate": files[certificate], "key": files[key]}
    for findings in (found(settings, "tls", gateway={"tls": pair}), found(settings, "tls", pool={"tls": pair})):
        [finding] = findings
        assert finding.level is (Level.OK if said is None else Level.FAIL)
        assert said is None or said in finding.seen


def test_a_ca_that_is_no_certificate_is_named(settings: Settings, files: dict[str, str]) -> None:
    """As `up` would refuse it."""
    [finding] = found(settings, "tls", pool={"tls": {"ca": files["garbage"]}})
    assert (finding.level, files["garbage"] in finding.seen) == (Level.FAIL, True)


@pytest.mark.parametrize(
    ("sections", "key", "level"),
    [
        ({"ledger": {"database": "postgresql://u@h/d"}}, "ledger.database", Level.FAIL),
        ({"gateway": {"sharing": {"redis": "redis://h"}}}, "gateway.sharing.redis", Level.FAIL),
        ({"pool": {"telemetry": {"kv_events": True}}}, "pools.p.telemetry.kv_events", Level.WARN),
    ],
)
def test_a_package_that_only_this_declaration_needs_is_here(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, sections: dict[str, Any], key: str, level: Level
) -> None:
    """Where it is not, the command that adds it is said; without events the gateway serves, so they are a warning."""
    monkeypatch.setattr(extras, "find_spec", lambda name: None)  # pyright: ignore[reportUnknownLambdaType]
    [finding] = found(settings, "package", **sections)
    assert (finding.level, key in finding.seen) == (level, True)
    assert finding.remedy.startswith("Install it: uv pip install --python ")


def test_nothing_optional_is_asked_for_where_nothing_needs_it(settings: Settings) -> None:
    """The built-in ledger and limits of one machine need no package."""
    assert found(settings, "package") == []


@pytest.mark.postgres
def test_a_database_that_is_down_is_a_failure_with_its_remedy(settings: Settings) -> None:
    """`up` would end on it."""
    url = f"postgresql://headrace:hunter2@127.0.0.1:{free_port()}/ledger"
    [finding] = found(settings, "database", ledger={"database": url})
    assert (finding.level, "hunter2" in finding.seen) == (Level.FAIL, False)
    assert "Start the server" in finding.remedy


def test_a_sqlite_file_is_not_made_by_looking(settings: Settings, tmp_path: Path) -> None:
    """Its folder must be one that can be written, or be made."""
    path = tmp_path / "deep" / "ledger.db"
    [finding] = found(settings, "database", ledger={"database": f"sqlite:///{path}"})
    assert finding.level is Level.OK
    assert not path.parent.exists()
    (tmp_path / "deep").write_text("a file")
    [finding] = found(settings, "database", ledger={"database": f"sqlite:///{path}"})
    assert finding.level is Level.FAIL
