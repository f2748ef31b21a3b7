"""Access to chat models: roles, the protocol's quirks, retries, budget, prices and the ledger."""

from reflexion.models.client import ChatClient, Policy, Structure
from reflexion.models.errors import CONFIGURATION, ModelError, scrub
from reflexion.models.meter import BudgetExhausted, DeadlineExceeded, Meter
from reflexion.models.prices import Price, Prices
from reflexion.models.replies import Reply
from reflexion.models.roles import ROLES, ModelConfigurationError, Models, Role
from reflexion.models.settings import ConnectionSettings
from reflexion.models.structured import ask_structured, object_of, strict_schema
from reflexion.models.usage import Call, Usage

__all__ = [
    "CONFIGURATION",
    "ROLES",
    "BudgetExhausted",
    "Call",
    "ChatClient",
    "ConnectionSettings",
    "DeadlineExceeded",
    "Meter",
    "ModelConfigurationError",
    "ModelError",
    "Models",
    "Policy",
    "Price",
    "Prices",
    "Reply",
    "Role",
    "Structure",
    "Usage",
    "ask_structured",
    "object_of",
    "scrub",
    "strict_schema",
]
