"""Which keys of a JWKS document may verify a token."""

import json

import pytest
from joserfc.jwk import ECKey, OctKey, OKPKey
from tests.harness.identity_provider import rsa_key

from headrace.gateway.identity.public_keys import JwksError, read_jwks

RSA = rsa_key("rsa")
CURVE = ECKey.generate_key("P-256", {"kid": "curve"})
EDWARDS = OKPKey.generate_key("Ed25519", {"kid": "edwards"})


def document(*entries: dict) -> bytes:
    return json.dumps({"keys": list(entries)}).encode()


def public(key) -> dict:
    return key.as_dict(private=False)


def test_keys_are_found_by_id_and_kind():
    """A key id of another kind of signature finds nothing."""
    keys = read_jwks(document(public(RSA), public(CURVE), public(EDWARDS)))
    assert keys.ids == {"rsa", "curve", "edwards"}
    assert keys.find("rsa", "RS256") is not None
    assert keys.find("rsa", "PS512") is not None
    assert keys.find("rsa", "ES256") is None
    assert keys.find("curve", "ES256") is not None
    assert keys.find("edwards", "EdDSA") is not None
    assert keys.find("edwards", "Ed25519") is not None
    assert keys.find("none", "RS256") is None


def test_a_token_without_a_key_id_finds_the_only_key_of_its_kind():
    """Where two fit, nothing is guessed."""
    assert read_jwks(document(public(RSA), public(CURVE))).find(None, "RS256") is not None
    assert read_jwks(document(public(RSA), public(rsa_key("other")))).find(None, "RS256") is None


def test_secrets_short_keys_and_keys_for_encryption_are_left_out():
    """What could be used to forge, or is meant for something else, verifies nothing."""
    shared = OctKey.import_key("a-shared-secret-of-some-length", {"kid": "shared"})
    short = {"kty": "RSA", "kid": "short", "n": "v" * 171, "e": "AQAB"}
    keys = read_jwks(
        document(
            shared.as_dict(),
            short,
            {**public(rsa_key("enc")), "use": "enc"},
            {"kty": "AKP", "kid": "post-quantum"},
            {"kty": "RSA", "kid": "broken", "n": "!!", "e": "AQAB"},
            public(RSA),
        )
    )
    assert keys.ids == {"rsa"}


@pytest.mark.parametrize(
    "wrong", [b"", b"{", b"[]", b'{"keys": 7}', b'{"keys": []}', b'{"keys": [{"kty": "oct", "k": "AA"}]}', b"[" * 5000]
)
def test_a_document_without_a_usable_key_is_an_error(wrong):
    """The keys known before stay in force."""
    with pytest.raises(JwksError):
        read_jwks(wrong)
