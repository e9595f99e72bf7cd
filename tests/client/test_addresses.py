"""Coordinators can be named in all usual forms of addresses, and other texts are refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peacefs.client.control.addresses import CoordinatorAddress, is_uri, parse_address, split_uri
from peacefs.protocol.errors import BadRequest


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("http://127.0.0.1:9870", "127.0.0.1", 9870),
        ("http://127.0.0.1:9870/", "127.0.0.1", 9870),
        ("webhdfs://name.example:1", "name.example", 1),
        ("peace://name", "name", 9870),
        ("name", "name", 9870),
        ("name:50070", "name", 50070),
        ("HTTP://name:50070", "name", 50070),
        ("http://[::1]:9870", "::1", 9870),
        ("[::1]", "::1", 9870),
    ],
)
def test_a_coordinator_is_named_by_what_spark_curl_and_people_write(text: str, host: str, port: int) -> None:
    assert parse_address(text) == CoordinatorAddress(host, port)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "http://",
        "ftp://name:21",
        "name:port",
        "name:0",
        "name:65536",
        "name:٣",
        "http://name:9870/path",
        "http://user@name:9870",
        "::1",
        "http://[::1",
        "[::1:9870",
    ],
)
def test_address_that_is_none_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(BadRequest) as refusal:
        parse_address(text)
    assert "\n" not in refusal.value.message


@pytest.mark.parametrize("scheme", ["https", "swebhdfs", "HTTPS"])
def test_tls_address_is_said_by_its_scheme_and_shown_by_it(scheme: str) -> None:
    address = parse_address(f"{scheme}://name:9871")
    assert address == CoordinatorAddress("name", 9871, tls=True) != CoordinatorAddress("name", 9871)
    assert (address.http, address.webhdfs) == ("https://name:9871", "swebhdfs://name:9871")
    assert split_uri("swebhdfs://name:9871/a") == (address, "/a")
    assert is_uri("swebhdfs://name:9871/a")


def test_a_uri_is_cut_into_coordinator_and_path_as_hadoop_does_without_decoding() -> None:
    address, path = split_uri("webhdfs://name:9870/a b/50%25?x#y")
    assert address == CoordinatorAddress("name", 9870)
    assert path == "/a b/50%25?x#y"
    assert split_uri("webhdfs://name:9870")[1] == "/"


@pytest.mark.parametrize("path", ["/a", "a", "./webhdfs", "webhdfs:/a", "/webhdfs://a", "hdfs://name/a"])
def test_a_path_is_not_mistaken_for_a_uri(path: str) -> None:
    assert not is_uri(path)


@given(host=st.ip_addresses(), port=st.integers(1, 65535))
def test_an_address_reads_back_from_every_form_it_is_shown_in(host: object, port: int) -> None:
    address = CoordinatorAddress(str(host), port)
    assert (
        parse_address(address.http) == parse_address(address.webhdfs) == parse_address(address.netloc) == address
    )
