"""cove-execd as supervisor, as PID 1, as bootstrap.sh, in empty and foreign roots, and in a native sandbox's place."""
import contextlib
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import time

import pytest
from execdkit import Agent, Run, binary, wait_for

ROOT_ONLY = pytest.mark.skipif(os.geteuid() != 0, reason="cannot: needs root")
UNSHARE = ["unshare", "-fpm", "--mount-proc", "--kill-child"]


def start_and_wait(argv, env=None, **kw):
    p = subprocess.run([binary(), *argv], env={"PATH": os.environ["PATH"], **(env or {})}, capture_output=True, text=True,
                       timeout=20, stdin=subprocess.DEVNULL, **kw)
    return p


@pytest.mark.parametrize("cmd,code", [("exit 0", 0), ("exit 7", 7), ("kill -9 $$", 137), ("kill -TERM $$", 143)])
def test_init_ends_with_the_status_of_its_command(cmd, code):
    p = start_and_wait(["--init", "--port", "0", "--", "sh", "-c", f"echo out; echo err >&2; {cmd}"])
    assert p.returncode == code and p.stdout == "out\n" and "err\n" in p.stderr


def test_init_start_failure_is_1():
    p = start_and_wait(["--init", "--port", "0", "--", "/no/such/program"])
    assert p.returncode == 1 and "/no/such/program" in p.stderr


@pytest.mark.parametrize("argv", [["--no-such-flag"], ["--port", "x"], ["stray"], ["--port"]])
def test_bad_usage_is_2(argv):
    assert start_and_wait(argv).returncode == 2


def test_flags_in_both_spellings():
    assert start_and_wait(["-version"]).stdout.startswith("cove-execd ")
    assert "--port" in start_and_wait(["--help"]).stdout


def test_port_in_use_is_1():
    with socket.socket() as s:
        s.bind(("0.0.0.0", 0))
        s.listen()
        assert start_and_wait(["--port", str(s.getsockname()[1])]).returncode == 1


@pytest.mark.parametrize("sig", ["TERM", "HUP", "USR1", "USR2", "WINCH", "INT", "QUIT"])
def test_signals_are_forwarded_to_the_group(sig, tmp_path):
    mark = tmp_path / "mark"
    script = f"trap 'echo got-{sig} > {mark}; exit 9' {sig}; echo ready; while :; do sleep 0.05; done"
    with Agent(["--init", "--", "sh", "-c", script], stdout=subprocess.PIPE) as a:
        assert a.proc.stdout.readline() == b"ready\n"
        os.kill(a.proc.pid, getattr(signal, "SIG" + sig))
        assert a.proc.wait(10) == 9
    assert mark.read_text() == f"got-{sig}\n"


def test_plain_term_ends_running_commands():
    with Agent() as a:
        with a.stream("/command", {"command": "trap 'echo bye; exit 3' TERM; echo up; sleep 30 & wait"}) as s:
            it = iter(s)
            next(e for e in it if e["type"] == "stdout")
            os.kill(a.proc.pid, signal.SIGTERM)
            rest = list(it)
        assert rest[0]["text"] == "bye\n" and rest[-1]["error"]["evalue"] == "3"
        assert a.proc.wait(10) == 0


@ROOT_ONLY
def test_pid_1_reaps_orphans():
    with Agent(["--init", "--", "sleep", "300"], wrap=UNSHARE) as a:
        r = a.run("for i in 1 2 3 4 5; do (sleep 0.1 & setsid sleep 0.1 & exit) ; done; cat /proc/1/comm")
        assert "execd" in r.out
        wait_for("the orphans to end", lambda: a.run("ps -e -o comm= | grep -c sleep").out == "1\n")
        assert a.run("ps -e -o stat= | grep -c Z").out == "0\n"


@ROOT_ONLY
def test_pid_1_term_and_status():
    with Agent(["--init", "--", "sh", "-c", "trap 'exit 12' TERM; while :; do sleep 0.05; done"], wrap=["unshare", "-fp"]) as a:
        time.sleep(0.3)
        os.kill(a.pid(), signal.SIGTERM)
        assert a.proc.wait(10) == 12


@ROOT_ONLY
def test_memory_cannot_be_read_by_others():
    with Agent(token="t0ken-of-test", env={"EXECD_ACCESS_TOKEN": "t0ken-of-test"}) as a:
        r = a.run(f"id -u; cat /proc/{a.pid()}/environ | wc -c; ls /proc/{a.pid()}/fd", uid=12345, cwd="/")
        assert "Permission denied" in r.err


def test_binary_is_static_and_small(tmp_path):
    static_only()
    shutil.copy(binary(), tmp_path / "execd")
    subprocess.run(["strip", tmp_path / "execd"], check=True)
    assert (tmp_path / "execd").stat().st_size <= 2 << 20
    headers = subprocess.run(["readelf", "-lW", binary()], capture_output=True, text=True).stdout
    assert "INTERP" not in headers and "DYNAMIC" not in headers
    with Agent(program=str(tmp_path / "execd")) as a:
        assert a.run("true").code == 0
        status = dict(line.split(":", 1) for line in open(f"/proc/{a.pid()}/status"))
        assert int(status["VmRSS"].split()[0]) <= 2048 and int(status["RssAnon"].split()[0]) <= 300, status


# ---- bootstrap ----

def agent_in_bootstrap(args, tmp_path, env=None, **kw):
    a = Agent(["bootstrap", *args], env={"EXECD_ENVS": str(tmp_path / "sub/envs"), **(env or {})}, flags=False,
              stdout=subprocess.PIPE, **kw)
    a.env["EXECD"] = f"/x/execd --port {a.port}"
    return a


def test_bootstrap_argv(tmp_path):
    with agent_in_bootstrap(["sh", "-c", "echo $EXECD_ENVS; read x; echo eof-$?; sleep 300", "a b"], tmp_path) as a:
        assert a.proc.stdout.readline() == f"{tmp_path}/sub/envs\n".encode()
        assert a.proc.stdout.readline() == b"eof-1\n"
        assert (tmp_path / "sub/envs").exists()
        assert a.run("echo hi").out == "hi\n"


@pytest.mark.parametrize("args,env", [
    (["-c", "echo", "it", "works;", "sleep", "300"], {}),
    (["ignored"], {"BOOTSTRAP_CMD": "echo it works; sleep 300"}),
    (["ignored"], {"BOOTSTRAP_CMD": "echo it works; sleep 300", "BOOTSTRAP_SHELL": "/bin/sh"})])
def test_bootstrap_shell_forms(args, env, tmp_path):
    with agent_in_bootstrap(args, tmp_path, env) as a:
        assert a.proc.stdout.readline() == b"it works\n"


def test_bootstrap_without_arguments_is_a_shell_at_its_end(tmp_path):
    p = start_and_wait(["bootstrap"], {"EXECD_ENVS": str(tmp_path / "e"), "EXECD": "x --port 0"})
    assert p.returncode == 0


def test_bootstrap_pre_script(tmp_path):
    (tmp_path / "pre.sh").write_text("export FROM_PRE='a b'\n")
    env = {"EXECD_BOOTSTRAP_PRE_SCRIPT": "pre.sh"}
    with agent_in_bootstrap(["sh", "-c", "echo $FROM_PRE; sleep 300"], tmp_path, env, cwd=tmp_path) as a:
        assert a.proc.stdout.readline() == b"a b\n"
        assert a.run("echo $FROM_PRE").out == "a b\n"


def test_bootstrap_under_its_other_name(tmp_path):
    link = tmp_path / "bootstrap.sh"
    shutil.copy(binary(), link)
    a = Agent(["sh", "-c", "exit 5"], env={"EXECD_ENVS": str(tmp_path / "e")}, flags=False, program=str(link))
    p = subprocess.run(a.cmd, env={**a.env, "EXECD": "x --port 0"}, capture_output=True, timeout=20, stdin=subprocess.DEVNULL)
    assert p.returncode == 5


def test_bootstrap_forwards_term(tmp_path):
    with agent_in_bootstrap(["sh", "-c", "trap 'exit 21' TERM; echo ready; while :; do sleep 0.05; done"], tmp_path) as a:
        a.proc.stdout.readline()
        os.kill(a.proc.pid, signal.SIGTERM)
        assert a.proc.wait(10) == 21


# ---- foreign roots ----

def static_only():
    if b"ld-linux" in pathlib.Path(binary()).read_bytes()[:4096]:
        pytest.skip("cannot: a sanitizer build is linked dynamically")


@ROOT_ONLY
def test_empty_root(tmp_path):
    static_only()
    shutil.copy(binary(), tmp_path / "execd")
    tmp_path.chmod(0o755)
    with Agent(wrap=["chroot", str(tmp_path)], program="/execd") as a:
        r = a.run(["/execd", "--version"])
        assert r.out.startswith("cove-execd ")
        r = a.run("true")
        assert "no shell" in r.error["evalue"]
        assert a.run(["/execd", "--version"], uid=7, gid=8).code == 0
        assert a.get("/metrics").status == 200
        assert a.get("/files/download?path=/nope").json()["code"] == "FILE_NOT_FOUND"
        with a.stream("/command", {"argv": ["/execd", "--version"], "background": True}) as s:
            cid = Run(list(s)).id
        wait_for("the log", lambda: a.get(f"/command/{cid}/logs").body.startswith(b"cove-execd"))


@ROOT_ONLY
def test_busybox_root_read_only_other_uid(tmp_path):
    static_only()
    root = tmp_path / "r"
    for d in ("bin", "proc", "dev", "etc"):
        (root / d).mkdir(parents=True)
    shutil.copy("/bin/busybox", root / "bin/busybox")
    for name in ("sh", "echo", "cat", "seq", "id", "sleep", "setsid"):
        (root / "bin" / name).symlink_to("busybox")
    shutil.copy(binary(), root / "execd")
    root.chmod(0o755)
    script = f"mount --bind {root} {root} && mount -o remount,ro,bind {root} && exec /usr/sbin/chroot --userspec=1234:1234 {root} \"$@\""
    wrap = ["unshare", "-m", "sh", "-c", script, "x"]
    with Agent(wrap=wrap, program="/execd", env={"PATH": "/bin", "HOME": "/"}) as a:
        assert a.run("id -u; echo $0").out == "1234\nsh\n"
        assert a.run("seq 1 50000").out.endswith("\n50000\n")
        with a.stream("/command", {"command": "seq 1 20000", "background": True}) as s:
            cid = Run(list(s)).id
        wait_for("the log", lambda: len(a.get(f"/command/{cid}/logs").body) == len("".join(f"{i}\n" for i in range(1, 20001))))


# ---- native ----

CGROOT = next((p for p in ("/sys/fs/cgroup/unified", "/sys/fs/cgroup") if os.path.exists(f"{p}/cgroup.controllers")), None)


@contextlib.contextmanager
def native(tmp_path, token="first-token", fds=("listen", "cgroup", "log", "state")):
    """The agent as the driver starts it: inherited descriptors, no flags beyond --init."""
    if os.geteuid() != 0 or not CGROOT:
        pytest.skip("cannot: needs root and cgroup v2")
    cg = pathlib.Path(CGROOT) / f"execd-test-{os.getpid()}-{time.monotonic_ns()}"
    cg.mkdir()
    listener = socket.create_server(("127.0.0.1", 0))
    opened = {"listen": listener.fileno(), "cgroup": os.open(cg, os.O_RDONLY | os.O_DIRECTORY),
              "log": os.open(tmp_path / "log", os.O_RDWR | os.O_CREAT), "state": os.open(tmp_path / "state", os.O_RDWR | os.O_CREAT)}
    env = {"COVE_FDS": ",".join(f"{n}:{opened[n]}" for n in fds), "COVE_TOKEN": token, "PATH": os.environ["PATH"]}
    a = Agent(["--init"], env=env, pass_fds=list(opened.values()), flags=False, wrap=["unshare", "-fp", "--kill-child"],
              port=listener.getsockname()[1], token=token)
    try:
        with a:
            for n in ("cgroup", "log", "state"):
                os.close(opened[n])
            listener.close()
            a.cg = cg
            yield a
    finally:
        for p in [*cg.iterdir(), cg]:
            if p.is_dir():
                with contextlib.suppress(OSError):
                    (p / "cgroup.kill").write_text("1")
                wait_for("an empty cgroup", lambda: not rmdir_fails(p))


def rmdir_fails(p):
    try:
        os.rmdir(p)
    except FileNotFoundError:
        return False
    except OSError:
        return True
    return False


def claim(a, **members):
    return a.post("/claim", {"sandbox_id": "sb-1", "env": {}, **members})


def test_claim_gates_everything(tmp_path):
    with native(tmp_path) as a:
        assert a.get("/ping").status == 200
        for method, path in (("POST", "/command"), ("GET", "/metrics"), ("GET", "/nope"), ("GET", "/proxy/80/")):
            r = a.request(method, path, body="{}" if method == "POST" else None)
            assert r.status == 503 and r.json()["code"] == "SERVICE_UNAVAILABLE"
        a.token = "wrong"
        assert claim(a).status == 401
        a.token = "first-token"
        assert a.post("/claim", b"{").status == 400
        assert a.post("/claim", {"entrypoint": "x"}).status == 400
        r = claim(a, env={"A": "from claim"}, access_token="second-token")
        assert r.status == 200 and r.json() == {"pid": 0}
        assert claim(a).status == 401
        a.token = "second-token"
        assert claim(a).status == 409
        assert a.run("echo $A $OPENSANDBOX_ID; env | grep -c COVE_").out == "from claim sb-1\n0\n"


def test_a_claim_may_take_the_token_away(tmp_path):
    with native(tmp_path) as a:
        a.token = "first-token"
        assert claim(a, access_token="").status == 200
        a.token = None
        assert a.run("echo open").out == "open\n"
        assert claim(a).status == 409


def test_claim_starts_the_entrypoint(tmp_path):
    with native(tmp_path) as a:
        r = claim(a, env={"GREETING": "hello"}, cwd="/tmp", entrypoint=["sh", "-c", "echo $GREETING; pwd; echo e >&2; read x; exit 5"])
        assert r.status == 200 and r.json()["pid"] > 1
        assert a.proc.wait(10) == 5
    assert (tmp_path / "log").read_text() == "hello\n/tmp\ne\n"
    state = json.loads((tmp_path / "state").read_text())
    assert state["code"] == 5 and state["signal"] == 0 and abs(state["finished_us"] / 1e6 - time.time()) < 60


def test_claim_cwd_is_the_default_of_commands(tmp_path):
    with native(tmp_path) as a:
        claim(a, cwd="/usr/bin")
        assert a.run("pwd; echo $PWD").out == "/usr/bin\n/usr/bin\n"
        assert a.run("pwd", cwd="..").out == "/usr\n"


def test_claim_reports_why_the_entrypoint_cannot_start(tmp_path):
    with native(tmp_path) as a:
        r = claim(a, entrypoint=["no-such-program"])
        assert r.status == 500 and r.json()["code"] == "RUNTIME_ERROR" and "no-such-program" in r.json()["message"]
        assert a.get("/ping").status == 200


def test_claim_bad_interpreter(tmp_path):
    script = tmp_path / "s"
    script.write_text("#!/no/such/interpreter\n")
    script.chmod(0o755)
    with native(tmp_path) as a:
        r = claim(a, entrypoint=[str(script)])
        assert r.status == 500 and "cannot execute" in r.json()["message"]
        assert claim(a).status == 409


def test_entrypoint_killed_by_signal_and_log_bound(tmp_path):
    with native(tmp_path) as a:
        claim(a, entrypoint=["sh", "-c", "seq 1 1200000; kill -9 $$"])
        assert a.proc.wait(30) == 137
    log = (tmp_path / "log").read_text()
    assert len(log) <= 4 << 20 and log.endswith("\n1200000\n")
    first = int(log.split("\n", 1)[0])
    assert log == "".join(f"{i}\n" for i in range(first, 1200001))
    assert json.loads((tmp_path / "state").read_text())["signal"] == 9


def test_native_timeout_kills_everything(tmp_path):
    pids = tmp_path / "pids"
    with native(tmp_path) as a:
        claim(a)
        script = (f"(setsid sh -c 'trap \"\" TERM HUP INT; (trap \"\" TERM; sleep 300) & sleep 300' &) ; "
                  f"sleep 0.2; cat /proc/self/cgroup > {pids}; sleep 300")
        r = a.run(script, timeout=600)
        assert r.error["evalue"] == "-1"
        assert "x-" in pids.read_text()
        wait_for("the cgroup to go", lambda: not [p for p in a.cg.iterdir() if p.is_dir()])
        # nothing but the agent and this very ps is left in its pid namespace
        assert a.run("echo ok").out == "ok\n"


def test_native_survivors_keep_their_cgroup_until_they_end(tmp_path):
    with native(tmp_path) as a:
        claim(a)
        assert a.run("sleep 0.5 & echo up").out == "up\n"
        dirs = [p for p in a.cg.iterdir() if p.is_dir()]
        assert len(dirs) == 1 and "populated 1" in (dirs[0] / "cgroup.events").read_text()
        wait_for("the survivor's cgroup to go", lambda: not [p for p in a.cg.iterdir() if p.is_dir()])
        for _ in range(100):
            a.run("true")
        wait_for("all cgroups to go", lambda: not [p for p in a.cg.iterdir() if p.is_dir()])


PROBE = """
import ctypes, errno, socket
libc = ctypes.CDLL(None, use_errno=True)
def call(*a):
    r = libc.syscall(*a)
    return errno.errorcode.get(ctypes.get_errno(), 'ok') if r < 0 else 'ok'
print('unshare', call(272, 0x10000000))
print('setns', call(308, 0, 0))
print('clone3', call(435, 0, 0))
print('clone', call(56, 0x10000000, 0, 0, 0, 0))
for name, fam, proto in (('vsock', 40, 0), ('unix', 1, 0), ('inet6', 10, 0), ('route', 16, 0), ('nfnetlink', 16, 12), ('packet', 17, 0)):
    try:
        socket.socket(fam, socket.SOCK_RAW if fam == 16 else socket.SOCK_STREAM, proto).close()
        print(name, 'ok')
    except OSError as e:
        print(name, errno.errorcode[e.errno])
print('nnp', open('/proc/self/status').read().split('NoNewPrivs:')[1].split()[0])
print('oom', open('/proc/self/oom_score_adj').read().strip())
"""


def test_native_confinement(tmp_path):
    if os.uname().machine != "x86_64":
        pytest.skip("cannot: the probe has x86-64 numbers")
    with native(tmp_path) as a:
        claim(a)
        got = dict(line.split() for line in a.run(["python3", "-c", PROBE]).out.splitlines())
        assert got == {"unshare": "EPERM", "setns": "EPERM", "clone3": "ENOSYS", "clone": "EPERM", "vsock": "EAFNOSUPPORT",
                       "unix": "ok", "inet6": "ok", "route": "ok", "nfnetlink": "EAFNOSUPPORT", "packet": "EAFNOSUPPORT",
                       "nnp": "1", "oom": "500"}
        # threads and fork work under it
        assert a.run(["python3", "-c", "import threading,subprocess;t=threading.Thread(target=lambda:subprocess.run(['true']));"
                      "t.start();t.join();print('fine')"]).out == "fine\n"


def test_native_term_without_entrypoint(tmp_path):
    with native(tmp_path) as a:
        claim(a)
        os.kill(a.pid(), signal.SIGTERM)
        assert a.proc.wait(10) == 0
    assert json.loads((tmp_path / "state").read_text())["code"] == 0


def test_wrong_descriptors_are_refused(tmp_path):
    for fds, text in (("listen:0", "not open"), ("listen:99", "not open"), ("what:2", "known"), ("listen", "list")):
        p = start_and_wait(["--init"], {"COVE_FDS": fds})
        assert p.returncode == 2 and text in p.stderr
    with open(tmp_path / "f", "w") as f:
        p = start_and_wait(["--init"], {"COVE_FDS": f"listen:{f.fileno()}"}, pass_fds=[f.fileno()])
        assert p.returncode == 2 and "listening" in p.stderr
        p = start_and_wait(["--init", "--port", "0"], {"COVE_FDS": f"cgroup:{f.fileno()}"}, pass_fds=[f.fileno()])
        assert p.returncode == 1 and "cgroup2" in p.stderr
