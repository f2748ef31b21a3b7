"""The models that a run uses: which endpoint and name each role has, and one client for each."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Literal, get_args
from weakref import WeakKeyDictionary

from langchain_core.language_models import BaseChatModel
from pydantic import SecretStr

from reflexion.models.client import ChatClient, Policy, Sleep
from reflexion.models.embedded import EmbeddedModel, EmbeddedModelError, installed_model
from reflexion.models.errors import ModelError
from reflexion.models.prices import FREE, Prices
from reflexion.models.settings import OPENAI_URL, ConnectionSettings

Role = Literal["actor", "evaluator", "reflector", "planner"]
ROLES: tuple[Role, ...] = get_args(Role)

EMBEDDED_PREFIX = "qwen2.5-coder-"
EMBEDDED_REPLY = 1024
"""Tokens. A small model that has lost its way goes on until the context is full."""


Close = Callable[[], Awaitable[None]]


class ModelConfigurationError(ValueError):
    """Settings that name no usable model; says what to set."""


class Models:
    """Hands out one client per model and event loop, and closes what they hold open."""

    def __init__(
        self,
        connection: ConnectionSettings | None = None,
        *,
        own: BaseChatModel | Mapping[Role, BaseChatModel] | None = None,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        """Remember where models are; nothing is opened yet.

        Args:
            connection: endpoint and key; None reads the environment.
            own: chat models of the caller's, one for all roles or one per role.
            sleep: waits so many seconds before a request is repeated.
        """
        self.connection = connection or ConnectionSettings()
        self._own: Mapping[Role, BaseChatModel] = (
            own if isinstance(own, Mapping) else dict.fromkeys(ROLES, own) if own is not None else {}
        )
        self._sleep = sleep
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

    def describe(self, role: Role, name: str | None = None) -> str:
        """`model at address`, for people."""
        client = self.client(role, name)
        return f"{client.name} at {client.base_url}" if client.base_url else client.name

    async def aclose(self) -> None:
        """Close what was opened in the running loop."""
        opened = self._open.pop(asyncio.get_running_loop(), None)
        if opened is not None:
            await opened.stack.aclose()

    def _opened(self) -> "_Opened":
        return self._open.setdefault(asyncio.get_running_loop(), _Opened())

    def _policy(self) -> Policy:
        return Policy(
            call_timeout_s=self.connection.call_timeout_s,
            max_retries=self.connection.max_retries,
            max_wait_s=self.connection.max_retry_wait_s,
        )

    def _own_client(self, model: BaseChatModel, opened: "_Opened") -> ChatClient:
        async def connect() -> BaseChatModel:
            mended, close = await asyncio.to_thread(_for_this_loop, model)
            opened.stack.push_async_callback(close)
            return mended

        name = str(getattr(model, "model_name", "") or getattr(model, "model", "") or type(model).__name__)
        base_url = str(getattr(model, "openai_api_base", None) or "")
        key = getattr(model, "openai_api_key", None)
        return ChatClient(
            connect,
            name=name,
            base_url=base_url,
            prices=self._prices,
            policy=self._policy(),
            secret=key.get_secret_value() if isinstance(key, SecretStr) else "",
            sleep=self._sleep,
        )

    def _new_client(self, name: str | None, opened: "_Opened") -> ChatClient:
        connection = self.connection
        if self._wants_embedded(name):
            return self._embedded_client(name, opened)
        key = connection.api_key.get_secret_value()
        base_url = connection.base_url or OPENAI_URL
        if not name:
            raise ModelConfigurationError(f"{base_url} needs a model name: set REFLEXION_MODEL or --model")
        if not key and base_url == OPENAI_URL:
            raise ModelConfigurationError(
                f"model {name!r} needs an endpoint: set REFLEXION_BASE_URL, or REFLEXION_API_KEY for OpenAI"
            )

        async def connect() -> BaseChatModel:
            return await self._chat_openai(opened, base_url, key or "none", name)

        return ChatClient(
            connect,
            name=name,
            base_url=base_url,
            prices=self._prices,
            policy=self._policy(),
            secret=key,
            sleep=self._sleep,
        )

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

        return ChatClient(
            connect,
            name=shown,
            prices=Prices({shown: FREE}),
            policy=self._policy(),
            max_tokens=EMBEDDED_REPLY,
            embedded=True,
            sleep=self._sleep,
        )

    async def _chat_openai(self, opened: "_Opened", base_url: str, key: str, name: str) -> BaseChatModel:
        model, close = await asyncio.to_thread(_build_chat_openai, self.connection, base_url, key, name)
        opened.stack.push_async_callback(close)
        return model


class _Opened:
    """What one event loop has open."""

    def __init__(self) -> None:
        self.clients: dict[str, ChatClient] = {}
        self.stack = AsyncExitStack()


def _build_chat_openai(
    connection: ConnectionSettings, base_url: str, key: str, name: str
) -> tuple[BaseChatModel, Close]:
    """A chat model with an HTTP client of its own, since a shared one breaks in a second event loop."""
    import openai  # noqa: PLC0415 - these two take seconds to import

    from reflexion.models.chat_openai import CarefulChatOpenAI  # noqa: PLC0415

    timeout = openai.Timeout(connection.call_timeout_s, connect=connection.connect_timeout_s)
    http: Any = openai.DefaultAsyncHttpxClient(base_url=base_url, timeout=timeout)
    model = CarefulChatOpenAI(
        model=name,
        base_url=base_url,
        api_key=SecretStr(key),
        http_async_client=http,
        timeout=timeout,
        max_retries=0,
        stream_usage=True,
        # LangChain would take some model names to another path than every compatible endpoint has.
        use_responses_api=False,
    )
    return model, http.aclose


def _for_this_loop(model: BaseChatModel) -> tuple[BaseChatModel, Close]:
    """The caller's model, with the retries of its SDK switched off, since ours would multiply them.

    LangChain shares one HTTP client between all models of a process, and that breaks in a second event loop: unless
    the caller brought a client, the model gets one of its own.
    """
    import openai  # noqa: PLC0415 - slow to import
    from langchain_openai import ChatOpenAI  # noqa: PLC0415
    from langchain_openai.chat_models.base import BaseChatOpenAI  # noqa: PLC0415

    from reflexion.models.chat_openai import CarefulChatOpenAI  # noqa: PLC0415

    sdk = getattr(model, "root_async_client", None)
    if not isinstance(model, BaseChatOpenAI) or not isinstance(sdk, openai.AsyncOpenAI):
        return model, _nothing
    options: dict[str, Any] = {"max_retries": 0}
    close: Close = _nothing
    if model.http_async_client is None:
        http: Any = openai.DefaultAsyncHttpxClient(base_url=sdk.base_url, timeout=sdk.timeout)
        options["http_client"], close = http, http.aclose
    mended = model.model_copy()
    if type(mended) is ChatOpenAI:
        mended.__class__ = CarefulChatOpenAI
    mended.root_async_client = sdk.with_options(**options)
    mended.async_client = mended.root_async_client.chat.completions
    return mended, close


async def _nothing() -> None:
    pass
