"""Code and commands as the first thing that a process does: a new Python, in which nothing was imported or drawn.

`DEFINITIONS` has the names that the pages take for granted. A definition must not import TensorFlow, and must not
draw random numbers: whatever a block needs of these, it has to bring in itself.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from dataclasses import dataclass, field
from pathlib import Path

import pages

_SETTINGS = tomllib.loads((pages.ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["pytest"]
_WARNINGS = [f"-W{each}" for each in _SETTINGS["ini_options"]["filterwarnings"]]  # as for all tests: they are errors
_TIME = 200  # seconds; TensorFlow's import alone takes three, and many times that on a busy machine

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

_BEHIND = """
import sys
if "tensorflow" in sys.modules:  # a dataset that nobody iterates proves little
    for name, value in list(globals().items()):
        if isinstance(value, sys.modules["tensorflow"].data.Dataset):
            print(name, [str(getattr(each, "shape", each)) for each in value.take(1)])
"""


def script(code: str) -> str:
    """Return `code` behind the definitions of the names that it needs, and in front of a look at its datasets."""
    return "\n".join([*_definitions(code, set()), _BEFORE, code, _BEHIND])


def _definitions(code: str, known: set[str]) -> list[str]:
    found: list[str] = []
    for name in sorted(pages.needed(code) & DEFINITIONS.keys() - known):
        known.add(name)
        found += [*_definitions(DEFINITIONS[name], known), DEFINITIONS[name]]
    return found


@dataclass(frozen=True)
class Scene:
    """A folder to work in, the server whose buckets lie there, and where children keep compiled modules."""

    folder: Path
    url: str
    target_url: str
    bytecode: Path | None = None
    environment: dict[str, str] = field(default_factory=dict[str, str])

    def adapted(self, code: str) -> str:
        """Return the same code with this server in place of the one that pages name."""
        code = code.replace("http://localhost:51080", self.url).replace("http://proxy:51080", self.url)
        return code.replace("http://host/shards/", f"{self.target_url}/v1/objects/imagenet/")

    def run_code(self, code: str) -> subprocess.CompletedProcess[str]:
        path = self.folder / "first.py"  # a file: AutoGraph reads the source of what it traces
        path.write_text(self.adapted(script(code)), encoding="utf-8")
        return self.run(str(path))

    def run_command(self, program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run `ais-tar2tf` or `python` with these arguments."""
        begin = {"ais-tar2tf": ("-m", "ais_tar2tf"), "python": ()}[program]
        return self.run(*begin, *map(self.adapted, arguments))

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a new Python, for which a warning is an error."""
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
            environment["PYTHONPYCACHEPREFIX"] = str(self.bytecode)  # compiling TensorFlow takes five seconds
        environment |= {"HOME": str(self.folder), "PYTHONPATH": str(pages.ROOT), "TF_CPP_MIN_LOG_LEVEL": "2"}
        return environment | {"AIS_ENDPOINT": self.url} | self.environment
