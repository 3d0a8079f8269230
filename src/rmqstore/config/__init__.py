"""Configuration of a store."""
