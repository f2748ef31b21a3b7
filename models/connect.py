"""Makes chat models whose HTTP client belongs to one event loop, and whose only retries are ours."""

from collections.abc import Awaitable, Callable
from typing import Any

from langchain_core.language_models import BaseChatModel
from pydantic import SecretStr

from reflexion.models.settings import ConnectionSettings

Close = Callable[[], Awaitable[None]]


def chat_openai(connection: ConnectionSettings, base_url: str, key: str, name: str) -> tuple[BaseChatModel, Close]:
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


def for_this_loop(model: BaseChatModel) -> tuple[BaseChatModel, Close]:
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
