"""The guards that all calls of a program share, and the cache in front of them."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from reflexion.models.breaker import Breaker, LocalCircuits
from reflexion.models.cache import Cache
from reflexion.models.exchange import Guard
from reflexion.models.limits import Limits, RateLimit, redis_backend
from reflexion.models.redis_breaker import RedisCircuits
from reflexion.models.replies import Reply
from reflexion.models.request_log import RequestLog
from reflexion.models.settings import ConnectionSettings


@dataclass(frozen=True, slots=True)
class Seam:
    """What stands between every call and its endpoint, apart from a run's own budget and ledger."""

    limits: RateLimit | None = None
    log: RequestLog = field(default_factory=RequestLog)
    breaker: Breaker = field(default_factory=Breaker)
    cache: Cache[Reply] | None = None
    closers: tuple[Callable[[], Awaitable[None]], ...] = ()

    @property
    def guards(self) -> list[Guard]:
        """From the outermost inwards: a request queues first, and the breaker is asked as it is sent."""
        first: list[Guard] = [self.limits] if self.limits else []
        return [*first, self.log, self.breaker]

    @classmethod
    def of(cls, settings: ConnectionSettings) -> "Seam":
        """The guards that the settings ask for; with a Redis they are shared by all processes that name it."""
        closers: list[Callable[[], Awaitable[None]]] = []
        circuits: LocalCircuits | RedisCircuits = LocalCircuits()
        backend = None
        wanted = Limits(
            requests_per_minute=settings.requests_per_minute,
            tokens_per_minute=settings.tokens_per_minute,
            concurrency=settings.concurrency,
            max_wait_s=settings.max_queue_wait_s,
        )
        limited = any((settings.requests_per_minute, settings.tokens_per_minute, settings.concurrency))
        if settings.redis_url:
            url = settings.redis_url.get_secret_value()
            circuits = RedisCircuits(url)
            closers.append(circuits.aclose)
            if limited:
                backend = redis_backend(url)
                closers.append(backend.aclose)
        return cls(
            limits=RateLimit(wanted, backend=backend) if limited else None,
            log=RequestLog(settings.log_requests),
            breaker=Breaker(circuits),
            cache=Cache() if settings.cache else None,
            closers=tuple(closers),
        )

    async def aclose(self) -> None:
        """Close the connections that the guards hold."""
        for close in self.closers:
            await close()
