"""The models that a run uses: which endpoint and name each role has, and one client for each."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Literal, get_args
from weakref import WeakKeyDictionary

from langchain_core.language_models import BaseChatModel

from reflexion.models.client import ChatClient
from reflexion.models.connect import chat_openai, for_this_loop, identity
from reflexion.models.embedded import EmbeddedModel, EmbeddedModelError, installed_model
from reflexion.models.errors import ModelConfigurationError, ModelError
from reflexion.models.prices import FREE, Prices
from reflexion.models.profiles import find_profile
from reflexion.models.redaction import keep_secret
from reflexion.models.retry import RetryPolicy
from reflexion.models.seam import Seam
from reflexion.models.settings import OPENAI_URL, ConnectionSettings

Role = Literal["actor", "evaluator", "reflector", "planner"]
ROLES: tuple[Role, ...] = get_args(Role)

PROFILE_PREFIX = "profile:"
"""A model name that starts with it names one of `PROFILES`."""
EMBEDDED_PREFIX = "qwen2.5-coder-"
EMBEDDED_REPLY = 1024
"""Tokens. A small model that has lost its way goes on until the context is full."""


class Models:
    """Hands out one client per model and event loop, and closes what they hold open."""

    def __init__(
        self,
        connection: ConnectionSettings | None = None,
        *,
        own: BaseChatModel | Mapping[Role, BaseChatModel] | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        shared_database: str | None = None,
    ) -> None:
        """Remember where models are; nothing is opened yet.

        Args:
            connection: endpoint and key; None reads the environment.
            own: chat models of the caller's, one for all roles or one per role.
            sleep: waits so many seconds before a request is repeated.
            shared_database: a PostgreSQL through which workers share limits, circuits and budgets without a Redis.
        """
        self.connection = connection or ConnectionSettings()
        self._own: Mapping[Role, BaseChatModel] = (
            own if isinstance(own, Mapping) else dict.fromkeys(ROLES, own) if own is not None else {}
        )
        for model in self._own.values():
            keep_secret(identity(model)[2])
        self._sleep = sleep
        self._shared_database = shared_database
        self._prices = Prices(self.connection.prices)
        # Looked up here and not where it is needed, since that is inside an event loop.
        self._embedded_name = installed_model() or "embedded model"
        self._open: WeakKeyDictionary[asyncio.AbstractEventLoop, _Opened] = WeakKeyDictionary()

    def client(self, role: Role, name: str | None = None) -> ChatClient:
        """The client of a role in the running loop.

        Args:
            role: whose model.
            name: the model's name from the settings; None for the default.

        Raises:
            ModelConfigurationError: there is no endpoint for that name, or no model for the endpoint.
        """
        opened = self._opened()
        if role in self._own:
            model = self._own[role]
            key = f"own {id(model)}"
            if key not in opened.clients:
                opened.clients[key] = self._own_client(model, opened)
            return opened.clients[key]
        key = name or ""
        if key not in opened.clients:
            opened.clients[key] = self._new_client(name, opened)
        return opened.clients[key]

    @property
    def seam(self) -> Seam:
        """The guards that all calls in the running loop share."""
        return self._opened().seam

    async def aclose(self) -> None:
        """Close what was opened in the running loop."""
        opened = self._open.pop(asyncio.get_running_loop(), None)
        if opened is not None:
            await opened.stack.aclose()

    def _opened(self) -> "_Opened":
        loop = asyncio.get_running_loop()
        if loop not in self._open:
            self._open[loop] = _Opened(Seam.of(self.connection, self._shared_database))
        return self._open[loop]

    def _client(self, opened: "_Opened", connect: Callable[[], Awaitable[BaseChatModel]], **about: Any) -> ChatClient:
        """A client with the installation's patience and the loop's guards."""
        connection = self.connection
        retry = RetryPolicy(
            max_retries=connection.max_retries, max_wait_s=connection.max_retry_wait_s, sleep=self._sleep
        )
        return ChatClient(
            connect,
            **{"prices": self._prices} | about,
            retry=retry,
            seam=opened.seam,
            call_timeout_s=connection.call_timeout_s,
            first_token_timeout_s=connection.first_token_timeout_s,
        )

    def _own_client(self, model: BaseChatModel, opened: "_Opened") -> ChatClient:
        async def connect() -> BaseChatModel:
            mended, close = await asyncio.to_thread(for_this_loop, model)
            opened.stack.push_async_callback(close)
            return mended

        name, base_url, secret = identity(model)
        return self._client(opened, connect, name=name, base_url=base_url, secret=secret)

    def _new_client(self, name: str | None, opened: "_Opened") -> ChatClient:
        connection = self.connection
        if name and name.startswith(PROFILE_PREFIX):
            connection, name = self._profile(name.removeprefix(PROFILE_PREFIX))
        elif self._wants_embedded(name):
            return self._embedded_client(name, opened)
        key = connection.api_key.get_secret_value()
        base_url = connection.base_url or OPENAI_URL
        if not name:
            raise ModelConfigurationError(f"{base_url} needs a model name: set REFLEXION_MODEL or --model")
        if not key and base_url == OPENAI_URL:
            raise ModelConfigurationError(
                f"model {name!r} needs an endpoint: set REFLEXION_BASE_URL, or REFLEXION_API_KEY for OpenAI"
            )
        model = name

        async def connect() -> BaseChatModel:
            return await self._chat_openai(opened, base_url, key or "none", model)

        return self._client(
            opened, connect, name=model, base_url=base_url, secret=key, prices=Prices(connection.prices)
        )

    def _profile(self, name: str) -> tuple[ConnectionSettings, str]:
        try:
            profile = find_profile(name)
            return profile.connection(), profile.model
        except ValueError as error:
            raise ModelConfigurationError(str(error)) from error

    def _wants_embedded(self, name: str | None) -> bool:
        if name and (name.startswith(EMBEDDED_PREFIX) or name.endswith(".gguf")):
            return not self.connection.base_url
        return not name and not self.connection.base_url

    def _embedded_client(self, name: str | None, opened: "_Opened") -> ChatClient:
        path = Path(name) if name and name.endswith(".gguf") else self.connection.embedded_path
        known = name if name and name.startswith(EMBEDDED_PREFIX) else None
        shown = path.name if path else known or self._embedded_name
        embedded = EmbeddedModel(known, path)
        opened.stack.push_async_callback(embedded.stop)

        async def connect() -> BaseChatModel:
            try:
                server = await embedded.start()
            except EmbeddedModelError as error:
                raise ModelError("not_found", str(error)) from error
            return await self._chat_openai(opened, server.base_url, server.api_key, server.model)

        return self._client(
            opened,
            connect,
            name=shown,
            prices=Prices({shown: FREE}),
            max_tokens=EMBEDDED_REPLY,
            embedded=True,
        )

    async def _chat_openai(self, opened: "_Opened", base_url: str, key: str, name: str) -> BaseChatModel:
        model, close = await asyncio.to_thread(chat_openai, self.connection, base_url, key, name)
        opened.stack.push_async_callback(close)
        return model


class _Opened:
    """What one event loop has open."""

    def __init__(self, seam: Seam) -> None:
        self.clients: dict[str, ChatClient] = {}
        self.seam = seam
        self.stack = AsyncExitStack()
        self.stack.push_async_callback(seam.aclose)
