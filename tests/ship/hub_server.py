"""A stand-in for the Hugging Face Hub on loopback: what huggingface_hub asks of it to push a model and to fetch it.

Repositories are kept in memory, commit by commit. Tensor files go the way of LFS, all else lies in the commit itself,
as the Hub has it; xet, its other way for large files, is not spoken. `TOKEN` may do everything, nobody else may write.
"""

from __future__ import annotations

import json
import re
from base64 import b64decode
from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import sha1, sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from typing import Any
from urllib.parse import unquote, urlsplit

TOKEN = "hf_mayall"
NUMBERS = count()


@dataclass
class Repo:
    private: bool = False
    gated: bool = False
    commits: dict[str, dict[str, bytes]] = field(default_factory=dict)
    branches: dict[str, str] = field(default_factory=dict)

    def commit(self, branch: str, files: dict[str, bytes]) -> str:
        sha = sha1(str(next(NUMBERS)).encode()).hexdigest()  # never one again: what is fetched is kept by it
        self.commits[sha] = files
        self.branches[branch] = sha
        return sha

    def files(self, revision: str = "main") -> dict[str, bytes]:
        return self.commits[self.branches.get(revision, revision)]


class Refused(Exception):
    """Status, the Hub's own code for it, and what it says."""


class Hub(ThreadingHTTPServer):
    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self.server_port}"
        self.repos: dict[str, Repo] = {}
        self.large: dict[str, bytes] = {}
        self.resolved: list[str] = []  # paths of files that were fetched


class Handler(BaseHTTPRequestHandler):
    server: Hub
    protocol_version = "HTTP/1.1"

    def answer(self) -> None:
        self.body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        path = unquote(urlsplit(self.path).path)
        try:
            for method, pattern, handle in ROUTES:
                found = re.fullmatch(pattern, path)
                if found and self.command in method.split():
                    handle(self, *found.groups())
                    return
            raise Refused(501, "", f"the stand-in knows no {self.command} {path}")
        except Refused as refused:
            status, code, line = refused.args
            self.reply(status, {"error": line}, {"X-Error-Code": code, "X-Error-Message": line})

    do_GET = do_HEAD = do_POST = do_PUT = answer

    def reply(self, status: int, said: Any, headers: dict[str, str] | None = None) -> None:
        data = said if isinstance(said, bytes) else json.dumps(said).encode()
        self.send_response(status)
        for name, value in {"Content-Length": str(len(data)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        pass

    # ---- who may do what

    @property
    def trusted(self) -> bool:
        return self.headers.get("Authorization") == f"Bearer {TOKEN}"

    def writing(self) -> None:
        if self.headers.get("Authorization") is None:
            raise Refused(401, "", "Invalid username or password.")
        if not self.trusted:
            raise Refused(403, "", "Forbidden: you don't have the right to write here.")

    def repo(self, name: str) -> Repo:
        repo = self.server.repos.get(name)
        if repo is None or (repo.private and not self.trusted):
            raise Refused(404 if self.trusted else 401, "RepoNotFound", "Repository not found")
        if repo.gated and not self.trusted:
            raise Refused(403, "GatedRepo", "Access to this model is restricted.")
        return repo

    def files(self, name: str, revision: str) -> tuple[str, dict[str, bytes]]:
        repo = self.repo(name)
        sha = repo.branches.get(revision, revision)
        if sha not in repo.commits:
            raise Refused(404, "RevisionNotFound", f"Invalid rev id: {revision}")
        return sha, repo.commits[sha]

    # ---- what is asked

    def create(self) -> None:
        self.writing()
        asked = json.loads(self.body)
        name = f"{asked.get('organization') or 'me'}/{asked['name']}"
        taken = name in self.server.repos
        if not taken:
            self.server.repos[name] = Repo(asked.get("visibility") == "private" or bool(asked.get("private")))
            self.server.repos[name].commit("main", {".gitattributes": b"*.safetensors filter=lfs\n"})
        self.reply(409 if taken else 200, {"url": f"{self.server.address}/{name}", "name": name, "id": name})

    def branch(self, name: str, branch: str) -> None:
        self.writing()
        if branch.startswith("refs/"):
            raise Refused(400, "", f"Invalid reference for a branch: {branch}")
        repo = self.repo(name)
        taken = branch in repo.branches
        repo.branches.setdefault(branch, repo.branches["main"])
        self.reply(409 if taken else 200, {"error": "Reference already exists"} if taken else {})

    def info(self, name: str, revision: str | None = None) -> None:
        sha, files = self.files(name, revision or "main")
        there = [{"rfilename": path} for path in files]
        self.reply(200, {"id": name, "sha": sha, "private": self.repo(name).private, "siblings": there})

    def tree(self, name: str, revision: str) -> None:
        _, files = self.files(name, revision)
        about = [{"type": "file", "path": p, "size": len(d), "oid": sha1(d).hexdigest()} for p, d in files.items()]
        self.reply(200, about)

    def validate(self) -> None:
        self.reply(200, {"errors": [], "warnings": []})

    def preupload(self, name: str, _: str) -> None:
        self.writing()
        self.repo(name)
        ways = {True: "lfs", False: "regular"}
        paths = [file["path"] for file in json.loads(self.body)["files"]]
        said = [{"path": p, "uploadMode": ways[p.endswith(".safetensors")], "shouldIgnore": False} for p in paths]
        self.reply(200, {"files": said})

    def batch(self, name: str) -> None:
        self.writing()
        self.repo(name)
        said = [
            {**about, "actions": {"upload": {"href": f"{self.server.address}/large/{about['oid']}"}}}
            for about in json.loads(self.body)["objects"]
        ]
        self.reply(200, {"transfer": "basic", "objects": said})

    def large(self, oid: str) -> None:
        assert sha256(self.body).hexdigest() == oid
        self.server.large[oid] = self.body
        self.reply(200, {})

    def commit(self, name: str, revision: str) -> None:
        self.writing()
        files = dict(self.files(name, revision)[1])
        for line in self.body.splitlines():
            about = json.loads(line)
            kind, value = about["key"], about["value"]
            if kind == "file":
                files[value["path"]] = b64decode(value["content"])
            elif kind == "lfsFile":
                files[value["path"]] = self.server.large[value["oid"]]
            elif kind == "deletedFile":
                del files[value["path"]]
        sha = self.repo(name).commit(revision, files)
        self.reply(200, {"commitUrl": f"{self.server.address}/{name}/commit/{sha}", "commitOid": sha})

    def resolve(self, name: str, revision: str, path: str) -> None:
        sha, files = self.files(name, revision)
        if path not in files:
            raise Refused(404, "EntryNotFound", "Entry not found")
        if self.command == "GET":
            self.server.resolved.append(path)
        self.reply(200, files[path], {"X-Repo-Commit": sha, "ETag": f'"{sha1(files[path]).hexdigest()}"'})


NAME = r"([\w.-]+/[\w.-]+?)"
ROUTES: list[tuple[str, str, Callable[..., None]]] = [
    ("POST", "/api/repos/create", Handler.create),
    ("POST", "/api/validate-yaml", Handler.validate),
    ("POST", f"/api/models/{NAME}/branch/(.+)", Handler.branch),
    ("GET", f"/api/models/{NAME}(?:/revision/(.+))?", Handler.info),
    ("GET", f"/api/models/{NAME}/tree/(.+)", Handler.tree),
    ("POST", f"/api/models/{NAME}/preupload/(.+)", Handler.preupload),
    ("POST", f"/api/models/{NAME}/commit/(.+)", Handler.commit),
    ("POST", rf"/{NAME}\.git/info/lfs/objects/batch", Handler.batch),
    ("PUT", "/large/([0-9a-f]{64})", Handler.large),
    ("GET HEAD", f"/{NAME}/resolve/([^/]+)/(.+)", Handler.resolve),
]
