"""Well-known models by name: endpoint, variable of the key, and price."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal

from pydantic import SecretStr

from reflexion.models.prices import Price
from reflexion.models.settings import OPENAI_URL, ConnectionSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """A model at its own provider's OpenAI-compatible endpoint."""

    name: str
    model: str
    """The name that the endpoint knows it by."""
    base_url: str
    key_variable: str
    """The environment variable that holds the key."""
    price: Price

    def connection(self, environ: Mapping[str, str] = os.environ) -> ConnectionSettings:
        """Settings that reach the model, with the key from its variable; other settings as usual.

        Prices from the environment stay, and one that is stated there for this model wins.

        Raises:
            ValueError: the variable is not set.
        """
        key = environ.get(self.key_variable, "").strip()
        if not key:
            raise ValueError(f"profile {self.name!r} needs a key: set {self.key_variable}")
        usual = ConnectionSettings()
        return usual.model_copy(
            update={
                "base_url": self.base_url,
                "api_key": SecretStr(key),
                "prices": {self.model: self.price, **usual.prices},
            }
        )


def _price(given: str, taken: str) -> Price:
    return Price(input=Decimal(given), output=Decimal(taken))


PROFILES: Mapping[str, Profile] = {
    profile.name: profile
    for profile in (
        Profile(
            name="gpt-4.1",
            model="gpt-4.1",
            base_url=OPENAI_URL,
            key_variable="OPENAI_API_KEY",
            price=_price("8", "24"),
        ),
        Profile(
            name="claude-sonnet-4.5",
            model="claude-sonnet-4-5",
            base_url="https://api.anthropic.com/v1",
            key_variable="ANTHROPIC_API_KEY",
            price=_price("15", "75"),
        ),
        Profile(
            name="gemini-2.5-flash",
            model="gemini-2.5-flash",
            base_url="https://generativelanguage.googleapis.com/v1beta/openai",
            key_variable="GEMINI_API_KEY",
            price=_price("2.50", "10"),
        ),
        Profile(
            name="deepseek-v3.2",
            # DeepSeek has no name per version: this one is the current model without thinking.
            model="deepseek-chat",
            base_url="https://api.deepseek.com/v1",
            key_variable="DEEPSEEK_API_KEY",
            price=_price("0.42", "1.68"),
        ),
    )
}
"""USD per million tokens in and out as this project's presets state them: on the safe side of the list prices of
`genai-prices`, which hold for these models wherever a profile is not used. State your own where they differ."""


def find_profile(name: str) -> Profile:
    """The profile of that name.

    Raises:
        ValueError: there is none; names those that there are.
    """
    if name not in PROFILES:
        raise ValueError(f"there is no profile {name!r}: choose {', '.join(PROFILES)}")
    return PROFILES[name]
