"""cove run against the real thing (coved, agent, crun): streams, signals, terminals, the private daemon."""
import contextlib
import fcntl
import hashlib
import json
import os
import pathlib
import pty
import re
import shutil
import signal
import subprocess
import tempfile
import termios
import time

import covekit
import pytest

from clikit import COVE, Terminal, cove, environment, wait_for


@pytest.fixture
def run(daemon):
    return lambda *a, **kw: cove("run", *a, daemon=daemon, **kw)


def sanitized_cannot_run_there():
    """A sanitized agent is linked dynamically and finds its libraries in the "host" image alone."""
    if "asan" in str(covekit.BUILD):
        pytest.skip("cannot: a sanitizer build is linked dynamically")


def sandboxes(daemon):
    return [s["id"] for s in daemon.get("/v1/sandboxes?pageSize=200").json()["items"]]


# ---- run: statuses and streams ----

@pytest.mark.parametrize("command, status", [
    (["true"], 0),
    (["false"], 1),
    (["sh", "-c", "exit 42"], 42),
    (["sh", "-c", "exit 255"], 255),
    (["sh", "-c", "kill -TERM $$"], 143),
    (["sh", "-c", "kill -KILL $$"], 137),
    (["sh", "-c", "kill -SEGV $$"], 139),
    (["no-such-program-anywhere"], 127),
    (["/no/such/path"], 127),
    (["/etc/passwd"], 126),
    (["/tmp"], 126),
])
def test_exit_status_is_the_commands(run, command, status):
    r = run("--", *command)
    assert r.returncode == status, r
    assert r.stdout == b""
    if status in (126, 127):
        assert command[0].encode() in r.stderr


def test_streams_are_separate(run):
    r = run("--", "sh", "-c", "echo out; echo err >&2")
    assert (r.stdout, r.stderr, r.returncode) == (b"out\n", b"err\n", 0)


def test_arguments_arrive_as_given(run):
    words = ["a b", "", "*", "$HOME", "'\"\\", "ü€", "-x", "--", "line\nend"]
    r = run("--", "printf", "[%s]", *words)
    assert r.stdout.decode() == "".join(f"[{w}]" for w in words)


def test_stdin_is_binary_clean(run):
    data = os.urandom(1 << 20)
    r = run("--", "cat", stdin=data)
    assert r.returncode == 0 and r.stdout == data


def test_stdin_ends(run):
    assert run("--", "wc", "-c", stdin=b"").stdout.strip() == b"0"
    assert run("--", "head", "-c", "3", stdin=b"x" * (4 << 20)).stdout == b"xxx"


def test_large_output_is_whole(run):
    r = run("--", "sh", "-c", "head -c 50000000 /dev/zero | tr '\\0' 'z'; echo end >&2; exit 3")
    assert r.returncode == 3 and r.stderr == b"end\n"
    assert len(r.stdout) == 50_000_000 and r.stdout.count(b"z") == 50_000_000


def test_slow_reader_gets_everything(daemon):
    p = subprocess.Popen([COVE, "run", "--", "sh", "-c", "seq 1 2000000"], stdout=subprocess.PIPE, stdin=subprocess.DEVNULL,
                         env=environment(daemon))
    time.sleep(1)  # the pipe, the connection and the agent's buffers fill up meanwhile
    digest = hashlib.sha256()
    while chunk := p.stdout.read(1 << 16):
        digest.update(chunk)
    assert p.wait(30) == 0
    want = hashlib.sha256("".join(f"{i}\n" for i in range(1, 2000001)).encode()).hexdigest()
    assert digest.hexdigest() == want


def test_closed_stdout_ends_it(daemon):
    before = sandboxes(daemon)
    r = subprocess.run(f"{COVE} run -- yes | head -n 1; echo ${{PIPESTATUS[0]}}", shell=True, executable="/bin/bash", capture_output=True,
                       timeout=30, env=environment(daemon), stdin=subprocess.DEVNULL)
    assert r.stdout == b"y\n141\n", r
    assert sandboxes(daemon) == before


def test_stdout_stays_blocking_for_others(daemon):
    read, write = os.pipe()
    subprocess.run([COVE, "run", "--", "echo", "x"], stdout=write, stdin=subprocess.DEVNULL, env=environment(daemon), check=True)
    assert not fcntl.fcntl(write, fcntl.F_GETFL) & os.O_NONBLOCK
    os.close(read)
    os.close(write)


# ---- run: what the sandbox is made of ----

def test_environment_and_directory(run, tmp_path):
    r = run("-e", "A=1", "-e", "FROM_HERE", "-e", "EMPTY=", "--cwd", "/tmp", "--", "sh", "-c", "echo $A $FROM_HERE [$EMPTY] $PWD",
            env={"FROM_HERE": "yes", "SECRET_OF_MINE": "no"})
    assert r.stdout == b"1 yes [] /tmp\n"
    r = run("--", "env", env={"SECRET_OF_MINE": "no"})
    assert b"SECRET_OF_MINE" not in r.stdout and b"COVE_" not in r.stdout and b"PATH=" in r.stdout


def test_mount_is_the_working_directory(run, tmp_path):
    (tmp_path / "in").write_text("hello\n")
    r = run("--mount", f"{tmp_path}:/workspace", "--", "sh", "-c", "pwd; cat in; echo made > out")
    assert r.stdout == b"/workspace\nhello\n", r
    assert (tmp_path / "out").read_text() == "made\n"
    r = run("--mount", ".:/workspace:ro", "--", "sh", "-c", "cat in; echo no > out2 || exit 9", cwd=tmp_path)
    assert r.stdout == b"hello\n" and r.returncode == 9
    assert not (tmp_path / "out2").exists()


def test_network_is_off_by_default(run):
    assert run("--", "sh", "-c", "ls /sys/class/net").stdout.split() == [b"lo"]


def test_limits_hold(run):
    r = run("--memory", "64m", "--", "python3", "-c", "x = bytearray(512 << 20); print(len(x))")
    assert r.returncode != 0 and r.stdout == b""
    r = run("--pids", "20", "--", "sh", "-c", "for i in $(seq 60); do sleep 5 & done; wait")
    assert b"fork" in r.stderr.lower() or r.returncode != 0


def test_user(run):
    r = run("--user", "1234:4321", "--", "sh", "-c", "id -u; id -g")
    assert r.stdout == b"1234\n4321\n", r


def test_timeout_kills_and_says_so(run, daemon):
    before = sandboxes(daemon)
    t0 = time.monotonic()
    r = run("--timeout", "500ms", "--", "sh", "-c", "echo started; sleep 600 & sleep 600")
    assert r.returncode == 124 and time.monotonic() - t0 < 15
    assert r.stdout == b"started\n" and b"longer than 500ms" in r.stderr
    assert sandboxes(daemon) == before


def test_run_leaves_no_sandbox(run, daemon):
    before = sandboxes(daemon)
    for command in (["true"], ["no-such-program"], ["sh", "-c", "kill -9 $$"]):
        run("--", *command)
    assert sandboxes(daemon) == before


# ---- JSON ----

def test_json_of_run(run):
    r = run("--json", "--", "sh", "-c", "echo out; echo err >&2; printf '\\377\\0'; exit 4")
    assert r.returncode == 4 and r.stderr == b""
    events = [json.loads(line) for line in r.stdout.splitlines()]
    assert events[-1]["type"] == "exit" and events[-1]["exit_code"] == 4
    assert "".join(e.get("data", "") for e in events if e["type"] == "stderr") == "err\n"
    assert any("base64" in e for e in events if e["type"] == "stdout")


# ---- signals ----

def start_run(daemon, *args, **kw):
    p = subprocess.Popen([COVE, "run", *args], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                         env=environment(daemon), **kw)
    assert p.stdout.readline() == b"ready\n"
    return p


@pytest.mark.parametrize("sig, status", [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_signals_remove_the_sandbox(daemon, sig, status):
    before = sandboxes(daemon)
    p = start_run(daemon, "--", "sh", "-c", "trap '' INT TERM HUP; sleep 600 & echo ready; while :; do sleep 600; done")
    assert len(sandboxes(daemon)) == len(before) + 1
    p.send_signal(sig)
    assert p.wait(20) == status
    assert sandboxes(daemon) == before


def test_killed_cove_leaves_an_expiring_sandbox(daemon):
    before = set(sandboxes(daemon))
    p = start_run(daemon, "--", "sh", "-c", "echo ready; sleep 600")
    p.kill()
    p.wait()
    (left,) = set(sandboxes(daemon)) - before
    assert daemon.get(f"/v1/sandboxes/{left}").json().get("expiresAt")
    assert cove("rm", left, daemon=daemon).returncode == 0


# ---- a terminal ----

def test_terminal(daemon):
    t = Terminal(daemon, "run", "-it", "--", "sh", "-c", "test -t 0 && test -t 1 && echo is-tty; stty size; exec sh")
    t.expect(rb"is-tty\r\n30 100\r\n")
    t.send(b"PS1='> '; echo $TERM-$((6*7))\r")
    t.expect(rb"xterm-42\r\n")
    t.resize(50, 132)
    t.send(b"stty size\r")
    t.expect(rb"50 132\r\n")
    t.send(b"sleep 600\r")
    t.expect(rb"sleep 600\r\n")
    time.sleep(0.3)  # let sleep become the foreground job
    t.send(b"\x03")
    t.send(b"echo code-$?\r")
    t.expect(rb"code-130\r\n")
    t.send(b"exit 7\r")
    assert t.wait() == 7


def test_terminal_is_restored(daemon):
    before = sandboxes(daemon)
    master, slave = pty.openpty()
    modes = termios.tcgetattr(slave)
    p = subprocess.Popen([COVE, "run", "-t", "--", "sh", "-c", "echo ready; sleep 600"], stdin=slave, stdout=slave, stderr=slave,
                         env=environment(daemon), start_new_session=True)
    text = b""
    while b"ready" not in text:
        text += os.read(master, 1000)
    wait_for(lambda: termios.tcgetattr(slave)[3] != modes[3])
    p.send_signal(signal.SIGTERM)
    assert p.wait(20) == 143
    assert termios.tcgetattr(slave) == modes
    assert sandboxes(daemon) == before
    os.close(master)
    os.close(slave)


def test_eof_key_ends_a_shell(daemon):
    t = Terminal(daemon, "run", "-it", "--", "cat")
    t.send(b"line\r")
    t.expect(rb"line\r\nline\r\n")
    t.send(b"\x04")
    assert t.wait() == 0


# ---- the private daemon ----

class Private:
    """Private daemons with directories of their own, so that what is left of them can be told from others' things."""

    def __init__(self):
        covekit.STATE_BASE.mkdir(parents=True, exist_ok=True)
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="p-", dir=covekit.STATE_BASE))
        self.dir.chmod(0o711)
        self.config = self.dir / "coved.toml"
        self.config.write_text(f"""
[runtime]
type = "native"
[native]
state_dir = "{self.dir}/state"
store_dir = "{self.dir}/store"
run_dir = "{self.dir}/run"
""")
        self.env = {"SANDBOX_CONFIG_PATH": str(self.config)}

    def daemons(self):
        found = []
        for p in filter(str.isdigit, os.listdir("/proc")):
            with contextlib.suppress(OSError):
                if str(self.config).encode() in pathlib.Path(f"/proc/{p}/environ").read_bytes() and \
                        os.readlink(f"/proc/{p}/exe").endswith(("/coved", "/cove-launch", "/crun")):
                    found.append(int(p))
        return found

    def boxes(self):
        """Processes in sandboxes: their mounts come from our directory."""
        found, daemons = [], self.daemons()
        for p in filter(str.isdigit, os.listdir("/proc")):
            with contextlib.suppress(OSError):
                if int(p) not in daemons and f"{self.dir}/state/" in pathlib.Path(f"/proc/{p}/mountinfo").read_text():
                    found.append(int(p))
        return found

    def cgroups(self):
        """Names of the cgroup roots that our sandboxes live in."""
        roots = set()
        for p in self.boxes():
            with contextlib.suppress(OSError):
                roots |= set(re.findall(r":/(cove-[0-9a-f]+)", pathlib.Path(f"/proc/{p}/cgroup").read_text()))
        return roots

    def left(self, cgroups=()):
        """Everything that should be gone."""
        dirs = [str(d) for k in ("state", "run") for d in (self.dir / k / "private").glob("*")]
        groups = [str(b / c) for b in covekit.cgroup_roots() for c in cgroups if (b / c).exists()]
        return [f"daemon {p}" for p in self.daemons()] + [f"box {p}" for p in self.boxes()] + dirs + groups


@pytest.fixture
def private():
    p = Private()
    yield p
    left = p.left()
    shutil.rmtree(p.dir, ignore_errors=True)
    assert left == []


def test_private_daemon_leaves_nothing(private):
    r = cove("run", "--private", "--", "sh", "-c", "cat; exit 5", stdin=b"hello", env=private.env)
    assert (r.returncode, r.stdout) == (5, b"hello"), r
    assert private.left() == []  # at once: cove waits for it


@pytest.mark.parametrize("sig", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_private_daemon_ends_with_cove(private, sig):
    p = subprocess.Popen([COVE, "run", "--private", "--", "sh", "-c", "sleep 600 & echo ready; sleep 600"], stdin=subprocess.DEVNULL,
                         stdout=subprocess.PIPE, env=environment(**private.env))
    assert p.stdout.readline() == b"ready\n"
    groups = private.cgroups()
    assert private.daemons() and private.boxes() and groups
    p.send_signal(sig)
    assert p.wait(20 * covekit.SLOW) == (-signal.SIGKILL if sig == signal.SIGKILL else 128 + sig)
    if sig == signal.SIGKILL:
        wait_for(lambda: private.left(groups) == [])
    assert private.left(groups) == []


def test_ctrl_c_twice_ends_at_once(private):
    p = subprocess.Popen([COVE, "run", "--private", "--", "sh", "-c", "echo ready; sleep 600"], stdin=subprocess.DEVNULL,
                         stdout=subprocess.PIPE, env=environment(**private.env))
    assert p.stdout.readline() == b"ready\n"
    (daemon_pid,) = [d for d in private.daemons() if os.readlink(f"/proc/{d}/exe").endswith("/coved")]
    os.kill(daemon_pid, signal.SIGSTOP)  # nothing is answered any more
    try:
        p.send_signal(signal.SIGINT)
        time.sleep(0.3)
        assert p.poll() is None  # it waits for the removal
        p.send_signal(signal.SIGINT)
        assert p.wait(5 * covekit.SLOW) == 130
    finally:
        os.kill(daemon_pid, signal.SIGCONT)
    wait_for(lambda: private.left() == [])


def test_private_daemons_side_by_side(private):
    ps = [subprocess.Popen([COVE, "run", "--private", "--", "sh", "-c", f"echo {i}"], stdout=subprocess.PIPE, stdin=subprocess.DEVNULL,
                           env=environment(**private.env)) for i in range(4)]
    assert [p.communicate(timeout=60)[0] for p in ps] == [f"{i}\n".encode() for i in range(4)]
    assert private.left() == []


def test_private_daemon_uses_the_shared_images(private, tmp_path):
    sanitized_cannot_run_there()
    with covekit.Daemon() as d:
        tar = covekit.busybox_rootfs(tmp_path / "bb.tar")
        covekit.import_image(d, tar, "shared")
        config = private.config.read_text().replace(f"{private.dir}/store", f"{d.dir}/store")
        private.config.write_text(config)
        r = cove("run", "--private", "--image", "local/shared", "--", "sh", "-c", "ls /", env=private.env)
        assert r.returncode == 0 and b"busybox" not in r.stdout and b"usr" in r.stdout, r


def test_a_daemon_that_cannot_start_is_explained(tmp_path):
    (tmp_path / "bad.toml").write_text("[native]\nstate_dir = 5\n")
    r = cove("run", "--private", "--", "true", env={"SANDBOX_CONFIG_PATH": str(tmp_path / "bad.toml")})
    assert r.returncode == 125 and b"private daemon" in r.stderr and b"state_dir" in r.stderr and b"cove doctor" in r.stderr, r
