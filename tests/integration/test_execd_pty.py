"""Terminal sessions of cove-execd: both modes, replay, takeover, exit after all output."""
import concurrent.futures
import os
import time

import pytest
from execdkit import Agent, WebSocket, pty, wait_for


@pytest.fixture(scope="module")
def agent():
    with Agent() as a:
        yield a


def test_lifecycle(agent):
    r = agent.post("/pty", b"")
    assert r.status == 201
    sid = r.json()["session_id"]
    assert len(sid) == 36
    assert agent.get(f"/pty/{sid}").json() == {"session_id": sid, "running": False, "output_offset": 0}
    assert agent.request("DELETE", f"/pty/{sid}").status == 200
    for method, path in (("GET", f"/pty/{sid}"), ("DELETE", f"/pty/{sid}"), ("GET", f"/pty/{sid}/ws")):
        r = agent.request(method, path)
        assert r.status == 404 and r.json()["code"] == "CONTEXT_NOT_FOUND"


def test_interactive_shell(agent):
    with pty(agent) as ws:
        assert ws.first["type"] == "connected" and ws.first["mode"] == "pty" and ws.first["session_id"] == ws.sid
        ws.stdin(b"echo $((40+2)) $TERM; tty; stty size\n")
        got = ws.until(b"24 80")
        assert b"42 xterm-256color" in got and b"/dev/pts/" in got
        ws.text({"type": "resize", "cols": 132, "rows": 43})
        ws.text({"type": "stdin", "data": "stty size\n"})
        ws.until(b"43 132")
        ws.text({"type": "ping"})
        while ws.frame() != ("text", {"type": "pong"}):
            pass
        ws.text({"type": "nonsense"})
        while True:
            k, v = ws.frame()
            if k == "text":
                assert v["type"] == "error" and v["code"] == "INVALID_FRAME"
                break
        ws.stdin(b"exit 5\n")
        _, _, done, code = ws.finish()
        assert done == {"type": "exit", "exit_code": 5} and code == 1000
    assert agent.get(f"/pty/{ws.sid}").json()["running"] is False


def test_ctrl_c_and_signals_reach_the_foreground_job(agent):
    with pty(agent) as ws:
        ws.stdin(b"trap 'echo shell-got-it' INT; sleep 300; echo after-$?\n")
        time.sleep(0.3)
        ws.text({"type": "signal", "signal": "SIGINT"})
        ws.until(b"after-130")
        ws.stdin(b"sleep 300; echo again-$?\n")
        time.sleep(0.3)
        ws.stdin(b"\x03")
        ws.until(b"again-130")
        ws.stdin(b"exit\n")
        ws.finish()


def test_pipe_mode(agent):
    with pty(agent, "?pty=0", argv=["sh", "-c", "cat; echo err >&2; exit 7"]) as ws:
        assert ws.first["mode"] == "pipe"
        data = os.urandom(300000)
        for i in range(0, len(data), 60000):
            ws.stdin(data[i:i + 60000])
        ws.text({"type": "eof"})
        out, err, done, code = ws.finish()
        assert out == data and err == b"err\n" and done == {"type": "exit", "exit_code": 7} and code == 1000


def test_argv_env_cwd_identity(agent):
    with pty(agent, "?pty=0", argv=["sh", "-c", "echo $A; pwd; id -u; tty"], env={"A": "b c"}, cwd="/tmp", uid=65534) as ws:
        out, _, done, _ = ws.finish()
        assert out == b"b c\n/tmp\n65534\nnot a tty\n" and done["exit_code"] == 1
    with pty(agent, argv=["sh", "-c", "stty size; id -u; : > /dev/tty && echo tty-ok"], cols=100, rows=30, uid=65534) as ws:
        out, _, done, _ = ws.finish()
        assert out == b"30 100\r\n65534\r\ntty-ok\r\n" and done["exit_code"] == 0


def test_terminal_eof(agent):
    with pty(agent, argv=["cat"]) as ws:
        ws.stdin(b"line\n")
        ws.until(b"line\r\nline\r\n")
        ws.text({"type": "eof"})
        assert ws.finish()[2]["exit_code"] == 0


def test_signal_death_is_named(agent):
    with pty(agent, "?pty=0", argv=["sleep", "300"]) as ws:
        ws.text({"type": "signal", "signal": "SIGKILL"})
        assert ws.finish()[2] == {"type": "exit", "exit_code": -1, "signal": "SIGKILL"}


def test_start_failure(agent):
    for query in ("", "?pty=0"):
        r = agent.post("/pty", {"argv": ["no-such-program"]})
        with WebSocket(agent, f"/pty/{r.json()['session_id']}/ws{query}") as ws:
            frames = list(ws.frames())
        assert any(k == "text" and v["type"] == "error" and v["code"] == "START_FAILED" and "no-such-program" in v["error"]
                   for k, v in frames)
        assert frames[-1][0] == "close"


def test_command_member_and_cwd_is_made(agent, tmp_path):
    with pty(agent, "?pty=0", command="pwd", cwd=str(tmp_path / "a/b")) as ws:
        assert ws.finish()[0] == f"{tmp_path}/a/b\n".encode()


@pytest.mark.parametrize("body", [{"argv": []}, {"argv": ["x"], "command": "y"}, {"cols": 0}, {"gid": 1}, {"env": []}, {"argv": "x"}])
def test_bad_bodies(agent, body):
    assert agent.post("/pty", body).status == 400


def test_output_is_complete_before_exit(agent):
    """Sixty sessions of each mode, a megabyte right before the end."""
    def one(i):
        mode = "?pty=0" if i % 2 else ""
        with pty(agent, mode, argv=["sh", "-c", f"head -c 1000000 /dev/zero | tr '\\0' x; echo end-{i}; exit {i % 5}"]) as ws:
            out, _, done, code = ws.finish()
            want = b"x" * 1000000 + f"end-{i}".encode() + (b"\n" if i % 2 else b"\r\n")
            return out == want and done["exit_code"] == i % 5 and code == 1000

    with concurrent.futures.ThreadPoolExecutor(6) as pool:
        assert all(pool.map(one, range(120)))


def test_slow_reader_loses_nothing(agent):
    for mode in ("?pty=0", ""):
        with pty(agent, mode, argv=["sh", "-c", "seq 1 700000; echo end"]) as ws:
            time.sleep(1)
            out, _, done, _ = ws.finish()
            assert out.replace(b"\r\n", b"\n") == "".join(f"{i}\n" for i in range(1, 700001)).encode() + b"end\n"


def test_survivors_do_not_hold_the_exit(agent):
    for mode in ("?pty=0", ""):
        t = time.monotonic()
        with pty(agent, mode, argv=["sh", "-c", "trap '' HUP; sleep 5 & echo up"]) as ws:
            out, _, done, _ = ws.finish()
        assert out.strip() == b"up" and done["exit_code"] == 0 and time.monotonic() - t < 1


def test_replay_and_reconnect(agent):
    with pty(agent) as ws:
        ws.stdin(b"echo first-$((1))part\n")
        ws.until(b"first-1part")
        sid = ws.sid
    wait_for("detach", lambda: True)
    time.sleep(0.1)
    with WebSocket(agent, f"/pty/{sid}/ws?since=0") as ws:
        kind, v = ws.frame()
        assert kind == "replay" and v[:8] == bytes(8) and b"first-1part" in v[8:]
        total = len(v) - 8
        assert ws.frame()[1]["type"] == "connected"
        ws.stdin(b"echo second-part\n")
        ws.until(b"second-part")
    time.sleep(0.1)
    assert agent.get(f"/pty/{sid}").json()["output_offset"] > total
    with WebSocket(agent, f"/pty/{sid}/ws?since={total}") as ws:
        kind, v = ws.frame()
        assert kind == "replay" and int.from_bytes(v[:8], "big") == total and b"second" in v and b"first" not in v
    time.sleep(0.1)
    with WebSocket(agent, f"/pty/{sid}/ws?since=99999999") as ws:
        assert ws.frame()[1]["type"] == "connected"
    agent.request("DELETE", f"/pty/{sid}")


def test_ring_keeps_the_last_mebibyte(agent):
    with pty(agent, "?pty=0", argv=["sh", "-c", "seq 1 500000; sleep 300"]) as ws:
        ws.until(b"\n500000\n")
    time.sleep(0.1)
    with WebSocket(agent, f"/pty/{ws.sid}/ws") as again:
        kind, v = again.frame()
        total = agent.get(f"/pty/{ws.sid}").json()["output_offset"]
        assert kind == "replay" and len(v) - 8 == 1 << 20
        assert int.from_bytes(v[:8], "big") == total - (1 << 20)
        assert "".join(f"{i}\n" for i in range(1, 500001)).encode()[-(1 << 20):] == v[8:]
    agent.request("DELETE", f"/pty/{ws.sid}")


def test_conflict_and_takeover(agent):
    with pty(agent) as ws:
        with WebSocket(agent, f"/pty/{ws.sid}/ws") as other:
            assert other.status == 409 and b"ALREADY_CONNECTED" in other.head + other.buf
        # a handshake that fails evicts nobody
        assert agent.get(f"/pty/{ws.sid}/ws?takeover=1").status in (400, 426)
        ws.stdin(b"echo still-$((1+1))here\n")
        ws.until(b"still-2here")
        with WebSocket(agent, f"/pty/{ws.sid}/ws?takeover=1&since=999999") as new:
            assert new.status == 101
            frames = list(ws.frames())
            assert frames[-1] == ("close", (4001, "TAKEN_OVER"))
            new.stdin(b"echo new-$((1+1))one; exit\n")
            new.until(b"new-2one")
            assert new.finish()[2]["exit_code"] == 0


def test_new_shell_under_the_same_id_but_argv_runs_once(agent):
    with pty(agent) as ws:
        ws.stdin(b"exit 3\n")
        ws.finish()
    offset = agent.get(f"/pty/{ws.sid}").json()["output_offset"]
    with WebSocket(agent, f"/pty/{ws.sid}/ws?since={offset}") as again:
        assert again.frame()[1]["type"] == "connected"
        again.stdin(b"exit 4\n")
        assert again.finish()[2]["exit_code"] == 4
    with pty(agent, "?pty=0", argv=["sh", "-c", "echo once; exit 6"]) as ws:
        ws.finish()
    with WebSocket(agent, f"/pty/{ws.sid}/ws?pty=0") as again:
        assert again.frame() == ("replay", bytes(8) + b"once\n")
        assert again.frame()[1]["type"] == "connected"
        assert again.finish()[2]["exit_code"] == 6


def test_delete_ends_process_and_socket(agent):
    with pty(agent, "?pty=0", argv=["sh", "-c", "echo $$; sleep 300"]) as ws:
        pid = int(ws.until(b"\n"))
        assert agent.request("DELETE", f"/pty/{ws.sid}").status == 200
        assert list(ws.frames())[-1][0] == "close"
    wait_for("the end of the process", lambda: not os.path.exists(f"/proc/{pid}"))


def test_unread_stdin_does_not_hide_the_exit(agent):
    with pty(agent, "?pty=0", argv=["sh", "-c", "exec <&-; sleep 0.3; exit 3"]) as ws:
        for _ in range(20):
            ws.stdin(b"x" * 30000)
        assert ws.finish()[2]["exit_code"] == 3
