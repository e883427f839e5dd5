"""Network policies on the Docker driver: the sidecar (lifecycle.md §4.8, §4.9), its life with the sandbox, the policy routes (§7.9).

The guard is the stand-in tests/standins/guard.c: it serves the policy API and demands its token; it enforces nothing.
"""
import json
import threading
import time
import urllib.request

import pytest

import dockerkit
from scripted_engine import ScriptedEngine

ours = pytest.mark.skipif(dockerkit.IS_PEER, reason="cannot: a rule of ours that the official server does not have")
POLICY = {"defaultAction": "deny", "egress": [{"action": "allow", "target": "example.com"}]}
RULES = {"action": "allow", "target": "example.com"}
RUNTIME = "opensandbox-runtime-"


@pytest.fixture(scope="module")
def server(docker):
    docker.image("busybox"), docker.image("egress")
    with dockerkit.serve(docker) as s:
        yield s


@pytest.fixture(scope="module")
def scripted(docker):
    docker.image("busybox"), docker.image("egress")
    with ScriptedEngine(docker) as e, dockerkit.serve(e, {"egress": {"readiness_timeout_seconds": 2.0}}) as s:
        yield s


@pytest.fixture
def made(server):
    with dockerkit.nothing_left(server) as ids:
        def make(**fields):
            ids.append(server.create(**{"networkPolicy": POLICY, **fields})["id"])
            return ids[-1]
        yield make


def env(box):
    return dict(e.split("=", 1) for e in box["Config"]["Env"])


# ---- what is made ----

def test_sidecar_and_sandbox_share_a_network(server, made):
    i = made()
    box, side = server.engine.sandbox(i), server.engine.sidecar(i)
    assert box["HostConfig"]["NetworkMode"] == "container:" + side["Id"]
    assert not box["HostConfig"]["PortBindings"] and not box["Config"].get("ExposedPorts")
    assert "NET_ADMIN" in {c.removeprefix("CAP_") for c in box["HostConfig"]["CapDrop"]}
    assert {c.removeprefix("CAP_") for c in side["HostConfig"]["CapAdd"]} >= {"NET_ADMIN"}
    assert side["HostConfig"]["NetworkMode"] in ("bridge", "default")
    ports = side["HostConfig"]["PortBindings"]
    assert set(ports) == {"44772/tcp", "8080/tcp", "18080/tcp"} and set(side["Config"]["ExposedPorts"]) == set(ports)
    assert all(b[0]["HostIp"] == "127.0.0.1" for b in ports.values())
    labels = box["Config"]["Labels"]
    assert labels["opensandbox.io/embedding-proxy-port"] == ports["44772/tcp"][0]["HostPort"]
    assert labels["opensandbox.io/http-port"] == ports["8080/tcp"][0]["HostPort"]
    assert side["Config"]["Labels"]["opensandbox.io/egress-sidecar-for"] == i and not side["Config"]["Labels"].get("opensandbox.io/id")
    assert server.run(i, "echo inside")[0] == "inside\n"


def test_environment_of_sidecar_and_sandbox(server, made):
    i = made(env={"OPENSANDBOX_EGRESS_LOG_LEVEL": "debug", "OPENSANDBOX_EGRESS_DENY_WEBHOOK": None, "MINE": "1"})
    box, side = server.engine.sandbox(i), server.engine.sidecar(i)
    e = env(side)
    assert json.loads(e["OPENSANDBOX_EGRESS_RULES"]) == POLICY and e["OPENSANDBOX_EGRESS_MODE"] == "dns"
    token = box["Config"]["Labels"]["opensandbox.io/egress-auth-token"]
    assert e["OPENSANDBOX_EGRESS_TOKEN"] == token and len(token) == 32 and set(token) <= set(
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_")
    assert e["OPENSANDBOX_EGRESS_SANDBOX_ID"] == i and e["OPENSANDBOX_EGRESS_LOG_LEVEL"] == "debug"
    assert not [k for k in list(e) + list(env(box)) if "MITM" in k] and "OPENSANDBOX_EGRESS_DENY_WEBHOOK" not in e
    assert not [k for k in env(box) if k.startswith("OPENSANDBOX_EGRESS_")] and env(box)["MINE"] == "1"
    assert "MINE" not in e


def test_runtime_volume_is_made_once_marked_and_bound_on_both(server, made):
    i = made()
    box, side = server.engine.sandbox(i), server.engine.sidecar(i)
    v = RUNTIME + i
    assert server.engine.volumes()[v]["Labels"]["opensandbox.io/volume-managed-by"] == "server"
    assert side["HostConfig"]["Binds"] == [v + ":/opt/opensandbox:rw"]
    assert v + ":/opt/opensandbox:rw" in box["HostConfig"]["Binds"]
    assert json.loads(box["Config"]["Labels"]["opensandbox.io/volume-managed-by"]) == [v]


def test_every_policy_object_turns_the_guard_on(server, made):
    i = made(networkPolicy={})
    assert server.engine.exists("sandbox-egress-" + i)
    assert json.loads(env(server.engine.sidecar(i))["OPENSANDBOX_EGRESS_RULES"]) == {"egress": []}


def test_delete_removes_sidecar_and_volume(server, made):
    i = made()
    server.delete(i)
    assert not server.engine.exists("sandbox-egress-" + i) and RUNTIME + i not in server.engine.volumes()
    assert server.request("DELETE", "/v1/sandboxes/" + i).status == 404


def test_delete_of_a_vanished_sandbox_removes_its_sidecar(server, made):
    i = made()
    server.engine.remove("sandbox-" + i)
    assert server.request("DELETE", "/v1/sandboxes/" + i).status in ((404,) if dockerkit.IS_PEER else (204, 404))
    assert not server.engine.exists("sandbox-egress-" + i) and RUNTIME + i not in server.engine.volumes()


def test_ipv6_switch(docker):
    for off in (True, False):
        with ScriptedEngine(docker) as e, dockerkit.serve(e, {"egress": {"disable_ipv6": off}}) as s:
            i = s.create(networkPolicy=POLICY)["id"]
            [r] = [x for x in e.seen("POST", "/containers/create") if "sandbox-egress-" in x.target]
            sysctls = r.json()["HostConfig"].get("Sysctls")
            if off:
                assert {k: str(v) for k, v in sysctls.items()} == {f"net.ipv6.conf.{n}.disable_ipv6": "1" for n in ("all", "default", "lo")}
            else:
                assert "Sysctls" not in r.json()["HostConfig"] or not sysctls
            s.delete(i)


@pytest.mark.parametrize("step", ["create", "start"])
def test_engine_that_cannot_set_the_ipv6_switches(scripted, engine, step):
    text = 'OCI runtime create failed: open /proc/sys/net/ipv6/conf/all/disable_ipv6: no such file or directory'
    if step == "create":
        engine.on("POST", "/containers/create", status=500, message=text, times=1, match=lambda r: "egress" in r.target)
    elif dockerkit.IS_PEER:
        pytest.skip("cannot: it repeats a failed create only")
    else:
        engine.on("POST", "/containers/[^/]*/start", status=500, message=text, times=1, match=lambda r: is_side(engine, r))
    i = scripted.create(networkPolicy=POLICY)["id"]
    tried = [x.json()["HostConfig"].get("Sysctls") for x in engine.seen("POST", "/containers/create") if "sandbox-egress-" in x.target]
    assert len(tried) == 2 and tried[0] and not tried[1]
    scripted.delete(i)


def is_side(engine, r):
    c = r.path.split("/")[2]
    return "egress" in c or engine.engine.exists(c) and engine.engine.inspect(c)["Name"].startswith("/sandbox-egress")


@ours
def test_sidecar_is_limited(server, made):
    host = server.engine.sidecar(made())["HostConfig"]
    assert host["Memory"] > 0 and host["PidsLimit"] > 0 and host["CapDrop"]
    assert any(o.startswith("no-new-privileges") for o in host["SecurityOpt"])


# ---- credential proxy ----

def test_credential_proxy(docker):
    docker.image("egress")
    with dockerkit.serve(docker, {"egress": {"mode": "dns+nft"}}) as s:
        census = dockerkit.Census(docker)
        i = s.create(networkPolicy=POLICY, credentialProxy={"enabled": True},
                     env={"SSL_CERT_FILE": "/mine.pem", "OPENSANDBOX_EGRESS_MITMPROXY_TRANSPARENT": "false"})["id"]
        box, side = docker.engine.sandbox(i), docker.engine.sidecar(i)
        v = RUNTIME + i + ":/opt/opensandbox:rw"
        assert env(side)["OPENSANDBOX_EGRESS_MITMPROXY_TRANSPARENT"] == "true" and env(side)["OPENSANDBOX_EGRESS_MODE"] == "dns+nft"
        assert side["Config"]["Env"].count("OPENSANDBOX_EGRESS_MITMPROXY_TRANSPARENT=true") == 1
        assert env(box)["OPENSANDBOX_EGRESS_MITMPROXY_TRANSPARENT"] == "true" and env(box)["SSL_CERT_FILE"] == "/mine.pem"
        assert side["HostConfig"]["Binds"] == [v] and v in box["HostConfig"]["Binds"]
        assert json.loads(box["Config"]["Labels"]["opensandbox.io/volume-managed-by"]) == [RUNTIME + i]
        # the guard's certificate is where the launcher waits for it
        assert "BEGIN CERTIFICATE" in s.run(i, "cat /opt/opensandbox/mitmproxy-ca-cert.pem")[0]
        s.delete(i)
        # plain interception, asked for by the user
        j = s.create(networkPolicy=POLICY, env={"OPENSANDBOX_EGRESS_MITMPROXY_TRANSPARENT": "true"})["id"]
        assert env(docker.engine.sidecar(j))["OPENSANDBOX_EGRESS_MITMPROXY_TRANSPARENT"] == "true"
        assert env(docker.engine.sandbox(j))["OPENSANDBOX_EGRESS_MITMPROXY_TRANSPARENT"] == "true"
        s.delete(j)
        s.refused(400, "SANDBOX::INVALID_PARAMETER", networkPolicy=POLICY, credentialProxy={"enabled": True}, env={"OPENSANDBOX_EGRESS_MITMPROXY_SSL_INSECURE": "1"})
        census.check()


@ours
def test_our_launcher_makes_the_guards_certificate_trusted(docker):
    """Without an execd_image: variables, system store and NSS database of a Debian image, variables of an image without any tool."""
    cert, merged = "/opt/opensandbox/mitmproxy-ca-cert.pem", "/opt/opensandbox/merged-ca-certificates.pem"
    sections = {"egress": {"mode": "dns+nft"}, "runtime": {"execd_image": None}}
    docker.image("egress")
    with dockerkit.serve(docker, sections) as s:
        assert "execd_image" not in s.log.read_text()
        for image in ("trust", "busybox"):
            i = s.create(image=docker.image(image), networkPolicy=POLICY, credentialProxy={"enabled": True}, env={"SSL_CERT_FILE": "/mine.pem"},
                         entrypoint=["sh", "-c", "echo $SSL_CERT_FILE > /seen; exec tail -f /dev/null"])["id"]
            bundle = merged if image == "trust" else cert
            assert s.run(i, "echo $NODE_EXTRA_CA_CERTS $REQUESTS_CA_BUNDLE $SSL_CERT_FILE; cat /seen")[0] == f"{cert} {bundle} {bundle}\n{bundle}\n"
            pem = s.run(i, "cat " + cert)[0]
            assert "BEGIN CERTIFICATE" in pem and s.run(i, "cat " + merged)[0].endswith(pem)
            if image == "trust":
                assert s.run(i, f"openssl verify {cert}")[0] == f"{cert}: OK\n"
                assert s.run(i, "cat /etc/ssl/certs/ca-certificates.crt")[0].count("BEGIN") == 2
                assert "C,," in s.run(i, "certutil -d sql:/root/.pki/nssdb -L -n opensandbox-mitmproxy >/dev/null && certutil -d sql:/root/.pki/nssdb -L")[0]
            s.delete(i)


def test_credential_proxy_needs_its_mode_and_a_policy(server):
    server.refused(400, "SANDBOX::INVALID_PARAMETER", "dns+nft", networkPolicy=POLICY, credentialProxy={"enabled": True})
    server.refused(422, credentialProxy={"enabled": True})


def test_upstream_proxy(docker, tmp_path):
    ca = tmp_path / "ca.pem"
    ca.write_text("x")
    up = {"egress": {"mode": "dns+nft"}, "egress.upstream_proxy": {"url": "http://proxy.example.com:3128", "authorization": "Basic c2VjcmV0LXVw", "ca_cert_path": str(ca)}}
    with ScriptedEngine(docker) as e, dockerkit.serve(e, up) as s:
        s.refused(400, "SANDBOX::INVALID_PARAMETER", networkPolicy=POLICY)
        s.refused(400, "SANDBOX::INVALID_PARAMETER", networkPolicy=POLICY, env={"OPENSANDBOX_EGRESS_MITMPROXY_TRANSPARENT": "1", "OPENSANDBOX_EGRESS_MITMPROXY_SSL_INSECURE": "yes"})
        i = s.create(networkPolicy=POLICY, credentialProxy={"enabled": True})["id"]
        side = docker.engine.sidecar(i)
        v = env(side)
        assert v["OPENSANDBOX_EGRESS_UPSTREAM_PROXY"] == "http://proxy.example.com:3128" and v["OPENSANDBOX_EGRESS_UPSTREAM_PROXY_AUTH"] == "Basic c2VjcmV0LXVw"
        inside = "/etc/ssl/certs/opensandbox-upstream-extra-ca.pem"
        assert v["OPENSANDBOX_EGRESS_MITMPROXY_UPSTREAM_EXTRA_CA"] == inside and f"{ca}:{inside}:ro" in side["HostConfig"]["Binds"]
        assert "c2VjcmV0LXVw" not in s.log.read_text() and "c2VjcmV0LXVw" not in json.dumps(docker.engine.sandbox(i))
        s.delete(i)


# ---- refusals ----

def test_policy_needs_an_egress_image(docker):
    with dockerkit.serve(docker, {"egress": {"image": None}}) as s:
        s.refused(400, "SANDBOX::INVALID_PARAMETER", "egress.image", networkPolicy=POLICY)


def test_policy_on_the_hosts_network(docker):
    with dockerkit.serve(docker, {"docker": {"network_mode": "host"}}) as s:
        s.refused(400, "SANDBOX::INVALID_PARAMETER", networkPolicy=POLICY)


def test_policy_on_a_users_network(docker):
    docker.engine.call("POST", "/networks/create", {"Name": "team-net"})
    try:
        with dockerkit.serve(docker, {"docker": {"network_mode": "team-net"}}) as s:
            s.refused(400, "SANDBOX::INVALID_PARAMETER", "team-net", networkPolicy=POLICY)
    finally:
        docker.engine.raw("DELETE", "/networks/team-net")


# ---- failures of the sidecar ----

def test_sidecar_that_ends_at_once(scripted, engine):
    census = dockerkit.Census(engine)
    r = scripted.refused(500, "DOCKER::SANDBOX_START_FAILED", networkPolicy=POLICY, env={"OPENSANDBOX_EGRESS_LOG_LEVEL": "test-exit"})
    assert r.json()["message"]
    census.check()


def test_sidecar_that_never_gets_ready(scripted, engine):
    census = dockerkit.Census(engine)
    t = time.monotonic()
    scripted.refused(500, "DOCKER::SANDBOX_START_FAILED", networkPolicy=POLICY, env={"OPENSANDBOX_EGRESS_LOG_LEVEL": "test-unready"})
    assert 1.5 < time.monotonic() - t < 8
    census.check()


def test_sidecar_that_does_not_start(scripted, engine):
    census = dockerkit.Census(engine)
    engine.on("POST", "/containers/[^/]*/start", status=500, message="some detail", match=lambda r: is_side(engine, r))
    r = scripted.refused(500, "DOCKER::SANDBOX_START_FAILED", networkPolicy=POLICY)
    assert r.json()["message"] == "Egress sidecar container failed to start."
    census.check()


def test_engine_that_gives_no_id(scripted, engine):
    engine.on("POST", "/containers/create", status=201, body={"Warnings": []}, match=lambda r: "egress" in r.target)
    r = scripted.refused(500, "DOCKER::SANDBOX_START_FAILED", networkPolicy=POLICY)
    assert r.json()["message"] == "Docker did not return an egress sidecar container ID."
    assert not [x for x in engine.requests if x.method == "DELETE" and "/containers/" in x.path]
    assert not [x for x in engine.seen("POST", "/containers/[^/]*/start")]


def test_sidecar_is_removed_by_id_when_it_cannot_be_looked_up(scripted, engine):
    census = dockerkit.Census(engine)
    for fault in ({"status": 500, "message": "inspect broke"}, {"drop": True}):
        engine.clear()
        engine.on("GET", "/containers/[^/]*/json", match=lambda r: is_side(engine, r), **fault)
        engine.on("POST", "/containers/[^/]*/start", match=lambda r: is_side(engine, r), **fault)
        r = scripted.refused(500, "DOCKER::SANDBOX_START_FAILED", networkPolicy=POLICY)
        assert r.json()["message"] == "Egress sidecar container failed to start."
        gone = [x for x in engine.requests if x.method == "DELETE" and x.path.startswith("/containers/")]
        assert len(gone) == 1 and gone[0].query.get("force", "").lower() in ("1", "true"), gone
    engine.clear()
    census.check()


def test_sandbox_that_fails_takes_its_sidecar_along(scripted, engine):
    census = dockerkit.Census(engine)
    engine.on("POST", "/containers/create", status=500, message="broke 42", match=lambda r: "sandbox-egress" not in r.target and "execd" not in r.target)
    scripted.refused(500, "DOCKER::SANDBOX_START_FAILED", "broke 42", networkPolicy=POLICY)
    census.check()


def test_missing_guard_image(docker):
    with dockerkit.serve(docker, {"egress": {"image": "127.0.0.1:1/no/guard"}}) as s:
        census = dockerkit.Census(docker)
        s.refused(500, "DOCKER::SANDBOX_IMAGE_PULL_FAILED", networkPolicy=POLICY)
        census.check()


# ---- endpoints and policy routes ----

def test_endpoint_of_the_guard_carries_its_token(server, made):
    i = made()
    token = server.engine.sandbox(i)["Config"]["Labels"]["opensandbox.io/egress-auth-token"]
    ep = server.get(f"/v1/sandboxes/{i}/endpoints/18080").json()
    assert ep["headers"]["OPENSANDBOX-EGRESS-AUTH"] == token
    assert "OPENSANDBOX-EGRESS-AUTH" not in server.get(f"/v1/sandboxes/{i}/endpoints/44772").json().get("headers", {})
    # through the agent of the shared network, directly and by the server's proxy
    for ep in (ep, server.get(f"/v1/sandboxes/{i}/endpoints/18080?use_server_proxy=true").json()):
        r = urllib.request.urlopen(urllib.request.Request(f"http://{ep['endpoint']}/policy", headers=ep["headers"]), timeout=10)
        assert json.load(r)["policy"] == POLICY


def test_no_guard_no_token(server):
    i = server.create()["id"]
    r = server.get(f"/v1/sandboxes/{i}/endpoints/18080")
    assert r.status == 200 and "OPENSANDBOX-EGRESS-AUTH" not in r.json().get("headers", {})
    server.delete(i)


def test_policy_routes(server, made):
    i = made()
    path = f"/v1/sandboxes/{i}/networkpolicy"
    got = server.get(path).json()
    assert got["status"] == "ok" and got["mode"] == "enforcing" and got["policy"] == POLICY
    new = {"action": "deny", "target": "bad.example.com"}
    assert server.request("PATCH", path, [new]).status == 200
    assert server.get(path).json()["policy"]["egress"] == [new, RULES]
    r = server.request("DELETE", path, ["EXAMPLE.com"])
    assert r.status == 200 and r.json()["status"] == "ok"
    assert server.get("/sandboxes/" + path.split("/", 3)[3]).json()["policy"]["egress"] == [new]
    assert server.request("DELETE", path, ["nothing.example.com"]).json()["reason"] == "no matching targets found"
    assert server.request("PUT", path, {"defaultAction": "allow", "egress": []}).json()["mode"] == "allow_all"
    # a token of the client's own is dropped, the sandbox's is used
    assert server.get(path, headers={"OPENSANDBOX-EGRESS-AUTH": "wrong"}).status == 200
    assert server.get(path, key=None).status == 401
    for method, body in (("PUT", [1]), ("PATCH", {}), ("PATCH", None), ("DELETE", [1]), ("PUT", None)):
        assert server.request(method, path, body).status == 422, (method, body)


def test_policy_routes_without_a_guard(server):
    i = server.create()["id"]
    r = server.get(f"/v1/sandboxes/{i}/networkpolicy")
    if dockerkit.IS_PEER:
        assert r.status == 502 and r.json()["code"] == "BACKEND_CONNECTION_FAILED"
    else:
        assert r.status == 409 and r.json()["code"] and r.json()["message"], r
    server.delete(i)
    assert server.get(f"/v1/sandboxes/{i}/networkpolicy").status == 404
    assert server.get("/v1/sandboxes/fsb-1/networkpolicy").status == 404


def test_server_proxy_reaches_services_of_a_guarded_sandbox(server, made):
    i = made()
    server.run(i, "mkdir /w; echo page > /w/index.html; busybox httpd -p 8080 -h /w; busybox httpd -p 9000 -h /w")
    for port in (8080, 9000):
        ep = server.get(f"/v1/sandboxes/{i}/endpoints/{port}?use_server_proxy=true").json()
        r = server.get("/" + ep["endpoint"].split("/", 1)[1] + "/index.html", headers=ep.get("headers"))
        assert r.body == b"page\n", (port, r)


# ---- life ----

def test_pause_and_resume_take_the_sidecar_along(server, made):
    i = made()
    state = lambda: (server.engine.sandbox(i)["State"]["Status"], server.engine.sidecar(i)["State"]["Status"])  # noqa: E731
    before = server.get(f"/v1/sandboxes/{i}/endpoints/44772").json()
    assert server.request("POST", f"/v1/sandboxes/{i}/pause").status == 202
    assert state() == ("paused", "paused")
    assert server.request("POST", f"/v1/sandboxes/{i}/resume").status == 202
    assert state() == ("running", "running")
    assert server.get(f"/v1/sandboxes/{i}/endpoints/44772").json() == before
    assert server.run(i, "echo again")[0] == "again\n"


def test_pause_that_fails_at_the_sidecar_is_rolled_back(scripted, engine):
    i = scripted.create(networkPolicy=POLICY)["id"]
    engine.on("POST", "/containers/[^/]*/pause", status=500, message="freezer broke", match=lambda r: is_side(engine, r))
    r = scripted.request("POST", f"/v1/sandboxes/{i}/pause")
    assert r.status == 500 and r.json()["code"] == "DOCKER::SANDBOX_PAUSE_FAILED" and "freezer broke" in r.json()["message"], r
    assert engine.engine.sandbox(i)["State"]["Status"] == "running"
    engine.clear()
    assert scripted.request("POST", f"/v1/sandboxes/{i}/pause").status == 202
    engine.on("POST", "/containers/[^/]*/unpause", status=500, message="thaw broke", match=lambda r: not is_side(engine, r))
    r = scripted.request("POST", f"/v1/sandboxes/{i}/resume")
    assert r.status == 500 and r.json()["code"] == "DOCKER::SANDBOX_RESUME_FAILED", r
    assert engine.engine.sandbox(i)["State"]["Status"] == "paused" and engine.engine.sidecar(i)["State"]["Status"] == "paused"
    engine.clear()
    scripted.delete(i)


@ours
@pytest.mark.parametrize("end", ["kill", "pause"])
def test_without_its_guard_a_sandbox_reaches_nothing(server, made, end):
    """The network is the guard's: it ends with it. A frozen one answers no names, and its rules stay."""
    i = made()
    routes = lambda: server.engine.exec("sandbox-" + i, "cat", "/proc/net/route")[1]  # noqa: E731
    before = routes()
    assert "eth0" in before
    server.engine.call("POST", f"/containers/sandbox-egress-{i}/{end}")
    if end == "pause":
        assert routes() == before
        server.engine.call("POST", f"/containers/sandbox-egress-{i}/unpause")
        return
    deadline = time.monotonic() + 10
    while "eth0" in routes() and time.monotonic() < deadline:
        time.sleep(0.1)
    assert "eth0" not in routes()
    server.engine.call("POST", f"/containers/sandbox-{i}/kill")
    with pytest.raises(dockerkit.EngineError):
        server.engine.call("POST", f"/containers/sandbox-{i}/start")


def test_a_lost_sidecar_is_told(server, made):
    i = made()
    server.engine.remove("sandbox-egress-" + i)
    r = server.request("POST", f"/v1/sandboxes/{i}/pause")
    assert r.status == 500 and r.json()["code"] == "DOCKER::SANDBOX_PAUSE_FAILED", r
    assert server.engine.sandbox(i)["State"]["Status"] == "paused"
    r = server.request("POST", f"/v1/sandboxes/{i}/resume")
    assert r.status == 500 and r.json()["code"] == "DOCKER::SANDBOX_RESUME_FAILED", r
    assert server.engine.sandbox(i)["State"]["Status"] == "paused"


def test_orphan_sidecars_are_removed_at_start(docker):
    s = dockerkit.serve(docker).start()
    try:
        i = s.create(networkPolicy=POLICY)["id"]
        gone = s.create(networkPolicy=POLICY)["id"]
        s.stop()
        docker.engine.remove("sandbox-" + gone)
        s.start()
        deadline = time.monotonic() + 15
        while docker.engine.exists("sandbox-egress-" + gone) and time.monotonic() < deadline:
            time.sleep(0.1)
        assert not docker.engine.exists("sandbox-egress-" + gone)
        assert docker.engine.sidecar(i)["State"]["Running"] and s.run(i, "echo still")[0] == "still\n"
        s.request("DELETE", "/v1/sandboxes/" + gone)
        s.delete(i)
    finally:
        s.close()
    assert not [v for v in docker.engine.volumes() if v.startswith(RUNTIME)] or dockerkit.IS_PEER
    for v in docker.engine.volumes():
        if v.startswith(RUNTIME):
            docker.engine.call("DELETE", "/volumes/" + v)


def test_guarded_creates_at_once(server, made):
    got, threads = [], [threading.Thread(target=lambda: got.append(made())) for _ in range(5)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(got) == 5
    ports = [b[0]["HostPort"] for i in got for b in server.engine.sidecar(i)["HostConfig"]["PortBindings"].values()]
    assert len(set(ports)) == 15
