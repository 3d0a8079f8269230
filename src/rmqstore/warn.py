"""Lines of the log ``rmqstore``.

Few programs ever have one, and importing ``logging`` takes as long as opening a store.
"""

from __future__ import annotations

__all__ = ["log_info", "log_warning"]


def log_warning(text: str, *arguments: object) -> None:
    """Log a warning as the caller's.

    Parameters
    ----------
    text : str
        With a ``%s`` for each argument.
    *arguments : object
    """
    import logging

    logging.getLogger("rmqstore").warning(text, *arguments, stacklevel=2)


def log_info(text: str, *arguments: object) -> None:
    """Log what was done as the caller's: as :func:`log_warning` does, for whoever asks for it."""
    import logging

    logging.getLogger("rmqstore").info(text, *arguments, stacklevel=2)
