"""A small model that runs on this machine, for those who have no endpoint: weights, server and lease."""

from .errors import EmbeddedModelError
from .server import EmbeddedModel, LocalServer, installed_model, is_installed, shutdown_server

__all__ = [
    "EmbeddedModel",
    "EmbeddedModelError",
    "LocalServer",
    "installed_model",
    "is_installed",
    "shutdown_server",
]
