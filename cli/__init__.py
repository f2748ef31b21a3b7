"""The `reflexion` command."""

from reflexion.cli.app import main

__all__ = ["main"]
