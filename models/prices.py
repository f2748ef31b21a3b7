"""Prices of models in USD per million tokens."""

from collections.abc import Mapping
from decimal import Decimal
from typing import Annotated

from genai_prices import Usage, calc_price
from pydantic import AfterValidator, BaseModel, ConfigDict, Field

CHEAPEST, DEAREST = Decimal("0.001"), Decimal(10_000)
"""USD per million tokens. Beyond these, a price was surely meant per token or per thousand."""


def _plausible(price: Decimal) -> Decimal:
    if price and not CHEAPEST <= price <= DEAREST:
        raise ValueError(f"{price:f} is no price in USD per million tokens; 0, or {CHEAPEST} to {DEAREST}, is meant")
    return price


USD_PER_MTOK = Annotated[Decimal, Field(allow_inf_nan=False), AfterValidator(_plausible)]


class Price(BaseModel):
    """A price that the user states, in USD per million tokens."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    input: USD_PER_MTOK
    output: USD_PER_MTOK
    cached_input: USD_PER_MTOK | None = None
    """None: cached tokens cost as much as any other input."""

    def cost_usd(self, *, prompt_tokens: int, completion_tokens: int, cached_tokens: int) -> Decimal:
        """What a request costs, in USD."""
        cached_price = self.input if self.cached_input is None else self.cached_input
        micro_usd = (
            self.input * (prompt_tokens - cached_tokens)
            + cached_price * cached_tokens
            + self.output * completion_tokens
        )
        return micro_usd / 1_000_000


FREE = Price(input=Decimal(0), output=Decimal(0))


class Prices:
    """Looks prices up: first what the user stated, then the data that `genai-prices` ships."""

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
    ) -> Decimal | None:
        """What a request costs, in USD, or None where the price is unknown.

        A price of the data applies only at its own provider: the same weights behind another address
        cost whatever that address asks.
        """
        if stated := self._stated.get(model):
            return stated.cost_usd(
                prompt_tokens=prompt_tokens,
                completion_tokens=completion_tokens,
                cached_tokens=cached_tokens,
            )
        usage = Usage(input_tokens=prompt_tokens, output_tokens=completion_tokens, cache_read_tokens=cached_tokens)
        try:
            return calc_price(usage, model_ref=model, provider_api_url=base_url).total_price
        except LookupError:
            return None

    def knows(self, model: str, base_url: str) -> bool:
        """Whether a request to the model has a price."""
        return self.cost_usd(model, base_url, prompt_tokens=1, completion_tokens=1) is not None
