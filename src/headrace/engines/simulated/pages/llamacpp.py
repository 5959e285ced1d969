"""llama.cpp's `/metrics`. Source: a running llama.cpp (xllamacpp 2026.10) and its tools/server/server-context.cpp."""

from headrace.engines.simulated.exposition import counter, gauge, page
from headrace.engines.simulated.stats import MetricsView


def _rate(tokens: float, seconds: float) -> float:
    return tokens / seconds if seconds else 0.0


FAMILIES = (
    counter("llamacpp:prompt_tokens_total", lambda v: v.load.prompt_tokens - v.load.prefix_hit_tokens),
    counter("llamacpp:prompt_tokens_cached_total", lambda v: v.load.prefix_hit_tokens),
    counter("llamacpp:prompt_seconds_total", lambda v: v.stats.prefill_s),
    counter("llamacpp:tokens_predicted_total", lambda v: v.load.generation_tokens),
    counter("llamacpp:tokens_predicted_seconds_total", lambda v: v.stats.decode_s),
    counter("llamacpp:spec_decode_num_draft_tokens_total", lambda v: v.load.draft_tokens),
    counter("llamacpp:spec_decode_num_accepted_tokens_total", lambda v: v.load.accepted_tokens),
    counter("llamacpp:n_decode_total", lambda v: v.iterations),
    counter("llamacpp:n_tokens_max", lambda v: v.load.kv_blocks_used * v.block_tokens),
    gauge("llamacpp:n_busy_slots_per_decode", lambda v: v.stats.decode_steps / max(v.stats.slot_steps, 1)),
    gauge("llamacpp:prompt_tokens_seconds", lambda v: _rate(v.load.prompt_tokens, v.stats.prefill_s)),
    gauge("llamacpp:predicted_tokens_seconds", lambda v: _rate(v.load.generation_tokens, v.stats.decode_s)),
    gauge("llamacpp:requests_processing", lambda v: v.load.running),
    gauge("llamacpp:requests_deferred", lambda v: v.load.waiting),
)


def metrics_page(view: MetricsView) -> str:
    return page(FAMILIES, view, {})
