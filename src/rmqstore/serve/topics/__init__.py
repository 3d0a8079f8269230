"""Topics, and the name server that tells clients where they are."""
