"""The architecture of a model that is not here yet, from the catalogue of published shapes, by its name on the Hub."""

from headrace.catalog.model_configs import ModelConfig, find_model_config
from headrace.sizing.architecture import Architecture, CacheLayers, LayerKind, Parameters, WeightFormat
from headrace.sizing.quantization import MXFP4_BYTES

PLAIN = WeightFormat(name="bf16", matrix_bytes=2.0, plain_bytes=2.0)
OTHERWISE = {
    "deepseek-ai/": WeightFormat(name="fp8", matrix_bytes=1.0, plain_bytes=2.0),
    "openai/gpt-oss": WeightFormat(name="mxfp4", matrix_bytes=MXFP4_BYTES, plain_bytes=2.0, experts_only=True),
}
"""Beginnings of names whose originals are not published in 16 bits. Source: their config.json on the Hub."""


def find_published(name: str) -> Architecture | None:
    """Return the architecture of a model in the catalogue; None for any other, and for quantized copies."""
    config = find_model_config(name)
    if config is None:
        return None
    weights = next((found for start, found in OTHERWISE.items() if config.name.startswith(start)), PLAIN)
    return Architecture(
        family=config.name,
        layers=config.layers,
        hidden=config.hidden,
        heads=config.heads,
        kv_heads=config.kv_heads,
        intermediate=_active_intermediate(config),
        vocabulary=config.vocabulary,
        context_tokens=config.context_tokens,
        cache=_cache(config),
        parameters=_parameters(config),
        weights=weights,
        has_experts=config.experts is not None,
    )


def _active_intermediate(config: ModelConfig) -> int:
    experts = config.experts
    active = 0 if experts is None else (experts.active + experts.shared) * experts.intermediate
    return max(config.intermediate, active)


def _cache(config: ModelConfig) -> tuple[CacheLayers, ...]:
    if config.latent is not None:
        key_dim = config.latent.kv_rank + config.latent.rope_dim
        return (CacheLayers(kind=LayerKind.LATENT, count=config.layers, key_dim=key_dim),)
    heads, size = config.kv_heads, config.head_dim
    full = CacheLayers(kind=LayerKind.FULL, count=config.full_layers, kv_heads=heads, key_dim=size, value_dim=size)
    if config.window is None:
        return (full,)
    window = CacheLayers(
        kind=LayerKind.WINDOW,
        count=config.window_layers,
        kv_heads=heads,
        key_dim=size,
        value_dim=size,
        window_tokens=config.window.tokens,
    )
    return (full, window)


def _parameters(config: ModelConfig) -> Parameters:
    embedding = config.head_parameters * (1 if config.is_embedding_tied else 2)
    experts, latent = config.routed_parameters, config.latent
    replicated = 0
    if latent is not None:
        replicated = config.layers * config.hidden * (latent.query_rank + latent.kv_rank + latent.rope_dim)
    linear = max(0, config.parameters - embedding - experts - replicated)
    return Parameters(linear=linear, experts=experts, replicated=replicated, embedding=embedding)
