"""The import lines of other programs work without those programs, and never shadow an installed one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import ais_tar2tf

ROOT = Path(ais_tar2tf.__file__).parents[1]


def run(code: str, *, path: Path = ROOT) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        cwd=path,
        env={"PYTHONPATH": f"{path}:{ROOT}", "PATH": "/usr/bin:/bin"},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_imports_of_other_programs_give_our_modules():
    code = (
        "import ais_tar2tf.compat\n"
        "import datum, datum.export.export, tfrecorder.factory as tf_factory\n"
        "from tfrecorder.helpers.decorator import tfrecordable\n"
        "from tfrecorder.helpers.marshaller import Example, IgnoreExampleException\n"
        "from datum.configs import TFRWriteConfigs\n"
        "from datum.problem import types\n"
        "import ais_tar2tf.datum, ais_tar2tf.tfrecorder.helpers.marshaller as marshaller\n"
        "same = TFRWriteConfigs is datum.configs.TFRWriteConfigs, tf_factory is ais_tar2tf.tfrecorder.factory\n"
        "print(datum is ais_tar2tf.datum, Example is marshaller.Example, *same, types.IMAGE_CLF, datum.__name__)\n"
        "import sys; print('tensorflow' in sys.modules)"
    )
    assert run(code).splitlines() == ["True True True True image_clf ais_tar2tf.datum", "False"]


@pytest.mark.parametrize("installed_first", [True, False])
def test_an_installed_package_comes_first(tmp_path, installed_first):
    (tmp_path / "datum").mkdir()
    (tmp_path / "datum" / "__init__.py").write_text("mine = 1\n")
    (tmp_path / "datum" / "configs.py").write_text("mine = 2\n")
    lines = ["import datum", "import ais_tar2tf.compat"]
    code = "\n".join(lines if installed_first else lines[::-1])
    code += "\nimport datum, datum.configs; print(datum.mine, datum.configs.mine, datum.__file__)"
    assert run(code, path=tmp_path).startswith(f"1 2 {tmp_path}")


def test_without_compat_the_names_do_not_exist():
    code = (
        "import ais_tar2tf, importlib.util\n"
        "print([importlib.util.find_spec(name) for name in ('datum', 'tfrecorder')])\n"
        "import ais_tar2tf.compat\n"
        "try:\n    import datum.nothing\n"
        "except ModuleNotFoundError as error:\n    print(error)"
    )
    assert run(code).splitlines() == ["[None, None]", "No module named 'datum.nothing'"]
