"""The words that options of the command line accept, for help texts and completion.

Other rooms define them. They are repeated here because importing those rooms would make `--help` slow;
`tests/cli/test_flags.py` compares them.
"""

from __future__ import annotations

__all__ = ["ALIGNMENTS", "EXISTS", "GROUPINGS", "LABELS", "ON_ERRORS"]

ALIGNMENTS = ("stream", "shard")
EXISTS = ("resume", "replace", "error")
GROUPINGS = ("first-dot", "last-dot")
LABELS = ("auto", "folders", "none")
ON_ERRORS = ("raise", "skip-record", "skip-shard")
