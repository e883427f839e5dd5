"""Run inside sandboxes by the SDK tests: an HTTP server and a WebSocket echo server, standard library only.

usage: servers.py http|ws PORT
"""
import base64
import hashlib
import http.server
import socketserver
import sys


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        body = f"{self.command} {self.path} host={self.headers['Host']} key={self.headers.get('OPEN-SANDBOX-API-KEY')}".encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self):
        n = int(self.headers.get("Content-Length") or 0)
        data = self.rfile.read(n)
        body = hashlib.sha256(data).hexdigest().encode()
        self.send_response(201)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *a):
        pass


class Echo(socketserver.StreamRequestHandler):
    def handle(self):
        key = None
        while (line := self.rfile.readline().strip()):
            name, _, value = line.partition(b":")
            if name.lower() == b"sec-websocket-key":
                key = value.strip()
        accept = base64.b64encode(hashlib.sha1(key + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest())
        self.wfile.write(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: " + accept + b"\r\n\r\n")
        while True:
            head = self.rfile.read(2)
            if len(head) < 2:
                return
            n = head[1] & 127
            if n == 126:
                n = int.from_bytes(self.rfile.read(2), "big")
            elif n == 127:
                n = int.from_bytes(self.rfile.read(8), "big")
            mask = self.rfile.read(4)
            data = bytes(b ^ mask[i % 4] for i, b in enumerate(self.rfile.read(n)))
            length = bytes([n]) if n < 126 else b"\x7e" + n.to_bytes(2, "big") if n < 65536 else b"\x7f" + n.to_bytes(8, "big")
            self.wfile.write(head[:1] + length + data)
            if head[0] & 15 == 8:
                return


class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True


if __name__ == "__main__":
    kind, port = sys.argv[1], int(sys.argv[2])
    with Server(("0.0.0.0", port), Handler if kind == "http" else Echo) as s:
        print("listening", flush=True)
        s.serve_forever()
