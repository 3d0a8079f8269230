"""Changes of stopped stores, journalled: ``repair``, ``rebuild`` and ``undo``."""
