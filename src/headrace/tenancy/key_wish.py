"""What an operator asks for when creating a key, checked against the declaration, for command line and control API."""

import re
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from pydantic import ValidationError

from headrace.declaration.fields import section_at
from headrace.declaration.model import Declaration
from headrace.declaration.nearest import did_you_mean
from headrace.declaration.problem import dotted
from headrace.domain.ids import TenantId
from headrace.domain.operator_error import OperatorError
from headrace.domain.quota import LimitSet
from headrace.domain.tenant import Scope
from headrace.tenancy.limit_words import read_limit_words

NAME_CHARACTERS = 128
LONGEST_S = 100 * 365 * 86400
_SPAN = re.compile(r"(\d{1,9})\s*([smhdw])")
_UNIT_S = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}


class KeyWishError(OperatorError):
    """The key that is asked for cannot be made as asked."""


def check_key_wish(
    declaration: Declaration,
    *,
    tenant: str,
    scope: Scope,
    models: Sequence[str] | None,
    name: str,
    project: str | None = None,
) -> TenantId:
    """Check that the key would be of use.

    Raises: KeyWishError naming the value and the nearest valid one.
    """
    if tenant not in declaration.tenants:
        raise KeyWishError(f'tenant "{tenant[:128]}" is not declared', hint=did_you_mean(tenant, declaration.tenants))
    if len(name) > NAME_CHARACTERS or not name.isprintable():
        raise KeyWishError(f"a key's name is at most {NAME_CHARACTERS} printable characters; this one has {len(name)}")
    if scope is Scope.ADMIN and models:
        raise KeyWishError(
            "an admin key calls no models", hint="Leave the models out, or make a key of scope inference."
        )
    projects = declaration.tenants[tenant].projects
    if project is not None and project not in projects:
        message = f'tenant "{tenant}" has no project "{project[:128]}"'
        raise KeyWishError(message, hint=did_you_mean(project, projects))
    if project is not None and scope is Scope.ADMIN:
        raise KeyWishError("an admin key belongs to no project", hint="Leave the project out.")
    allowed = declaration.tenants[tenant].models
    known = (*declaration.models, *declaration.auto_models)
    for model in models or ():
        if model not in known:
            raise KeyWishError(f'model "{model[:128]}" is not declared', hint=did_you_mean(model, known))
        if "*" not in allowed and model not in allowed:
            raise KeyWishError(
                f'tenant "{tenant}" may not use model "{model}"', hint=f"It may use: {', '.join(allowed) or 'none'}."
            )
    return TenantId(tenant)


def read_limits(limits: Mapping[str, object], budget: Mapping[str, object]) -> LimitSet:
    """Read a key's own limits and budget, in the words of headrace.yaml.

    Raises: KeyWishError naming every value that is wrong.
    """
    try:
        return read_limit_words({"limits": limits, "budget": budget})
    except ValidationError as error:
        root = error.title.lower()
        said = [_said((root, *one["loc"]), one) for one in error.errors(include_url=False, include_input=False)]
        raise KeyWishError("\n".join(said)) from error


def _said(path: tuple[str | int, ...], details: Any) -> str:
    """One pydantic error in our words, with the nearest key where there is no such key."""
    if details["type"] != "extra_forbidden":
        return f"{dotted(path)}: {details['msg']}"
    section = section_at(("quota", *path[:-1]))
    hint = did_you_mean(str(path[-1]), section.model_fields) if section is not None else None
    return f"{dotted(path)}: there is no such key" + (f". {hint}" if hint else "")


def parse_span_s(text: str) -> int:
    """Read a length of time such as `30d`, `12h`, `90m`, `2w`: seconds.

    Raises: KeyWishError.
    """
    found = _SPAN.fullmatch(text.strip())
    if found is None:
        raise KeyWishError(
            f'"{text[:40]}" is no length of time', hint="Write a number and a unit: 90m, 12h, 30d or 2w."
        )
    return int(found[1]) * _UNIT_S[found[2]]


def expiry(now: datetime, expires_in_s: float | None) -> datetime | None:
    """When a key made now ends; None is never.

    Raises: KeyWishError.
    """
    if expires_in_s is None:
        return None
    if not 0 < expires_in_s <= LONGEST_S:
        raise KeyWishError(f"a key lives between 1 second and 100 years; {expires_in_s:g} s is outside")
    return now + timedelta(seconds=expires_in_s)
