"""Step times from first principles: what a step computes, reads and sends, against what the GPUs can do.

Matrix products and attention each take the longer of computing and reading; links and a fixed overhead come on top.
What the silicon reaches of its sheet is a parameter; `linear_clock.py` holds measured steps instead.
"""

from dataclasses import dataclass

from headrace.simulation.layout import KV_BYTES, Placement

ACTIVATION_BYTES = 2
"""Activations travel in 16 bits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Efficiency:
    """What engines reach of the sheet's figures. Assumptions until a calibration replaces them.

    Source: rules of thumb (large matrix products reach half to three quarters of the dense figure, streaming reads four
    fifths to nine tenths of the bandwidth); not measured by this project, which has no GPU.
    """

    compute_ratio: float = 0.6
    attention_ratio: float = 0.45
    memory_ratio: float = 0.85
    link_ratio: float = 0.7
    link_latency_s: float = 8e-6
    """Of one collective operation over NVLink."""
    bus_latency_s: float = 20e-6
    """The same over PCIe."""
    step_overhead_s: float = 1e-3
    """Scheduling, launch and sampling of one step."""
    sequence_overhead_s: float = 5e-6
    """More of it for each sequence that gets a token."""


class RooflineClock:
    """Step times of one replica.

    Pipeline stages work on as many parts of the batch at once: a step takes as long as one part needs to pass through
    all of them. Windowed layers are taken to see the mean context, cut at the window.
    """

    def __init__(self, placement: Placement, efficiency: Efficiency | None = None) -> None:
        self.placement = placement
        self.efficiency = efficiency = efficiency or Efficiency()
        gpu, config, layout = placement.gpu, placement.config, placement.layout
        tensor = layout.tensor
        product_per_s = gpu.operations_per_s(placement.compute_precision) * efficiency.compute_ratio
        attention_per_s = gpu.operations_per_s("bf16") * efficiency.attention_ratio
        bytes_per_s = gpu.memory_bytes_per_s * efficiency.memory_ratio
        body = config.active_parameters - config.head_parameters
        self._token_s = 2 * body / tensor / product_per_s
        self._head_token_s = 2 * config.head_parameters / tensor / product_per_s
        fixed_bytes = placement.attention_bytes_per_gpu + placement.dense_bytes_per_gpu + placement.head_bytes_per_gpu
        self._fixed_read_s = fixed_bytes / bytes_per_s
        self._routed_read_s = placement.routed_bytes_per_gpu / bytes_per_s
        experts = config.experts
        self._unchosen_ratio = 1.0 - experts.active / experts.count if experts else 1.0
        self._prefill_pair_s = _prefill_pair_operations(placement) / tensor / attention_per_s
        self._decode_pair_s = _decode_pair_operations(placement) / tensor / attention_per_s
        kv_layer_bytes = config.kv_elements_per_layer * KV_BYTES[placement.kv] / placement.kv_split
        self._kv_layer_s = kv_layer_bytes / bytes_per_s
        self._full_layers, self._window_layers = config.full_layers, config.window_layers
        self._window_tokens = config.window.tokens if config.window else 0
        self._link_token_s, self._link_fixed_s = _link_times(placement, efficiency)
        self._pipeline = layout.pipeline

    def step_s(
        self,
        prefill_tokens: int,
        prefill_pairs: int,
        prefill_kv_tokens: int,
        decode_sequences: int,
        decode_tokens: int,
        decode_kv_tokens: int,
    ) -> float:
        stages = self._pipeline
        tokens = (prefill_tokens + decode_tokens) / stages
        heads = (decode_tokens + (1 if prefill_tokens else 0)) / stages
        read_s = self._fixed_read_s
        if self._routed_read_s:
            read_s += self._routed_read_s * (1.0 - self._unchosen_ratio**tokens)
        products_s = max(tokens * self._token_s + heads * self._head_token_s, read_s)
        attention_s = 0.0
        if prefill_tokens:
            layers = self._layers_seen(prefill_pairs / prefill_tokens)
            attention_s += layers * max(prefill_pairs * self._prefill_pair_s, prefill_kv_tokens * self._kv_layer_s)
        if decode_sequences:
            layers = self._layers_seen(decode_kv_tokens / decode_sequences)
            pairs = decode_kv_tokens * (decode_tokens / decode_sequences)
            attention_s += layers * max(pairs * self._decode_pair_s, decode_kv_tokens * self._kv_layer_s)
        overhead_s = self.efficiency.step_overhead_s + decode_sequences * self.efficiency.sequence_overhead_s
        links_s = self._link_fixed_s + tokens * self._link_token_s
        return products_s + attention_s / stages + links_s + overhead_s

    def _layers_seen(self, context_tokens: float) -> float:
        """Return the layers as if all saw the whole context: windowed ones count for the part that they see."""
        if not self._window_layers or context_tokens <= self._window_tokens:
            return self._full_layers + self._window_layers
        return self._full_layers + self._window_layers * self._window_tokens / context_tokens


def _prefill_pair_operations(placement: Placement) -> float:
    """Return the operations of one (query, key) pair in one layer: a product with the key, one with the value."""
    config = placement.config
    if config.latent is not None:
        return 2.0 * config.heads * (config.latent.nope_dim + config.latent.rope_dim + config.latent.value_dim)
    return 4.0 * config.heads * config.head_dim


def _decode_pair_operations(placement: Placement) -> float:
    """Return the same while generating: latent attention works on the compressed vectors as they are."""
    config = placement.config
    if config.latent is not None:
        return 2.0 * config.heads * (2 * config.latent.kv_rank + config.latent.rope_dim)
    return 4.0 * config.heads * config.head_dim


def _link_times(placement: Placement, efficiency: Efficiency) -> tuple[float, float]:
    """Return seconds a token and seconds a step that collectives take: two a layer, or stages handing over.

    Tensor parallel: two all-reduces a layer, each moving 2 (n-1)/n of the activations. With replicated attention: one
    dispatch and one combine a layer with experts, each token going to as many GPUs as it has experts.
    """
    gpu, config, layout = placement.gpu, placement.config, placement.layout
    token_bytes = config.hidden * ACTIVATION_BYTES
    bytes_per_s = gpu.peer_bytes_per_s(layout.tensor) * efficiency.link_ratio
    has_nvlink = gpu.has_nvlink and layout.tensor <= gpu.max_nvlink_gpus
    latency_s = efficiency.link_latency_s if has_nvlink else efficiency.bus_latency_s
    token_s = fixed_s = 0.0
    if layout.tensor > 1:
        share = (layout.tensor - 1) / layout.tensor
        if layout.is_attention_replicated and config.experts:
            copies = min(config.experts.active, layout.tensor)
            token_s = 2 * config.moe_layers * copies * share * token_bytes / layout.tensor / bytes_per_s
            fixed_s = 2 * config.moe_layers * latency_s
        else:
            token_s = 2 * config.layers * 2 * share * token_bytes / bytes_per_s
            fixed_s = 2 * config.layers * latency_s
    if layout.pipeline > 1:
        hops = layout.pipeline - 1
        token_s += hops * token_bytes / bytes_per_s
        fixed_s += hops * latency_s
    return token_s, fixed_s
