"""Fingerprints are found again, and bounded."""

from tests.unit.cache_misses.core.prompts import LONG, SECRET, chat

from headrace.cache_misses.core.fingerprint import Fingerprint, FingerprintMaker
from headrace.cache_misses.core.store import FingerprintStore, Seen

SCOPE = ("m", "t")


def seen(prompt: Fingerprint, *, ended_mono_s: float = 0.0) -> Seen:
    return Seen(
        scope=SCOPE, family=1, prompt=prompt, endpoint="p/0", version="v", outages=0, ended_mono_s=ended_mono_s
    )  # fmt: skip


def test_what_shares_most_comes_first() -> None:
    """Prompts with common text are found, the closest first; not those of others, or that were not answered yet."""
    store = FingerprintStore(1 << 20)
    far, near = seen(chat(LONG, "x" * 90)), seen(chat(LONG, "y" * 90), ended_mono_s=5.0)
    for each in (far, near, seen(chat("Something else entirely, " * 30))):
        store.add(each)
    prompt = chat(LONG, "y" * 90, "z")
    assert store.find_siblings(SCOPE, prompt, before_mono_s=9.0) == [near, far]
    assert store.find_siblings(SCOPE, prompt, before_mono_s=4.0) == [far]
    assert store.find_siblings(("m", "another"), prompt, before_mono_s=9.0) == []


def test_memory_is_bounded() -> None:
    """The oldest are forgotten when memory is used up, and leave nothing behind."""
    store = FingerprintStore(60_000)
    maker = FingerprintMaker(SECRET, store.shapes)
    for number in range(200):
        store.add(seen(chat(f"{number} {LONG}", "a" * 70 + str(number % 3), maker=maker)))
        assert store.held_bytes <= 60_000
    assert 5 < len(store) < 100
    assert len(store.shapes) <= 2 * len(store)
    store.limit_bytes = 0
    store.add(seen(chat("last")))
    assert (len(store), store.held_bytes, store.shapes) == (0, 0, {})
