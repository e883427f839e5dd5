"""Commands of cove-execd: event shapes, exits, output completeness, timeouts, interrupts, background, logs."""
import concurrent.futures
import json
import os
import socket
import threading
import time

import pytest
from execdkit import Agent, Run, wait_for


@pytest.fixture(scope="module")
def agent():
    with Agent() as a:
        yield a


def test_ping_is_empty_with_a_length(agent):
    r = agent.get("/ping")
    assert (r.status, r.body, r.headers["Content-Length"]) == (200, b"", "0")


def test_unknown_routes_are_404_json(agent):
    for method, path in (("GET", "/nope"), ("POST", "/ping"), ("PUT", "/command"), ("GET", "/command/x")):
        r = agent.request(method, path)
        assert r.status == 404 and r.json()["code"] and r.json()["message"]
    assert agent.get("/ping/").status == 200


def test_isolated_sessions_are_refused_for_good(agent):
    r = agent.get("/v1/isolated/capabilities")
    assert r.status == 200 and r.json()["available"] is False and r.json()["hardening"]["init_mode"] == "subreaper"
    for method, path in (("POST", "session"), ("GET", "sessions"), ("DELETE", "session/x"), ("GET", "session/x/files/info?path=/")):
        r = agent.request(method, "/v1/isolated/" + path, body="{}" if method == "POST" else None)
        assert (r.status, r.json()["code"]) == (501, "NOT_SUPPORTED")


def test_event_shapes(agent):
    r = agent.run("echo out; echo err >&2")
    assert r.types[:2] == ["init", "ping"] and r.types[-1] == "execution_complete"
    assert len(r.id) == 32 and int(r.id, 16) >= 0
    assert r.events[1]["text"] == "pong"
    assert (r.stdout, r.stderr) == (["out\n"], ["err\n"])
    assert r.complete["execution_time"] >= 0
    assert all(set(e) <= {"type", "text", "timestamp", "execution_time"} for e in r.events)


@pytest.mark.parametrize("code", [1, 7, 255])
def test_exit_codes(agent, code):
    r = agent.run(f"exit {code}")
    assert r.error == {"ename": "CommandExecError", "evalue": str(code), "traceback": [f"exit status {code}"]}


@pytest.mark.parametrize("sig,text", [("KILL", "killed"), ("TERM", "terminated"), ("SEGV", "segmentation fault")])
def test_signal_deaths(agent, sig, text):
    r = agent.run(f"ulimit -c 0; kill -{sig} $$; sleep 5")
    assert r.error["evalue"] == "-1"
    assert r.error["traceback"][0].startswith(f"signal: {text}")


def test_line_ends_are_kept(agent):
    assert agent.run(r"printf 'a\n\nb'").stdout == ["a\n", "\n", "b"]
    assert agent.run(r"printf 'x\ry\n'").stdout == ["x\r", "y\n"]
    assert agent.run(r"printf 'a\r\nb\r\n'").stdout == ["a\r\n", "b\r\n"]
    assert agent.run("true").stdout == []


def test_line_ends_can_be_stripped():
    with Agent(env={"OSB_EXECD_LINE_ENDS": "strip"}) as a:
        assert a.run(r"printf 'a\n\nb\n\n\nc\n'").stdout == ["a", "\n", "b", "\n", "\n", "c"]
        assert a.run(r"printf 'c\n\r\nd'").stdout == ["c", "\n", "d"]
        assert a.run("printf hi").stdout == ["hi"]


def test_a_waiting_cr_is_not_held(agent):
    t = time.monotonic()
    with agent.stream("/command", {"command": r"printf '50%%\r'; sleep 2"}) as s:
        for e in s:
            if e["type"] == "stdout":
                assert e["text"] == "50%\r"
                break
    assert time.monotonic() - t < 1


def test_encoding(agent):
    r = agent.run(r"printf '\377\xc3\xa9\0\xe2\x80\xa8\xc2\x85\n'")
    assert r.out == "�é\0\u2028\u0085\n"
    with agent.stream("/command", {"command": r"printf '\xe2\x80\xa8\xc2\x85'"}) as s:
        raw = s.r.read()
    assert b"\\u2028" in raw and b"\\u0085" in raw
    # a sequence that arrives in two reads is one character
    assert agent.run(r"printf '\xe2\x82'; sleep 0.1; printf '\xac\n'").out == "€\n"


def test_long_lines(agent):
    r = agent.run(r"head -c 262144 /dev/zero | tr '\0' x; echo; head -c 9000000 /dev/zero | tr '\0' y")
    assert r.stdout[0] == "x" * 262144 + "\n"
    assert r.out[262145:] == "y" * 9000000
    assert max(len(json.dumps(e)) for e in r.events) < 4 << 20


def test_survivors_do_not_hold_the_stream(agent):
    t = time.monotonic()
    r = agent.run("sleep 600 & echo up; echo $!")
    assert time.monotonic() - t < 1 and r.stdout[0] == "up\n"
    os.kill(int(r.stdout[1]), 9)


def test_survivors_can_go_on_writing(agent, tmp_path):
    mark = tmp_path / "mark"
    t = time.monotonic()
    agent.run(f"(sleep 0.3; for i in $(seq 20000); do echo some more output of a survivor; done; echo $? > {mark}) & echo up")
    assert time.monotonic() - t < 0.3
    wait_for("the survivor", lambda: mark.exists() and mark.read_text() == "0\n")


def test_output_tail_is_never_lost(agent):
    """400 short commands in parallel, every byte compared."""
    def one(i):
        n = 1 + i * 37 % 3000
        r = agent.run(f"head -c {n} /dev/zero | tr '\\0' a; printf tail-{i}; printf end-{i} >&2; exit {i % 2}")
        return r.out == "a" * n + f"tail-{i}" and r.err == f"end-{i}" and r.code == i % 2

    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        assert all(pool.map(one, range(400)))


def test_big_output_is_complete(agent):
    r = agent.run("seq 1 400000")
    assert r.out == "".join(f"{i}\n" for i in range(1, 400001))


def test_slow_client_gets_everything(agent):
    with agent.stream("/command", {"command": "seq 1 600000; echo last >&2"}) as s:
        time.sleep(1.5)
        r = Run(list(s))
    assert r.out.endswith("600000\n") and r.out.count("\n") == 600000 and r.err == "last\n"


def test_lost_client_does_not_stop_the_command(agent, tmp_path):
    mark = tmp_path / "mark"
    s = agent.stream("/command", {"command": f"sleep 0.2; seq 1 300000; echo done > {mark}"})
    first = next(iter(s))
    s.c.sock.close() if s.c.sock else None
    s.r.close()
    s.c.close()
    wait_for("the command", mark.exists)
    st = wait_for("its status", lambda: not agent.get(f"/command/status/{first['text']}").json()["running"])
    assert st


def test_status(agent):
    r = agent.run("exit 3")
    st = agent.get(f"/command/status/{r.id}").json()
    assert (st["id"], st["content"], st["running"], st["exit_code"], st["error"]) == (r.id, "exit 3", False, 3, "exit status 3")
    assert st["started_at"].endswith("Z") and st["finished_at"] >= st["started_at"]
    ok = agent.get(f"/command/status/{agent.run('true').id}").json()
    assert ok["exit_code"] == 0 and "error" not in ok
    missing = agent.get("/command/status/" + "0" * 32)
    assert missing.status == 404 and missing.json()["code"] == "INVALID_REQUEST_BODY"


def test_status_is_finished_when_the_terminal_event_arrives(agent):
    for i in range(20):
        r = agent.run("true")
        assert agent.get(f"/command/status/{r.id}").json()["running"] is False


@pytest.mark.parametrize("body", [
    b"", b"{", b"[]", b'{"command":""}', b"{}", b'{"command":5}', b'{"command":"x","argv":["x"]}', b'{"argv":[]}',
    b'{"argv":[""]}', b'{"argv":["a\\u0000b"]}', b'{"command":"x","timeout":-1}', b'{"command":"x","timeout":1.5}',
    b'{"command":"x","gid":0}', b'{"command":"x","uid":-1}', b'{"command":"x","uid":4294967296}',
    b'{"command":"x","envs":{"A":1}}', b'{"command":"x","cwd":"/does/not/exist"}', b'{"command":"x","cwd":"/etc/passwd"}',
    b'{"command":"x","cwd":"$NOT_SET_ANYWHERE"}', b'{"command":"x","background":"yes"}'])
def test_bad_requests(agent, body):
    r = agent.post("/command", body)
    assert r.status == 400 and r.json()["code"] == "INVALID_REQUEST_BODY" and r.json()["message"]


def test_body_rules(agent):
    with agent.stream("/command", {"COMMAND": "echo case", "envs": None, "cwd": None, "uid": None, "more": 1}) as s:
        assert Run(list(s)).out == "case\n"
    c = agent.connect()
    c.request("POST", "/command", body=b'{"command":"echo trailing"} garbage')
    assert b"trailing" in c.getresponse().read()
    c.close()


def test_argv(agent, tmp_path):
    words = ["python3", "-c", "import sys; print(sys.argv[1:])", "a b", "$HOME", "x'y", ""]
    r = agent.run(words)
    assert r.out == "['a b', '$HOME', \"x'y\", '']\n"
    assert json.loads(agent.get(f"/command/status/{r.id}").json()["content"]) == words
    assert agent.run(["echo"], envs={"PATH": "/bin:/usr/bin"}).out == "\n"
    script = tmp_path / "s"
    script.write_text("#!/bin/sh\necho $0\n")
    script.chmod(0o755)
    assert agent.run(["./s"], cwd=str(tmp_path)).code == 0


@pytest.mark.parametrize("argv", [["no-such-program-at-all"], ["/etc/passwd"], ["/no/such"], ["/"], ["./x"]])
def test_argv_start_failure(agent, argv):
    r = agent.run(argv)
    assert r.error["ename"] == "CommandExecError" and r.error["evalue"] == r.error["traceback"][0]
    with pytest.raises(ValueError):
        int(r.error["evalue"])
    st = agent.get(f"/command/status/{r.id}").json()
    assert (st["running"], st["exit_code"]) == (False, 255) and st["error"]


def test_environment(agent):
    assert agent.run("echo ${A-unset}").out == "unset\n"
    assert agent.run("echo $A", envs={"A": "x y"}).out == "x y\n"
    assert agent.run("pwd; echo $PWD", cwd="/tmp").out == "/tmp\n/tmp\n"
    assert agent.run("pwd", cwd="$D/..", envs={"D": "/usr/bin"}).out == "/usr\n"
    assert agent.run("pwd", cwd="~").out == "/root\n"


def test_signals_are_default_in_children(agent):
    r = agent.run(["python3", "-c", "import signal;print([s for s in range(1,32) if s not in (9,19) and "
                   "signal.getsignal(s) == signal.SIG_IGN and s not in (signal.SIGPIPE, signal.SIGXFSZ)])"])
    assert r.out == "[]\n"
    assert agent.run("grep -E '^Sig(Blk|Ign)' /proc/self/status | awk '{print $2}' | sort -u").out == "0000000000000000\n"
    assert agent.run("ls /proc/self/fd | wc -l").out == "4\n"
    assert agent.run("readlink /proc/self/fd/0").out == "/dev/null\n"


def test_other_identity(agent):
    if os.geteuid() != 0:
        pytest.skip("cannot: needs root")
    r = agent.run("id -u; id -g; echo again > /dev/stdout; echo err > /dev/stderr", uid=65534, gid=65533, cwd="/")
    assert r.out.split() == ["65534", "65533", "again"] and r.err == "err\n"
    assert agent.run("id -G", uid=54321, cwd="/").out == "54321\n"


def test_own_identity_without_capabilities():
    wrap = ["setpriv", "--reuid=4321", "--regid=4321", "--clear-groups", "--inh-caps=-all"] if os.geteuid() == 0 else []
    with Agent(wrap=wrap, env={"HOME": "/"}) as a:
        me = 4321 if wrap else os.geteuid()
        assert a.run("id -u", uid=me, gid=me).out == f"{me}\n"
        r = a.run("id -u", uid=0)
        assert "CAP_SETUID" in r.error["evalue"]


def test_timeout_kills_the_tree(agent, tmp_path):
    pids = tmp_path / "pids"
    t = time.monotonic()
    r = agent.run(f"sleep 300 & echo $! >> {pids}; setsid sleep 300 & echo $! >> {pids}; (sleep 300 | sleep 300) & wait", timeout=400)
    took = time.monotonic() - t
    assert 0.35 < took < 1.5
    assert r.error["evalue"] == "-1" and r.error["traceback"][0] == "signal: killed" and "400 ms" in r.error["traceback"][1]
    for pid in pids.read_text().split():
        wait_for("the tree to end", lambda: not os.path.exists(f"/proc/{pid}"))


def test_interrupt(agent):
    with agent.stream("/command", {"command": "echo up; sleep 300"}) as s:
        it = iter(s)
        cid = next(it)["text"]
        t = time.monotonic()
        assert agent.request("DELETE", f"/command?id={cid}").status == 200
        assert time.monotonic() - t < 0.5
        rest = list(it)
    assert rest[-1]["error"]["evalue"] == "-1" and rest[-1]["error"]["traceback"] == ["signal: terminated"]
    again = agent.request("DELETE", f"/command?id={cid}")
    assert again.status == 500 and again.json()["code"] == "RUNTIME_ERROR"


def test_interrupt_right_after_init(agent):
    for i in range(50):
        with agent.stream("/command", {"command": "sleep 300"}) as s:
            it = iter(s)
            cid = next(it)["text"]
            assert agent.request("DELETE", f"/code?id={cid}").status == 200
            assert list(it)[-1]["type"] == "error"


def test_interrupt_escalates(agent):
    with agent.stream("/command", {"command": "trap '' TERM; echo up; sleep 300 & wait; sleep 300"}) as s:
        it = iter(s)
        cid = next(it)["text"]
        next(e for e in it if e["type"] == "stdout")
        t = time.monotonic()
        assert agent.request("DELETE", f"/command?id={cid}").status == 200
        assert 2.5 < time.monotonic() - t < 4.5
        assert list(it)[-1]["error"]["traceback"] == ["signal: killed"]


def test_interrupt_ends_the_whole_group(agent):
    script = "(trap '' TERM; echo $BASHPID; while :; do sleep 0.2; done) & (trap 'sleep 0.3; exit' TERM; while :; do sleep 0.1; done) & sleep 300"
    with agent.stream("/command", {"command": script}) as s:
        it = iter(s)
        cid = next(it)["text"]
        stubborn = int(next(e for e in it if e["type"] == "stdout")["text"])
        t = time.monotonic()
        assert agent.request("DELETE", f"/command?id={cid}").status == 200
        assert 2.5 < time.monotonic() - t < 4.5
        assert list(it)[-1]["error"]["traceback"] == ["signal: terminated"]
    wait_for("the stubborn one to be reaped", lambda: not os.path.exists(f"/proc/{stubborn}"))


def test_interrupt_respects_a_trap(agent):
    with agent.stream("/command", {"command": "trap 'exit 9' TERM; echo up; sleep 300 & wait"}) as s:
        it = iter(s)
        cid = next(it)["text"]
        next(e for e in it if e["type"] == "stdout")
        agent.request("DELETE", f"/command?id={cid}")
        assert list(it)[-1]["error"]["evalue"] == "9"


def test_interrupt_errors(agent):
    assert agent.request("DELETE", "/command").json()["code"] == "MISSING_QUERY"
    assert agent.request("DELETE", "/command?id=deadbeef").status == 500


def background(agent, command, **members):
    with agent.stream("/command", {"command": command, "background": True, **members}) as s:
        return Run(list(s))


def test_background(agent):
    t = time.monotonic()
    r = background(agent, "echo one; sleep 0.4; echo two >&2; exit 4")
    assert time.monotonic() - t < 0.3 and r.types == ["init", "execution_complete"]
    assert agent.get(f"/command/status/{r.id}").json()["running"] is True
    logs = wait_for("output", lambda: (lambda x: x.body and x)(agent.get(f"/command/{r.id}/logs")))
    assert logs.body == b"one\n" and logs.headers["EXECD-COMMANDS-TAIL-CURSOR"] == "4"
    assert logs.headers["Content-Type"] == "text/plain; charset=utf-8"
    wait_for("the end", lambda: not agent.get(f"/command/status/{r.id}").json()["running"])
    logs = agent.get(f"/command/{r.id}/logs?cursor=4")
    assert logs.body == b"two\n" and logs.headers["EXECD-COMMANDS-TAIL-CURSOR"] == "8"
    past = agent.get(f"/command/{r.id}/logs?cursor=900")
    assert past.body == b"" and past.headers["EXECD-COMMANDS-TAIL-CURSOR"] == "8" and past.headers["Content-Length"] == "0"
    assert agent.get(f"/command/status/{r.id}").json()["exit_code"] == 4


def test_background_start_failure(agent):
    with agent.stream("/command", {"argv": ["no-such-program"], "background": True}) as s:
        r = Run(list(s))
    assert r.types == ["init", "error"]
    assert agent.get(f"/command/status/{r.id}").json()["exit_code"] == 255


def test_background_survivors_keep_logging(agent):
    r = background(agent, "(sleep 0.3; echo late) & echo early")
    wait_for("the end", lambda: not agent.get(f"/command/status/{r.id}").json()["running"])
    wait_for("late output", lambda: agent.get(f"/command/{r.id}/logs").body == b"early\nlate\n")


def test_background_timeout_and_interrupt(agent):
    r = background(agent, "sleep 300", timeout=200)
    st = wait_for("the end", lambda: (lambda s: not s["running"] and s)(agent.get(f"/command/status/{r.id}").json()))
    assert st["exit_code"] == -1 and st["error"] == "signal: killed"
    r = background(agent, "sleep 300")
    assert agent.request("DELETE", f"/command?id={r.id}").status == 200
    assert agent.get(f"/command/status/{r.id}").json()["error"] == "signal: terminated"


def test_big_log(agent):
    r = background(agent, "seq 1 200000")
    wait_for("the end", lambda: not agent.get(f"/command/status/{r.id}").json()["running"])
    want = "".join(f"{i}\n" for i in range(1, 200001)).encode()
    wait_for("the log", lambda: len(agent.get(f"/command/{r.id}/logs").body) == len(want))
    got, cursor = b"", 0
    while True:
        part = agent.get(f"/command/{r.id}/logs?cursor={cursor}")
        if not part.body:
            break
        got += part.body
        cursor = int(part.headers["EXECD-COMMANDS-TAIL-CURSOR"])
    assert got == want


def test_logs_of_foreground_or_unknown(agent):
    for cid in (agent.run("true").id, "0" * 32):
        r = agent.get(f"/command/{cid}/logs")
        assert r.status == 400 and r.json()["code"] == "INVALID_REQUEST_BODY"


def test_token():
    with Agent(env={"EXECD_ACCESS_TOKEN": "s3cret-token"}) as a:
        assert a.get("/ping").status == 200
        for path in ("/metrics", "/nope", "/proxy/80/"):
            r = a.get(path)
            assert r.status == 401 and "X-EXECD-ACCESS-TOKEN" in r.json()["message"] == r.json()["error"]
        assert a.get("/metrics", headers={"X-EXECD-ACCESS-TOKEN": "wrong"}).status == 401
        a.token = "s3cret-token"
        assert a.get("/metrics").status == 200
        assert "s3cret" not in a.run("env; cat /proc/$PPID/environ 2>/dev/null; true").out


def test_envs_file(tmp_path):
    f = tmp_path / "envs"
    with Agent(env={"EXECD_ENVS": str(f), "BASE": "base"}) as a:
        assert a.run("echo ${V-unset}").out == "unset\n"
        f.write_text("# comment\nV='it is $BASE'\nW=\"a\\tb $BASE\"\nX= plain $BASE \nbad line\nOPENSANDBOX_ID=forged\n"
                     "EXECD_ACCESS_TOKEN=t\nM='two\nlines'\n")
        assert a.run("printf '%s|' \"$V\" \"$W\" \"$X\" \"$M\" \"${OPENSANDBOX_ID-none}\" \"${EXECD_ACCESS_TOKEN-none}\"").out == \
            "it is $BASE|a\tb base|plain base|two\nlines|none|none|"
        assert a.run("echo $V", envs={"V": "request"}).out == "request\n"
        f.write_text("V=/usr\n")
        assert a.run("pwd", cwd="$V").out == "/usr\n"
        assert a.run("echo \"W='v2'\" >> \"$EXECD_ENVS\"").code == 0
        assert a.run("echo $W").out == "v2\n"


def test_pings_keep_coming(agent):
    with agent.stream("/command", {"command": "sleep 3.5"}) as s:
        assert [e["type"] for e in s].count("ping") == 2


def test_metrics(agent):
    m = agent.get("/metrics").json()
    assert m["cpu_count"] >= 1 and isinstance(m["cpu_count"], int) and 0 <= m["cpu_used_pct"] <= 100
    assert 0 <= m["mem_used_mib"] <= m["mem_total_mib"] and m["mem_total_mib"] > 0
    assert abs(m["timestamp"] - time.time() * 1000) < 120000
    c = agent.connect()
    c.request("GET", "/metrics/watch")
    r = c.getresponse()
    t = time.monotonic()
    buf = b""
    while buf.count(b"\n\n") < 2:
        buf += r.read1(4096)
    c.close()
    assert time.monotonic() - t < 2.5 and "cpu_count" in json.loads(buf.split(b"\n\n")[1])


def test_strict_client_sees_the_final_chunk(agent):
    """Keep-alive and pipelining on one connection: the zero chunk ends every stream."""
    body = b'{"command":"true"}'
    with socket.create_connection(("127.0.0.1", agent.port)) as s:
        for i in range(50):
            s.sendall(b"POST /command HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
            buf = b""
            while not buf.endswith(b"0\r\n\r\n"):
                got = s.recv(65536)
                assert got, buf
                buf += got


def test_concurrency_and_memory(agent):
    def many(n):
        for _ in range(n):
            assert agent.run("true").code == 0
    threads = [threading.Thread(target=many, args=(25,)) for _ in range(16)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    status = open(f"/proc/{agent.pid()}/status").read()
    rss = int(next(line for line in status.splitlines() if line.startswith("VmRSS")).split()[1])
    if "asan" not in os.environ.get("COVE_BUILD", ""):
        assert rss < 12 << 10, status
    assert len(os.listdir(f"/proc/{agent.pid()}/fd")) < 60
