"""Keys that have another place now."""

POOL = "version: 1\nmodels: {m: {source: 'file:.'}}\npools:\n  p:\n    model: m\n"


def test_former_keys_go_on_working(load) -> None:
    """A file of an earlier version means what it meant, and a warning names the new key with its line."""
    loaded = load(POOL + "    slots: 2\n    batch_tokens: 64\n")
    batching = loaded.declaration.pools["p"].batching
    assert (batching.max_sequences, batching.batched_tokens) == (2, 64)
    said = [(problem.line, problem.key, problem.message) for problem in loaded.warnings if "slots" in problem.key]
    assert said == [(6, "pools.p.slots", "is called batching.max_sequences now")]


def test_a_wrong_value_is_told_at_its_line(problems) -> None:
    """The value is judged where the file has it."""
    found = [problem for problem in problems(POOL + "    slots: many\n") if problem.severity == "error"]
    assert [(problem.line, problem.key) for problem in found] == [(6, "pools.p.batching.max_sequences")]


def test_both_names_at_once_are_refused(problems) -> None:
    """Nobody has to guess which one holds."""
    found = problems(POOL + "    slots: 2\n    batching: {max_sequences: 3}\n")
    assert "pools.p.slots: is given beside batching.max_sequences" in "\n".join(map(str, found))
