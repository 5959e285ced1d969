"""Prefix cache as a tree of token sequences, exact to the page, as in SGLang."""

from __future__ import annotations

import heapq

from headrace.simulation.kv.cache import CacheMatch, KvCache, shared_prefix_length
from headrace.simulation.model import KvModel
from headrace.simulation.sequence import LiveSequence


class _Node:
    """A run of tokens below its parent; locked while a sequence uses it or anything below it."""

    __slots__ = ("children", "is_gone", "locks", "parent", "tokens", "used_tick")

    def __init__(self, tokens: tuple[int, ...], parent: _Node | None) -> None:
        self.tokens = tokens
        self.parent = parent
        self.children: dict[tuple[int, ...], _Node] = {}
        self.locks = 0
        self.used_tick = 0
        self.is_gone = False


class RadixCache(KvCache):
    """One tree per salt. Sizes are counted in pages; a node's length is a whole number of pages."""

    def __init__(self, model: KvModel) -> None:
        super().__init__(model)
        self._roots: dict[str, _Node] = {}
        self._locked: dict[str, tuple[_Node, int]] = {}
        """By request: the deepest node it locks, and how many tokens lead there."""
        self._tree_blocks = 0
        self._protected_blocks = 0
        self._tick = 0
        self._leaves: list[tuple[int, int, _Node]] = []
        """Candidates for eviction; stale entries are skipped."""

    @property
    def shared_blocks(self) -> int:
        return self._tree_blocks

    @property
    def idle_blocks(self) -> int:
        return self._tree_blocks - self._protected_blocks

    def match(self, sequence: LiveSequence) -> CacheMatch:
        node, depth = self._root(sequence), 0
        if self.is_prefix_cached:
            tokens = sequence.known_tokens(sequence.target_tokens)
            node, depth = self._descend(node, tokens[: self._aligned(sequence.target_tokens - 1)])
        self._lock(node)
        self._locked[sequence.request_id] = (node, depth)
        return CacheMatch(depth, 0)

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
        reached += depth
        if reached < len(known):
            deepest = self._add_leaf(deepest, known[reached:])
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
            if node.is_gone or node.locks or node.children or tick != node.used_tick:
                continue
            freed += self._remove_leaf(node)
        self.evicted_blocks += freed

    def clear(self) -> None:
        if self.idle_blocks:
            self.evict(self.idle_blocks)

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
            if child is None:
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
        upper.locks, upper.used_tick = node.locks, node.used_tick
        parent.children[upper.tokens[: self.block_tokens]] = upper
        node.tokens, node.parent = node.tokens[length:], upper
        upper.children[node.tokens[: self.block_tokens]] = node
        return upper

    def _add_leaf(self, parent: _Node, tokens: tuple[int, ...]) -> _Node:
        leaf = _Node(tokens, parent)
        leaf.used_tick = self._tick
        parent.children[tokens[: self.block_tokens]] = leaf
        self._tree_blocks += len(tokens) // self.block_tokens
        return leaf

    def _remove_leaf(self, node: _Node) -> int:
        parent = node.parent
        assert parent is not None
        node.is_gone = True
        del parent.children[node.tokens[: self.block_tokens]]
        self._note_leaf(parent)
        blocks = len(node.tokens) // self.block_tokens
        self._tree_blocks -= blocks
        return blocks

    def _note_leaf(self, node: _Node) -> None:
        if node.parent is not None and not node.children and not node.locks:
            self._tick += 1
            heapq.heappush(self._leaves, (node.used_tick, self._tick, node))

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
