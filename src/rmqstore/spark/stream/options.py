"""Options of ``spark.readStream`` alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rmqstore.spark.common.option_names import STREAM_ALIASES, STREAM_OPTIONS
from rmqstore.spark.common.options import OptionError, Options
from rmqstore.spark.read.options import Selection, parse_selection
from rmqstore.spark.read.positions import Positions, parse_from

__all__ = ["StreamOptions", "parse_stream_options"]

_DELAY_SECONDS = 900.0
_DISCOVERY_SECONDS = 1.0


@dataclass(frozen=True)
class StreamOptions:
    """Options of a stream; plain data."""

    selection: Selection
    start: Positions  # of a new query
    group: str | None = None  # with its progress kept in ``consumerOffset.json``
    max_messages: int | None = None  # of one trigger
    max_bytes: int | None = None  # of one trigger
    min_messages: int | None = None  # of one trigger
    # seconds after which a batch may have fewer than ``min_messages``
    max_delay: float = _DELAY_SECONDS
    discovery: float = _DISCOVERY_SECONDS  # interval of checks for new topics and queues


def parse_stream_options(given: Mapping[str, str]) -> StreamOptions:
    """Parse the options; the stores must exist, but are not opened.

    Raises ``OptionError`` if one is unknown, out of range, or contradicts another,
    ``StoreNotFoundError`` if a path is no store.
    """
    options = Options(given, STREAM_OPTIONS, STREAM_ALIASES, what="the streaming source")
    selection = parse_selection(options)
    start = parse_from(options) or Positions("consumeFrom", "last")
    group = options.text("group")
    if group is not None and (not group or "@" in group):
        raise options.error("group", "a name without '@'")
    largest = options.integer("maxMessagesPerTrigger")
    least = options.integer("minMessagesPerTrigger")
    if least is None and "maxTriggerDelay" in options:
        raise OptionError("option 'maxTriggerDelay' is given without 'minMessagesPerTrigger'")
    if largest is not None and least is not None and least > largest:
        raise OptionError(
            f"option 'minMessagesPerTrigger' is {least}, above 'maxMessagesPerTrigger', "
            f"which is {largest}"
        )
    max_bytes = options.size("maxBytesPerTrigger", 0) if "maxBytesPerTrigger" in options else None
    return StreamOptions(
        selection=selection,
        start=start,
        group=group,
        max_messages=largest,
        max_bytes=max_bytes,
        min_messages=least,
        max_delay=options.seconds("maxTriggerDelay", _DELAY_SECONDS),
        discovery=options.seconds("discoveryInterval", _DISCOVERY_SECONDS),
    )
