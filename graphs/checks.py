"""What is refused before a run, as it could not be made or not be paid for."""

from reflexion.models import ROLES, Budget, ChatClient, SharedBudget
from reflexion.nodes import ConfigurationError, Kit, Settings


def clients(kit: Kit, settings: Settings) -> list[ChatClient]:
    """The clients of the roles that are left to a model, those that may take their place included.

    Raises:
        ModelConfigurationError: one of them has no usable model.
    """
    replaced = {"actor": kit.actor, "evaluator": kit.evaluator}
    roles = [role for role in ROLES if replaced.get(role) is None]
    behind = [*settings.fallback_models, *([settings.cheaper_model] if settings.cheaper_model else [])]
    names = [(role, name) for role in roles for name in (settings.model_for(role), *behind)]
    return [kit.models.client(role, name) for role, name in names]


def check_models(kit: Kit, settings: Settings, around: Budget | SharedBudget | None) -> None:
    """Refuse, before anything is paid for, what no run could be made with.

    Raises:
        ModelConfigurationError: a role has no usable model.
        ConfigurationError: there is a budget in USD, and a model whose price is unknown.
    """
    in_usd = settings.budget_usd or settings.thread_budget_usd or _caps_usd(around)
    for client in clients(kit, settings):
        if in_usd and not client.has_price():
            raise ConfigurationError(
                f"a budget in USD needs the price of {client.name!r}, which is unknown: state it as "
                f'REFLEXION_PRICES=\'{{"{client.name}": {{"input": 0.5, "output": 1.5}}}}\' (USD per million tokens), '
                "or use a budget in tokens"
            )


def _caps_usd(budget: Budget | SharedBudget | None) -> bool:
    """Whether it, or one around it, is a budget in USD."""
    return budget is not None and (budget.limit.usd is not None or _caps_usd(budget.parent))
