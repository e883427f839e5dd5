"""The cove program against the real thing: coved, agent, crun."""
import contextlib
import fcntl
import hashlib
import json
import os
import pathlib
import pty
import re
import select
import shutil
import signal
import struct
import subprocess
import tempfile
import termios
import threading
import time

import covekit
import pytest

COVE = str(covekit.BIN / "cove")


def environment(daemon=None, **extra):
    env = {k: v for k, v in os.environ.items() if k not in ("COVE_HOST", "OPEN_SANDBOX_API_KEY")}
    env["COVE_LIBEXEC"] = str(covekit.LIBEXEC)
    if daemon:
        env["COVE_HOST"] = f"unix:{daemon.socket}"
    env.update(extra)
    return env


def cove(*args, daemon=None, stdin=b"", timeout=60, env=None, cwd=None):
    return subprocess.run([COVE, *map(str, args)], input=stdin, capture_output=True, timeout=timeout,
                          env=environment(daemon, **(env or {})), cwd=cwd)


@pytest.fixture
def run(daemon):
    return lambda *a, **kw: cove("run", *a, daemon=daemon, **kw)


@pytest.fixture(scope="module")
def box(daemon):
    r = cove("create", "--memory", "512m", daemon=daemon)
    assert r.returncode == 0, r
    yield r.stdout.decode().strip()
    cove("rm", "-f", r.stdout.decode().strip(), daemon=daemon)


def sanitized_cannot_run_there():
    """A sanitized agent is linked dynamically and finds its libraries in the "host" image alone."""
    if "asan" in str(covekit.BUILD):
        pytest.skip("cannot: a sanitizer build is linked dynamically")


def sandboxes(daemon):
    return [s["id"] for s in daemon.get("/v1/sandboxes?pageSize=200").json()["items"]]


def wait_for(condition, timeout=15):
    deadline = time.monotonic() + timeout * covekit.SLOW
    while not condition():
        assert time.monotonic() < deadline, "condition did not come true"
        time.sleep(0.02)


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

class Terminal:
    def __init__(self, daemon, *args, size=(30, 100)):
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.execve(COVE, [COVE, *args], environment(daemon, TERM="xterm"))
        self.resize(*size)
        self.text = b""

    def resize(self, rows, cols):
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, cols, 0, 0))

    def send(self, data):
        os.write(self.fd, data)

    def expect(self, pattern, timeout=20):
        deadline = time.monotonic() + timeout
        while not (m := re.search(pattern, self.text)):
            left = deadline - time.monotonic()
            assert left > 0, f"{pattern} did not come: {self.text[-2000:]}"
            if select.select([self.fd], [], [], left)[0]:
                try:
                    self.text += os.read(self.fd, 65536)
                except OSError:
                    assert re.search(pattern, self.text), f"ended without {pattern}: {self.text[-2000:]}"
        self.text = self.text[m.end():]
        return m

    def wait(self, timeout=20):
        def drain():
            try:
                while chunk := os.read(self.fd, 65536):
                    self.text += chunk
            except OSError:
                pass
        t = threading.Thread(target=drain)
        t.start()
        deadline = time.monotonic() + timeout
        while True:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                break
            assert time.monotonic() < deadline, "cove did not end"
            time.sleep(0.02)
        t.join(5)
        os.close(self.fd)
        return os.waitstatus_to_exitcode(status)


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


# ---- create, ps, exec, logs, rm ----

def test_life_of_a_sandbox(daemon):
    r = cove("create", "-e", "GREETING=hi", "--label", "team=x", "--expire", "10m", "--", "sh", "-c",
             "echo $GREETING from main; exec sleep 600", daemon=daemon)
    assert r.returncode == 0, r
    box = r.stdout.decode().strip()
    listed = {s["id"]: s for s in json.loads(cove("ps", "--json", daemon=daemon).stdout)}
    assert listed[box]["status"]["state"] == "Running" and listed[box]["metadata"] == {"team": "x"}
    table = cove("ps", daemon=daemon).stdout.decode().splitlines()
    assert table[0].split() == ["SANDBOX", "IMAGE", "STATE", "AGE", "EXPIRES", "COMMAND"]
    (row,) = [line for line in table if line.startswith(box[:12])]
    assert re.search(r"host +Running +\d+s +in (9|10)m +sh -c echo", row), row
    assert box in cove("ps", "-q", daemon=daemon).stdout.decode().split()
    assert cove("exec", box[:8], "--", "sh", "-c", "echo $GREETING; cat", daemon=daemon, stdin=b"in").stdout == b"hi\nin"
    wait_for(lambda: cove("logs", box[:8], daemon=daemon).stdout == b"hi from main\n")
    assert json.loads(cove("logs", "--json", box, daemon=daemon).stdout)["logs"].strip() == "hi from main"
    assert cove("rm", box[:8], daemon=daemon).stdout.decode().strip() == box
    assert cove("rm", box, daemon=daemon).returncode == 1
    assert cove("rm", "-f", box, daemon=daemon).returncode == 0


def test_exec_statuses_and_files_stay(daemon, box):
    assert cove("exec", box, "sh", "-c", "echo kept > /tmp/f; exit 3", daemon=daemon).returncode == 3
    assert cove("exec", box, "--", "cat", "/tmp/f", daemon=daemon).stdout == b"kept\n"
    assert cove("exec", box, "--", "no-such-program", daemon=daemon).returncode == 127
    assert cove("exec", "--cwd", "/usr", "-e", "X=1", box, "--", "sh", "-c", "echo $PWD $X", daemon=daemon).stdout == b"/usr 1\n"
    r = cove("exec", "--timeout", "300ms", box, "--", "sleep", "77.5", daemon=daemon)
    assert r.returncode == 124
    wait_for(lambda: b"77.5" not in cove("exec", box, "--", "sh", "-c", "cat /proc/[0-9]*/cmdline | tr '\\0' ' '", daemon=daemon).stdout)


def test_exec_passes_ctrl_c_on(daemon, box):
    def begin(script):
        p = subprocess.Popen([COVE, "exec", box, "--", "sh", "-c", script], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                             env=environment(daemon))
        assert p.stdout.readline() == b"ready\n"
        return p
    p = begin("trap 'echo caught; exit 9' INT; echo ready; while :; do sleep 0.1; done")
    p.send_signal(signal.SIGINT)
    assert p.communicate(timeout=20)[0] == b"caught\n" and p.returncode == 9
    p = begin("trap '' INT; echo ready; sleep 78.5; sleep 78.5")
    p.send_signal(signal.SIGINT)
    time.sleep(0.2)  # two presses, not one
    p.send_signal(signal.SIGINT)
    assert p.wait(20) == 130
    wait_for(lambda: b"78.5" not in cove("exec", box, "--", "sh", "-c", "cat /proc/[0-9]*/cmdline | tr '\\0' ' '", daemon=daemon).stdout)


def test_exec_in_a_terminal(daemon, box):
    t = Terminal(daemon, "exec", "-it", "--cwd", "/tmp", box, "--", "sh", "-c", "tty; stty size; pwd", size=(10, 40))
    t.expect(rb"/dev/pts/\d+\r\n10 40\r\n/tmp\r\n")
    assert t.wait() == 0


def test_many_execs_at_once(daemon, box):
    ps = [subprocess.Popen([COVE, "exec", box, "--", "sh", "-c", f"head -c {i}00000 /dev/zero | wc -c"], stdout=subprocess.PIPE,
                           stdin=subprocess.DEVNULL, env=environment(daemon)) for i in range(1, 9)]
    assert [int(p.communicate(timeout=60)[0]) for p in ps] == [i * 100000 for i in range(1, 9)]


# ---- cp ----

def tree(path):
    found = {}
    for p in sorted(pathlib.Path(path).rglob("*")):
        rel, st = str(p.relative_to(path)), p.lstat()
        if p.is_symlink():
            found[rel] = ("link", os.readlink(p))
        elif p.is_dir():
            found[rel] = ("dir", oct(st.st_mode & 0o777))
        else:
            found[rel] = ("file", oct(st.st_mode & 0o777), p.read_bytes())
    return found


def make_tree(path):
    (path / "sub/deep").mkdir(parents=True)
    (path / "empty-dir").mkdir(mode=0o700)
    (path / "a.txt").write_text("a\n")
    (path / "sub/big.bin").write_bytes(os.urandom(3 << 20))
    (path / "sub/empty").write_bytes(b"")
    (path / "sub/deep/run.sh").write_text("#!/bin/sh\necho ran\n")
    (path / "sub/deep/run.sh").chmod(0o755)
    (path / "sp ace ü").write_text("x")
    (path / "secret").write_text("s")
    (path / "secret").chmod(0o600)
    (path / "link").symlink_to("sub/empty")
    (path / "dangling").symlink_to("nowhere/at/all")
    (path / "sub/deep").chmod(0o555)
    return path


def test_cp_round_trip(daemon, box, tmp_path):
    src = make_tree(tmp_path / "src")
    r = cove("cp", src, f"{box[:10]}:/tmp/in", daemon=daemon)
    assert r.returncode == 0, r
    assert cove("exec", box, "--", "/tmp/in/sub/deep/run.sh", daemon=daemon).stdout == b"ran\n"
    assert cove("exec", box, "--", "readlink", "/tmp/in/link", daemon=daemon).stdout == b"sub/empty\n"
    r = cove("cp", f"{box[:10]}:/tmp/in", tmp_path / "back", daemon=daemon)
    assert r.returncode == 0, r
    assert tree(tmp_path / "back") == tree(src)
    # into an existing directory under its own name
    cove("cp", src, f"{box}:/tmp/in", daemon=daemon)
    assert cove("exec", box, "--", "cat", "/tmp/in/src/a.txt", daemon=daemon).stdout == b"a\n"
    cove("cp", f"{box}:/tmp/in/sub", tmp_path / "back", daemon=daemon)
    assert (tmp_path / "back/sub/empty").exists()


def test_cp_single_files(daemon, box, tmp_path):
    data = os.urandom(2 << 20)
    (tmp_path / "f").write_bytes(data)
    (tmp_path / "f").chmod(0o640)
    assert cove("cp", tmp_path / "f", f"{box}:/tmp/new/name", daemon=daemon).returncode == 0
    assert cove("exec", box, "--", "stat", "-c", "%a", "/tmp/new/name", daemon=daemon).stdout == b"640\n"
    assert cove("cp", f"{box}:/tmp/new/name", "-", daemon=daemon).stdout == data
    assert cove("cp", "-", f"{box}:/tmp/piped", daemon=daemon, stdin=data).returncode == 0
    out = json.loads(cove("cp", "--json", f"{box}:/tmp/piped", tmp_path / "g", daemon=daemon).stdout)
    assert out == {"bytes": len(data), "skipped": 0} and (tmp_path / "g").read_bytes() == data
    assert cove("cp", f"{box}:/proc/version", "-", daemon=daemon).stdout.startswith(b"Linux version")


def test_cp_leaves_out_what_it_cannot(daemon, box, tmp_path):
    (tmp_path / "d").mkdir()
    (tmp_path / "d/file").write_text("x")
    os.mkfifo(tmp_path / "d/fifo")
    r = cove("cp", tmp_path / "d", f"{box}:/tmp/d", daemon=daemon, timeout=20)
    assert r.returncode == 1 and b"fifo" in r.stderr and b"left out" in r.stderr
    assert cove("exec", box, "--", "ls", "/tmp/d", daemon=daemon).stdout == b"file\n"


def test_cp_mistakes(daemon, box, tmp_path):
    for args, text in [(("/nonexistent", f"{box}:/tmp/x"), "cannot read /nonexistent"),
                       ((f"{box}:/nonexistent", tmp_path), "there is no /nonexistent in the sandbox"),
                       ((f"{box}:tmp/x", tmp_path), "must be absolute"),
                       (("a", "b"), "one of the two must be in a sandbox"),
                       (("a:/x", "b:/y"), "from sandbox to sandbox"),
                       (("nobody:/x", tmp_path), "there is no sandbox \"nobody\"")]:
        r = cove("cp", *args, daemon=daemon)
        assert r.returncode != 0 and text in r.stderr.decode(), (args, r)


def test_ctrl_c_takes_a_half_copy_back(daemon, box, tmp_path):
    cove("exec", box, "--", "truncate", "-s", "8G", "/tmp/huge", daemon=daemon)
    p = subprocess.Popen([COVE, "cp", f"{box}:/tmp/huge", tmp_path / "huge"], stdin=subprocess.DEVNULL, env=environment(daemon))
    wait_for(lambda: any(f.stat().st_size for f in tmp_path.iterdir()))
    p.send_signal(signal.SIGINT)
    assert p.wait(20) == 130
    assert list(tmp_path.iterdir()) == []
    cove("exec", box, "--", "rm", "/tmp/huge", daemon=daemon)


def test_progress_on_a_terminal_only(daemon, box):
    master, slave = pty.openpty()
    p = subprocess.Popen([COVE, "cp", "-", f"{box}:/tmp/slow"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=slave,
                         env=environment(daemon))
    os.close(slave)
    p.stdin.write(b"x" * 300000)
    p.stdin.flush()
    text = b""
    while b"293.0 KiB" not in text:
        assert select.select([master], [], [], 20)[0], text
        text += os.read(master, 65536)
    p.stdin.close()
    assert p.wait(20) == 0 and p.stdout.read() == b""
    while select.select([master], [], [], 0.2)[0]:
        try:
            text += os.read(master, 65536)
        except OSError:
            break
    assert b"Copying" in text and text.endswith(b"\r\x1b[K")  # the line is cleared
    os.close(master)


# ---- images ----

def test_images(daemon, tmp_path):
    tar = covekit.busybox_rootfs(tmp_path / "bb.tar")
    r = cove("image", "import", tar, "cli-test", daemon=daemon)
    assert (r.returncode, r.stdout) == (0, b"local/cli-test\n"), r
    assert "local/cli-test" in cove("image", "ls", "-q", daemon=daemon).stdout.decode().split()
    (image,) = [i for i in json.loads(cove("image", "ls", "--json", daemon=daemon).stdout) if i["reference"] == "local/cli-test"]
    assert image["id"]
    assert "local/cli-test" in cove("image", "ls", daemon=daemon).stdout.decode()
    if "asan" not in str(covekit.BUILD):  # there the agent needs the host's libraries
        r = cove("run", "--image", "local/cli-test", "--", "busybox", "sh", "-c", "ls /", daemon=daemon)
        assert r.returncode == 0 and b"usr\n" in r.stdout and b"boot" not in r.stdout, r
    r = cove("image", "import", "-", "piped", daemon=daemon, stdin=tar.read_bytes())
    assert r.returncode == 0, r
    assert cove("image", "rm", "local/cli-test", "local/piped", daemon=daemon).returncode == 0
    r = cove("image", "rm", "local/cli-test", daemon=daemon)
    assert r.returncode == 1 and b"local/cli-test" in r.stderr
    assert cove("image", "rm", "-f", "local/cli-test", daemon=daemon).returncode == 0
    r = cove("run", "--image", "local/cli-test", "--", "true", daemon=daemon)
    assert r.returncode == 125 and b"local/cli-test" in r.stderr


def test_a_directory_is_no_archive(daemon, tmp_path):
    r = cove("image", "import", tmp_path, "folder", daemon=daemon)
    assert r.returncode == 1 and b"is a directory: pack it" in r.stderr, r


def test_bad_archives_are_refused(daemon, tmp_path):
    (tmp_path / "x").write_bytes(os.urandom(100000))
    r = cove("image", "import", tmp_path / "x", "bad", daemon=daemon)
    assert r.returncode == 1 and b"cannot import the image" in r.stderr
    r = cove("image", "import", tmp_path / "x", "BAD NAME", daemon=daemon)
    assert r.returncode == 1 and r.stderr
    assert cove("image", "import", tmp_path / "absent", "x", daemon=daemon).returncode == 1


# ---- JSON ----

def test_json_of_run(run):
    r = run("--json", "--", "sh", "-c", "echo out; echo err >&2; printf '\\377\\0'; exit 4")
    assert r.returncode == 4 and r.stderr == b""
    events = [json.loads(line) for line in r.stdout.splitlines()]
    assert events[-1]["type"] == "exit" and events[-1]["exit_code"] == 4
    assert "".join(e.get("data", "") for e in events if e["type"] == "stderr") == "err\n"
    assert any("base64" in e for e in events if e["type"] == "stdout")


def test_json_errors(daemon):
    r = cove("exec", "--json", "nobody", "--", "true", daemon=daemon)
    assert r.returncode == 125 and "nobody" in json.loads(r.stderr)["error"]["message"]
    r = cove("ps", "--json", env={"COVE_HOST": "unix:/nonexistent/s"})
    assert r.returncode == 1 and json.loads(r.stderr)["error"]["advice"]
    r = cove("run", "--json", "--memory", "lots", "--", "true")
    assert r.returncode == 125 and "not a size" in json.loads(r.stderr)["error"]["message"]


def test_json_of_the_rest(daemon):
    made = json.loads(cove("create", "--json", daemon=daemon).stdout)
    assert made["status"]["state"] == "Running"
    assert json.loads(cove("version", "--json", daemon=daemon).stdout)["server"]
    assert json.loads(cove("rm", "--json", made["id"], daemon=daemon).stdout) == [made["id"]]


# ---- mistakes ----

@pytest.mark.parametrize("args, status, text", [
    (["run", "--", "true"], 125, "nothing listens at"),
    (["ps"], 1, "nothing listens at"),
    (["run"], 125, "say which command to run"),
    (["run", "--memory", "much", "--", "true"], 125, "\"much\" is not a size"),
    (["run", "--cpu", "all", "--", "true"], 125, "\"all\" is not a number of CPUs"),
    (["run", "--timeout", "soon", "--", "true"], 125, "\"soon\" is not a time"),
    (["run", "--mount", "/nonexistent:/x", "--", "true"], 125, "cannot mount"),
    (["run", "--mount", "/tmp:x", "--", "true"], 125, "must be an absolute path"),
    (["run", "--cwd", "x", "--", "true"], 125, "must be an absolute path"),
    (["run", "--user", "root", "--", "true"], 125, "is not a user"),
    (["run", "--network", "bridge", "--", "true"], 125, "is one of none, nat"),
    (["run", "-t", "--json", "--", "true"], 125, "exclude each other"),
    (["run", "--bogus", "--", "true"], 125, "no option --bogus"),
    (["exec", "x", "--user", "1", "--", "id"], 125, "options go before the sandbox"),
    (["create", "--expire", "5s"], 2, "at least 60s"),
    (["create", "--label", "x"], 2, "is not a label"),
    (["logs", "--tail", "0", "x"], 2, "from 1 to 10000"),
    (["frobnicate"], 2, "no command `cove frobnicate`"),
    (["rm", "--all", "x"], 2, "not both"),
    (["--host", "nonsense", "ps"], 1, "cannot understand the address"),
    (["completion", "csh"], 2, "not for \"csh\""),
    ([], 2, "Commands:"),
])
def test_mistakes_are_explained(args, status, text):
    r = cove(*args, env={"COVE_HOST": "unix:/nonexistent/s"})
    assert r.returncode == status and text in r.stderr.decode() and r.stdout == b"", r


def test_refusals_of_the_daemon_are_passed_on(run, daemon, box):
    r = run("--image", "registry.example/some/image", "--", "true")
    assert r.returncode == 125 and b"registry.example/some/image" in r.stderr
    r = cove("exec", box[:0] or "zzzz", "--", "true", daemon=daemon)
    assert r.returncode == 125 and b"there is no sandbox" in r.stderr


def test_api_key_over_tcp(daemon):
    address = f"http://127.0.0.1:{daemon.port}"
    r = cove("ps", "--host", address)
    assert r.returncode == 1 and b"OPEN_SANDBOX_API_KEY" in r.stderr
    r = cove("run", "--host", address, "--", "echo", "over tcp", env={"OPEN_SANDBOX_API_KEY": covekit.API_KEY})
    assert r.stdout == b"over tcp\n", r


# ---- help, completion, doctor ----

def test_version_both_ways():
    for word in ("version", "--version"):
        assert cove(word, env={"COVE_HOST": "unix:/nonexistent/s"}).stdout.startswith(b"cove ")


def test_help_everywhere():
    overview = cove("--help").stdout.decode()
    for name in re.findall(r"^  ([a-z]+(?: [a-z]+)?)  +", overview, re.M):
        r = cove(*name.split(), "--help")
        assert r.returncode == 0 and b"Examples:" in r.stdout and r.stderr == b"", name
        assert max(map(len, r.stdout.decode().splitlines())) <= 120
    group = cove("image", "--help")
    assert group.returncode == 0 and b"image import" in group.stdout and group.stderr == b""


def complete(script, words):
    line = " ".join(words)
    ask = f"""source {script}; COMP_WORDS=({' '.join(f"'{w}'" for w in words)}); COMP_CWORD={len(words) - 1}
COMP_LINE='{line}'; COMP_POINT={len(line)}; compopt() {{ :; }}; _cove; printf '%s\\n' "${{COMPREPLY[@]}}" """
    return ask


def test_bash_completion(daemon, box, tmp_path):
    script = tmp_path / "c.bash"
    script.write_bytes(cove("completion", "bash").stdout)
    env = environment(daemon)
    env["PATH"] = f"{covekit.BIN}:{env['PATH']}"

    def ask(*words):
        r = subprocess.run(["bash", "-c", complete(script, words)], capture_output=True, text=True, env=env, timeout=20)
        assert r.stderr == "", r
        return r.stdout.split()
    assert ask("cove", "ru") == ["run"]
    assert "doctor" in ask("cove", "")
    assert ask("cove", "run", "--netw") == ["--network"]
    assert ask("cove", "run", "--network", "n") == ["none", "nat"]
    assert ask("cove", "image", "i") == ["import"]
    assert ask("cove", "exec", box[:6]) == [box]
    assert ask("cove", "completion", "f") == ["fish"]
    for shell in ("zsh", "fish"):
        assert b"--network" in cove("completion", shell).stdout or b"-l network" in cove("completion", shell).stdout


def test_doctor(daemon):
    r = cove("doctor", "--json", daemon=daemon)
    report = json.loads(r.stdout)
    checks = {c["name"]: c for c in report["checks"]}
    assert checks["daemon"]["status"] == "ok" and "disk" in checks and len(checks) > 6
    assert report["ok"] == (r.returncode == 0)
    for c in checks.values():
        assert c["status"] in ("ok", "warning", "missing")
        assert c["status"] == "ok" or c["why"]
    r = cove("doctor", env={"COVE_HOST": "unix:/nonexistent/s"})
    assert b"nothing listens at" in r.stdout


def test_doctor_reads_the_configuration(tmp_path):
    bad = tmp_path / "bad.toml"
    bad.write_text("[native]\nstate_dir = 5\n")
    for config, status in ((bad, "missing"), (tmp_path / "absent.toml", None)):
        r = cove("doctor", "--json", env={"SANDBOX_CONFIG_PATH": str(config), "COVE_HOST": "unix:/nonexistent/s"})
        (c,) = [c for c in json.loads(r.stdout)["checks"] if c["name"] == "configuration"]
        assert status is None or (c["status"] == status and "state_dir" in c["detail"] and r.returncode == 1), c


@pytest.mark.parametrize("runtime, status", [("no-such-runtime", "missing"), ("crun", "ok")])
def test_doctor_finds_the_runtime_as_the_daemon_does(tmp_path, runtime, status):
    """In the system's folders, whatever PATH says; the one that the configuration names."""
    config = tmp_path / "c.toml"
    config.write_text(f'[native]\nruntime = "{runtime}"\n')
    r = cove("doctor", "--json", env={"SANDBOX_CONFIG_PATH": str(config), "COVE_HOST": "unix:/nonexistent/s", "PATH": "/nonexistent"})
    (c,) = [c for c in json.loads(r.stdout)["checks"] if c["name"] == "runtime"]
    assert c["status"] == status and (status == "ok" or (runtime in c["detail"] and "apt-get install" in c["fix"])), c


def test_doctor_without_a_daemon_program(tmp_path):
    """A cove that finds no coved: essential, and said so."""
    lone = tmp_path / "cove"
    lone.write_bytes(pathlib.Path(COVE).read_bytes())
    lone.chmod(0o755)
    env = environment(PATH="/nonexistent")
    r = subprocess.run([lone, "doctor", "--json"], capture_output=True, env=env, timeout=60)
    report = json.loads(r.stdout)
    assert r.returncode == 1 and not report["ok"]
    (c,) = [c for c in report["checks"] if c["name"] == "coved"]
    assert c["status"] == "missing" and c["fix"]
