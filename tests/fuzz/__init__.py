"""Coverage-guided fuzzing of everything that parses what somebody else may have written.

`python -m tests.fuzz` runs the targets under atheris (extra `fuzz`), `tests/test_fuzz.py` replays the kept inputs.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # pytest does as much for the helpers of tests
