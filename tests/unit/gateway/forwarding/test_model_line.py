"""The header that names the model which answers."""

from headrace.gateway.forwarding.model_line import naming_model


def test_the_line_names_the_last_model_once() -> None:
    """A request that goes to another model after all is said to have done so, and nothing else changes."""
    lines = naming_model(b"x-request-id: 1\r\n", "small")
    assert lines == b"x-request-id: 1\r\nx-headrace-model: small\r\n"
    assert naming_model(lines + b"x: y\r\n", "large") == b"x-request-id: 1\r\nx: y\r\nx-headrace-model: large\r\n"
