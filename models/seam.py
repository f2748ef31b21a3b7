"""The guards that all calls of a program share, and the cache in front of them."""

from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from dataclasses import dataclass, field

from reflexion.models.breaker import Breaker
from reflexion.models.budget import Budget
from reflexion.models.cache import Cache
from reflexion.models.circuit import CircuitState, State
from reflexion.models.errors import ModelConfigurationError
from reflexion.models.exchange import Guard
from reflexion.models.ledger import Ledger
from reflexion.models.limits import Limits, RateLimit, redis_backend
from reflexion.models.postgres_breaker import PostgresCircuits
from reflexion.models.postgres_buckets import PostgresBuckets
from reflexion.models.postgres_budget import PostgresBudgets
from reflexion.models.replies import Reply
from reflexion.models.request_log import RequestLog
from reflexion.models.settings import ConnectionSettings
from reflexion.models.shared_buckets import SharedBuckets
from reflexion.models.shared_budget import BudgetStore
from reflexion.models.shared_circuits import SharedCircuits
from reflexion.models.shared_postgres import SharedPostgres


def in_order(
    *,
    budget: Budget | None = None,
    limits: RateLimit | None = None,
    log: RequestLog | None = None,
    breaker: Breaker | None = None,
    ledger: Ledger | None = None,
) -> list[Guard]:
    """Guards from the outermost inwards.

    The budget reserves first, as what can't be paid for need not queue. Then a request queues, so that the breaker is
    asked when it would be sent, and not before it has waited. The ledger comes last, since its line says that the
    request goes out; the log is around it to know the line's id.
    """
    every: tuple[Guard | None, ...] = (budget, limits, log if log and log.speaks else None, breaker, ledger)
    return [guard for guard in every if guard is not None]


circuit_listener: ContextVar[Callable[[State, CircuitState], None] | None] = ContextVar(
    "circuit_listener", default=None
)
"""Told of a change of a circuit by the run whose request brought it about."""


def _tell(before: State, circuit: CircuitState) -> None:
    if listener := circuit_listener.get():
        listener(before, circuit)


@dataclass(frozen=True, slots=True)
class Seam:
    """What stands between every call and its endpoint, apart from a run's own budget and ledger."""

    limits: RateLimit | None = None
    log: RequestLog = field(default_factory=RequestLog)
    breaker: Breaker = field(default_factory=Breaker)
    cache: Cache[Reply] | None = None
    budgets: BudgetStore | None = None
    """Where workers keep the budgets that they share; None where they share nothing."""
    closers: tuple[Callable[[], Awaitable[None]], ...] = ()

    def guards(self, budget: Budget | None, ledger: Ledger | None) -> list[Guard]:
        """All guards around a request of a run with this budget and ledger, outermost first."""
        return in_order(budget=budget, limits=self.limits, log=self.log, breaker=self.breaker, ledger=ledger)

    @classmethod
    def of(cls, settings: ConnectionSettings, database_url: str | None = None) -> "Seam":
        """The guards that the settings ask for; with a Redis they are shared by all processes that name it.

        Args:
            settings: where the Redis is, and the limits.
            database_url: a PostgreSQL through which they are shared where there is no Redis.

        Raises:
            ModelConfigurationError: there is a Redis, and its client is not installed.
        """
        circuits: SharedCircuits | None = None
        backend: SharedBuckets | None = None
        budgets: BudgetStore | None = None
        wanted = Limits(
            requests_per_minute=settings.requests_per_minute,
            tokens_per_minute=settings.tokens_per_minute,
            concurrency=settings.concurrency,
            max_wait_s=settings.max_queue_wait_s,
        )
        limited = any((settings.requests_per_minute, settings.tokens_per_minute, settings.concurrency))
        if settings.redis_url:
            url = settings.redis_url.get_secret_value()
            circuits, budgets = _in_redis(url)
            backend = redis_backend(url) if limited else None
        elif database_url:
            database = SharedPostgres(database_url, [])
            circuits, budgets = PostgresCircuits(database), PostgresBudgets(database)
            backend = PostgresBuckets(database) if limited else None
        closers = [shared.aclose for shared in (circuits, backend, budgets) if shared]
        return cls(
            limits=RateLimit(wanted, backend=backend) if limited else None,
            log=RequestLog(settings.log_requests),
            breaker=Breaker(circuits, on_change=_tell),
            cache=Cache() if settings.cache else None,
            budgets=budgets,
            closers=tuple(closers),
        )

    async def aclose(self) -> None:
        """Close the connections that the guards hold."""
        for close in self.closers:
            await close()


def _in_redis(url: str) -> tuple[SharedCircuits, BudgetStore]:
    try:
        from reflexion.models.redis_breaker import RedisCircuits  # noqa: PLC0415 - the extra may be missing
        from reflexion.models.redis_budget import RedisBudgets  # noqa: PLC0415
    except ImportError as error:
        raise ModelConfigurationError(
            'REFLEXION_REDIS_URL needs the client of Redis: pip install "reflexion-graph[redis]"'
        ) from error
    return RedisCircuits(url), RedisBudgets(url)
