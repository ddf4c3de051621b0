"""Run faults × seeds × ways to a store. Each run must end with the exact records or with exactly one typed error."""
