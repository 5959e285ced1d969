"""Prefix cache as a tree of token sequences, exact to the page, with a host tier below it, as in SGLang (HiCache)."""

from __future__ import annotations

import heapq

from headrace.simulation.kv.cache import CacheMatch, KvCache, shared_prefix_length
from headrace.simulation.model import KvModel
from headrace.simulation.sequence import LiveSequence


class _Node:
    """A run of tokens below its parent; locked while a sequence uses it or anything below it."""

    __slots__ = ("children", "is_gone", "is_on_host", "locks", "parent", "tokens", "used_tick")

    def __init__(self, tokens: tuple[int, ...], parent: _Node | None) -> None:
        self.tokens = tokens
        self.parent = parent
        self.children: dict[tuple[int, ...], _Node] = {}
        self.locks = 0
        self.used_tick = 0
        self.is_gone = False
        self.is_on_host = False
        """Its KV lies in host memory. Then all below it does too, and nobody uses it."""

    @property
    def has_device_children(self) -> bool:
        return any(not child.is_on_host for child in self.children.values())


class RadixCache(KvCache):
    """One tree per salt. Sizes are counted in pages; a node's length is a whole number of pages."""

    def __init__(self, model: KvModel, *, host_blocks: int = 0) -> None:
        super().__init__(model)
        self._host_limit = host_blocks
        self._host_blocks = 0
        self._roots: dict[str, _Node] = {}
        self._locked: dict[str, tuple[_Node, int]] = {}
        """By request: the deepest node it locks, and how many tokens lead there."""
        self._tree_blocks = 0
        self._protected_blocks = 0
        self._tick = 0
        self._leaves: list[tuple[int, int, _Node]] = []
        """Candidates for eviction; stale entries are skipped."""
        self._host_leaves: list[tuple[int, int, _Node]] = []
        """The same on the host."""

    @property
    def shared_blocks(self) -> int:
        return self._tree_blocks

    @property
    def idle_blocks(self) -> int:
        return self._tree_blocks - self._protected_blocks

    @property
    def host_blocks(self) -> int:
        return self._host_blocks

    def match(self, sequence: LiveSequence) -> CacheMatch:
        node, depth = self._root(sequence), 0
        host_tokens = 0
        if self.is_prefix_cached:
            tokens = sequence.known_tokens(sequence.target_tokens)[: self._aligned(sequence.target_tokens - 1)]
            node, depth = self._descend(node, tokens)
            host_tokens = self._measure_host(node, tokens[depth:])
        self._lock(node)
        self._locked[sequence.request_id] = (node, depth)
        return CacheMatch(depth, host_tokens)

    def _measure_host(self, node: _Node, tokens: tuple[int, ...]) -> int:
        """Return how much more of a prompt the host has."""
        depth = 0
        while depth < len(tokens):
            child = node.children.get(tokens[depth : depth + self.block_tokens])
            if child is None:
                break
            shared = self._aligned(shared_prefix_length(child.tokens, tokens[depth : depth + len(child.tokens)]))
            depth += shared
            if shared < len(child.tokens):
                break
            node = child
        return depth

    def abandon(self, sequence: LiveSequence) -> None:
        node, _depth = self._locked.pop(sequence.request_id)
        self._unlock(node)

    def publish(self, sequence: LiveSequence, tokens: int) -> None:
        node, depth = self._locked[sequence.request_id]
        if not self.is_prefix_cached or self._aligned(tokens) <= depth:
            return
        known = sequence.known_tokens(tokens)
        known = known[: self._aligned(len(known))]
        if len(known) <= depth:
            return
        deepest, reached = self._descend(node, known[depth:])
        deepest = self._extend(deepest, known[depth + reached :])
        self._lock(deepest)
        self._unlock(node)
        # What was already in the tree is a duplicate and becomes free; the rest has moved into the tree.
        self.private_blocks -= (len(known) - depth) // self.block_tokens
        self.releases += 1
        self._locked[sequence.request_id] = (deepest, len(known))

    def release(self, sequence: LiveSequence, computed_tokens: int, allocated_tokens: int) -> None:
        if sequence.request_id not in self._locked:
            return
        self.publish(sequence, computed_tokens)
        node, depth = self._locked.pop(sequence.request_id)
        self.give_back(self.blocks_for(allocated_tokens) - depth // self.block_tokens)
        self._unlock(node)

    def evict(self, blocks: int) -> None:
        freed = 0
        while freed < blocks:
            tick, _order, node = heapq.heappop(self._leaves)
            is_stale = node.is_gone or node.is_on_host or tick != node.used_tick
            if is_stale or node.locks or node.has_device_children:
                continue
            freed += self._evict_leaf(node)
        self.evicted_blocks += freed

    def clear(self) -> None:
        limit, self._host_limit = self._host_limit, 0
        if self.idle_blocks:
            self.evict(self.idle_blocks)
        self._shrink_host(0)
        self._host_limit = limit

    def _root(self, sequence: LiveSequence) -> _Node:
        return self._roots.setdefault(sequence.request.salt, _Node((), None))

    def _aligned(self, tokens: int) -> int:
        return tokens - tokens % self.block_tokens

    def _descend(self, node: _Node, tokens: tuple[int, ...]) -> tuple[_Node, int]:
        """Follow tokens down as far as the tree knows them, splitting a node where they part."""
        self._tick += 1
        depth, page = 0, self.block_tokens
        while depth < len(tokens):
            child = node.children.get(tokens[depth : depth + page])
            if child is None or child.is_on_host:
                break
            shared = self._aligned(shared_prefix_length(child.tokens, tokens[depth : depth + len(child.tokens)]))
            if shared < len(child.tokens):
                child = self._split(child, shared)
            node, depth = child, depth + shared
            node.used_tick = self._tick
        return node, depth

    def _split(self, node: _Node, length: int) -> _Node:
        """Put a node of the first `length` tokens above a node that keeps the rest."""
        parent = node.parent
        assert parent is not None
        upper = _Node(node.tokens[:length], parent)
        upper.locks, upper.used_tick, upper.is_on_host = node.locks, node.used_tick, node.is_on_host
        parent.children[upper.tokens[: self.block_tokens]] = upper
        node.tokens, node.parent = node.tokens[length:], upper
        upper.children[node.tokens[: self.block_tokens]] = node
        return upper

    def _extend(self, node: _Node, tokens: tuple[int, ...]) -> _Node:
        """Bring the path of these tokens into device memory: what the host has comes up, the rest is added."""
        while tokens:
            child = node.children.get(tokens[: self.block_tokens])
            if child is None:
                child = _Node(tokens, node)
                node.children[tokens[: self.block_tokens]] = child
            else:
                shared = self._aligned(shared_prefix_length(child.tokens, tokens[: len(child.tokens)]))
                if shared < len(child.tokens):
                    child = self._split(child, shared)
                child.is_on_host = False
                self._host_blocks -= len(child.tokens) // self.block_tokens
            child.used_tick = self._tick
            self._tree_blocks += len(child.tokens) // self.block_tokens
            node, tokens = child, tokens[len(child.tokens) :]
        return node

    def _evict_leaf(self, node: _Node) -> int:
        """Free a node's device memory: it moves to the host if that has room for it at all, else it is forgotten."""
        blocks = len(node.tokens) // self.block_tokens
        self._tree_blocks -= blocks
        node.is_on_host = True
        self._host_blocks += blocks
        if blocks > self._host_limit:
            self._forget(node)
        else:
            self._shrink_host(self._host_limit - blocks, spared=node)
            self._note_host_leaf(node)
        assert node.parent is not None
        self._note_leaf(node.parent)
        return blocks

    def _shrink_host(self, most_blocks: int, *, spared: _Node | None = None) -> None:
        """Forget what was used longest ago on the host until the rest, without the one spared, is small enough."""
        kept = len(spared.tokens) // self.block_tokens if spared else 0
        while self._host_blocks - kept > most_blocks:
            if not self._host_leaves:
                assert spared is not None
                for child in list(spared.children.values()):
                    self._forget(child)
                return
            _tick, _order, node = heapq.heappop(self._host_leaves)
            if node.is_on_host and not node.is_gone and not node.children and node is not spared:
                self._forget(node)

    def _forget(self, node: _Node) -> None:
        """Take a node on the host, and all below it, out of the tree."""
        for child in list(node.children.values()):
            self._forget(child)
        node.is_gone = True
        self._host_blocks -= len(node.tokens) // self.block_tokens
        parent = node.parent
        assert parent is not None
        del parent.children[node.tokens[: self.block_tokens]]
        self._note_host_leaf(parent)

    def _note_leaf(self, node: _Node) -> None:
        if node.parent is not None and not node.is_on_host and not node.locks and not node.has_device_children:
            self._tick += 1
            heapq.heappush(self._leaves, (node.used_tick, self._tick, node))

    def _note_host_leaf(self, node: _Node) -> None:
        if node.parent is not None and node.is_on_host and not node.is_gone and not node.children:
            self._tick += 1
            heapq.heappush(self._host_leaves, (node.used_tick, self._tick, node))

    def _lock(self, node: _Node | None) -> None:
        while node is not None and node.parent is not None:
            if node.locks == 0:
                self._protected_blocks += len(node.tokens) // self.block_tokens
            node.locks += 1
            node = node.parent

    def _unlock(self, node: _Node | None) -> None:
        while node is not None and node.parent is not None:
            node.locks -= 1
            if node.locks == 0:
                self._protected_blocks -= len(node.tokens) // self.block_tokens
                self._note_leaf(node)
            node = node.parent
