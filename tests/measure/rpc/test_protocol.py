"""Frames, fields, arrays, addresses and tokens: what is right comes back, what is wrong is told."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from measure.arrays import DTYPES, pack_arrays, unpack_arrays
from measure.check import unwritten
from measure.errors import PoolError
from measure.rpc.protocol import MAX_HEADER, ProtocolError, get, read
from measure.rpc.settings import (
    RpcAddress,
    RpcSettings,
    check_key,
    check_place,
    parse_addresses,
    read_certificates,
    read_token,
)
from measure.wire import pack
from search_space.dtypes import numpy_dtype


@settings(deadline=None)
@given(st.dictionaries(st.text(), st.integers() | st.text()), st.binary())
def test_a_frame_comes_back(header, blob):
    assert read(pack(header, blob)) == (header, blob)


@settings(deadline=None)
@given(st.binary(max_size=100))
def test_bytes_that_are_no_frame_are_a_protocol_error(data):
    assume(b"{" not in data)  # a header is an object
    with pytest.raises(ProtocolError):
        read(data)


@settings(deadline=None)
@given(st.dictionaries(st.text(), st.integers()), st.binary(max_size=20), st.integers(0, 200), st.binary(max_size=2))
def test_a_frame_with_other_bytes_in_it_is_a_frame_or_a_protocol_error(header, blob, position, other):
    """Most of these are frames: what is changed is often the blob, a digit or a letter."""
    frame = pack(header, blob)
    data = frame[: position % len(frame)] + other + frame[position % len(frame) + len(other) :]
    try:
        found, rest = read(data)
    except ProtocolError:
        assume(False)
    assert data.endswith(rest) and json.loads(data[4 : len(data) - len(rest)]) == found


@pytest.mark.parametrize(
    ("frame", "sentence"),
    [
        (b"\0\0\0", "at least 4 bytes, but got 3"),
        (b"\xff\xff\xff\xff{}", f"at most {MAX_HEADER} bytes, but got 4294967295"),
        (b"\x05\0\0\0[]", "must be within the message"),
        (b"\x02\0\0\0[]", "must be a JSON object, but got list"),
        (b"\x02\0\0\0{x", "must be JSON"),
        ((100_000).to_bytes(4, "little") + b"[" * 100_000, "must be JSON"),
        (b"\x02\0\0\0\xff\xfe", "must be JSON"),
    ],
)
def test_what_is_no_frame(frame, sentence):
    with pytest.raises(ProtocolError, match=sentence):
        read(frame)


@pytest.mark.parametrize(
    ("value", "kind"),
    [("x", int), (True, int), (1.5, int), (None, str), (float("nan"), float), (True, float), ("x" * 201, str)],
)
def test_fields_have_their_types(value, kind):
    with pytest.raises(ProtocolError, match="`name` must"):
        get({"name": value}, "name", kind)
    assert get({"name": 3}, "name", float) == 3.0 and get({"name": True}, "name", bool) is True


NUMBERS = st.sampled_from(sorted(DTYPES - {"bfloat16"}))
SHAPES = arrays.array_shapes(min_dims=0, min_side=0, max_dims=4, max_side=4)


@settings(deadline=None)
@given(st.lists(NUMBERS.flatmap(lambda dtype: arrays.arrays(dtype, SHAPES)), max_size=3))
def test_arrays_come_back(given_arrays):
    described, blob = pack_arrays(given_arrays)
    found = unpack_arrays(json.loads(json.dumps(described)), blob)
    assert len(found) == len(given_arrays)
    for before, after in zip(given_arrays, found, strict=True):
        np.testing.assert_array_equal(before, after)
        assert before.dtype == after.dtype and after.flags.writeable


def test_bfloat16_and_layouts_come_back():
    given_array = np.arange(6).reshape(2, 3).astype(numpy_dtype("bfloat16")).T
    (found,) = unpack_arrays(*pack_arrays([given_array]))
    np.testing.assert_array_equal(found.astype(np.float32), given_array.astype(np.float32))


@pytest.mark.parametrize(
    ("descriptions", "blob", "sentence"),
    [
        ([{"dtype": "object", "shape": [1]}], bytes(8), "`dtype` must be one of"),
        ([{"dtype": ["float32"], "shape": [1]}], bytes(8), "`dtype` must be one of"),
        ([{"dtype": "int8", "shape": [-1]}], b"", "`shape` must be a list of at most 32 extents"),
        ([{"dtype": "int8", "shape": [1] * 33}], b"x", "`shape` must be a list"),
        ([{"dtype": "int8", "shape": [2**40] * 32}], b"x", "must fill the 1 bytes that came with them, but need"),
        ([{"dtype": "int8", "shape": [2]}], b"x", "must fill the 1 bytes that came with them, but need 2 or more"),
        ([{"dtype": "int8", "shape": [1]}], b"xy", "must fill the 2 bytes that came with them, but need 1"),
        ([["int8", [1]]], b"x", "must be described by dtype and shape"),
        ([{"dtype": "int8", "shape": [1], "more": 1}], b"x", "must be described by dtype and shape"),
    ],
)
def test_arrays_that_are_none(descriptions, blob, sentence):
    with pytest.raises(ValueError, match=sentence):
        unpack_arrays(descriptions, blob)


@given(st.integers(0, 5), st.sampled_from(["int8", "uint8", "int32", "bool"]))
def test_elements_that_a_kernel_does_not_write_are_counted(missing, dtype):
    output = np.ones(6, dtype)

    def run():
        output[missing:] = 1
        return output

    assert unwritten(run, output) == missing


def test_addresses():
    assert parse_addresses("rpc://127.0.0.1:9190?key=a&key=b&priority=-2&check=client, rpc://[::1]:1") == [
        RpcAddress("127.0.0.1:9190", ("a", "b"), -2, "client"),
        RpcAddress("[::1]:1"),
    ]


@pytest.mark.parametrize(
    "spec",
    [
        "rpc://host",
        "rpc://:9190",
        "rpc://host:0",
        "rpc://host:65536",
        "rpc://::1:9",
        "rpc://user@host:1",
        "rpc://host:1/path",
        "http://host:1",
        "rpc://host:1,",
        "rpc://host:1?key=",
        "rpc://host:1?key=a b",
        "rpc://host:1?kye=a",
        "rpc://host:1?priority=high",
        "rpc://host:1?check=nowhere",
    ],
)
def test_addresses_that_are_none(spec):
    with pytest.raises(ValueError, match=r"`(pool|key)` must"):
        parse_addresses(spec)


def test_places_and_keys():
    assert check_place("0.0.0.0:0", "listen", any_port=True) == "0.0.0.0:0"
    with pytest.raises(ValueError, match="`listen` must be HOST:PORT, but got listen='9190'"):
        check_place("9190", "listen")
    with pytest.raises(ValueError, match="`key` must be 1 to 200 letters"):
        check_key("a/b")


def test_tokens(tmp_path):
    path = tmp_path / "token"
    path.write_text("  secret\n")
    assert read_token(path) == "secret"
    for text in ("", "two words", "ümlaut", "x" * 2000, "two\nlines"):
        path.write_text(text)
        with pytest.raises(PoolError, match="the token in .* must be 1 to 1024 visible ASCII characters") as caught:
            read_token(path)
        assert not text or text not in str(caught.value)
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(PoolError, match="`token_file` must be a readable file with a token, but got .*: it is no text"):
        read_token(path)
    with pytest.raises(PoolError, match="No such file"):
        read_token(tmp_path / "none")


def test_certificates_and_settings(tmp_path):
    (tmp_path / "x.pem").write_text("nothing")
    with pytest.raises(PoolError, match="`tls_ca` must be a PEM file, but got"):
        read_certificates(tmp_path / "x.pem", "tls_ca")
    with pytest.raises(PoolError, match="`tls_ca` must be a readable PEM file"):
        read_certificates(tmp_path / "y.pem", "tls_ca")
    with pytest.raises(ValueError, match="`patience` must be positive, but got patience=0"):
        RpcSettings("x", patience=0.0)
    with pytest.raises(ValueError, match="`lease` must be at most 120 seconds"):
        RpcSettings("x", lease=1000.0)
    with pytest.raises(ValueError, match="`check` must be one of device, client"):
        RpcSettings("x", check="nobody")
