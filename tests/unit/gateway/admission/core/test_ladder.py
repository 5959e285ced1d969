"""What is done before a request is refused."""

from headrace.domain.tenant import DegradeKind, DegradeStep
from headrace.gateway.admission.core.ladder import AS_IT_IS, degrade

LADDER = (
    DegradeStep(kind=DegradeKind.QUEUE),
    DegradeStep(kind=DegradeKind.SHORTEN, from_wait_s=2.0, output_tokens=100),
    DegradeStep(kind=DegradeKind.CHEAPER_MODEL, from_wait_s=10.0, model="small"),
    DegradeStep(kind=DegradeKind.REFUSE, from_wait_s=30.0),
)


def test_each_step_is_taken_from_its_wait_on():
    """Wait, then shorten, then a cheaper model as well, then refuse: at the very second that each step says."""
    assert degrade(LADDER, "large", None, 0.0) is AS_IT_IS
    assert degrade(LADDER, "large", None, 1.9) is AS_IT_IS
    shortened = degrade(LADDER, "large", None, 2.0)
    assert (shortened.output_tokens, shortened.model, shortened.mark) == (100, None, "output_tokens=100")
    cheaper = degrade(LADDER, "large", None, 10.0)
    assert (cheaper.output_tokens, cheaper.model, cheaper.mark) == (100, "small", "model=small; output_tokens=100")
    assert not cheaper.is_refused
    assert degrade(LADDER, "large", None, 30.0).is_refused


def test_a_short_answer_is_not_lengthened():
    """A request that asks for less than the ladder's limit keeps its own."""
    assert degrade(LADDER, "large", 50, 5.0) is AS_IT_IS
    assert degrade(LADDER, "large", 101, 5.0).output_tokens == 100
    assert degrade(LADDER, "large", 100, 5.0) is AS_IT_IS
    assert degrade(LADDER, "large", 0, 5.0) is AS_IT_IS


def test_steps_hold_for_their_models_only():
    """A step that names models leaves the others alone, and a model is not replaced by itself."""
    only = (DegradeStep(kind=DegradeKind.SHORTEN, models=frozenset({"large"}), output_tokens=5),)
    assert degrade(only, "other", None, 99.0) is AS_IT_IS
    assert degrade(LADDER[2:3], "small", None, 99.0) is AS_IT_IS


def test_an_unknown_wait_is_none():
    """While the drain rate is not known only steps without a wait are taken."""
    assert degrade(LADDER, "large", None, None) is AS_IT_IS
    assert degrade((DegradeStep(kind=DegradeKind.REFUSE),), "large", None, None).is_refused
