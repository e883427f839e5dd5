"""The lifecycle API over raw HTTP: real coved, native driver, agent. (Codes and schemas: src/daemon/api/test-api.c.)"""
import base64
import http.client
import json
import os
import signal
import socket
import subprocess
import threading
import time
import urllib.parse

import pytest

import covekit
from covekit import API_KEY, Daemon

NONE = {"extensions": {"cove.network": "none"}}


def until(what, timeout=10):
    deadline = time.monotonic() + timeout * covekit.SLOW
    while not what():
        assert time.monotonic() < deadline, "time limit"
        time.sleep(0.02)


def test_the_whole_life(daemon):
    body = {"image": {"uri": "host"}, "entrypoint": ["sh -c 'echo out; echo err >&2; exec sleep 1000'"],
            "resourceLimits": {"cpu": "500m", "memory": "256Mi", "pids": "100"}, "timeout": 300, "env": {"A": "b", "EMPTY": ""},
            "metadata": {"team": "x"}, "extensions": {"opensandbox.extensions.note": "n", "cove.cwd": "/tmp"}}
    r = daemon.request("POST", "/v1/sandboxes", body)
    assert r.status == 202, r
    s = r.json()
    assert s["status"]["state"] == "Running" and s["metadata"] == {"team": "x"}
    assert s["entrypoint"] == ["sh", "-c", "echo out; echo err >&2; exec sleep 1000"]
    assert s["extensions"] == {"opensandbox.extensions.note": "n"}
    assert "launch;dur=" in r.headers["Server-Timing"]
    one = "/v1/sandboxes/" + s["id"]
    got = daemon.get(one).json()
    assert got["image"] == {"uri": "host"} and got["createdAt"] == s["createdAt"] and None not in got.values()
    assert daemon.run(s["id"], 'echo "$A-$EMPTY-$OPENSANDBOX_ID"; pwd')[0] == f"b--{s['id']}\n/tmp\n"
    # limits reached the kernel: the sandbox cannot hold more than it was given
    assert daemon.run(s["id"], "python3 -c 'len(bytearray(b\"x\") * (400 << 20))'")[2] not in (0, None)
    until(lambda: "err" in daemon.get(one + "/diagnostics/logs").body.decode())
    assert "out" in daemon.get(one + "/diagnostics/logs?scope=all").json()["content"]
    inspect = daemon.get(one + "/diagnostics/inspect").body.decode()
    assert "0.50 cores\n" in inspect and "256 MiB\n" in inspect
    assert "team=x" in daemon.get(one + "/diagnostics/summary").body.decode()
    assert daemon.request("PATCH", one + "/metadata", {"team": None, "a": "1"}).json()["metadata"] == {"a": "1"}
    listed = daemon.get("/v1/sandboxes?" + urllib.parse.urlencode({"metadata": "a=1", "state": "running"})).json()
    assert [i["id"] for i in listed["items"]] == [s["id"]]
    assert daemon.request("DELETE", one).status == 204
    assert daemon.request("DELETE", one).status == 404
    assert daemon.get(one).status == 404


def test_pause_stops_everything_and_resume_goes_on(daemon):
    s = daemon.create("host", **NONE)["id"]
    one = "/v1/sandboxes/" + s
    daemon.run(s, "(while :; do echo x >> /tmp/ticks; sleep 0.02; done) > /dev/null 2>&1 &", background=True)
    until(lambda: daemon.run(s, "cat /tmp/ticks | wc -l")[0].strip() not in ("", "0"))
    assert daemon.request("POST", one + "/pause").status == 202
    assert daemon.get(one).json()["status"]["state"] == "Paused"
    r = daemon.request("POST", one + "/pause")
    assert (r.status, r.json()["code"]) == (409, "DOCKER::SANDBOX_NOT_RUNNING")
    assert daemon.request("POST", one + "/resume").status == 202
    assert daemon.run(s, "echo again")[0] == "again\n"
    assert daemon.request("POST", one + "/resume").status == 409
    assert daemon.request("POST", one + "/pause").status == 202
    assert daemon.request("DELETE", one).status == 204  # works in every state


@pytest.mark.parametrize("code, state", [(0, "Terminated"), (7, "Failed")])
def test_the_end_of_the_entrypoint_shows(daemon, code, state):
    s = daemon.create("host", entrypoint=["sh", "-c", f"sleep 0.3; exit {code}"], **NONE)["id"]
    until(lambda: daemon.get("/v1/sandboxes/" + s).json()["status"]["state"] == state)
    status = daemon.get("/v1/sandboxes/" + s).json()["status"]
    assert str(code) in status["message"]
    r = daemon.request("POST", f"/v1/sandboxes/{s}/pause")
    assert (r.status, r.json()["code"]) == (409, "DOCKER::SANDBOX_NOT_RUNNING")
    assert daemon.request("DELETE", "/v1/sandboxes/" + s).status == 204


@pytest.mark.parametrize("change, status, code", [
    ({"image": {"uri": "local/not-there"}}, 400, "DOCKER::SANDBOX_IMAGE_PULL_FAILED"),
    ({"image": {"uri": "registry.example/not-there:1"}}, 400, "DOCKER::SANDBOX_IMAGE_PULL_FAILED"),
    ({"entrypoint": ["/not/there"]}, 500, "DOCKER::SANDBOX_START_FAILED"),
    ({"resourceLimits": {"memory": "lots"}}, 400, "SANDBOX::INVALID_PARAMETER"),
    ({"metadata": {"a b": "c"}}, 400, "SANDBOX::INVALID_METADATA_LABEL"),
    ({"volumes": [{"name": "v", "mountPath": "/v", "host": {"path": "/etc"}}]}, 400, "VOLUME::HOST_PATH_NOT_ALLOWED"),
    ({"timeout": 5}, 422, "GENERAL::VALIDATION_ERROR"),
])
def test_refused_creates_leave_nothing(daemon, change, status, code):
    before = daemon.get("/v1/sandboxes").json()["pagination"]["totalItems"]
    body = {"image": {"uri": "host"}, "entrypoint": ["sleep", "100"], "resourceLimits": {}, "timeout": 60, **NONE, **change}
    r = daemon.request("POST", "/v1/sandboxes", body)
    assert (r.status, r.json()["code"]) == (status, code), r
    assert r.json()["message"]
    assert daemon.get("/v1/sandboxes").json()["pagination"]["totalItems"] == before


@pytest.mark.parametrize("image", ["host", "busybox"])
def test_variables_for_later_commands(daemon, request, image):
    """What SDKs do to set variables: append to the file that EXECD_ENVS names. An own name wins over the default."""
    image = "host" if image == "host" else request.getfixturevalue(image)
    s = daemon.create(image, **NONE)["id"]
    assert daemon.run(s, """printf '%s\\n' "A='x y'" 'B="1\\n2"' >> "$EXECD_ENVS" """) == ("", "", 0)
    assert daemon.run(s, 'echo "$A|$B"') == ("x y|1\n2\n", "", 0)
    daemon.request("DELETE", "/v1/sandboxes/" + s)
    s = daemon.create(image, env={"EXECD_ENVS": "/tmp/mine"}, **NONE)["id"]
    assert daemon.run(s, "echo C=3 > /tmp/mine; echo $EXECD_ENVS") == ("/tmp/mine\n", "", 0)
    assert daemon.run(s, "echo $C") == ("3\n", "", 0)
    daemon.request("DELETE", "/v1/sandboxes/" + s)


def test_the_operator_mounts_host_paths(daemon, tmp_path):
    tmp_path.chmod(0o777)
    (tmp_path / "in").write_text("from outside")
    for p in tmp_path.parents:
        if p != p.parent and os.stat(p).st_uid == 0:
            p.chmod(p.stat().st_mode | 0o711)
    body = {"image": {"uri": "host"}, "entrypoint": ["sleep", "100"], "resourceLimits": {}, "timeout": 60, **NONE,
            "volumes": [{"name": "v", "mountPath": "/mnt/v", "host": {"path": str(tmp_path)}},
                        {"name": "w", "mountPath": "/mnt/w", "host": {"path": str(tmp_path)}, "readOnly": True}]}
    assert daemon.request("POST", "/v1/sandboxes", body).status == 400
    r = daemon.request("POST", "/v1/sandboxes", body, unix=True)
    assert r.status == 202, r
    s = r.json()["id"]
    out, err, code = daemon.run(s, "cat /mnt/v/in && echo inside > /mnt/v/out && ! touch /mnt/w/no")
    assert (out, code) == ("from outside", 0), err
    assert (tmp_path / "out").read_text() == "inside\n"
    daemon.request("DELETE", "/v1/sandboxes/" + s)


def test_endpoints_and_the_proxy(daemon):
    s = daemon.create("host", **NONE)["id"]
    one = "/v1/sandboxes/" + s
    daemon.agent(s, "POST", "/files/upload")  # any answer: the token is right
    ep = daemon.get(one + "/endpoints/44772").json()
    assert ep["endpoint"] == f"127.0.0.1:{daemon.port}{one}/proxy/44772"
    assert "headers" not in daemon.get(one + "/endpoints/18080?use_server_proxy=true").json()
    # the agent wants its token, whoever asks
    assert daemon.get(one + "/proxy/44772/ping", key=None).status == 200
    assert daemon.request("POST", one + "/proxy/44772/command", '{"command":"true"}').status == 401
    # a service of the sandbox's own, on loopback
    daemon.run(s, "cd /tmp && echo page > index.html && exec python3 -m http.server 8123 --bind 127.0.0.1", background=True)
    until(lambda: daemon.get(one + "/proxy/8123/index.html", key=None).status == 200)
    r = daemon.get("/sandboxes/" + s + "/proxy/8123/index.html", key=None)
    assert r.body == b"page\n" and r.headers["X-Request-ID"] and len(r.headers.get_all("Date")) == 1
    r = daemon.get(one + "/proxy/9999/", key=None)
    assert (r.status, r.json()["code"]) == (502, "BACKEND_CONNECTION_FAILED")
    assert daemon.request("HEAD", one + "/proxy/8123/").status == 405
    daemon.request("DELETE", one)
    assert daemon.get(one + "/proxy/8123/index.html", key=None).status == 404


def test_agents_without_a_token():
    with covekit.Daemon("access_token = false") as d:
        for entrypoint in (["sleep", "100"], ["sleep", "200"]):  # one of them from the pool, perhaps
            s = d.create("host", entrypoint=entrypoint, **NONE)["id"]
            ep = d.get(f"/v1/sandboxes/{s}/endpoints/44772?use_server_proxy=true").json()
            assert "headers" not in ep
            assert d.run(s, "echo open")[0] == "open\n"


def websocket(daemon, path):
    """An upgraded connection, or the refused response."""
    c = socket.create_connection(("127.0.0.1", daemon.port), timeout=20 * covekit.SLOW)
    key = base64.b64encode(os.urandom(16)).decode()
    c.sendall((f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
               f"Sec-WebSocket-Key: {key}\r\n\r\n").encode())
    f = c.makefile("rb")
    status = int(f.readline().split()[1])
    while f.readline().strip():
        pass
    return c, f, status


def read_frame(f):
    head = f.read(2)
    n = head[1] & 0x7F
    if n == 126:
        n = int.from_bytes(f.read(2), "big")
    return head[0] & 0x0F, f.read(n)


def test_websockets_through_the_proxy(daemon):
    c, f, status = websocket(daemon, "/v1/sandboxes/not-there/proxy/80/")
    op, payload = read_frame(f)
    assert (status, op, int.from_bytes(payload[:2], "big")) == (101, 8, 1011)
    c.close()


def test_a_slow_create_does_not_hold_others_up(daemon):
    s = daemon.create("host", **NONE)["id"]
    times = []
    stop = threading.Event()

    def look():
        while not stop.is_set():
            t = time.monotonic()
            assert daemon.get("/v1/sandboxes/" + s).status == 200
            times.append(time.monotonic() - t)

    t = threading.Thread(target=look)
    t.start()
    ids = [daemon.create("host", **NONE)["id"] for _ in range(5)]
    stop.set()
    t.join()
    assert len(times) > 20
    for i in ids + [s]:
        daemon.request("DELETE", "/v1/sandboxes/" + i)


def test_kill_9_loses_nothing_acknowledged():
    with Daemon() as d:
        keep = d.create("host", metadata={"k": "v"}, entrypoint=["sh", "-c", "sleep 1000"], **NONE)["id"]
        paused = d.create("host", **NONE)["id"]
        gone = d.create("host", **NONE)["id"]
        d.run(keep, "echo state > /tmp/mark")
        d.request("PATCH", f"/v1/sandboxes/{keep}/metadata", {"k": None, "new": "x"})
        expires = "2099-05-06T07:08:09Z"
        assert d.request("POST", f"/v1/sandboxes/{keep}/renew-expiration", {"expiresAt": expires}).status == 200
        assert d.request("POST", f"/v1/sandboxes/{paused}/pause").status == 202
        assert d.request("DELETE", "/v1/sandboxes/" + gone).status == 204
        token = d.get(f"/v1/sandboxes/{keep}/endpoints/44772").json()["headers"]
        d.kill()
        d.start()
        got = d.get("/v1/sandboxes/" + keep).json()
        assert got["metadata"] == {"new": "x"} and got["expiresAt"] == expires
        assert got["entrypoint"] == ["sh", "-c", "sleep 1000"] and got["status"]["state"] == "Running"
        assert d.get(f"/v1/sandboxes/{keep}/endpoints/44772").json()["headers"] == token
        assert d.run(keep, "cat /tmp/mark")[0] == "state\n"
        assert d.get("/v1/sandboxes/" + paused).json()["status"]["state"] == "Paused"
        assert d.request("POST", f"/v1/sandboxes/{paused}/resume").status == 202
        assert d.run(paused, "echo ok")[0] == "ok\n"
        assert d.get("/v1/sandboxes/" + gone).status == 404
        assert d.get("/v1/sandboxes").json()["pagination"]["totalItems"] == 2


def test_an_end_while_the_daemon_is_away_is_noticed():
    with Daemon() as d:
        s = d.create("host", entrypoint=["sh", "-c", "sleep 1; exit 5"], **NONE)["id"]
        d.kill()
        time.sleep(1.3 * covekit.SLOW)
        d.start()
        status = d.get("/v1/sandboxes/" + s).json()["status"]
        assert status["state"] in ("Failed", "Terminated"), status
        assert d.request("DELETE", "/v1/sandboxes/" + s).status == 204


def test_expiry_removes_the_sandbox(daemon):
    s = daemon.create("host", **NONE)["id"]
    soon = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 2))
    assert daemon.request("POST", f"/v1/sandboxes/{s}/renew-expiration", {"expiresAt": soon}).status == 200
    assert daemon.get("/v1/sandboxes/" + s).status == 200
    until(lambda: daemon.get("/v1/sandboxes/" + s).status == 404)


def test_a_second_daemon_of_the_directory_is_refused(daemon):
    other = Daemon(state=daemon.dir)
    other.config, other.log = daemon.dir / "other.toml", daemon.dir / "other.log"
    other.socket = daemon.dir / "other.sock"
    other.write_config()
    r = subprocess.run([str(covekit.BIN / "coved"), "--config", str(other.config)], capture_output=True, text=True, timeout=30,
                       env=dict(os.environ, COVE_LIBEXEC=str(covekit.LIBEXEC)))
    assert r.returncode == 1 and "another daemon uses the state directory" in r.stderr, r.stderr


def test_without_a_key_the_tcp_side_stays_closed():
    d = Daemon(env={"OPENSANDBOX_SERVER_API_KEY": ""})
    try:
        d.start()
        assert d.get("/v1/sandboxes", unix=True, key=None).status == 200
        with pytest.raises(OSError):
            d.get("/v1/sandboxes")
        d.stop()
        d.env["OPENSANDBOX_INSECURE_SERVER"] = "YES"
        d.start()
        assert d.get("/v1/sandboxes", key=None).status == 200
    finally:
        d.close()


def test_reload_changes_the_key():
    with Daemon() as d:
        text = d.config.read_text()
        d.config.write_text(text.replace(API_KEY, "new-key"))
        d.proc.send_signal(signal.SIGHUP)
        until(lambda: d.get("/v1/sandboxes", key="new-key").status == 200)
        assert d.get("/v1/sandboxes").status == 401
        d.config.write_text("[server\n")
        d.proc.send_signal(signal.SIGHUP)
        until(lambda: "reload refused" in d.log.read_text())
        assert d.get("/v1/sandboxes", key="new-key").status == 200
        assert "new-key" not in d.log.read_text() and API_KEY not in d.log.read_text()
        d.config.write_text(text)
        d.proc.send_signal(signal.SIGHUP)
        until(lambda: d.get("/v1/sandboxes").status == 200)


def test_a_private_daemon_takes_everything_with_it(tmp_path):
    config = tmp_path / "c.toml"
    base = covekit.STATE_BASE / f"private-{os.getpid()}"
    config.write_text(f'[native]\nstate_dir = "{base}/state"\nrun_dir = "{base}/run"\n')
    life_r, life_w = os.pipe()
    ready_r, ready_w = os.pipe()
    p = subprocess.Popen([str(covekit.BIN / "coved"), "--config", str(config), "--private", "--life-fd", str(life_r), "--ready-fd", str(ready_w)],
                         pass_fds=(life_r, ready_w), stderr=subprocess.PIPE, env=dict(os.environ, COVE_LIBEXEC=str(covekit.LIBEXEC)))
    os.close(life_r)
    os.close(ready_w)
    address = os.read(ready_r, 4096).decode().strip()
    assert address.startswith("unix:"), p.communicate()
    c = covekit.UnixHTTPConnection(address[5:])
    c.request("POST", "/v1/sandboxes", json.dumps({"image": {"uri": "host"}, "resourceLimits": {}, "extensions": {"cove.entrypoint": "none"}}))
    r = c.getresponse()
    assert r.status == 202, r.read()
    r.read()
    os.close(life_w)
    assert p.wait(30) == 0, p.stderr.read()
    assert not os.listdir(base / "state/private") and not os.listdir(base / "run/private")
    p.stderr.close()
    # one that is killed leaves its sandboxes to the next
    life_r, life_w = os.pipe()
    ready_r2, ready_w = os.pipe()
    argv = [str(covekit.BIN / "coved"), "--config", str(config), "--private", "--life-fd", str(life_r), "--ready-fd", str(ready_w)]
    q = subprocess.Popen(argv, pass_fds=(life_r, ready_w), stderr=subprocess.DEVNULL, env=dict(os.environ, COVE_LIBEXEC=str(covekit.LIBEXEC)))
    os.close(ready_w)
    address = os.read(ready_r2, 4096).decode().strip()
    c = covekit.UnixHTTPConnection(address[5:])
    c.request("POST", "/v1/sandboxes", json.dumps({"image": {"uri": "host"}, "resourceLimits": {}, "extensions": {"cove.entrypoint": "none"}}))
    assert c.getresponse().status == 202
    q.kill()
    q.wait()
    assert os.listdir(base / "state/private")
    os.close(life_w)
    done = subprocess.run([str(covekit.BIN / "coved"), "--config", str(config), "--private"], input=b"", timeout=60, capture_output=True,
                          env=dict(os.environ, COVE_LIBEXEC=str(covekit.LIBEXEC)))
    assert done.returncode == 0, done.stderr
    assert not os.listdir(base / "state/private")


def test_images_over_the_api(daemon, busybox):
    listed = daemon.get("/v1/images").json()["items"]
    mine = [i for i in listed if i["reference"] == busybox]
    assert mine and mine[0]["sizeBytes"] > 100000 and len(mine[0]["id"]) == 64
    s = daemon.create(busybox, **NONE)["id"]
    r = daemon.request("DELETE", "/v1/images/" + busybox)
    assert (r.status, r.json()["code"]) == (409, "IMAGE::IN_USE")
    assert daemon.run(s, "echo still")[0] == "still\n"
    daemon.request("DELETE", "/v1/sandboxes/" + s)
    assert daemon.request("DELETE", "/v1/images/local/not-there").status == 404
    assert daemon.request("POST", "/v1/images?name=Bad", b"x").status == 400
    assert daemon.request("POST", "/v1/images?name=local/bad", b"no archive").status == 400
    assert daemon.request("POST", "/v1/images", b"x").status == 400
    r = daemon.request("POST", "/v1/images?name=local/p", {"path": "/etc/passwd"})
    assert (r.status, r.json()["code"]) == (403, "IMAGE::FORBIDDEN")


def test_an_upload_that_breaks_off_leaves_nothing(daemon):
    c = daemon.connection()
    c.putrequest("POST", "/v1/images?name=local/broken")
    c.putheader("OPEN-SANDBOX-API-KEY", API_KEY)
    c.putheader("Content-Length", "10000000")
    c.endheaders()
    c.send(b"\0" * 100000)
    c.close()
    time.sleep(0.2)
    assert "local/broken" not in [i["reference"] for i in daemon.get("/v1/images").json()["items"]]
    assert daemon.get("/health").status == 200


def test_idle_memory_is_small():
    with Daemon() as d:
        for _ in range(3):
            d.get("/v1/sandboxes")
        if "libasan" in open(f"/proc/{d.proc.pid}/maps").read():
            return  # a sanitizer's memory is not ours
        rss = int(next(line for line in open(f"/proc/{d.proc.pid}/status") if line.startswith("VmRSS")).split()[1])
        assert rss <= 12 * 1024, f"{rss} KiB"
