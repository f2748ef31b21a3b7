"""Prices of models in USD per million tokens."""

import re
import time
import warnings
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from decimal import ROUND_HALF_EVEN, Decimal
from functools import lru_cache
from typing import Annotated, Literal, Protocol

from genai_prices import Usage
from genai_prices.data_snapshot import get_snapshot
from genai_prices.types import ModelPrice
from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from reflexion.models.usage import Call

CHEAPEST, DEAREST = Decimal("0.001"), Decimal(1000)
"""USD per million tokens. Beyond these, a price was probably meant per token or per thousand."""


class ImplausiblePrice(UserWarning):
    """A stated price is far from any model's: its unit is USD per million tokens."""


def _plausible(price: Decimal) -> Decimal:
    if price and not CHEAPEST <= price <= DEAREST:
        warnings.warn(
            f"a price of {price:f} USD per million tokens is unusual ({CHEAPEST} to {DEAREST} is common): "
            "was it meant per token or per thousand tokens?",
            ImplausiblePrice,
            stacklevel=2,
        )
    return price


USD_PER_MTOK = Annotated[Decimal, Field(allow_inf_nan=False, ge=0), AfterValidator(_plausible)]


class Priced(Protocol):
    """Something that says what tokens cost."""

    def cost_usd(
        self, *, prompt_tokens: int, completion_tokens: int, cached_tokens: int = 0, reasoning_tokens: int = 0
    ) -> Decimal | None:
        """What a request costs, in USD; None where the price is unknown.

        `cached_tokens` are part of `prompt_tokens`, `reasoning_tokens` are part of `completion_tokens`.
        """
        ...


class Price(BaseModel):
    """A price that the user states, in USD per million tokens. 0 is a price; a missing one is not."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    input: USD_PER_MTOK
    output: USD_PER_MTOK
    cached_input: USD_PER_MTOK | None = None
    """None: cached tokens cost as much as any other input."""
    reasoning: USD_PER_MTOK | None = None
    """None: hidden reasoning costs as much as any other output."""

    def cost_usd(
        self, *, prompt_tokens: int, completion_tokens: int, cached_tokens: int = 0, reasoning_tokens: int = 0
    ) -> Decimal:
        """What a request costs, in USD, exactly."""
        cached_price = self.input if self.cached_input is None else self.cached_input
        reasoning_price = self.output if self.reasoning is None else self.reasoning
        micro_usd = (
            self.input * (prompt_tokens - cached_tokens)
            + cached_price * cached_tokens
            + self.output * (completion_tokens - reasoning_tokens)
            + reasoning_price * reasoning_tokens
        )
        return micro_usd / 1_000_000


FREE = Price(input=Decimal(0), output=Decimal(0))

_DATE = re.compile(r"[-@](?:20\d{2}-\d{2}-\d{2}|20\d{6})$")


def undated(model: str) -> str:
    """The model's name without the date of a snapshot at its end: `gpt-x-2026-01-01` is a `gpt-x`.

    The dates that providers append: `-YYYY-MM-DD`, `-YYYYMMDD` and `@YYYYMMDD`. Nothing else is taken for an alias:
    `gpt-x-mini` or `gpt-x-latest` is a model of its own.
    """
    return _DATE.sub("", model)


class Prices:
    """Looks prices up: first what the user stated, then the data that `genai-prices` ships.

    In both, a name that is not listed goes by the name without its date (`undated`); a price stated for a dated name
    is for that snapshot only. The *requested* model's price counts, because a budget must know it before there is a
    reply; the model that the reply names counts only where the requested one has no price (`cost_of`).
    """

    def __init__(self, stated: Mapping[str, Price] | None = None) -> None:
        self._stated = dict(stated or {})

    def cost_usd(
        self,
        model: str,
        base_url: str,
        *,
        prompt_tokens: int,
        completion_tokens: int,
        cached_tokens: int = 0,
        reasoning_tokens: int = 0,
    ) -> Decimal | None:
        """What a request costs, in USD, or None where the price is unknown.

        A price of the data applies only at its own provider: the same weights behind another address
        cost whatever that address asks.
        """
        return self.at(model, base_url).cost_usd(
            prompt_tokens=prompt_tokens,
            completion_tokens=completion_tokens,
            cached_tokens=cached_tokens,
            reasoning_tokens=reasoning_tokens,
        )

    def at(self, model: str, base_url: str | None) -> Priced:
        """The price of one model at one endpoint, or at its own provider's where that is None; it may be unknown."""
        return self._stated_for(model) or _Listed(model, base_url)

    def source(self, model: str) -> Literal["stated", "genai-prices"]:
        """Where the model's price is from, if it has one."""
        return "stated" if self.states(model) else "genai-prices"

    def states(self, model: str) -> bool:
        """Whether the user has stated the model's price."""
        return self._stated_for(model) is not None

    def _stated_for(self, model: str) -> Price | None:
        return self._stated.get(model) or self._stated.get(undated(model))

    def cost_of(self, call: Call, base_url: str) -> Decimal | None:
        """What a ledger line costs, in USD: at the requested model's price, else at the returned one's, else None."""
        for model in filter(None, (call["model"], call["returned_model"])):
            if (cost := _cost(call, self.at(model, base_url))) is not None:
                return cost
        return None


class _Listed:
    """A price of the data that `genai-prices` ships, tiers included. Reasoning costs what output costs there."""

    def __init__(self, model: str, base_url: str | None) -> None:
        self._model = model
        self._base_url = base_url

    def cost_usd(
        self, *, prompt_tokens: int, completion_tokens: int, cached_tokens: int = 0, reasoning_tokens: int = 0
    ) -> Decimal | None:
        del reasoning_tokens
        price = _listed(self._model, self._base_url, int(time.time() // 60))
        if price is None:
            return None
        if isinstance(price, Price):
            return price.cost_usd(
                prompt_tokens=prompt_tokens, completion_tokens=completion_tokens, cached_tokens=cached_tokens
            )
        usage = Usage(input_tokens=prompt_tokens, output_tokens=completion_tokens, cache_read_tokens=cached_tokens)
        return price.calc_price(usage)["total_price"]


@lru_cache(maxsize=256)
def _listed(model: str, base_url: str | None, minute: int) -> Price | ModelPrice | None:
    """What the data lists at a time, as some prices depend on the hour; as a `Price` where there are no tiers.

    A budget asks for many sums of one price, and each takes the library 0.2 ms.
    """
    for name in dict.fromkeys((model, undated(model))):
        try:
            _, found = get_snapshot().find_provider_model(name, None, None, base_url)
        except LookupError:
            continue
        price = found.get_prices(datetime.fromtimestamp(minute * 60, UTC))
        given, taken, cached = price.input_mtok, price.output_mtok, price.cache_read_mtok
        by_token = all(name.endswith("_mtok") for name, value in vars(price).items() if value is not None)
        flat = isinstance(given, Decimal) and isinstance(taken, Decimal) and isinstance(cached, Decimal | None)
        if by_token and flat:
            # Not validated: what the data says is not for the user to mend.
            return Price.model_construct(input=given, output=taken, cached_input=cached, reasoning=None)
        return price
    return None


def what_if(calls: Iterable[Call], prices: Mapping[str, Priced]) -> dict[str, Decimal | None]:
    """What the same tokens would have cost on other models, in USD by model; None where a price is unknown.

    Another model would split text into other tokens and write other replies, so this is an estimate. What one
    provider read from its cache is priced as read from the other's.

    Args:
        calls: ledger lines.
        prices: by the name that the result should show: a `Price`, or `Prices.at(model, base_url)`.
    """
    lines = list(calls)
    return {model: _total(_cost(line, price) for line in lines) for model, price in prices.items()}


def _cost(call: Call, price: Priced) -> Decimal | None:
    return price.cost_usd(
        prompt_tokens=call["prompt_tokens"],
        completion_tokens=call["completion_tokens"],
        cached_tokens=call["cached_tokens"],
        reasoning_tokens=call["reasoning_tokens"],
    )


def _total(costs: Iterable[Decimal | None]) -> Decimal | None:
    total = Decimal(0)
    for cost in costs:
        if cost is None:
            return None
        total += cost
    return total


_SHOWN = Decimal("0.0001")


def display_usd(cost: Decimal | None) -> str:
    """An amount for people, rounded to a hundredth of a cent: `$1.2346`, `<$0.0001`, `$0`, `unknown`.

    Only for display: nothing is computed with rounded money.
    """
    if cost is None:
        return "unknown"
    if 0 < cost < _SHOWN:
        return f"<${_SHOWN}"
    return f"${cost.quantize(_SHOWN, ROUND_HALF_EVEN)}" if cost else "$0"
