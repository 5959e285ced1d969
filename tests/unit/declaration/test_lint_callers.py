"""References and useless limits of organisations, tenants, projects and prices."""

import pytest

POOL = (
    "version: 1\nmodels: {m: {}, n: {}}\npools:\n  p: {model: m, engine: vllm, endpoints: ['https://h'], region: eu}\n"
)
POOL += "  q: {model: n, engine: vllm, endpoints: ['https://h']}\n"


def summary(found) -> list[tuple[str, str, str]]:
    return [(problem.severity.value, problem.key, problem.message) for problem in found]


def test_a_whole_hierarchy_is_sound(problems) -> None:
    """Organisations, tenants, projects, limits, budgets and prices."""
    text = """
organisations: {acme: {limits: {requests_per_min: 10}, budget: {per_month: 5}}}
tenants:
  t:
    organisation: acme
    regions: [eu]
    projects: {web: {models: [m], limits: {concurrent_streaming: 0}}}
    degrade: [{step: cheaper_model, model: n, models: [m]}]
prices: {models: {m: {input_per_million: 1}, n: {gpu_hour: 2}}}
"""
    assert problems(POOL + text) == ()


@pytest.mark.parametrize(
    ("text", "severity", "key", "message"),
    [
        ("tenants: {t: {organisation: o}}", "error", "tenants.t.organisation", "there is no such organisation"),
        ("tenants: {t: {regions: [us]}}", "error", "tenants.t.regions[0]", "no pool is in this region"),
        ("tenants: {t: {projects: {w: {models: [x]}}}}", "error", "tenants.t.projects.w.models[0]", None),
        ("tenants: {t: {degrade: [{step: cheaper_model, model: x}]}}", "error", "tenants.t.degrade[0].model", None),
        ("prices: {models: {x: {gpu_hour: 1}}}", "error", "prices.models.x", None),
        ("organisations: {o: {models: [x]}}", "error", "organisations.o.models[0]", None),
        ("organisations: {o: {}}", "warning", "organisations.o", "no tenant belongs to this organisation"),
        (
            "tenants: {t: {projects: {w: {limits: {input_tokens_per_min: 0}}}}}",
            "warning",
            "tenants.t.projects.w.limits.input_tokens_per_min",
            "0 refuses every request of this project",
        ),
        (
            "tenants: {t: {budget: {per_day: 0}}}\nprices: {models: {m: {}, n: {}}}",
            "warning",
            "tenants.t.budget.per_day",
            "0 refuses every request of this tenant",
        ),
        (
            "tenants: {t: {budget: {per_day: 1}}}\nprices: {models: {n: {}}}",
            "warning",
            "prices.models",
            "a budget is declared, but these models have no price and cost nothing: m",
        ),
        (
            "ledger: {retention_days: 30}\ntenants: {t: {budget: {per_month: 1}}}\nprices: {models: {m: {}, n: {}}}",
            "warning",
            "ledger.retention_days",
            "budgets per month are declared, and after 30 days their first costs are forgotten at a restart",
        ),
        (
            "gateway: {workers: 2}\ntenants: {t: {projects: {w: {budget: {per_month: 20000000}}}}}",
            "warning",
            "tenants.t.projects.w.budget.per_month",
            "shared by several workers or gateways, only 9000000 of it can be spent",
        ),
        ("tenants: {t: {classes: []}}", "error", "tenants.t.classes", "the tenant may send no class of requests"),
    ],
)
def test_what_leads_nowhere_is_said(problems, text: str, severity: str, key: str, message: str | None) -> None:
    """With the place in the file."""
    assert (severity, key, message or "there is no such model") in summary(problems(POOL + text + "\n"))


def test_a_large_budget_of_one_process_is_exact(problems) -> None:
    """Nothing is said where one process counts it alone."""
    text = POOL + "tenants: {t: {budget: {per_day: 20000000}}}\nprices: {models: {m: {}, n: {}}}\n"
    assert not [found for found in summary(problems(text)) if "budget" in found[1]]


@pytest.mark.parametrize(
    ("text", "unpriced"),
    [
        ("tenants: {t: {models: [n], budget: {per_day: 1}}}", None),
        ("tenants: {t: {models: [m, n], budget: {per_day: 1}}}", "m"),
        ("tenants: {t: {models: [n], budget: {per_day: 1}}, u: {}}", None),
        ("tenants: {t: {organisation: o, budget: {per_day: 1}}}\norganisations: {o: {models: [n]}}", None),
        ("tenants: {t: {organisation: o, models: [m]}}\norganisations: {o: {models: [n], budget: {per_day: 1}}}", None),
        ("tenants: {t: {projects: {w: {models: [n], budget: {per_day: 1}}}}}", None),
        ("tenants: {t: {projects: {w: {budget: {per_day: 1}}}}}", "m"),
        ("tenants: {t: {models: [n]}}\nquota: {budget: {per_day: 1}}", "m"),
        ("tenants: {t: {models: [best], budget: {per_day: 1}}}\nauto_models: {best: {models: {m: {}}}}", "m"),
    ],
)  # fmt: skip
def test_only_models_that_somebody_under_a_budget_may_use_need_a_price(
    problems, text: str, unpriced: str | None
) -> None:
    """A model that only callers without a budget may use can be free; one that a budget pays for should not be."""
    found = [
        said
        for _, key, said in summary(problems(POOL + text + "\nprices: {models: {n: {}}}\n"))
        if key == "prices.models"
    ]
    assert [said.rpartition(": ")[2] for said in found] == ([unpriced] if unpriced else [])
