"""Coverage-guided fuzzing of every parser of foreign bytes.

`python -m tests.fuzz` runs the targets under atheris (extra `fuzz`). `tests/project/test_fuzz.py` replays the inputs
in `corpus/`.
"""
