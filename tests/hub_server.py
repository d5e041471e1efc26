"""A model hub of one user on this machine, in the requests that huggingface_hub makes."""

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

TOKEN = "hf_of_ada"
"""Of the user `ada`, who alone reads private repositories."""


class HubServer(ThreadingHTTPServer):
    """The repositories, by name, each with its commits: files by name, the newest last."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.url = f"http://127.0.0.1:{self.server_port}"
        self.commits: dict[str, dict[str, dict[str, bytes]]] = {}
        self.private: set[str] = set()
        self.requests: list[str] = []

    def add(self, name: str, files: dict[str, bytes]) -> str:
        """Commit all the files of a repository; returns the commit."""
        commits = self.commits.setdefault(name, {})
        commit = _digest(f"{name} {len(commits)}".encode())
        commits[commit] = files
        return commit


class _Handler(BaseHTTPRequestHandler):
    server: HubServer
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *arguments: Any) -> None:
        """Print nothing."""

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        self.server.requests.append(f"{self.command} {path}")
        parts = path.strip("/").split("/")
        is_ada = self.headers.get("Authorization") == f"Bearer {TOKEN}"
        name = "/".join(parts[2:4] if parts[0] == "api" else parts[:2])
        if name not in self.server.commits or (name in self.server.private and not is_ada):
            return self._refuse(404 if is_ada else 401, "RepoNotFound")
        commits = self.server.commits[name]
        revision = parts[5] if parts[0] == "api" and len(parts) > 5 else "main"
        revision = parts[3] if parts[2] == "resolve" else revision
        commit = list(commits)[-1] if revision == "main" else revision
        if commit not in commits:
            return self._refuse(404, "RevisionNotFound")
        if "tree" in parts:
            return self._answer(
                [
                    {"type": "file", "path": path, "size": len(data), "oid": _digest(data)}
                    for path, data in commits[commit].items()
                ]
            )
        if parts[0] == "api":
            files = [{"rfilename": path} for path in commits[commit]]
            state = {"id": name, "sha": commit, "private": name in self.server.private}
            return self._answer({**state, "siblings": files})
        data = commits[commit][parts[4]]
        return self._send(200, data, {"X-Repo-Commit": commit, "ETag": f'"{_digest(data)}"'})

    do_HEAD = do_GET  # noqa: N815

    def _answer(self, value: Any) -> None:
        self._send(200, json.dumps(value).encode(), {"Content-Type": "application/json"})

    def _refuse(self, status: int, code: str) -> None:
        self._send(status, b"{}", {"X-Error-Code": code})

    def _send(self, status: int, content: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(content))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)


def _digest(content: bytes) -> str:
    return hashlib.sha1(content).hexdigest()


@contextmanager
def serving_hub() -> Iterator[HubServer]:
    """Serve an empty hub."""
    with HubServer() as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        yield server
        server.shutdown()
