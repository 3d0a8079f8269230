"""Messages as files of other programs: ``export``, ``import_messages``."""
