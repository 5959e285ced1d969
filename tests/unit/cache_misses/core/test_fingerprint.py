"""What is kept of a prompt, and what is not."""

import gc
import json
import types
from array import array

from tests.unit.cache_misses.core.prompts import LONG, SECRET, chat, segments

from headrace.cache_misses.core.fingerprint import NEW_BYTES, Fingerprint, FingerprintMaker
from headrace.cache_misses.core.judge import Answered, judge
from headrace.cache_misses.core.rows import MissRows, RowKey
from headrace.cache_misses.core.store import FingerprintStore, Seen

CODE = (type, types.ModuleType, types.FunctionType, types.BuiltinMethodType)


def test_another_secret_gives_other_hashes() -> None:
    """Nobody who has no secret can try out texts against a fingerprint."""
    mine, theirs = chat("s", LONG), chat("s", LONG, maker=FingerprintMaker(b"another"))
    for one, other in zip(mine.shapes, theirs.shapes, strict=True):
        assert {one.exact, one.masked, one.spaceless}.isdisjoint({other.exact, other.masked, other.spaceless})
        assert set(one.blocks).isdisjoint(other.blocks)


def test_shared_segments_are_kept_once() -> None:
    """The next turn of a conversation uses the shapes of the turn before."""
    store = FingerprintStore(1 << 20)
    maker = FingerprintMaker(SECRET, store.shapes)
    first = chat(LONG, "a", maker=maker)
    store.add(seen(first))
    assert chat(LONG, "a", "b", maker=maker).shapes[0] is first.shapes[0]


def test_long_prompts_are_cut() -> None:
    """One fingerprint looks at a bounded number of new bytes, and says that there was more."""
    cut = chat(*("word " * 5000 + str(number) for number in range(9)))
    assert cut.is_cut
    assert len(cut.shapes) < 9
    assert cut.length_bytes < 2 * NEW_BYTES


def seen(prompt: Fingerprint) -> Seen:
    return Seen(
        scope=("m", "t"), family=1, prompt=prompt, endpoint="p/0", version="v", outages=0, ended_mono_s=0.0
    )  # fmt: skip


def test_no_text_of_a_prompt_is_kept() -> None:
    """Everything that the store, the rows and their JSON hold is walked: no word that a caller wrote is in it."""
    word = "kanarienvogel"
    tool = {"type": "function", "function": {"name": f"{word}_tool", "parameters": {word: {"type": word}}}}
    store, rows = FingerprintStore(1 << 20), MissRows(0.0)
    maker = FingerprintMaker(SECRET, store.shapes)
    for number in range(6):
        messages = [
            {"role": "system", "content": f"2026-11-1{number} {word} says: {LONG}"},
            {"role": word, word: [word], "content": [{"type": word, word: word}, {"type": "text", "text": word * 9}]},
            {"role": "assistant", "content": None, "tool_calls": [{"id": f"call_{word}{number}", "name": word}]},
        ]
        prompt = maker.make(segments(messages=messages, tools=[tool], chat_template_kwargs={word: word}))
        answered = Answered(
            prompt=prompt, input_tokens=400, cached_tokens=0, endpoint="p/0", version="v", outages=0,
            is_first_there=False, endpoint_has_hits=True,
        )  # fmt: skip
        miss = judge(answered, store.find_siblings(("m", "t"), prompt, before_mono_s=1.0))
        if miss is not None and miss.difference is not None:
            key = RowKey("m", "t", miss.family, miss.cause, str(miss.difference.place))
            rows.add(key, miss, "p/0", scale=1.0, now_mono_s=1.0)
        store.add(seen(prompt))
        del messages, prompt, answered, miss
    shown = list(rows.shown(1.0))
    assert len(shown) == 1
    assert "anarienvoge" not in repr(shown)
    held: list[str | bytes | bytearray | array[int]] = [
        found for found in reachable(store, rows, maker) if isinstance(found, str | bytes | bytearray | array)
    ]
    assert len(held) > 50
    for found in held:
        text = json.dumps(found) if isinstance(found, str) else bytes(found).decode("latin-1")
        assert "anarienvoge" not in text
        assert "sluice" not in text


def reachable(*roots: object) -> list[object]:
    """Every object that can be reached, code and classes aside."""
    found: dict[int, object] = {}
    waiting: list[object] = list(roots)
    while waiting:
        each = waiting.pop()
        if id(each) in found or isinstance(each, CODE):
            continue
        found[id(each)] = each
        waiting.extend(gc.get_referents(each))
    return list(found.values())
