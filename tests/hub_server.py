"""A model hub of one user on this machine, in the requests that huggingface_hub makes."""

import base64
import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

TOKEN = "hf_of_ada"
"""Of the user `ada`, who alone reads private repositories and writes."""


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
        content = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        path = self.path.partition("?")[0]
        self.server.requests.append(f"{self.command} {path}")
        parts = path.strip("/").split("/")
        is_ada = self.headers.get("Authorization") == f"Bearer {TOKEN}"
        if path == "/api/validate-yaml":
            return self._answer({"errors": [], "warnings": []})
        if path == "/api/repos/create":
            return self._create(json.loads(content), is_ada)
        name = "/".join(parts[2:4] if parts[0] == "api" else parts[:2])
        if name not in self.server.commits or (name in self.server.private and not is_ada):
            return self._refuse(404 if is_ada else 401, "RepoNotFound")
        if self.command == "POST" and not is_ada:
            return self._refuse(403, "")
        if "preupload" in parts:  # All files are sent in the commit, none beside it.
            mode = {"uploadMode": "regular", "shouldIgnore": False}
            files = [{"path": each["path"], **mode} for each in json.loads(content)["files"]]
            return self._answer({"files": files})
        if "commit" in parts:
            return self._commit(name, content)
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

    do_HEAD = do_POST = do_PUT = do_GET  # noqa: N815

    def _create(self, repository: dict[str, Any], is_ada: bool) -> None:
        name = f"{repository['organization']}/{repository['name']}"
        if not is_ada or repository["organization"] != "ada":
            return self._refuse(403 if is_ada else 401, "")
        if name in self.server.commits:
            return self._answer({"url": f"{self.server.url}/{name}"}, 409)
        if repository.get("private") or repository.get("visibility") == "private":
            self.server.private.add(name)
        self.server.add(name, {".gitattributes": b""})
        return self._answer({"url": f"{self.server.url}/{name}", "id": name})

    def _commit(self, name: str, content: bytes) -> None:
        files = dict(list(self.server.commits[name].values())[-1])
        for line in content.splitlines():
            operation = json.loads(line)
            value = operation["value"]
            if operation["key"] == "file":
                files[value["path"]] = base64.b64decode(value["content"])
        commit = self.server.add(name, files)
        url = f"{self.server.url}/{name}/commit/{commit}"
        self._answer({"success": True, "commitOid": commit, "commitUrl": url})

    def _answer(self, value: Any, status: int = 200) -> None:
        self._send(status, json.dumps(value).encode(), {"Content-Type": "application/json"})

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
