"""Arguments, times, text and log lines: what needs no store."""
