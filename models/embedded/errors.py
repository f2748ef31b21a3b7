"""What the embedded model raises."""


class EmbeddedModelError(RuntimeError):
    """The embedded model cannot be had; the text says why and what to do about it."""
