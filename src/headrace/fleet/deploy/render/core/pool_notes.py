"""What of a pool cannot be rendered, or not as declared, and why."""

import re
from collections.abc import Iterator

from headrace.catalog.images import known_versions
from headrace.declaration.model import Declaration, Pool
from headrace.domain.endpoint import EngineKind
from headrace.engines.declared import say_problem
from headrace.engines.registry import driver_for
from headrace.fleet.deploy.render.core.engine_workloads import (
    PROGRAMS,
    REFERENCE,
    PoolPlan,
    known_image,
    load_s_of,
    spec_of,
)
from headrace.fleet.deploy.render.core.model import RenderNote, Severity
from headrace.fleet.deploy.render.core.multi_node import node_notes
from headrace.fleet.deploy.render.core.site import Site
from headrace.fleet.deploy.render.core.weights import weights_notes, weights_of

ANY_REFERENCE = re.compile(r"\$\{(?:env|file):")


def pool_notes(declaration: Declaration, plan: PoolPlan, site: Site) -> Iterator[RenderNote]:
    """Yield what of a pool cannot be rendered, or only in part."""
    name, pool = plan.name, plan.pool
    spec = spec_of(declaration, plan, site, number=0)
    for problem in driver_for(pool.engine).check_options(spec):
        yield RenderNote(
            severity=Severity.ERROR,
            key=".".join(("pools", name, *map(str, problem.key))),
            message=say_problem(problem).rstrip("."),
        )
    yield from weights_notes(declaration, name)
    yield from node_notes(name, pool, plan.gpus)
    yield from _secret_notes(name, pool)
    if pool.engine is EngineKind.LLAMACPP and pool.options.disaggregation is not None:
        yield RenderNote(
            severity=Severity.ERROR,
            key=f"pools.{name}.disaggregation",
            message="is not rendered for llama.cpp: its replicas share a folder, not a network",
        )
    if site.is_container:
        yield from _image_notes(plan)
    elif plan.pool.options.runtime.python is None and not plan.pool.options.runtime.command:
        yield RenderNote(
            severity=Severity.WARNING,
            key=f"pools.{name}.runtime",
            message=f"names no program: {PROGRAMS[pool.engine][0]} is looked up where systemd looks",
            hint="Give runtime.python or runtime.command with an absolute path",
        )
    if pool.threads is None and not plan.gpus and "threads" in driver_for(pool.engine).options:
        yield RenderNote(
            severity=Severity.WARNING,
            key=f"pools.{name}.threads",
            message="is not declared: 1 is rendered, since the cores of the machine it is for are not known here",
            hint="Give it the cores that one replica may use",
        )
    expected = load_s_of(pool, weights_of(declaration, name, site))
    if pool.load_timeout_s < expected:
        yield RenderNote(
            severity=Severity.WARNING,
            key=f"pools.{name}.load_timeout_s",
            message=f"is {pool.load_timeout_s:g}, but loading is expected to take {expected:.0f} s",
        )


def _secret_notes(name: str, pool: Pool) -> Iterator[RenderNote]:
    for variable, text in pool.options.runtime.env.items():
        if ANY_REFERENCE.search(text) and not REFERENCE.fullmatch(text):
            yield RenderNote(
                severity=Severity.ERROR,
                key=f"pools.{name}.runtime.env.{variable}",
                message="holds a reference within other text, which cannot be rendered without showing it",
                hint="Make the whole value one ${env:NAME}",
            )


def _image_notes(plan: PoolPlan) -> Iterator[RenderNote]:
    container = plan.pool.container
    if container.image is not None or known_image(plan) is not None:
        return
    versions = ", ".join(known_versions(plan.pool.engine)) or "none"
    asked = f"{container.engine_version} is" if container.engine_version else "has no image for CPUs that is"
    yield RenderNote(
        severity=Severity.ERROR,
        key=f"pools.{plan.name}.container.engine_version",
        message=f"{plan.pool.engine.value} {asked} not among the versions whose image is known: {versions}",
        hint="Give container.image",
    )
