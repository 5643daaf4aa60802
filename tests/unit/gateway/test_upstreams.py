"""C2 and C3: names with two readings are no names, and what is not public is is not allowed."""

import pytest

from rota.errors import Invalid
from rota.gateway.upstreams import (
    Upstream,
    addresses_error,
    clean_query,
    host_error,
    parse_allow,
    parse_url,
)

PRIVATE = [
    *("127.0.0.1", "127.1.2.3", "0.0.0.0", "10.0.0.1", "172.16.0.1", "172.31.255.255"),  # noqa: S104
    *("192.168.1.1", "169.254.169.254", "100.64.0.1", "100.100.100.200", "192.0.0.192"),
    *("198.18.0.1", "224.0.0.1", "239.255.255.255", "240.0.0.1", "255.255.255.255"),
    *("192.0.2.1", "198.51.100.1", "203.0.113.1", "127.255.255.255"),
    *("::1", "::", "fe80::1", "fc00::1", "fd00:ec2::254", "ff02::1", "2001:db8::1", "fec0::1"),
    *("::ffff:127.0.0.1", "::ffff:169.254.169.254", "64:ff9b::7f00:1", "64:ff9b:1::1"),
    *("2002:7f00:1::", "2002:a9fe:a9fe::1", "2001::1", "100::1", "5f00::1", "fe80::1%eth0"),
    "::127.0.0.1",
]
PUBLIC = ["1.1.1.1", "160.79.104.10", "2606:4700::6810:84e5", "64:ff9b::101:101", "2002:101:101::"]
TRICKS = [
    *("", ".", "api.anthropic.com.", "API.anthropic.com", "api..com", ".api.com", "-a.com"),
    *("a-.com", "api_x.com", "api.com\0.evil", "evil\0.api.com", "api.com\r\nx", "api.com x"),
    *("user@api.com", "api.com:443", "api.com/x", "xn--nthropic-6fg.com", "аpi.com", "api.com%00"),
    *("2130706433", "0x7f000001", "017700000001", "127.1", "0177.0.0.1", "0x7f.0.0.1", "1.1.1.01"),
    *("[::1]", "::ffff:7f00:0001", "localhost.", "a" * 64 + ".com", "a." * 130 + "com"),
]


@pytest.mark.parametrize("address", PRIVATE)
def test_what_is_not_public_is_not_spoken_to(address):
    assert addresses_error([address]) is not None
    assert addresses_error(["1.1.1.1", address]) is not None


@pytest.mark.parametrize("address", PUBLIC)
def test_what_is_public_may_be(address):
    assert addresses_error([address]) is None


def test_a_name_that_leads_nowhere_or_to_no_address_is_not_spoken_to():
    assert addresses_error([]) is not None
    assert addresses_error(["api.example"]) is not None


@pytest.mark.parametrize("host", TRICKS)
def test_a_host_has_one_spelling(host):
    assert host_error(host) is not None


@pytest.mark.parametrize("host", ["api.anthropic.com", "localhost", "10.0.0.1", "::1", "a1-b.c2"])
def test_ordinary_hosts_are_hosts(host):
    assert host_error(host) is None


@pytest.mark.parametrize(
    "url",
    [
        *("http://api.openai.com", "https://127.0.0.1", "https://10.0.0.1", "https://[::1]"),
        *("https://user@api.com", "https://user:pw@api.com", "https://api.com@evil.com"),
        *("https://api.com?x=1", "https://api.com#x", "ftp://api.com", "api.com", "https://"),
        *("https://api.com\\@evil.com", "https://api.com\n", "https://api .com", "//api.com"),
        *("https://api.com/a/../b", "https://api.com//b", "https://api.com:0", "https://api.com:x"),
        *(
            "https://api.com:99999",
            "https://API.com",
            "https://api.com.",
            "https://169.254.169.254",
        ),
    ],
)
def test_an_upstream_is_at_a_plain_address(url):
    with pytest.raises(Invalid):
        parse_url("x", url, local=False)


def test_an_own_address_must_be_called_so():
    assert parse_url("x", "http://127.0.0.1:80/v1/", local=True) == (
        "http",
        "127.0.0.1",
        80,
        "/v1",
    )
    assert parse_url("x", "http://[::1]:8080", local=True) == ("http", "::1", 8080, "")
    assert parse_url("x", "https://api.com", local=False) == ("https", "api.com", 443, "")


def upstream(*allow):
    return Upstream(name="x", scheme="https", host="a.b", port=443, allow=parse_allow("x", allow))


@pytest.mark.parametrize(
    ("method", "path", "may"),
    [
        ("POST", "/v1/messages", True),
        ("GET", "/v1/messages", False),
        ("POST", "/v1/messages/", False),
        ("POST", "/v1/messages/batches", False),
        ("POST", "/V1/messages", False),
        ("GET", "/v1/models/one", True),
        ("GET", "/v1/models/", False),
        ("GET", "/v1/models/one/two", False),
        ("GET", "/repos/a/b/c", True),
        ("GET", "/repos/", True),
        ("GET", "/repos", False),
        ("GET", "/repository", False),
        ("GET", "/repos/../v1/files", False),
        ("GET", "/repos/./a", False),
        ("GET", "/repos//a", False),
        ("GET", "/repos/%2e%2e/v1/files", False),
        ("GET", "/repos/a%2Fb", False),
        ("GET", "/repos/a\\b", False),
        ("GET", "/repos/a%5cb", False),
        ("GET", "/repos/a%00", False),
        ("GET", "/repos/a%252e", False),
        ("GET", "/repos/a;b", False),
        ("GET", "", False),
    ],
)
def test_only_what_is_listed_may_be_asked_for(method, path, may):
    known = upstream("POST /v1/messages", "GET /v1/models/*", "GET /repos/**")
    assert known.allows(method, path) is may


@pytest.mark.parametrize(
    "text", ["/v1", "get /v1", "GET v1", "GET /v1/../x", "GET /a?b", "CONNECT /"]
)
def test_a_rule_says_method_and_path(text):
    with pytest.raises(Invalid):
        parse_allow("x", [text])


@pytest.mark.parametrize(
    ("query", "left"),
    [
        ("", ""),
        ("beta=true&limit=3", "beta=true&limit=3"),
        ("key=AIza&x=1", "x=1"),
        ("x=1&API_KEY=k", "x=1"),
        ("%6bey=k", ""),
        ("access_token=t&key", ""),
        ("+key=1&a=b", "a=b"),
    ],
)
def test_c5_no_key_stands_in_a_query(query, left):
    assert clean_query(query) == left
