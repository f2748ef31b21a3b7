"""What holds for every run of an installation: endpoint, database, prompts."""

import re
from pathlib import Path

from pydantic import ValidationError
from pydantic_settings import SettingsError

from reflexion.memory.persistence import DatabaseSettings
from reflexion.models import ConnectionSettings
from reflexion.nodes import ConfigurationError, explain


class Installation(ConnectionSettings, DatabaseSettings):
    """`REFLEXION_*` variables and `.env`, beyond the settings of a run."""

    prompts: Path | None = None
    """A folder with prompt files of the user's own."""


def read_installation(**values: object) -> Installation:
    """Read the environment and `.env`; what is given as a value wins.

    Raises:
        ConfigurationError: one of them cannot be used.
    """
    try:
        return Installation(**values)  # type: ignore[arg-type]
    except ValidationError as error:
        raise ConfigurationError(explain(error)) from error
    except SettingsError as error:
        raise ConfigurationError(f"REFLEXION_{_field(error)}: is not JSON: {error.__cause__}") from error


def _field(error: SettingsError) -> str:
    """The field that pydantic-settings could not read, which it names in its text alone."""
    return next(iter(re.findall(r'field "(\w+)"', str(error))), "…").upper()
