"""Where Temporal is, and how to reach it."""

from typing import Any

from pydantic import Field, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict
from temporalio.client import Client
from temporalio.envconfig import ClientConfig

from reflexion.batch.errors import BatchError
from reflexion.nodes import ConfigurationError, explain


class Place(BaseSettings):
    """A task queue of a Temporal server, from `REFLEXION_TEMPORAL_*` variables or `.env`.

    Keys and certificates are read as Temporal's own tools do: `TEMPORAL_API_KEY`, `TEMPORAL_TLS_*`, or its file.
    """

    model_config = SettingsConfigDict(
        env_prefix="REFLEXION_TEMPORAL_", env_file=".env", env_ignore_empty=True, extra="ignore", frozen=True
    )

    address: str = Field(default="127.0.0.1:7233", pattern=r"^[^/@\s]+:\d+$")
    """Host and port."""
    namespace: str = Field(default="default", min_length=1)
    task_queue: str = Field(default="reflexion", min_length=1)
    """Batches and workers that name the same one belong together."""
    heartbeat_s: float = Field(default=30.0, ge=1, le=600)
    """A worker that is silent for so many seconds is taken for dead, and another goes on with its tasks."""


def read_place(**values: Any) -> Place:
    """The place; what is given wins over the environment.

    Raises:
        ConfigurationError: a value cannot be used.
    """
    try:
        return Place(**values)
    except ValidationError as error:
        raise ConfigurationError(f"Temporal: {explain(error)}") from error


async def connect(place: Place) -> Client:
    """A connection to the server.

    Raises:
        BatchError: there is none to be had.
    """
    known: dict[str, Any] = {**ClientConfig.load_client_connect_config()}
    try:
        return await Client.connect(**known | {"target_host": place.address, "namespace": place.namespace})
    except RuntimeError as error:
        reason = " ".join(str(error).split())[:300]
        raise BatchError(
            f"Temporal at {place.address} cannot be reached ({reason}): start it, or name another with "
            "REFLEXION_TEMPORAL_ADDRESS=host:port"
        ) from None
