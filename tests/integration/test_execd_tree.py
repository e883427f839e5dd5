"""Directories, moves, permissions, search and replacement of cove-execd."""
import os
import stat
import urllib.parse

import pytest
from execdkit import Agent


@pytest.fixture(scope="module")
def agent():
    with Agent() as a:
        yield a


def q(path, **more):
    return urllib.parse.urlencode({"path": str(path), **more})


def mode(p):
    return stat.S_IMODE(os.lstat(p).st_mode)


def owner(p):
    return os.stat(p).st_uid, os.stat(p).st_gid


def test_make_directories(agent, tmp_path):
    r = agent.post("/directories", {str(tmp_path / "a/b/c"): {"mode": 755}, str(tmp_path / "d"): {"mode": 644}, str(tmp_path / "e"): {}})
    assert (r.status, r.body) == (200, b"")
    assert mode(tmp_path / "a/b/c") == 0o755 and mode(tmp_path / "d") == 0o644 and (tmp_path / "e").is_dir()
    # what was there stays as it is
    os.chmod(tmp_path / "e", 0o700)
    assert agent.post("/directories", {str(tmp_path / "e"): {"mode": 777}}).status == 200
    assert mode(tmp_path / "e") == 0o700
    (tmp_path / "f").write_text("x")
    for bad in (tmp_path / "f", tmp_path / "f/x"):
        assert agent.post("/directories", {str(bad): {}}).json()["code"] == "RUNTIME_ERROR"
    assert agent.post("/directories", []).status == 400
    assert agent.post("/directories", {str(tmp_path / "g"): {"mode": 798}}).status == 500


def test_make_directories_with_owner(agent, tmp_path):
    if os.geteuid() != 0:
        pytest.skip("cannot: needs root")
    agent.post("/directories", {str(tmp_path / "n/o/p"): {"owner": "nobody", "group": "nogroup"}})
    assert owner(tmp_path / "n") == owner(tmp_path / "n/o/p") == (65534, 65534) and owner(tmp_path) == (0, 0)


def test_remove_directories(agent, tmp_path):
    (tmp_path / "d/e/f").mkdir(parents=True)
    (tmp_path / "d/e/x").write_text("x")
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/keep").write_text("x")
    (tmp_path / "d/link").symlink_to(tmp_path / "outside")
    (tmp_path / "file").write_text("x")
    r = agent.request("DELETE", f"/directories?{q(tmp_path / 'd')}&{q(tmp_path / 'missing')}&{q(tmp_path / 'file')}")
    assert r.status == 200 and sorted(os.listdir(tmp_path)) == ["outside"] and (tmp_path / "outside/keep").exists()
    for bad in (f"{tmp_path}/outside/.", "/", f"{tmp_path}/outside/.."):
        assert agent.request("DELETE", f"/directories?{q(bad)}").status == 500
    assert (tmp_path / "outside/keep").exists()


def test_list(agent, tmp_path):
    for d in ("b/x/y", "a", "c"):
        (tmp_path / d).mkdir(parents=True)
    (tmp_path / "b/f").write_text("12")
    (tmp_path / "b.txt").write_text("1")
    (tmp_path / "l").symlink_to("b")

    def names(**more):
        r = agent.get(f"/directories/list?{q(tmp_path, **more)}")
        assert r.status == 200
        return [os.path.relpath(e["path"], tmp_path) for e in r.json()]
    assert names() == ["a", "b", "b.txt", "c", "l"]
    assert names(depth=2) == ["a", "b", "b/f", "b/x", "b.txt", "c", "l"]
    assert names(depth=9) == ["a", "b", "b/f", "b/x", "b/x/y", "b.txt", "c", "l"]
    assert names(depth=0) == []
    entry = {os.path.basename(e["path"]): e for e in agent.get(f"/directories/list?{q(tmp_path)}").json()}
    assert entry["l"]["type"] == "symlink" and entry["b.txt"]["size"] == 1 and entry["a"]["type"] == "directory"
    for query, status, code in ((q(tmp_path / "no"), 404, "FILE_NOT_FOUND"), (q(tmp_path / "b.txt"), 400, "INVALID_REQUEST_BODY"),
                                (q(tmp_path / "l"), 400, "INVALID_REQUEST_BODY"), ("", 400, "MISSING_QUERY"),
                                (q(tmp_path, depth=-1), 400, "INVALID_REQUEST_BODY"), (q(tmp_path, depth="x"), 400, "INVALID_REQUEST_BODY")):
        r = agent.get(f"/directories/list?{query}")
        assert (r.status, r.json()["code"]) == (status, code), query


def test_search(agent, tmp_path):
    for f in ("a.txt", "b.py", "d/c.txt", "d/e/a.md", ".hidden.txt"):
        (tmp_path / f).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / f).write_text("x")
    (tmp_path / "d/link.txt").symlink_to("nowhere")

    def found(pattern=None, path=tmp_path):
        r = agent.get(f"/files/search?{q(path, **({'pattern': pattern} if pattern is not None else {}))}")
        assert r.status == 200, r
        return [os.path.relpath(e["path"], tmp_path) for e in r.json()]
    assert found("*.txt") == [".hidden.txt", "a.txt", "d/c.txt", "d/link.txt"]
    assert found() == found("") == found("**") == [".hidden.txt", "a.txt", "b.py", "d/c.txt", "d/e/a.md", "d/link.txt"]
    assert found("a.{md,txt}") == ["a.txt", "d/e/a.md"]
    assert found("d/**/*.md") == ["d/e/a.md"]
    assert found("[ab].*", tmp_path / "a.txt") == ["a.txt"] and found("z*", tmp_path / "a.txt") == []
    assert agent.get(f"/files/search?{q(tmp_path / 'no')}").status == 404
    assert agent.get("/files/search").json()["code"] == "MISSING_QUERY"
    assert agent.get(f"/files/search?{q(tmp_path, pattern='[')}").json()["code"] == "RUNTIME_ERROR"
    assert agent.get(f"/files/search?{q('/etc', pattern='*.conf')}").status == 200


def test_move(agent, tmp_path):
    (tmp_path / "f").write_text("x")
    (tmp_path / "d/sub").mkdir(parents=True)
    (tmp_path / "dangling").symlink_to("nowhere")
    r = agent.post("/files/mv", [{"src": str(tmp_path / "f"), "dest": str(tmp_path / "new/deep/g")},
                                 {"src": str(tmp_path / "d"), "dest": str(tmp_path / "e")},
                                 {"src": str(tmp_path / "dangling"), "dest": str(tmp_path / "dangling2")}])
    assert (r.status, r.body) == (200, b"")
    assert (tmp_path / "new/deep/g").read_text() == "x" and (tmp_path / "e/sub").is_dir() and (tmp_path / "dangling2").is_symlink()
    r = agent.post("/files/mv", [{"src": str(tmp_path / "f"), "dest": str(tmp_path / "z")}])
    assert (r.status, r.json()["code"]) == (404, "FILE_NOT_FOUND")
    (tmp_path / "had").write_text("keep")
    r = agent.post("/files/mv", [{"src": str(tmp_path / "new/deep/g"), "dest": str(tmp_path / "had")}])
    assert r.status == 500 and (tmp_path / "had").read_text() == "keep"
    for bad in ({}, [{"src": "x"}], ["x"], [{"src": 1, "dest": "x"}]):
        assert agent.post("/files/mv", bad).status == 400


def test_move_to_another_file_system(agent, tmp_path):
    other = f"/dev/shm/cove-execd-mv-{os.getpid()}"
    if not os.path.isdir("/dev/shm") or os.stat("/dev/shm").st_dev == os.stat(tmp_path).st_dev:
        pytest.skip("cannot: there is no second file system")
    (tmp_path / "t/u").mkdir(parents=True)
    (tmp_path / "t/u/f").write_bytes(os.urandom(200000))
    os.chmod(tmp_path / "t/u/f", 0o751)
    (tmp_path / "t/l").symlink_to("u/f")
    want = (tmp_path / "t/u/f").read_bytes()
    try:
        assert agent.post("/files/mv", [{"src": str(tmp_path / "t"), "dest": other}]).status == 200
        assert not (tmp_path / "t").exists() and open(f"{other}/l", "rb").read() == want and mode(f"{other}/u/f") == 0o751
    finally:
        agent.request("DELETE", f"/directories?{q(other)}")
    assert not os.path.exists(other)


def test_permissions(agent, tmp_path):
    (tmp_path / "f").write_text("x")
    assert agent.post("/files/permissions", {str(tmp_path / "f"): {"mode": 600}}).status == 200
    assert mode(tmp_path / "f") == 0o600
    assert agent.post("/files/permissions", {}).status == 200
    assert agent.post("/files/permissions", {str(tmp_path / "no"): {"mode": 600}}).json()["code"] == "FILE_NOT_FOUND"
    assert agent.post("/files/permissions", {str(tmp_path / "f"): {"owner": "no-such-user"}}).status == 500
    assert agent.post("/files/permissions", {str(tmp_path / "f"): {"owner": None, "mode": None}}).status == 200
    if os.geteuid() == 0:
        agent.post("/files/permissions", {str(tmp_path / "f"): {"owner": "nobody", "group": "nogroup", "mode": 644}})
        assert owner(tmp_path / "f") == (65534, 65534) and mode(tmp_path / "f") == 0o644
        agent.post("/files/permissions", {str(tmp_path / "f"): {"group": "0"}})
        assert owner(tmp_path / "f") == (65534, 0)


def test_replace(agent, tmp_path):
    f, g = tmp_path / "f", tmp_path / "g"
    f.write_bytes(b"one two one\0one")
    g.write_bytes(b"x" * 700000 + b"aaa" + b"y" * 700000)
    os.chmod(f, 0o640)
    ino, before = f.stat().st_ino, g.stat().st_mtime_ns
    r = agent.post("/files/replace?verbose=true", {str(f): {"old": "one", "new": "longer"}, str(g): {"old": "zzz", "new": "q"}})
    assert r.json() == {str(f): {"replacedCount": 3}, str(g): {"replacedCount": 0}}
    assert f.read_bytes() == b"longer two longer\0longer" and f.stat().st_ino == ino and mode(f) == 0o640
    assert g.stat().st_mtime_ns == before
    r = agent.post("/files/replace", {str(g): {"old": "aa", "new": ""}})
    assert (r.status, r.body) == (200, b"") and g.read_bytes() == b"x" * 700000 + b"a" + b"y" * 700000
    assert agent.post("/files/replace", {str(tmp_path / "no"): {"old": "a", "new": "b"}}).status == 404
    for bad in ({str(f): {"old": "", "new": "x"}}, {str(f): {"old": 1}}, [], {str(f): "x"}):
        assert agent.post("/files/replace", bad).status == 400
