"""`python -m ais_tar2tf` is `ais-tar2tf`."""

from __future__ import annotations

from ais_tar2tf.cli import main

if __name__ == "__main__":
    main()
