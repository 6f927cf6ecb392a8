"""By which names a node lets itself be addressed, whose headers it believes, and where it may be open to everybody."""

import pytest

from authentication_test import a_key, write_keys
from node import Refused

OWN_NAMES = ["localhost", "localhost:8081", "app.localhost", "127.0.0.1:8081", "10.1.2.3", "[::1]:8081", "bolide", "my_db:1"]
FOREIGN = ["evil.example", "evil.example:8081", "localhost.evil.example", "127.0.0.1.evil.example", "evil."]
OPEN = ["--set", "auth.enabled=false"]


def asked(node, host, **options):
    return node.raw("GET", "/dbs", {"host": host}, **options)


def endpoint(node, **headers):
    account = node.raw("GET", "/", headers).json
    return account["writableLocations"][0]["databaseAccountEndpoint"]


def test_with_the_well_known_key_foreign_hosts_are_refused(node):
    for host in OWN_NAMES:
        assert asked(node, host).status == 200, host
    for host in FOREIGN:
        answer = asked(node, host)
        assert answer.status == 403, (host, answer)
        assert f"'{host}'" in answer.message and "server.allowed_hosts" in answer.message
        assert node.raw("DELETE", "/dbs/nothing", {"host": host}).status == 403, "before anything is looked for"


def test_without_authentication_foreign_hosts_are_refused(new_node):
    node = new_node(arguments=OPEN)
    assert asked(node, "localhost", sign=False).status == 200
    assert asked(node, "evil.example", sign=False).status == 403


def test_without_authentication_pages_of_other_origins_are_refused(new_node):
    """A page may send a POST without asking first if it has no header of its own; with a key it cannot sign one."""
    node = new_node(arguments=OPEN)
    for origin in ("https://evil.example", "http://127.0.0.1:1", "null", ""):
        answer = node.raw("POST", "/dbs", {"origin": origin}, body={"id": "d"}, sign=False)
        assert answer.status == 403 and "authentication is off" in answer.message, (origin, answer)
    own = f"http://127.0.0.1:{node.port}"
    assert node.raw("POST", "/dbs", {"origin": own, "host": own[7:]}, body={"id": "d"}, sign=False).status == 201


def test_listed_hosts_are_taken(new_node):
    node = new_node(arguments=["--set", "server.allowed_hosts=db.example.org, other.example.org"])
    assert asked(node, "db.example.org:8081").status == 200
    assert asked(node, "OTHER.example.org").status == 200
    assert asked(node, "example.org").status == 403


def test_with_a_key_of_ones_own_every_host_is_taken(new_node, tmp_path):
    keys = tmp_path / "keys.toml"
    write_keys(keys, primary=a_key("a"))
    node = new_node(arguments=["--key-file", str(keys)], key=a_key("a"))
    assert asked(node, "db.example.org").status == 200


def test_health_and_metrics_do_not_look_at_the_host(node):
    for path in ["/alive", "/ready", "/status", "/metrics"]:
        answer = node.health(path, headers={"host": "node-1.bolide.svc.cluster.local:8080", "origin": "http://evil.example"})
        assert answer.status == 200, (path, answer)


def test_forwarded_headers_count_only_where_a_setting_says_so(node, new_node):
    behind = new_node(arguments=["--set", "server.trust_forwarded=true"])
    for headers in [
        {"forwarded": "proto=https;host=db.example.org"},
        {"x-forwarded-proto": "https", "x-forwarded-host": "db.example.org"},
    ]:
        assert endpoint(behind, **headers) == "https://db.example.org/"
        assert endpoint(node, **headers) == node.endpoint


def test_without_authentication_only_loopback_is_listened_on(new_node):
    with pytest.raises(Refused) as refused:
        new_node(arguments=["--host", "0.0.0.0", *OPEN])
    assert refused.value.code == 2
    assert "0.0.0.0" in refused.value.output and "auth.allow_open_network" in refused.value.output
    node = new_node(arguments=["--host", "0.0.0.0", *OPEN, "--set", "auth.allow_open_network=true"])
    assert node.raw("GET", "/dbs", sign=False).status == 200
