"""``asyncio``: puts, and waits for the disk."""
