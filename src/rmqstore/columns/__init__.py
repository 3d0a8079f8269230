"""Messages as columns: scans, datasets, filters pushed down."""
