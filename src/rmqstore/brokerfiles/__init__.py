"""The broker's own small files: JSON under ``config/`` and ``broker.conf``."""
