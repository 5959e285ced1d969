"""What the types cannot see of `disaggregation` and `handover`: halves without their other half, and no effect."""

from collections.abc import Iterator, Sequence

from headrace.declaration.finding import Finding, error, warning
from headrace.declaration.model import Declaration, Pool
from headrace.domain.endpoint import EngineKind


def lint_handover(declaration: Declaration) -> Iterator[Finding]:
    """Yield what is wrong or doubtful. Whether the KV of two pools fits is asked of their engines (`engines/`)."""
    for name, pool in declaration.pools.items():
        path = ("pools", name)
        role = _role(pool)
        if role is None:
            if "handover" in pool.model_fields_set:
                yield warning((*path, "handover"), "has no effect without disaggregation", "Set disaggregation.role.")
            continue
        if pool.engine is EngineKind.OPENAI:
            message = "headrace cannot hand prompts over to or from engines that it does not know (engine: openai)"
            yield error((*path, "disaggregation", "role"), message, "Name the engine, or leave disaggregation out.")
            continue
        others = {
            other: each
            for other, each in declaration.pools.items()
            if each is not pool and each.model == pool.model and _role(each) is not None
        }
        yield from _pairs(name, pool, role, others)
        yield from _with_itself(declaration, name, pool)
        if pool.engine is EngineKind.LLAMACPP:
            yield from _slots(declaration, name, pool)
            yield from _alike(name, pool, others)


def _role(pool: Pool) -> str | None:
    return None if pool.options.disaggregation is None else pool.options.disaggregation.role


def _pairs(name: str, pool: Pool, role: str, others: dict[str, Pool]) -> Iterator[Finding]:
    """A half needs its other half, in a pool that takes the same requests."""
    path = ("pools", name)
    finding = error if pool.engine is EngineKind.SGLANG else warning  # it answers nothing alone
    halves = {other: each for other, each in others.items() if role == "both" or _role(each) != role}
    if not halves:
        if role != "both":
            missing = "decode" if role == "prefill" else "prefill"
            message = f"is {role}, and no pool of model {pool.model} has the role {missing}: nothing is handed over"
            hint = f"Declare a pool with disaggregation: {{role: {missing}}}."
            yield finding((*path, "disaggregation", "role"), message, hint)
        elif _count(pool) == 1:
            message = (
                f"is both, and it is the only engine of model {pool.model} that has a role: nothing is handed over"
            )
            hint = "Add an engine, or leave disaggregation out."
            yield finding((*path, "disaggregation", "role"), message, hint)
        return
    if role == "decode" and any(_role(each) == "prefill" for each in halves.values()):
        return  # told at the prefill pool
    whys = {other: _why_apart(pool, each) for other, each in halves.items()}
    if all(whys.values()) and (role != "both" or _count(pool) == 1):
        named = "; ".join(f"{other}: {why}" for other, why in whys.items())
        message = f"is {role}, and no request may use it together with a pool of another role ({named})"
        yield finding((*path, "disaggregation", "role"), message, "Give both pools the same accepts.")
    elif role != "both" and all(each.region != pool.region for each in halves.values()):
        regions = ", ".join(f"{other}: {each.region or 'none'}" for other, each in halves.items())
        message = f"is {pool.region or 'none'}, another than that of all pools of the other role ({regions})"
        hint = "Requests of keys that are bound to one region are not handed over; put both roles into each region."
        yield warning((*path, "region"), message, hint)


def _count(pool: Pool) -> int | None:
    """Its engines; None: DNS says."""
    if pool.discover == "dns":
        return None
    return len(pool.endpoints) if pool.is_remote else pool.replicas or 1


def _why_apart(one: Pool, other: Pool) -> str | None:
    """Why no request is for both."""
    ours, theirs = one.accepts, other.accepts
    if ours.tenants and theirs.tenants and not set(ours.tenants) & set(theirs.tenants):
        return "other tenants"
    if ours.classes and theirs.classes and not set(ours.classes) & set(theirs.classes):
        return "other classes"
    for low, high in ((ours, theirs), (theirs, ours)):
        least, most = low.min_input_tokens, high.max_input_tokens
        if least is not None and most is not None and least > most:
            return "prompts of other lengths"
    return None


def _with_itself(declaration: Declaration, name: str, pool: Pool) -> Iterator[Finding]:
    """An engine that is declared under two roles hands over to itself, which ends in no text."""
    before: list[tuple[str, Pool]] = []
    for other, each in declaration.pools.items():
        if other == name:
            break
        if each.model == pool.model and _role(each) is not None and _role(each) != _role(pool):
            before.append((other, each))
    for other, each in before:
        for index in _shared(pool.endpoints, each.endpoints):
            message = f"is an engine of pools.{other} too, with the role {_role(each)}: none hands over to itself"
            yield error(("pools", name, "endpoints", index), message, "Declare it once, with the role both.")


def _shared(endpoints: Sequence[str], others: Sequence[str]) -> Iterator[int]:
    found = {url.rstrip("/") for url in others}
    for index, url in enumerate(endpoints):
        if url.rstrip("/") in found:
            yield index


def _slots(declaration: Declaration, name: str, pool: Pool) -> Iterator[Finding]:
    path = ("pools", name, "handover")
    if pool.is_remote and pool.handover.folder is None:
        message = "is needed: llama.cpp hands over by files, which the gateway removes"
        yield error((*path, "folder"), message, "Name the folder that both engines have as --slot-save-path.")
    slots = _slot_count(pool)
    if slots is not None and slots < declaration.gateway.workers:
        message = f"is {slots}, fewer than gateway.workers: each worker gives out slots of its own"
        yield warning((*path, "slots"), message, "Some workers will hand nothing over; lower gateway.workers.")


def _alike(name: str, pool: Pool, others: dict[str, Pool]) -> Iterator[Finding]:
    """Prefill's files must be where decode looks for them."""
    path = ("pools", name, "handover")
    if _role(pool) == "decode":
        return
    folder, slots = pool.handover.folder, _slot_count(pool)
    takers = {other: each for other, each in others.items() if _role(each) != "prefill"}
    folders = {other: each.handover.folder for other, each in takers.items() if each.handover.folder is not None}
    if folder is not None and folders and not any(_is_same(folder, each) for each in folders.values()):
        named = ", ".join(f"pools.{other}: {each}" for other, each in folders.items())
        message = f"is {folder}, which no pool that answers has ({named}): what is saved there is never found"
        yield error((*path, "folder"), message, "Name one folder in both pools, the --slot-save-path of both engines.")
    counts = {other: _slot_count(each) for other, each in takers.items()}
    if slots is not None and counts and all(each is not None and each < slots for each in counts.values()):
        named = ", ".join(f"pools.{other}: {each}" for other, each in counts.items())
        message = f"is {slots}, more than those that answer have ({named}): hand-overs wait for a slot there"
        yield warning((*path, "slots"), message, "Give the engines that answer as many slots, or add engines.")


def _slot_count(pool: Pool) -> int | None:
    return pool.handover.slots or pool.options.batching.max_sequences


def _is_same(folder: str, other: str) -> bool:
    return folder.rstrip("/") == other.rstrip("/")
