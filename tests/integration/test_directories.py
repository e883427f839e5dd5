"""The agent's directory and permission routes (execd.md 5.4)."""
import urllib.parse

import pytest


@pytest.fixture(scope="module")
def box(daemon):
    return daemon.create()["id"]


@pytest.fixture(scope="module")
def agent(daemon, box):
    return lambda method, path, body=None: daemon.agent(box, method, path, body)


def names(r):
    return [e["path"] for e in r.json()]


def listing(agent, path, **query):
    return agent("GET", "/directories/list?" + urllib.parse.urlencode({"path": path, **query}))


def test_make_with_modes(agent):
    r = agent("POST", "/directories", {"/tmp/m/a/b": {"mode": 750}, "/tmp/m/c": {}, "/tmp/m/d": None})
    assert r.status == 200 and r.body == b"" and r.headers["Content-Length"] == "0"
    info = agent("GET", "/files/info?path=/tmp/m/a/b&path=/tmp/m/c").json()
    assert info["/tmp/m/a/b"]["mode"] == 750 and info["/tmp/m/a/b"]["type"] == "directory"
    assert info["/tmp/m/c"]["mode"] == 755
    # one that exists is left as it is
    assert agent("POST", "/directories", {"/tmp/m/a/b": {"mode": 700}}).status == 200
    assert agent("GET", "/files/info?path=/tmp/m/a/b").json()["/tmp/m/a/b"]["mode"] == 750


@pytest.mark.parametrize("body, status, code", [
    ({"/etc/passwd/x": {}}, 500, "RUNTIME_ERROR"),
    ({"/etc/passwd": {}}, 500, "RUNTIME_ERROR"),
    ({"/tmp/x": {"mode": 789}}, 500, "RUNTIME_ERROR"),
    ({"/tmp/x": 5}, 400, "INVALID_REQUEST_BODY"),
    ([], 400, "INVALID_REQUEST_BODY"),
    (None, 400, "INVALID_REQUEST_BODY"),
])
def test_make_mistakes(agent, body, status, code):
    r = agent("POST", "/directories", body)
    assert r.status == status and r.json()["code"] == code and r.json()["message"], r


def test_list_is_sorted_and_bounded(daemon, box, agent):
    daemon.run(box, "mkdir -p /tmp/l/b/deep/er /tmp/l/a && touch /tmp/l/z /tmp/l/b/f && ln -s b /tmp/l/link && ln -s gone /tmp/l/B")
    assert names(listing(agent, "/tmp/l")) == ["/tmp/l/" + n for n in ("B", "a", "b", "link", "z")]
    assert [e["type"] for e in listing(agent, "/tmp/l").json()] == ["symlink", "directory", "directory", "symlink", "file"]
    assert names(listing(agent, "/tmp/l", depth=2)) == ["/tmp/l/" + n for n in ("B", "a", "b", "b/deep", "b/f", "link", "z")]
    assert len(listing(agent, "/tmp/l", depth=99).json()) == 8
    assert listing(agent, "/tmp/l", depth=0).json() == []
    assert names(listing(agent, "/tmp/l/")) == names(listing(agent, "/tmp/l"))


@pytest.mark.parametrize("path, query, status, code", [
    ("/nonexistent", {}, 404, "FILE_NOT_FOUND"),
    ("/etc/passwd", {}, 400, "INVALID_REQUEST_BODY"),
    ("/tmp/l/link", {}, 400, "INVALID_REQUEST_BODY"),
    ("/tmp", {"depth": "-1"}, 400, "INVALID_REQUEST_BODY"),
    ("/tmp", {"depth": "x"}, 400, "INVALID_REQUEST_BODY"),
    ("", {}, 400, "MISSING_QUERY"),
])
def test_list_mistakes(daemon, box, agent, path, query, status, code):
    daemon.run(box, "mkdir -p /tmp/l/b && ln -sfn b /tmp/l/link")
    r = listing(agent, path, **query)
    assert r.status == status and r.json()["code"] == code, r


def test_permissions(daemon, box, agent):
    daemon.run(box, "touch /tmp/p1 /tmp/p2")
    assert agent("POST", "/files/permissions", {"/tmp/p1": {"mode": 600}, "/tmp/p2": {"mode": 755, "owner": "nobody", "group": "nogroup"}}).status == 200
    info = agent("GET", "/files/info?path=/tmp/p1&path=/tmp/p2").json()
    assert info["/tmp/p1"]["mode"] == 600
    assert (info["/tmp/p2"]["mode"], info["/tmp/p2"]["owner"], info["/tmp/p2"]["group"]) == (755, "nobody", "nogroup")
    assert agent("POST", "/files/permissions", {"/tmp/absent": {"mode": 600}}).status == 404
    assert agent("POST", "/files/permissions", {}).status == 200


def test_a_large_directory(daemon, box, agent):
    daemon.run(box, "mkdir /tmp/many && cd /tmp/many && seq 1 20000 | xargs touch")
    assert len(listing(agent, "/tmp/many").json()) == 20000
