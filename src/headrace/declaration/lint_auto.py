"""What the types cannot see of `auto_models`: names that lead nowhere or two ways, and preferences without effect."""

from collections.abc import Iterator

from headrace.declaration.finding import Finding, error, warning
from headrace.declaration.model import Declaration
from headrace.declaration.nearest import did_you_mean


def lint_auto(declaration: Declaration, models: frozenset[str]) -> Iterator[Finding]:
    """Yield what is wrong or doubtful. `models` are all names that the file declares, broken ones too."""
    kinds = {name: {pool.embeddings for pool in declaration.pools.values() if pool.model == name} for name in models}
    prices = declaration.prices.models
    for name, auto in declaration.auto_models.items():
        path = ("auto_models", name)
        if name in models:
            yield error(path, "a model has this name", "Give it a name of its own, such as auto-chat.")
        for model in auto.models:
            if model in declaration.auto_models:
                yield error((*path, "models", model), "stands for several models itself", "Name those.")
            elif model not in models:
                yield error((*path, "models", model), "there is no such model", did_you_mean(model, models))
        known = [model for model in auto.models if model in models and model not in declaration.auto_models]
        if len({frozenset(kinds[model]) for model in known if kinds[model]}) > 1:
            yield warning((*path, "models"), "some serve embeddings and some do not", "Name models of one kind.")
        if len(auto.models) == len(known) == 1:
            yield warning((*path, "models"), "there is one model to choose from", "Name another one.")
        unpriced = [model for model in known if model not in prices]
        asks_price = auto.prefer == "cheapest" or auto.max_price_per_million is not None
        if unpriced and (asks_price or len(unpriced) < len(known)):
            message = f"these models have no price and count as free: {', '.join(unpriced[:5])}"
            yield warning((*path, "models"), message, "Give their prices in prices.models.")
        qualities = {auto.models[model].quality for model in known}
        if auto.prefer == "best" and len(qualities) == 1 and len(known) > 1:
            yield warning((*path, "models"), "all have the same quality: none is best", "Give each its quality.")
