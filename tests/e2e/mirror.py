"""A small HTTP server of files for the tests of `fathom datasets fetch`: it knows Range, can break off in the middle,
and remembers what it was asked.

python3 mirror.py DIR [CUT...] serves DIR and prints its port: the first answers break off after CUT bytes each."""

import http.server
import socket
import sys
import threading
import time
from pathlib import Path


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        mirror = self.server.mirror
        asked = self.headers.get("Range")
        mirror.requests.append((self.path, asked))
        path = mirror.folder / self.path.lstrip("/")
        if not path.is_file():
            self.send_error(404)
            return
        body = path.read_bytes()
        start = int(asked.removeprefix("bytes=").split("-")[0]) if asked and mirror.ranges else 0
        if start >= len(body):
            self.send_error(416)
            return
        self.send_response(206 if start else 200)
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(body) - 1}/{len(body)}")
        self.send_header("Content-Length", str(len(body) - start))
        self.end_headers()
        cut = mirror.cuts.pop(0) if mirror.cuts else None
        self.wfile.write(body[start:] if cut is None else body[start:start + cut])
        if cut is not None:
            self.wfile.flush()
            while mirror.stall.is_set():
                time.sleep(0.02)
            self.connection.shutdown(socket.SHUT_RDWR)
            self.close_connection = True

    def log_message(self, *_):
        pass


class Mirror:
    """cuts: after how many bytes each of the first answers breaks off; while `stall` is set it keeps still first."""

    def __init__(self, folder, cuts=(), ranges=True):
        self.folder, self.cuts, self.ranges = Path(folder), list(cuts), ranges
        self.requests = []
        self.stall = threading.Event()
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.mirror = self
        self.server.daemon_threads = True
        self.server.handle_error = lambda *_: None  # a client that has enough hangs up
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)
        self.thread.start()

    def close(self):
        self.stall.clear()
        self.server.shutdown()
        self.server.server_close()


if __name__ == "__main__":
    print(Mirror(sys.argv[1], map(int, sys.argv[2:])).server.server_port, flush=True)
    sys.stdin.read()  # until whoever started it goes
