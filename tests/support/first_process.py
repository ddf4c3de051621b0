"""Run the code and commands of the documentation in a new Python process, before anything else is imported.

`DEFINITIONS` defines the names that the pages use without defining them. A definition must not import TensorFlow and
must not draw random numbers, so that a block of code is shown to work without earlier imports and earlier draws.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from tests.support import pages

_SETTINGS = tomllib.loads((pages.ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["pytest"]
_WARNINGS = [
    f"-W{each}" for each in _SETTINGS["ini_options"]["filterwarnings"]
]  # as in all tests, warnings are errors
_TIME = 200  # seconds; importing TensorFlow alone takes three, and much longer on a busy machine

DEFINITIONS = {
    "t2t": "import ais_tar2tf as t2t",
    "tornet": "from ais_tar2tf import tornet",
    "tf": """
import importlib, types
class Later(types.ModuleType):
    "A module that is imported when it is first used."
    def __getattr__(self, name):
        return getattr(importlib.import_module(self.__name__), name)
tf = Later("tensorflow")
""",
    "pair": """
def pair(record):
    image = tf.io.decode_jpeg(record["jpg"], channels=3)
    return tf.image.resize(image, (16, 16)) / 255, tf.strings.to_number(record["cls"], tf.int32)
""",
    "model": """
class model:
    "A Keras model that is made when it is first trained."
    @staticmethod
    def fit(*data, **how):
        import keras
        made = keras.Sequential([keras.layers.GlobalAveragePooling2D(), keras.layers.Dense(10)])
        made.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
        return made.fit(*data, **how)
""",
    "ais": 'ais = t2t.AisDataset("imagenet", "http://localhost:51080")',
    "src": 'src = t2t.open("ais://imagenet/train-{000..146}.tar", endpoint="http://localhost:51080")',
}

_BEFORE = """
import sys
assert not {"tensorflow", "keras"} & sys.modules.keys(), "a definition imports too much"
"""

_AFTER = """
import sys
if "tensorflow" in sys.modules:  # a dataset shows most errors only when it is iterated
    for name, value in list(globals().items()):
        if isinstance(value, sys.modules["tensorflow"].data.Dataset):
            print(name, [str(getattr(each, "shape", each)) for each in value.take(1)])
"""


def script(code: str) -> str:
    """Return a program: the definitions that `code` needs, `code`, and one step of each dataset that it makes."""
    return "\n".join([*definitions(code), _BEFORE, code, _AFTER])


def definitions(code: str, known: Iterable[str] = ()) -> list[str]:
    """Return the definitions of the names that `code` uses without defining them, except the names in `known`."""
    return _definitions(code, set(known))


def _definitions(code: str, known: set[str]) -> list[str]:
    found: list[str] = []
    for name in sorted(pages.needed(code) & DEFINITIONS.keys() - known):
        known.add(name)
        found += [*_definitions(DEFINITIONS[name], known), DEFINITIONS[name]]
    return found


@dataclass(frozen=True)
class DocumentationRunner:
    """Runs documented code in `folder`, against the server at `url`, whose buckets are in that folder.

    New processes keep their compiled modules in `bytecode`.
    """

    folder: Path
    url: str
    target_url: str
    bytecode: Path | None = None
    environment: dict[str, str] = field(default_factory=dict[str, str])

    def adapted(self, code: str) -> str:
        """Replace the server's URL that the pages use by the URL of this server."""
        code = code.replace("http://localhost:51080", self.url).replace("http://proxy:51080", self.url)
        return code.replace("http://host/shards/", f"{self.target_url}/v1/objects/imagenet/")

    def run_code(self, code: str) -> subprocess.CompletedProcess[str]:
        path = self.folder / "first.py"  # a file, because AutoGraph reads the source of the functions that it traces
        path.write_text(self.adapted(script(code)), encoding="utf-8")
        return self.run(str(path))

    def run_command(self, program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run `ais-tar2tf` or `python` with these arguments."""
        begin = {"ais-tar2tf": ("-m", "ais_tar2tf"), "python": ()}[program]
        return self.run(*begin, *map(self.adapted, arguments))

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a new Python process in which warnings are errors."""
        return subprocess.run(
            [sys.executable, *_WARNINGS, *arguments],
            cwd=self.folder,
            env=self._all_environment(),
            capture_output=True,
            text=True,
            timeout=_TIME,
            check=False,
        )

    def _all_environment(self) -> dict[str, str]:
        environment = dict(os.environ)
        if environment.pop("PYTHONDONTWRITEBYTECODE", None) and self.bytecode is not None:
            environment["PYTHONPYCACHEPREFIX"] = str(
                self.bytecode
            )  # without a cache, compiling TensorFlow's modules takes five seconds
        environment |= {"HOME": str(self.folder), "PYTHONPATH": str(pages.ROOT), "TF_CPP_MIN_LOG_LEVEL": "2"}
        return environment | {"AIS_ENDPOINT": self.url} | self.environment
