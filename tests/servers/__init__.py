"""Build, start, watch and stop real servers for the tests. The package must not import this."""
