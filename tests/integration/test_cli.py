"""The cove program against the real thing (coved, agent, crun): all commands but run."""
import json
import os
import pathlib
import pty
import re
import select
import signal
import subprocess
import time

import covekit
import pytest

from clikit import COVE, Terminal, cove, environment, wait_for


@pytest.fixture(scope="module")
def box(daemon):
    r = cove("create", "--memory", "512m", daemon=daemon)
    assert r.returncode == 0, r
    yield r.stdout.decode().strip()
    cove("rm", "-f", r.stdout.decode().strip(), daemon=daemon)


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


def test_refusals_of_the_daemon_are_passed_on(daemon, box):
    r = cove("run", "--image", "registry.example/some/image", "--", "true", daemon=daemon)
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
