"""Paths and URLs as users write them: templates, globs, safe names, and signed URLs without their secrets."""
