"""Real servers for the tests: how they are built, started, watched and stopped. No part of the package."""
