"""Real servers for the tests: how they are built, started, watched and stopped. Nothing here is part of the package."""
