"""KV memory of an engine: who holds which blocks, and what can be found again. One file per way of finding."""

from headrace.simulation.kv.block_hash import BlockHashCache
from headrace.simulation.kv.cache import CacheMatch, KvCache
from headrace.simulation.kv.radix import RadixCache
from headrace.simulation.kv.slots import SlotCache
from headrace.simulation.model import CacheKind, EngineModel

__all__ = ["CacheMatch", "KvCache", "cache_for"]


def cache_for(model: EngineModel) -> KvCache:
    """Return an empty KV memory of the model's kind."""
    host_blocks = model.host.total_blocks if model.host else 0
    match model.kv.kind:
        case CacheKind.BLOCK_HASH:
            return BlockHashCache(model.kv, host_blocks=host_blocks)
        case CacheKind.RADIX:
            return RadixCache(model.kv, host_blocks=host_blocks)
        case CacheKind.SLOTS:
            return SlotCache(model.kv, slots=model.bounds.max_sequences)
