"""`gateway.sharing`: how several gateways hold one set of limits together."""

from typing import Literal

from pydantic import Field, field_serializer, field_validator

from headrace.declaration.shape import HIDDEN, RESTART, SECRET, Section

SCHEMES = ("redis://", "rediss://", "unix://")


class Sharing(Section):
    """Limits shared by several processes. The workers of one machine share through their supervisor, without any of
    this; several machines share through Redis or Valkey.
    """

    redis: str | None = Field(
        default=None,
        repr=False,
        description="URL of the Redis (6.2 or newer) or Valkey through which gateways share limits and budgets: "
        "redis://, rediss:// (TLS) or unix://. Needs the extra redis (docs/installation.md). Null: each machine has "
        "its own.",
        json_schema_extra={**RESTART, **SECRET},
    )
    namespace: str = Field(
        default="default",
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$",
        description="Gateways with the same one share; several fleets can use one Redis.",
        json_schema_extra=RESTART,
    )
    member_s: float = Field(
        default=5.0,
        ge=1,
        le=60,
        description="A gateway that Redis has not heard of for so long is dead, and what it held is free, seconds.",
        json_schema_extra=RESTART,
    )
    timeout_s: float = Field(
        default=0.5,
        ge=0.05,
        le=10,
        description="Longest wait for the store's answer, seconds; requests whose share is used up wait for it.",
        json_schema_extra=RESTART,
    )
    on_store_loss: Literal["open", "closed"] = Field(
        default="open",
        description="While the store cannot be reached. open: each process serves by its part of every limit, the "
        "limit divided by the processes last known. closed: requests under a limit are refused once what was leased "
        "is used up.",
        json_schema_extra=RESTART,
    )

    @field_validator("redis")
    @classmethod
    def _is_redis_url(cls, value: str | None) -> str | None:
        if value is not None and not value.startswith(SCHEMES):
            raise ValueError(f"must begin with {', '.join(SCHEMES)}")
        return value

    @field_serializer("redis", when_used="json")
    def _hide(self, value: str | None) -> str | None:
        return None if value is None else HIDDEN
