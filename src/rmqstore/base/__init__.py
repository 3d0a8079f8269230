"""Arguments, times, text and log lines, without a store."""
