"""Helpers that several tests share: shards, servers that fail, relays, and checks of what is left behind."""
