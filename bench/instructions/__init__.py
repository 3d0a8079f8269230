"""How many instructions the hot calls take, beside what is committed: ``make instructions``."""
