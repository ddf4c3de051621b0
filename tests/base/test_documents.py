"""Small documents are read completely, or refused by a typed error that names them, whatever their bytes are."""

from __future__ import annotations

import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ais_tar2tf.base.documents.sealed import CHECKSUM, parse_json, read_file, seal, verify_seal
from ais_tar2tf.base.urls.names import SafeName
from ais_tar2tf.errors import CheckpointError, UnsafeName

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
)
DOCUMENTS = st.dictionaries(st.text().filter(lambda key: key != CHECKSUM), VALUES, max_size=6)


@given(DOCUMENTS)
def test_a_sealed_document_survives_writing_and_reading(document):
    data = json.dumps(seal(document)).encode()
    parsed = parse_json(data, where="x.json", fail=CheckpointError)
    assert verify_seal(parsed, where="x.json", fail=CheckpointError) == document


def test_a_changed_value_is_detected():
    data = json.dumps(seal({"seed": 7, "epoch": 2})).replace('"seed": 7', '"seed": 8').encode()
    with pytest.raises(CheckpointError, match=r"^x\.json: .*checksum"):
        verify_seal(parse_json(data, where="x.json", fail=CheckpointError), where="x.json", fail=CheckpointError)


def test_a_document_without_a_checksum_is_read():
    assert verify_seal({"epoch": 1}, where="x.json", fail=CheckpointError) == {"epoch": 1}


@pytest.mark.parametrize(
    "data",
    [b"", b"[]", b"null", b"{", b"\xff\xfe", b'{"a": ' * 50_000, b"[" * 10**6, b'{"a": 1' + b"0" * 100_000 + b"}"],
    ids=["empty", "list", "null", "cut", "binary", "deep", "deep list", "long number"],
)
def test_invalid_documents_are_typed_errors(data):
    with pytest.raises(CheckpointError, match=r"^x\.json: the document is damaged"):
        parse_json(data, where="x.json", fail=CheckpointError)


@given(st.binary(max_size=200))
def test_any_bytes_are_a_document_or_a_typed_error(data):
    with contextlib.suppress(CheckpointError):
        assert isinstance(parse_json(data, where="x.json", fail=CheckpointError), dict)


def test_a_document_is_bounded_before_it_is_read(tmp_path):
    path = tmp_path / "x.json"
    path.write_bytes(b"{}" + b" " * 100)
    assert read_file(path, most=102, limit="document_bytes", fail=CheckpointError) == path.read_bytes()
    with pytest.raises(CheckpointError, match="document_bytes"):
        read_file(path, most=101, limit="document_bytes", fail=CheckpointError)
    with pytest.raises(CheckpointError, match=r"has over 101 bytes$"):  # no option sets this limit
        read_file(path, most=101, limit=None, fail=CheckpointError)


@pytest.mark.parametrize("name", ["a", "a/b.tar", "..a", "a..", "a/.hidden", "a b/ü", "…"])
def test_names_that_stay_below_their_root(name, tmp_path):
    assert SafeName(name, where="x") == name
    assert (tmp_path / name).resolve().is_relative_to(tmp_path.resolve())


@pytest.mark.parametrize("name", ["", "/", "/a", "..", "a/..", "../a", "a/../b", "a//b", "a/", ".", "./a", "a\0b"])
def test_names_that_could_leave_their_root(name):
    with pytest.raises(UnsafeName, match=r"^manifest\.json: the name"):
        SafeName(name, where="manifest.json")
