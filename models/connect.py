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
        stream_chunk_timeout=None,
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

    sdk = _sdk(model)
    if sdk is None or model.http_async_client is not None:  # type: ignore[attr-defined]
        return without_retries(model), _nothing
    http: Any = openai.DefaultAsyncHttpxClient(base_url=sdk.base_url, timeout=sdk.timeout)
    return without_retries(model, http_client=http), http.aclose


def without_retries(model: BaseChatModel, **options: Any) -> BaseChatModel:
    """A copy with the retries of its SDK switched off; the model itself where it has no OpenAI SDK.

    LangChain's own limit for a stream's pieces is switched off too, unless the caller set it: ours bound the whole
    call, and until Python 3.12 its `asyncio.wait_for` may lose a cancellation, and with it a run's deadline.
    """
    from langchain_openai import ChatOpenAI  # noqa: PLC0415 - slow to import

    from reflexion.models.chat_openai import CarefulChatOpenAI  # noqa: PLC0415

    sdk = _sdk(model)
    if sdk is None:
        return model
    mended: Any = model.model_copy()
    if type(mended) is ChatOpenAI:
        mended.__class__ = CarefulChatOpenAI
    if "stream_chunk_timeout" not in mended.model_fields_set:
        mended.stream_chunk_timeout = None
    mended.root_async_client = sdk.with_options(max_retries=0, **options)
    mended.async_client = mended.root_async_client.chat.completions
    return mended  # type: ignore[no-any-return]


def identity(model: BaseChatModel) -> tuple[str, str, str]:
    """A caller's model's name, its base URL and its key; empty where it has none."""
    key = getattr(model, "openai_api_key", None)
    return (
        str(getattr(model, "model_name", "") or getattr(model, "model", "") or type(model).__name__),
        str(getattr(model, "openai_api_base", None) or ""),
        key.get_secret_value() if isinstance(key, SecretStr) else "",
    )


def _sdk(model: BaseChatModel) -> Any:
    import openai  # noqa: PLC0415 - slow to import
    from langchain_openai.chat_models.base import BaseChatOpenAI  # noqa: PLC0415

    sdk = getattr(model, "root_async_client", None)
    return sdk if isinstance(model, BaseChatOpenAI) and isinstance(sdk, openai.AsyncOpenAI) else None


async def _nothing() -> None:
    pass
