"""A stand-in for the Hugging Face hub, on loopback only: the hub at one address, the storage that it redirects to at another.

    hub = Hub()
    hub.add("org/name", {"config.json": b"{}", "model.safetensors": bytes})     files of a commit on main; large kinds are in the storage
    hub.faults["model.safetensors"] = [Fault("cut", 1000), ...]                 what goes wrong, request by request
    hub.requests                                                                (server, method, path, headers in lower case), in order

Large files (safetensors, gguf, bin) are redirected to the storage, as the hub does: X-Linked-Etag is their SHA-256. Others come from the hub
itself, with git's SHA-1 as their ETag."""
import dataclasses
import hashlib
import http.server
import json
import re
import threading
import time
import urllib.parse

LARGE = (".safetensors", ".gguf", ".bin")


@dataclasses.dataclass
class Fault:
    """What happens to one request of a file; where: "hub" or "storage".

    status N: that answer, with `headers`          cut N: the body ends after N bytes           drip N: N bytes, then one each half second
    ignore_range: all is sent from the start       wrong_range: another part is sent            other: other content of the same length
    etag: the hub names another hash               long N: N bytes more than there are          wait S: the answer comes after S seconds
    meet: the answer comes when as many as `meeting` says have been asked for"""
    kind: str
    n: int = 0
    headers: dict = dataclasses.field(default_factory=dict)
    where: str = "storage"


def git_sha1(data):
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


class Repo:
    def __init__(self, files, gated=False, token=None):
        self.files, self.gated, self.token = dict(files), gated, token
        self.commit = hashlib.sha1(json.dumps({k: git_sha1(v) for k, v in sorted(files.items())}).encode()).hexdigest()

    def sibling(self, name):
        data = self.files[name]
        entry = {"rfilename": name, "size": len(data), "blobId": git_sha1(data)}
        if name.endswith(LARGE):
            entry["lfs"] = {"sha256": hashlib.sha256(data).hexdigest(), "size": len(data), "pointerSize": 135}
            entry["blobId"] = git_sha1(b"pointer " + data[:64])
        return entry

    def etag(self, name):
        data = self.files[name]
        return hashlib.sha256(data).hexdigest() if name.endswith(LARGE) else git_sha1(data)


class Hub:
    def __init__(self, certificate=None):
        self.repos, self.refs, self.faults, self.requests = {}, {}, {}, []
        self.listing_faults = []    # of the list of files, in order
        self.change_listing = None  # a function of it
        self.pace = 0               # seconds between pieces of 64 KB
        self.gate = threading.Event()  # what comes after a file's first 64 KB comes once it is set
        self.gate.set()
        self.meeting = None         # a barrier
        self.lock = threading.Lock()
        self.hub = self._start("hub", certificate)
        self.storage = self._start("storage", certificate)
        self.url, self.storage_url = (f"http{'s' if certificate else ''}://127.0.0.1:{s.server_address[1]}" for s in (self.hub, self.storage))

    def _start(self, name, certificate):
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (Handler,), {"stand_in": self, "server_name": name}))
        server.daemon_threads = True
        if certificate:
            server.socket = certificate.wrap_socket(server.socket, server_side=True)
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        return server

    def add(self, name, files, revision="main", **how):
        repo = Repo(files, **how)
        self.repos.setdefault(name, {})[repo.commit] = repo
        self.refs[name, revision] = repo.commit
        return repo.commit

    def find(self, name, revision):
        return self.repos.get(name, {}).get(self.refs.get((name, revision), revision))

    def next_fault(self, path, where):
        with self.lock:
            faults = self.faults.get(path, [])
            return faults.pop(0) if faults and faults[0].where == where else Fault("none")

    def count(self, path, method="GET", server=None):
        """Requests whose path has this in it."""
        with self.lock:
            return sum(path in p and m == method and (server is None or s == server) for s, m, p, _ in self.requests)

    def close(self):
        self.gate.set()
        for s in (self.hub, self.storage):
            s.shutdown()
            s.server_close()


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    stand_in = server_name = None

    def log_message(self, *_):
        pass

    def do_HEAD(self):
        self.do_GET()

    def do_GET(self):
        headers = {k.lower(): v for k, v in self.headers.items()}
        with self.stand_in.lock:
            self.stand_in.requests.append((self.server_name, self.command, self.path, headers))
        try:
            (self.from_hub if self.server_name == "hub" else self.from_storage)(urllib.parse.urlsplit(self.path), headers)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True

    def answer(self, status, body=b"", headers=()):
        self.send_response(status)
        for name, value in dict(headers).items():
            self.send_header(name, value)
        if "Content-Length" not in dict(headers):
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    def refuse(self, status, code=None, message="", headers=()):
        body = json.dumps({"error": message}).encode()
        self.answer(status, body, {**dict(headers), **({"X-Error-Code": code, "X-Error-Message": message} if code else {}), "Content-Type": "application/json"})

    # ---- the hub ----

    def from_hub(self, url, headers):
        listing = re.fullmatch(r"/api/models/([^/]+/[^/]+)(?:/revision/([^/]+))?", url.path)
        resolve = re.fullmatch(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", url.path)
        tree = re.fullmatch(r"/api/models/([^/]+/[^/]+)/tree/([^/]+)", url.path)
        name, revision, *rest = [urllib.parse.unquote(x or "main") for x in (listing or resolve or tree).groups()] if listing or resolve or tree else ("", "")
        repo = self.stand_in.find(name, revision)
        if name not in self.stand_in.repos:
            return self.refuse(401 if "authorization" not in headers else 404, "RepoNotFound", "Repository not found")
        if repo is None:
            return self.refuse(404, "RevisionNotFound", "Invalid rev id")
        may_read = repo.token is None or headers.get("authorization") == f"Bearer {repo.token}"
        if listing:
            return self.list_files(repo, name) if may_read or repo.gated else self.refuse(401, None, "Invalid username or password.")
        if tree:
            files = [{"type": "file", "path": f, "size": len(d), "oid": git_sha1(d)} for f, d in repo.files.items()]
            return self.answer(200, json.dumps(files).encode(), {"Content-Type": "application/json"})
        if not may_read:
            return self.refuse(401 if "authorization" not in headers else 403, "GatedRepo" if repo.gated else None, "Access to model is restricted.")
        return self.resolve(repo, rest[0], headers)

    def list_files(self, repo, name):
        faults = self.stand_in.listing_faults
        fault = faults.pop(0) if faults else Fault("none")
        if fault.kind == "status":
            return self.refuse(fault.n, None, "", fault.headers)
        value = {"id": name, "sha": repo.commit, "gated": "manual" if repo.gated else False, "siblings": [repo.sibling(f) for f in repo.files]}
        if self.stand_in.change_listing:
            value = self.stand_in.change_listing(value)
        body = value if isinstance(value, bytes) else json.dumps(value).encode()
        if fault.kind == "cut":
            self.answer(200, body[:fault.n], {"Content-Length": str(len(body))})
            self.close_connection = True
            return None
        return self.answer(200, body, {"Content-Type": "application/json"})

    def resolve(self, repo, path, headers):
        if path not in repo.files:
            return self.refuse(404, "EntryNotFound", "Entry not found")
        fault = self.stand_in.next_fault(path, "hub")
        if fault.kind == "status":
            return self.refuse(fault.n, fault.headers.pop("code", None), "", fault.headers)
        etag = "f" * len(repo.etag(path)) if fault.kind == "etag" else repo.etag(path)
        common = {"X-Repo-Commit": repo.commit, "Accept-Ranges": "bytes"}
        if not path.endswith(LARGE):
            return self.send_data(repo.files[path], headers, fault, {**common, "ETag": f'"{etag}"'})
        to = fault.headers.get("Location", f"{self.stand_in.storage_url}/{repo.commit}/{urllib.parse.quote(path)}?signature=secret")
        return self.answer(302, b"Found", {**common, "Location": to, "X-Linked-Etag": f'"{etag}"', "X-Linked-Size": str(len(repo.files[path]))})

    # ---- the storage ----

    def from_storage(self, url, headers):
        _, commit, path = urllib.parse.unquote(url.path).split("/", 2)
        repo = next(r[commit] for r in self.stand_in.repos.values() if commit in r)
        fault = self.stand_in.next_fault(path, "storage")
        if fault.kind == "status":
            return self.refuse(fault.n, None, "", fault.headers)
        data = repo.files[path]
        if fault.kind == "other":
            data = bytes(b ^ 1 for b in data)
        return self.send_data(data, headers, fault, {"ETag": '"storage-has-its-own"'})

    def send_data(self, data, headers, fault, said):
        if fault.kind == "long":
            data = data + bytes(fault.n)
        first, status = 0, 200
        ranged = re.fullmatch(r"bytes=(\d+)-", headers.get("range", ""))
        if ranged and fault.kind != "ignore_range":
            first, status = int(ranged[1]), 206
            if first >= len(data):
                return self.answer(416, b"", {"Content-Range": f"bytes */{len(data)}"})
            first = 0 if fault.kind == "wrong_range" else first
            said = {**said, "Content-Range": f"bytes {first}-{len(data) - 1}/{len(data)}"}
        if fault.kind == "wait":
            time.sleep(fault.n)
        if fault.kind == "meet":
            self.stand_in.meeting.wait()
        body = memoryview(data)[first:]
        self.send_response(status)
        for name, value in {**said, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "HEAD":
            return None
        if fault.kind in ("cut", "drip"):
            self.wfile.write(body[:fault.n])
            for i in range(fault.n, len(body) if fault.kind == "drip" else 0):
                self.wfile.write(body[i:i + 1])
                time.sleep(0.5)
            self.close_connection = True
            return None
        step = 1 << 16
        for i in range(0, len(body), step):
            self.wfile.write(body[i:i + step])
            self.stand_in.gate.wait()
            if self.stand_in.pace:
                time.sleep(self.stand_in.pace)
        return None
