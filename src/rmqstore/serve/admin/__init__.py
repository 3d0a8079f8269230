"""Admin requests: ``mqadmin``, the dashboard, the exporter.

Source: ``broker/processor/AdminBrokerProcessor.java``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmqstore.serve.admin import broker, connections, forwarding, groups, progress, resets, topics

if TYPE_CHECKING:
    from rmqstore.serve.gateway import Handler

__all__ = ["HANDLERS"]

HANDLERS: dict[int, Handler] = {
    **topics.HANDLERS,
    **groups.HANDLERS,
    **connections.HANDLERS,
    **progress.HANDLERS,
    **broker.HANDLERS,
    **resets.HANDLERS,
    **forwarding.HANDLERS,
}
