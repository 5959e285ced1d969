"""Which endpoint holds which prompt beginnings."""

from hypothesis import given
from hypothesis import strategies as st

from headrace.gateway.routing.core.chain import PromptChain
from headrace.gateway.routing.core.prefix_index import PrefixIndex, Shelf

BLOCK = 10


def chain(*names: int) -> PromptChain:
    return PromptChain(names=names, ends=range(BLOCK, BLOCK * 100, BLOCK), length=BLOCK * len(names) + 3)


def shelves(index: PrefixIndex, count: int, *, capacity: int = 1000) -> list[Shelf]:
    return [index.new_shelf(capacity=capacity, max_blocks=100) for _ in range(count)]


def everyone(found: list[Shelf]) -> int:
    return sum(shelf.bit for shelf in found)


def test_each_endpoint_holds_what_it_was_sent() -> None:
    """A prompt finds how much of its beginning each endpoint holds; who holds nothing is left out."""
    index = PrefixIndex()
    first, second, third = found = shelves(index, 3)
    index.place(first, chain(1, 2, 3, 4))
    index.place(second, chain(1, 2, 5))
    matches = index.match(chain(1, 2, 3, 9), everyone(found))
    assert matches.held == {first.bit: 30, second.bit: 20}
    assert (matches.deepest, matches.fresh_name) == (first.bit, 9)
    assert third.bit not in matches.held


def test_candidates_that_may_not_answer_do_not_count() -> None:
    """An endpoint that is no candidate neither holds anything for this request nor hides what the others hold."""
    index = PrefixIndex()
    first, second = shelves(index, 2)
    index.place(first, chain(1, 2, 3))
    index.place(second, chain(1))
    assert index.match(chain(1, 2, 3), second.bit).held == {second.bit: 10}
    assert index.match(chain(7), second.bit).fresh_name == 7


def test_the_ends_of_prompts_used_longest_ago_go_first() -> None:
    """What an engine's KV memory has no room for is forgotten, as the engine does: oldest first, ends before
    beginnings."""
    index = PrefixIndex()
    (shelf,) = shelves(index, 1, capacity=50)
    index.place(shelf, chain(1, 2, 3))
    index.place(shelf, chain(11, 12))
    index.place(shelf, chain(1, 2, 3))  # used again: 11, 12 are the oldest now
    index.place(shelf, chain(21))
    assert index.match(chain(11, 12), shelf.bit).held == {shelf.bit: 10}
    assert index.match(chain(1, 2, 3), shelf.bit).held == {shelf.bit: 30}
    assert shelf.held == 50


def test_generated_tokens_take_room_too() -> None:
    """Answers push prompts out of the KV memory, though nothing here can name them."""
    index = PrefixIndex()
    (shelf,) = shelves(index, 1, capacity=40)
    index.place(shelf, chain(1, 2, 3))
    shelf.unnamed = 20
    index.age(shelf)
    assert index.match(chain(1, 2, 3), shelf.bit).held == {shelf.bit: 20}


def test_what_was_never_computed_is_taken_back() -> None:
    """An attempt that failed before its first token leaves nothing behind but what was there before it."""
    index = PrefixIndex()
    (shelf,) = shelves(index, 1)
    index.place(shelf, chain(1, 2))
    added = index.place(shelf, chain(1, 2, 3, 4))
    index.take_back(shelf, added)
    assert index.match(chain(1, 2, 3, 4), shelf.bit).held == {shelf.bit: 20}
    assert shelf.held == 20


def test_a_restarted_endpoint_holds_nothing_and_is_forgotten_step_by_step() -> None:
    """Its blocks are taken out a few at a time, and its number is free only after that."""
    index = PrefixIndex()
    old, other = shelves(index, 2)
    index.place(old, chain(*range(1, 51)))
    index.place(other, chain(1, 2))
    index.retire(old)
    fresh = index.new_shelf(capacity=1000, max_blocks=100)
    assert fresh.bit not in (old.bit, other.bit)
    assert index.match(chain(1, 2, 3), fresh.bit | other.bit).held == {other.bit: 20}
    index.sweep(30)
    index.sweep(30)
    assert len(index) == 2
    assert index.new_shelf(capacity=1, max_blocks=1).bit == old.bit


prompts = st.lists(st.integers(1, 6), min_size=1, max_size=8).map(
    lambda steps: tuple(hash(tuple(steps[: end + 1])) for end in range(len(steps)))
)


@given(st.lists(st.tuples(st.integers(0, 2), prompts, st.booleans()), max_size=40))
def test_the_index_and_the_shelves_tell_the_same(story: list[tuple[int, tuple[int, ...], bool]]) -> None:
    """Whatever was placed, evicted and taken back: the map of holders is that of the shelves, and none is too full."""
    index = PrefixIndex()
    found = shelves(index, 3, capacity=120)
    for place, names, is_taken_back in story:
        added = index.place(found[place], chain(*names))
        if is_taken_back:
            index.take_back(found[place], added)
    holders: dict[int, int] = {}
    for shelf in found:
        assert shelf.held == sum(shelf.sizes.values()) <= 120
        for name in shelf.sizes:
            holders[name] = holders.get(name, 0) | shelf.bit
    assert index._holders == holders  # pyright: ignore[reportPrivateUsage]


def test_a_shelf_is_shrunk_to_what_the_endpoint_still_holds() -> None:
    """The oldest goes first, and what the endpoint may hold later stays as it was."""
    index = PrefixIndex()
    (shelf,) = shelves(index, 1)
    index.place(shelf, chain(1, 2))
    index.place(shelf, chain(7, 8))
    before, capacity = shelf.held, shelf.capacity
    index.shrink_to(shelf, before)
    assert shelf.held == before
    index.shrink_to(shelf, before / 2)
    assert index.match(chain(1, 2), shelf.bit).held == {}
    assert set(index.match(chain(7, 8), shelf.bit).held) == {shelf.bit}
    index.shrink_to(shelf, 0)
    assert (shelf.held, len(index), shelf.capacity) == (0, 0, capacity)
