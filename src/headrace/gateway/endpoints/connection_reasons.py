"""Why no connection to an engine could be used, in an operator's words: OpenSSL's codes and silent closes explained.

Pure. Counterpart: `prober.py`, whose reasons `headrace status` shows.
"""

from collections.abc import Mapping
from types import MappingProxyType

from headrace.declaration.gateway_plan import PoolPlan

NAME_MARKS = ("Hostname mismatch", "IP address mismatch")
REFUSED_CLIENT_MARKS = ("UNKNOWN_CA", "ALERT_BAD_CERTIFICATE", "ALERT_CERTIFICATE", "UNSUPPORTED_CERTIFICATE")
"""TLS alerts about a certificate that we have shown. Source: RFC 8446, section 6.2."""
PLAIN: Mapping[str, str] = MappingProxyType(
    {
        "certificate has expired": "the engine's certificate has expired",
        "self-signed": "the engine's certificate is of a CA that is not trusted here: name the CA in {tls}.ca",
        "unable to get local issuer": "the engine's certificate is of a CA that is not trusted here: name the CA in"
        " {tls}.ca",
        "WRONG_VERSION_NUMBER": "the endpoint does not speak TLS: is its URL http://?",
        "RECORD_LAYER_FAILURE": "the endpoint does not speak TLS: is its URL http://?",
        "PROTOCOL_VERSION": "the engine speaks no TLS version that is spoken here (1.2 is the least)",
    }
)
"""Words of OpenSSL's messages, and what they mean for a pool."""


def explain(detail: str, plan: PoolPlan, url: str) -> str:
    """Return `detail` with what it means and what to do put before it, where that is known."""
    meaning = _meaning(detail, plan, is_tls=url.startswith("https:"))
    return f"{meaning} ({detail})" if meaning else detail


def _meaning(detail: str, plan: PoolPlan, *, is_tls: bool) -> str:
    tls = f"pools.{plan.name}.tls"
    if any(mark in detail for mark in NAME_MARKS):
        return f"the engine's certificate is for another name: the name to expect is {tls}.server_name"
    for mark, meaning in PLAIN.items():
        if mark in detail:
            return meaning.format(tls=tls)
    has_certificate = plan.tls_certificate is not None
    if "CERTIFICATE_REQUIRED" in detail or ("HANDSHAKE_FAILURE" in detail and not has_certificate):
        return f"the engine demands a client certificate: {tls}.certificate and {tls}.key"
    if any(mark in detail for mark in REFUSED_CLIENT_MARKS):
        return f"the engine does not accept the client certificate of {tls}.certificate"
    if "closed by the engine" not in detail and "Connection reset" not in detail:
        return ""
    if not is_tls:
        return "the endpoint closes without an answer, as an HTTPS port does"
    shown = f"does not accept the client certificate of {tls}.certificate" if has_certificate else (
        f"demands a client certificate ({tls}.certificate)"
    )  # fmt: skip
    return f"the engine closes without an answer; perhaps it {shown}"
