"""Several models for one role, in a stated order."""

from collections.abc import Callable, Sequence

from langchain_core.messages import BaseMessage

from reflexion.models.client import ChatClient
from reflexion.models.errors import RETRYABLE, ErrorKind, ModelError
from reflexion.models.meter import Meter
from reflexion.models.replies import Reply
from reflexion.models.request import OnToken, Structure

FALLS_BACK: frozenset[ErrorKind] = RETRYABLE | {"bad_request", "circuit_open", "context_length"}
"""Kinds of error after which the next model is asked: the endpoint is down, busy, or cannot take this request.

A refusal, an empty account or a wrong key is not mended by asking somebody else behind the user's back."""

OnSwitch = Callable[[ChatClient, ChatClient, ModelError], None]


class Fallback:
    """Asks the first model, and each next one where the one before could not answer.

    Every request of each stands in the ledger under its own model.
    """

    def __init__(self, clients: Sequence[ChatClient], on_switch: OnSwitch | None = None) -> None:
        """Name the models in their order; `on_switch` is told from which to which, and why."""
        self._clients = clients
        self._on_switch = on_switch
        self.name = clients[0].name
        self.embedded = any(client.embedded for client in clients)
        """Whether the embedded model may have answered."""

    async def complete(
        self,
        messages: Sequence[BaseMessage],
        meter: Meter,
        *,
        temperature: float | None = None,
        max_tokens: int | None = None,
        structure: Structure | None = None,
        on_token: OnToken | None = None,
    ) -> Reply:
        """Ask for one reply; see `ChatClient.complete`.

        Raises:
            ModelError: of the last model that was asked.
        """
        for client, following in zip(self._clients, [*self._clients[1:], None], strict=True):
            try:
                return await client.complete(
                    messages,
                    meter,
                    temperature=temperature,
                    max_tokens=max_tokens,
                    structure=structure,
                    on_token=on_token,
                )
            except ModelError as error:
                if following is None or error.kind not in FALLS_BACK:
                    raise
                if self._on_switch:
                    self._on_switch(client, following, error)
        raise AssertionError("the last model has answered or raised")
