"""Faults × seeds × ways to a store: each run gives the exact bytes, or exactly one typed error."""
