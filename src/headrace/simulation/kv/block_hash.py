"""Prefix cache of full blocks under a chained hash, as in vLLM and TensorRT-LLM, with a host tier behind it."""

from collections import OrderedDict
from hashlib import blake2b

from headrace.simulation.kv.cache import CacheMatch, KvCache
from headrace.simulation.model import KvModel
from headrace.simulation.sequence import LiveSequence


class _Holding:
    """What one sequence has pinned, and the names of its blocks."""

    __slots__ = ("hashes", "pinned", "published")

    def __init__(self, hashes: list[int]) -> None:
        self.hashes = hashes
        self.pinned: list[int] = []
        self.published = 0
        """Full blocks that were looked at; where another sequence had the same one, the duplicate stays private."""


def salt_root(salt: str) -> int:
    """Return where the chain of a salt begins: the same in every process."""
    return int.from_bytes(blake2b(salt.encode(), digest_size=7).digest(), "big") if salt else 0


def chain_hashes(parent: int, tokens: tuple[int, ...], block_tokens: int) -> list[int]:
    """Return a name for each full block that stands for it and all before it.

    Python's hash of tuples of integers is the same in every process, and quick.
    """
    names: list[int] = []
    for start in range(0, len(tokens) - block_tokens + 1, block_tokens):
        parent = hash((parent, tokens[start : start + block_tokens]))
        names.append(parent)
    return names


class BlockHashCache(KvCache):
    """Blocks by name, with reference counts; idle ones in the order of their last use."""

    def __init__(self, model: KvModel, *, host_blocks: int = 0) -> None:
        super().__init__(model)
        self._references: dict[int, int] = {}
        self._idle: OrderedDict[int, None] = OrderedDict()
        self._holdings: dict[str, _Holding] = {}
        self._host: OrderedDict[int, None] = OrderedDict()
        self._host_limit = host_blocks

    @property
    def shared_blocks(self) -> int:
        return len(self._references)

    @property
    def idle_blocks(self) -> int:
        return len(self._idle)

    @property
    def host_blocks(self) -> int:
        return len(self._host)

    def match(self, sequence: LiveSequence) -> CacheMatch:
        holding = self._holdings.get(sequence.request_id)
        if holding is None:
            holding = self._holdings[sequence.request_id] = _Holding(self._name_blocks(sequence))
        names = holding.hashes[: (sequence.target_tokens - 1) // self.block_tokens]
        references, idle, pinned = self._references, self._idle, holding.pinned
        for name in names:
            count = references.get(name)
            if count is None:
                break
            if count == 0:
                del idle[name]
            references[name] = count + 1
            pinned.append(name)
        device = holding.published = len(pinned)
        host = device
        while host < len(names) and names[host] in self._host:
            host += 1
        return CacheMatch(device * self.block_tokens, (host - device) * self.block_tokens)

    def abandon(self, sequence: LiveSequence) -> None:
        self._unpin(self._holdings[sequence.request_id])

    def publish(self, sequence: LiveSequence, tokens: int) -> None:
        holding = self._holdings[sequence.request_id]
        full = min(tokens // self.block_tokens, len(holding.hashes))
        if full <= holding.published:
            return
        references = self._references
        fresh = [name for name in holding.hashes[holding.published : full] if name not in references]
        references.update(dict.fromkeys(fresh, 1))
        holding.pinned += fresh
        self.private_blocks -= len(fresh)
        holding.published = full

    def release(self, sequence: LiveSequence, computed_tokens: int, allocated_tokens: int) -> None:
        holding = self._holdings.get(sequence.request_id)
        if holding is None:
            return
        if computed_tokens > sequence.input_tokens and self.is_prefix_cached:
            self._name_reply(sequence, holding, computed_tokens)
        self.publish(sequence, computed_tokens)
        self.give_back(self.blocks_for(allocated_tokens) - len(holding.pinned))
        self._unpin(holding)
        del self._holdings[sequence.request_id]

    def evict(self, blocks: int) -> None:
        for _ in range(blocks):
            name, _none = self._idle.popitem(last=False)
            del self._references[name]
            if self._host_limit:
                self._spill(name)
        self.evicted_blocks += blocks

    def clear(self) -> None:
        for name in self._idle:
            del self._references[name]
        self._idle.clear()
        self._host.clear()

    def _spill(self, name: int) -> None:
        self._host[name] = None
        self._host.move_to_end(name)
        if len(self._host) > self._host_limit:
            self._host.popitem(last=False)

    def _unpin(self, holding: _Holding) -> None:
        """Let go in reverse, so that the ends of prompts are evicted before their beginnings, as vLLM does."""
        references, idle = self._references, self._idle
        for name in reversed(holding.pinned):
            count = references[name] - 1
            references[name] = count
            if count == 0:
                idle[name] = None
        holding.pinned.clear()
        holding.published = 0

    def _name_blocks(self, sequence: LiveSequence) -> list[int]:
        if not self.is_prefix_cached:
            return []
        request = sequence.request
        root = salt_root(request.salt)
        if request.prompt_blocks is not None:
            return [hash((root, name)) for name in request.prompt_blocks]
        return chain_hashes(root, sequence.known_tokens(sequence.target_tokens), self.block_tokens)

    def _name_reply(self, sequence: LiveSequence, holding: _Holding, computed_tokens: int) -> None:
        """Name the blocks that hold generated tokens, where the reply is known."""
        if sequence.request.reply_tokens is None or sequence.request.prompt_blocks is not None:
            return
        start = len(holding.hashes) * self.block_tokens
        parent = holding.hashes[-1] if holding.hashes else salt_root(sequence.request.salt)
        holding.hashes += chain_hashes(parent, sequence.known_tokens(computed_tokens)[start:], self.block_tokens)
