"""Files of cove-execd: info, delete, uploads of every shape, downloads with ranges and lines, big files in little memory."""
import email.utils
import hashlib
import http.client
import json
import os
import socket
import stat
import threading
import time
import urllib.parse

import pytest
from execdkit import Agent, wait_for

ASAN = "asan" in os.environ.get("COVE_BUILD", "")


@pytest.fixture(scope="module")
def agent():
    with Agent() as a:
        yield a


def q(path, **more):
    return urllib.parse.urlencode({"path": str(path), **more})


def part(name, data, filename="f", extra=""):
    fn = f'; filename="{filename}"' if filename is not None else ""
    return (f'Content-Disposition: form-data; name="{name}"{fn}\r\nContent-Type: application/octet-stream\r\n{extra}\r\n').encode() + data


def form(*parts, boundary=b"xBOUNDARYx"):
    return b"".join(b"--" + boundary + b"\r\n" + p + b"\r\n" for p in parts) + b"--" + boundary + b"--\r\n"


def meta(path, **kw):
    return part("metadata", json.dumps({"path": str(path), **kw}).encode(), "metadata.json")


TYPE = {"Content-Type": 'multipart/form-data; boundary="xBOUNDARYx"'}


def upload(agent, *parts, headers=None):
    return agent.post("/files/upload", form(*parts), headers=headers or TYPE)


def test_info(agent, tmp_path):
    f = tmp_path / "a b+c"
    f.write_bytes(b"12345")
    f.chmod(0o640)
    (tmp_path / "l").symlink_to("nowhere")
    r = agent.get(f"/files/info?{q(f)}&{q(tmp_path)}&{q(tmp_path / 'l')}")
    info = r.json()
    assert set(info) == {str(f), str(tmp_path), str(tmp_path / "l")}
    i = info[str(f)]
    assert (i["path"], i["type"], i["size"], i["mode"]) == (str(f), "file", 5, 640)
    assert i["owner"] == "root" or os.geteuid()
    assert i["modified_at"].endswith("Z") and i["created_at"].endswith("Z")
    assert info[str(tmp_path)]["type"] == "directory" and info[str(tmp_path / "l")]["type"] == "symlink"
    assert agent.get("/files/info").json() == {}
    r = agent.get(f"/files/info?{q(tmp_path / 'no')}")
    assert r.status == 404 and r.json()["code"] == "FILE_NOT_FOUND"


def test_path_expansion(agent, tmp_path):
    odd = tmp_path / "$odd name"
    odd.write_text("x")
    assert agent.get(f"/files/info?{q(odd)}").status == 200
    assert agent.get(f"/files/info?{q('~/../etc/passwd')}").json()["~/../etc/passwd"]["path"] == "/etc/passwd"
    assert agent.get(f"/files/info?{q('$HOME')}").json()["$HOME"]["path"] == "/root"


def test_delete(agent, tmp_path):
    (tmp_path / "f").write_text("x")
    (tmp_path / "dangling").symlink_to("nowhere")
    (tmp_path / "dirlink").symlink_to("d")
    (tmp_path / "d").mkdir()
    assert agent.request("DELETE", f"/files?{q(tmp_path / 'f')}&{q(tmp_path / 'missing')}&{q(tmp_path / 'dangling')}").status == 200
    assert not os.path.lexists(tmp_path / "f") and not os.path.lexists(tmp_path / "dangling")
    for d in ("d", "dirlink"):
        assert agent.request("DELETE", f"/files?{q(tmp_path / d)}").status == 500
        assert os.path.lexists(tmp_path / d)
    assert agent.request("DELETE", "/files").status == 200


def test_upload_round_trip_of_many_parts(agent, tmp_path):
    blobs = {f"sub{i % 3}/file-{i}": os.urandom(i * 1371 % 90000) for i in range(40)}
    parts = []
    for name, data in blobs.items():
        parts += [meta(tmp_path / name, mode=640), part("file", data, name.replace('"', '\\"'))]
    r = upload(agent, *parts)
    assert (r.status, r.body, r.headers["Content-Length"]) == (200, b"", "0")
    for name, data in blobs.items():
        assert (tmp_path / name).read_bytes() == data
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o640
        assert agent.get(f"/files/download?{q(tmp_path / name)}").body == data
    assert sorted(p.name for p in tmp_path.rglob("*") if p.is_file()) == sorted(n.split("/")[1] for n in blobs)


def test_upload_chunked_with_odd_chunks_and_expect(agent, tmp_path):
    data = os.urandom(300000) + b"\r\n--xBOUNDARY\r\n--xBOUNDARYy\r\n" + os.urandom(1000)
    body = form(meta(tmp_path / "c", owner=None, group=None), part("file", data, r"a\"b\\c"))
    with socket.create_connection(("127.0.0.1", agent.port), timeout=20) as s:
        s.sendall(b"POST /files/upload HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nExpect: 100-continue\r\n"
                  b"Content-Type: multipart/form-data; boundary=xBOUNDARYx\r\n\r\n")
        assert s.recv(100).startswith(b"HTTP/1.1 100")
        pos, n = 0, 1
        while pos < len(body):
            piece = body[pos:pos + n]
            s.sendall(b"%x\r\n" % len(piece) + piece + b"\r\n")
            pos += n
            n = n * 3 % 7919 + 1
        s.sendall(b"0\r\n\r\n")
        assert s.recv(100).startswith(b"HTTP/1.1 200")
    assert (tmp_path / "c").read_bytes() == data


def test_upload_order_of_pairs(agent, tmp_path):
    r = upload(agent, part("file", b"one"), part("other", b"zzz"), meta(tmp_path / "1"), meta(tmp_path / "2"), part("file", b"two"))
    assert r.status == 200
    assert (tmp_path / "1").read_bytes() == b"one" and (tmp_path / "2").read_bytes() == b"two"
    assert upload(agent, part("metadata", json.dumps({"path": str(tmp_path / "3")}).encode(), None), part("file", b"x")).status == 200


def test_upload_errors(agent, tmp_path):
    f = part("file", b"x")
    cases = [
        ((meta(tmp_path / "a"), ), "INVALID_FILE_CONTENT"), ((f, ), "INVALID_FILE_METADATA"),
        ((meta(tmp_path / "a"), f, meta(tmp_path / "b")), "INVALID_FILE"),
        ((part("metadata", b"{", "m"), f), "INVALID_FILE_METADATA"), ((meta(""), f), "INVALID_FILE_METADATA")]
    for parts, code in cases:
        r = upload(agent, *parts)
        assert (r.status, r.json()["code"]) == (400, code), r
    assert agent.post("/files/upload", b"{}", headers={"Content-Type": "application/json"}).json()["code"] == "INVALID_FILE"
    r = agent.post("/files/upload", form(meta(tmp_path / "cut"), f)[:-20], headers=TYPE)
    assert r.status == 400 and r.json()["code"] == "INVALID_FILE"
    for bad in (meta("/proc/nope/x"), meta(tmp_path), meta(tmp_path / "o", owner="no-such-user"), meta(tmp_path / "m", mode=689)):
        r = upload(agent, bad, f)
        assert (r.status, r.json()["code"]) == (500, "RUNTIME_ERROR"), r
    assert not [p for p in os.listdir(tmp_path) if p.startswith(".cove")]


def test_upload_ownership(agent, tmp_path):
    if os.geteuid() != 0:
        pytest.skip("cannot: needs root")
    (tmp_path / "had").mkdir()
    upload(agent, meta(tmp_path / "had/new/deep/f", owner="nobody", group="nogroup", mode=600), part("file", b"x"))
    ids = lambda p: (os.stat(tmp_path / p).st_uid, os.stat(tmp_path / p).st_gid)  # noqa: E731
    assert ids("had") == (0, 0) and ids("had/new") == ids("had/new/deep") == ids("had/new/deep/f") == (65534, 65534)
    # overwriting keeps what is not asked for
    upload(agent, meta(tmp_path / "had/new/deep/f"), part("file", b"yy"))
    assert ids("had/new/deep/f") == (65534, 65534) and stat.S_IMODE(os.stat(tmp_path / "had/new/deep/f").st_mode) == 0o600


def test_upload_keeps_links(agent, tmp_path):
    (tmp_path / "real").write_text("old")
    (tmp_path / "sym").symlink_to("real")
    os.link(tmp_path / "real", tmp_path / "hard")
    ino = (tmp_path / "real").stat().st_ino
    upload(agent, meta(tmp_path / "sym"), part("file", b"new"))
    assert (tmp_path / "sym").is_symlink() and (tmp_path / "hard").read_text() == "new"
    assert (tmp_path / "real").stat().st_ino == ino


def test_upload_that_breaks_off_leaves_nothing(agent, tmp_path):
    head = form(meta(tmp_path / "x"), part("file", b"y" * 100000))[:-50]
    s = socket.create_connection(("127.0.0.1", agent.port))
    s.sendall(b"POST /files/upload HTTP/1.1\r\nHost: x\r\nContent-Length: 9999999\r\n"
              b"Content-Type: multipart/form-data; boundary=xBOUNDARYx\r\n\r\n" + head)
    wait_for("the temporary file", lambda: os.listdir(tmp_path))
    s.close()
    wait_for("its removal", lambda: not os.listdir(tmp_path))


def test_download_headers(agent, tmp_path):
    f = tmp_path / "na\"me.txt"
    f.write_bytes(b"0123456789abc")
    r = agent.get(f"/files/download?{q(f)}")
    assert r.body == b"0123456789abc" and r.headers["Content-Type"] == "application/octet-stream"
    assert r.headers["Content-Length"] == "13" and r.headers["Accept-Ranges"] == "bytes"
    assert r.headers["Content-Disposition"] == 'attachment; filename="na\\"me.txt"'
    assert email.utils.parsedate_to_datetime(r.headers["Last-Modified"]).timestamp() == int(f.stat().st_mtime)
    assert agent.get(f"/files/download?{q(f)}", headers={"If-Modified-Since": r.headers["Last-Modified"]}).status == 304
    u = tmp_path / "é"
    u.write_bytes(b"")
    r = agent.get(f"/files/download?{q(u)}")
    assert r.headers["Content-Disposition"] == "attachment; filename=\"%C3%A9\"; filename*=UTF-8''%C3%A9" and r.body == b""


@pytest.mark.parametrize("header,want", [("bytes=0-9", b"0123456789"), ("bytes=10-", b"abc"), ("bytes=-3", b"abc"),
                                         ("bytes=-99", b"0123456789abc"), ("bytes=5-99", b"56789abc"),
                                         ("bytes=50-60,2-3", b"23"), ("bytes= 1-1 , 2-3", b"1")])
def test_ranges(agent, tmp_path, header, want):
    (tmp_path / "f").write_bytes(b"0123456789abc")
    r = agent.get(f"/files/download?{q(tmp_path / 'f')}", headers={"Range": header})
    start = b"0123456789abc".index(want)
    assert (r.status, r.body) == (206, want)
    assert r.headers["Content-Range"] == f"bytes {start}-{start + len(want) - 1}/13"


@pytest.mark.parametrize("header", ["bytes=13-", "bytes=x", "bytes=5-2", "lines=1-2", "bytes=-0", "bytes="])
def test_bad_ranges(agent, tmp_path, header):
    (tmp_path / "f").write_bytes(b"0123456789abc")
    r = agent.get(f"/files/download?{q(tmp_path / 'f')}", headers={"Range": header})
    assert (r.status, r.json()["code"], r.headers["Content-Range"]) == (416, "UNKNOWN", "bytes */13")


@pytest.mark.parametrize("query,want", [
    ({"offset": 2}, "two\n\nfour"), ({"limit": 2}, "one\ntwo"), ({"offset": 2, "limit": 1}, "two"), ({"offset": 3, "limit": 1}, ""),
    ({"offset": 4, "limit": 9}, "four"), ({"offset": 5}, ""), ({"offset": "", "limit": 1}, "one")])
def test_line_reads(agent, tmp_path, query, want):
    for text in ("one\ntwo\n\nfour\n", "one\r\ntwo\r\n\r\nfour"):
        (tmp_path / "f").write_bytes(text.encode())
        r = agent.get(f"/files/download?{q(tmp_path / 'f', **query)}")
        assert (r.status, r.body.decode()) == (200, want)
        assert r.headers["Content-Type"] == "text/plain; charset=utf-8" and r.headers["Content-Length"] == str(len(want))


def test_line_read_of_a_big_file(agent, tmp_path):
    (tmp_path / "f").write_text("".join(f"line {i}\n" for i in range(1, 300001)))
    r = agent.get(f"/files/download?{q(tmp_path / 'f', offset=100, limit=250000)}")
    assert r.body.decode() == "\n".join(f"line {i}" for i in range(100, 250100))


def test_download_errors(agent, tmp_path):
    (tmp_path / "f").write_text("x")
    os.mkfifo(tmp_path / "fifo")
    for query, status, code in ((q(tmp_path / "f", offset=0), 400, "INVALID_REQUEST_BODY"), (q(tmp_path / "f", limit="x"), 400, "INVALID_REQUEST_BODY"),
                                (q(tmp_path / "no"), 404, "FILE_NOT_FOUND"), ("", 400, "MISSING_QUERY"), (q(tmp_path), 400, "INVALID_FILE"),
                                (q(tmp_path / "fifo"), 400, "INVALID_FILE"), (q(tmp_path / "f/x"), 500, "RUNTIME_ERROR")):
        r = agent.get(f"/files/download?{query}")
        assert (r.status, r.json()["code"]) == (status, code), (query, r)
    r = agent.get(f"/files/download?{q(tmp_path / 'f', limit=1)}", headers={"Range": "bytes=0-1"})
    assert r.status == 400


def test_proc_files(agent):
    assert b"Name:" in agent.get("/files/download?path=/proc/self/status").body
    assert agent.get("/files/download?path=/sys/kernel/mm/transparent_hugepage/enabled").body


def test_shrinking_file_cuts_the_transfer(agent, tmp_path):
    f = tmp_path / "f"
    with open(f, "wb") as fh:
        fh.truncate(200 << 20)
    c = agent.connect()
    c.request("GET", f"/files/download?{q(f)}")
    r = c.getresponse()
    r.read(1000)
    os.truncate(f, 1000)
    with pytest.raises((http.client.IncompleteRead, ConnectionError)):
        while r.read(1 << 20):
            pass
        raise http.client.IncompleteRead(b"")
    c.close()


def rss(agent):
    return int(next(x for x in open(f"/proc/{agent.pid()}/status") if x.startswith("VmHWM")).split()[1])


def test_big_file_both_ways_in_little_memory(tmp_path):
    """256 MiB up and down; the agent's peak stays below 8 MiB."""
    size, digest = 256 << 20, hashlib.sha256()
    block = os.urandom(1 << 20)
    with Agent() as a:
        head = (b"--xBOUNDARYx\r\n" + meta(tmp_path / "big") + b"\r\n--xBOUNDARYx\r\n" + part("file", b""))
        tail = b"\r\n--xBOUNDARYx--\r\n"
        c = a.connect(120)
        c.putrequest("POST", "/files/upload")
        c.putheader("Content-Type", TYPE["Content-Type"])
        c.putheader("Content-Length", str(len(head) + size + len(tail)))
        c.endheaders(head)
        pings = []

        def ping():
            while len(pings) < 2000 and not done:
                t = time.monotonic()
                assert a.get("/ping").status == 200
                pings.append(time.monotonic() - t)
                time.sleep(0.01)
        done = []
        t = threading.Thread(target=ping)
        t.start()
        for i in range(size >> 20):
            piece = block[i % 97:] + block[:i % 97]
            digest.update(piece)
            c.send(piece)
        c.send(tail)
        assert c.getresponse().status == 200
        c.close()
        done.append(1)
        t.join()
        c = a.connect(120)
        c.request("GET", f"/files/download?{q(tmp_path / 'big')}")
        r = c.getresponse()
        got = hashlib.sha256()
        while True:
            piece = r.read(1 << 20)
            if not piece:
                break
            got.update(piece)
        c.close()
        assert got.digest() == digest.digest() and (tmp_path / "big").stat().st_size == size
        if not ASAN:
            assert rss(a) < 8 << 10
    os.unlink(tmp_path / "big")
