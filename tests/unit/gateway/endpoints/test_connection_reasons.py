"""What an operator is told where no connection to an engine can be used."""

import pytest

from headrace.declaration.gateway_plan import EndpointAddress, PoolPlan, compile_gateway_plan
from headrace.declaration.model import Declaration
from headrace.gateway.endpoints.connection_reasons import explain

HTTPS = "https://engine:8000"


def plan(**tls: str) -> PoolPlan:
    pool = {"model": "m", "engine": "openai", "endpoints": [HTTPS], **({"tls": tls} if tls else {})}
    declaration = Declaration.model_validate({"models": {"m": {}}, "pools": {"p": pool}})
    addresses = {"p": (EndpointAddress(endpoint="p/engine:8000", url=HTTPS),)}
    return compile_gateway_plan(declaration, addresses, revision=1).pools[0]


@pytest.mark.parametrize(
    ("detail", "meaning"),
    [
        ("[SSL] certificate verify failed: Hostname mismatch, certificate is not valid for 'x'", "tls.server_name"),
        ("[SSL] certificate verify failed: self-signed certificate", "tls.ca"),
        ("[SSL] certificate verify failed: certificate has expired", "has expired"),
        ("[SSL: TLSV13_ALERT_CERTIFICATE_REQUIRED]", "demands a client certificate"),
        ("[SSL: SSLV3_ALERT_HANDSHAKE_FAILURE]", "demands a client certificate"),
        ("[SSL: WRONG_VERSION_NUMBER] wrong version number", "is its URL http://?"),
        ("connection lost: closed by the engine", "perhaps it demands a client certificate"),
    ],
)
def test_a_message_of_openssl_is_explained(detail: str, meaning: str) -> None:
    """The setting to look at, and the message itself behind it."""
    reason = explain(detail, plan(), HTTPS)
    assert meaning in reason
    assert reason.endswith(f"({detail})")


def test_a_certificate_that_is_shown_is_what_an_alert_is_about() -> None:
    """With a client certificate declared, it is that one that is not accepted."""
    mine = plan(certificate="c.pem", key="k.pem")
    assert "does not accept" in explain("[SSL: TLSV1_ALERT_UNKNOWN_CA]", mine, HTTPS)
    assert "perhaps it does not accept" in explain("closed by the engine", mine, HTTPS)


def test_what_is_not_known_is_left_as_it_is() -> None:
    """Nothing is guessed at a refused connection."""
    assert explain("10.0.0.5:8000: Connection refused", plan(), "http://10.0.0.5:8000") == (
        "10.0.0.5:8000: Connection refused"
    )
