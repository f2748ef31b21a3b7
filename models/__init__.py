"""Access to chat models: roles, the protocol's quirks, retries, budget, prices and the ledger."""

from reflexion.models.account import Amount
from reflexion.models.breaker import Breaker
from reflexion.models.budget import Budget
from reflexion.models.circuit import CircuitState
from reflexion.models.client import ChatClient
from reflexion.models.ends import BudgetExhausted, DeadlineExceeded, Suspended
from reflexion.models.errors import CONFIGURATION, ModelConfigurationError, ModelError, scrub
from reflexion.models.fallback import Fallback
from reflexion.models.fence import Fenced
from reflexion.models.guarded_model import guard_model
from reflexion.models.ledger import Ledger, LedgerLine, LedgerStore, MemoryLedger, as_call
from reflexion.models.limits import Limits, RateLimit
from reflexion.models.meter import Meter
from reflexion.models.prices import Price, Prices
from reflexion.models.profiles import PROFILES, Profile
from reflexion.models.replies import Reply
from reflexion.models.request import Completer, Structure
from reflexion.models.retry import RetryPolicy
from reflexion.models.roles import ROLES, Models, Role
from reflexion.models.seam import Seam, circuit_listener
from reflexion.models.settings import ConnectionSettings
from reflexion.models.shared_budget import SharedBudget
from reflexion.models.structured import ask_structured, object_of, strict_schema
from reflexion.models.trace_client import TraceClient, prepare_tracing
from reflexion.models.usage import Call, Usage

__all__ = [
    "CONFIGURATION",
    "PROFILES",
    "ROLES",
    "Amount",
    "Breaker",
    "Budget",
    "BudgetExhausted",
    "Call",
    "ChatClient",
    "CircuitState",
    "Completer",
    "ConnectionSettings",
    "DeadlineExceeded",
    "Fallback",
    "Fenced",
    "Ledger",
    "LedgerLine",
    "LedgerStore",
    "Limits",
    "MemoryLedger",
    "Meter",
    "ModelConfigurationError",
    "ModelError",
    "Models",
    "Price",
    "Prices",
    "Profile",
    "RateLimit",
    "Reply",
    "RetryPolicy",
    "Role",
    "Seam",
    "SharedBudget",
    "Structure",
    "Suspended",
    "TraceClient",
    "Usage",
    "as_call",
    "ask_structured",
    "circuit_listener",
    "guard_model",
    "object_of",
    "prepare_tracing",
    "scrub",
    "strict_schema",
]
