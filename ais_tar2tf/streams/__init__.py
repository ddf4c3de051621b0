"""Shards become streams of records, in an order that can be shuffled, and that can be resumed at any record."""
