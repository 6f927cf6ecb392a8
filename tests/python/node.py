"""A real node process for the tests: started on free ports and a folder of its own, killed, stopped, restarted."""

import base64
import hashlib
import hmac
import http.client
import itertools
import json
import os
import random
import re
import shutil
import signal
import socket
import ssl
import subprocess
import tempfile
import time
import urllib.parse
from email.utils import formatdate
from pathlib import Path

from azure.cosmos import CosmosClient

# The key that every emulator accepts; public by design.
EMULATOR_KEY = "C2y6yDjf5/R+ob0N8A7Cgv30VRDJIWEHLM+4QDU5DE2nQ9nDuVTqobD4b8mGGyPMbIZnqyMsEcaGQy67XIw/Jw=="
# Generous: a loaded test machine may be slow; a healthy node needs a fraction of a second.
START_SECONDS_MAX = 60
STOP_SECONDS_MAX = 30
API_VERSION = "2020-07-15"


def binary():
    """The bolide binary under test."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    target = Path(os.environ.get("CARGO_TARGET_DIR") or cache / "bolide" / "target")
    path = Path(os.environ.get("BOLIDE_BINARY") or target / "release" / "bolide")
    if not path.is_file():
        raise FileNotFoundError(f"there is no bolide binary at {path}: build it with 'cargo build --release'")
    return path


def settings_free(environment):
    """The environment without settings of a node, so that the person's own do not reach the tests."""
    return {name: value for name, value in environment.items() if not name.startswith("BOLIDE_")}


# Below those that the system gives to whoever connects, and each once: nobody takes one between our look and a node's start.
# Test processes that run at the same time have ranges of their own.
WORKER = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
WORKERS = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
WORKER_PORTS = range(18_000, 32_000)[WORKER::WORKERS]
PORTS = iter(random.sample(WORKER_PORTS, len(WORKER_PORTS)))


def is_free(port):
    with socket.socket() as tried:
        try:
            tried.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def free_ports(count):
    ports = list(itertools.islice(filter(is_free, PORTS), count))
    assert len(ports) == count, f"none of {len(WORKER_PORTS)} ports is left"
    return ports


def wait_until(condition, what, seconds_max=START_SECONDS_MAX, pause=0.02):
    """Polls until the condition is true and answers what it answered; fails with `what` after the deadline."""
    deadline = time.monotonic() + seconds_max
    while True:
        answer = condition()
        if answer:
            return answer
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {seconds_max} s in vain: {what}")
        time.sleep(pause)


def signature(key, method, resource_type, link, date):
    """The master key signature over one request, ready for the authorization header."""
    text = f"{method.lower()}\n{resource_type.lower()}\n{link}\n{date.lower()}\n\n"
    digest = hmac.new(base64.b64decode(key), text.encode(), hashlib.sha256).digest()
    return urllib.parse.quote(f"type=master&ver=1.0&sig={base64.b64encode(digest).decode()}", safe="")


def signed_parts(path):
    """Resource type and link that the signature of a name-addressed path covers."""
    segments = [urllib.parse.unquote(segment) for segment in path.split("?")[0].strip("/").split("/") if segment]
    if not segments:
        return "", ""
    if segments[0] == "offers":
        return "offers", "".join(segments[1:]).lower()
    if segments[-1] == "partitionkeydelete":
        return "colls", "/".join(segments[:-2])
    if len(segments) % 2:
        return segments[-1], "/".join(segments[:-1])
    return segments[-2], "/".join(segments)


def signed_headers(method, path, key=EMULATOR_KEY, date=None):
    date = date or formatdate(usegmt=True)
    resource_type, link = signed_parts(path)
    return {
        "authorization": signature(key, method, resource_type, link, date),
        "x-ms-date": date,
        "x-ms-version": API_VERSION,
    }


def order_headers(method, path, key=EMULATOR_KEY, date=None):
    """The signature of an order on the health port."""
    date = date or formatdate(usegmt=True)
    link = path.split("?")[0].lstrip("/")
    return {"authorization": signature(key, method, "bolide", link, date), "x-ms-date": date}


class Response:
    """What came back from a raw request."""

    def __init__(self, status, headers, body):
        self.status = status
        self.headers = headers
        self.body = body

    @property
    def json(self):
        return json.loads(self.body)

    @property
    def substatus(self):
        return int(self.headers.get("x-ms-substatus", 0))

    @property
    def message(self):
        return self.json["message"]

    @property
    def charge(self):
        return float(self.headers["x-ms-request-charge"])

    def __repr__(self):
        return f"<{self.status}/{self.substatus} {self.body[:500]!r}>"


class Refused(Exception):
    """The node ended instead of getting ready."""

    def __init__(self, code, output):
        super().__init__(f"the node ended with exit code {code}: {output[-2000:]}")
        self.code = code
        self.output = output


class Node:
    """One bolide process and its data folder."""

    def __init__(self, protocol="http", arguments=(), environment=None, data=None, key=EMULATOR_KEY, start=True):
        self.protocol = protocol
        self.arguments = list(arguments)
        self.environment = dict(environment or {})
        self.key = key
        self.folder = Path(tempfile.mkdtemp(prefix="bolide-test-"))
        self.data = Path(data) if data else self.folder / "data"
        self.output_path = self.folder / "output.log"
        self.log_path = self.folder / "log.log"
        self.process = None
        self.clients = []
        self.port, self.health_port = free_ports(2)
        if start:
            self.start()

    # life

    def command(self):
        return [
            str(binary()), "serve", "--data-path", str(self.data), "--port", str(self.port),
            "--health-port", str(self.health_port), "--protocol", self.protocol, *self.arguments,
        ]  # fmt: skip

    def spawn(self):
        """Starts the process and does not wait for it."""
        with open(self.output_path, "ab") as output, open(self.log_path, "ab") as log:
            self.process = subprocess.Popen(
                self.command(), stdin=subprocess.DEVNULL, stdout=output, stderr=log, cwd=self.folder,
                env={**settings_free(os.environ), **self.environment},
            )  # fmt: skip

    def start(self):
        self.spawn()
        self.wait_ready()
        return self

    def wait_ready(self):
        deadline = time.monotonic() + START_SECONDS_MAX
        while True:
            code = self.process.poll()
            if code is not None:
                self.process = None
                raise Refused(code, self.output() + self.log())
            try:
                # Not "ready": a test may want a node without quorum or with broken shards.
                ready = self.health("/ready").json
                # All shards open, too: what a test expects of their state would else come a moment later.
                if ready.get("state") != "starting" and not ready.get("opening"):
                    return
            except OSError:
                pass
            if time.monotonic() > deadline:
                self.kill()
                raise AssertionError(f"the node was not ready within {START_SECONDS_MAX} s: {self.log()[-2000:]}")
            time.sleep(0.01)

    def kill(self):
        """Ends the process without a chance to tidy up."""
        self._end(signal.SIGKILL)

    def stop(self):
        """Asks the process to end and answers its exit code."""
        return self._end(signal.SIGTERM)

    def _end(self, how):
        if self.process is None:
            return None
        self.process.send_signal(how)
        try:
            return self.process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise AssertionError(f"the node did not end within {STOP_SECONDS_MAX} s of {how!r}") from None
        finally:
            self.process = None

    def restart(self):
        code = self.stop()
        self.start()
        return code

    def close(self):
        """Ends the process and removes its folder."""
        for client in self.clients:
            client.close()
        self.clients = []
        if self.process is not None:
            self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def output(self):
        """What the node printed for its user."""
        return self.output_path.read_text(errors="replace") if self.output_path.exists() else ""

    def log(self):
        """What the node logged, without colours."""
        text = self.log_path.read_text(errors="replace") if self.log_path.exists() else ""
        return re.sub(r"\x1b\[[0-9;]*m", "", text)

    # talking to it

    @property
    def endpoint(self):
        return f"{self.protocol}://127.0.0.1:{self.port}/"

    def client(self, key=None, **options):
        """A real SDK client that gives up quickly instead of retrying for half a minute."""
        options.setdefault("retry_total", 2)
        options.setdefault("retry_connect", 1)
        options.setdefault("connection_verify", False)
        client = CosmosClient(self.endpoint, key or self.key, **options)
        self.clients.append(client)
        return client

    def connection(self, seconds_max=30):
        """A keep-alive connection for many raw requests."""
        if self.protocol == "https":
            context = ssl._create_unverified_context()
            return http.client.HTTPSConnection("127.0.0.1", self.port, timeout=seconds_max, context=context)
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=seconds_max)

    def raw(self, method, path, headers=None, body=None, key=None, date=None, sign=True, connection=None):
        """A signed request exactly as given: for what the SDK cannot or will not send.

        A header of None is left out. A body that is neither bytes nor str is sent as JSON.
        """
        if body is not None and not isinstance(body, (bytes, str)):
            body = json.dumps(body)
        if isinstance(body, str):
            body = body.encode()
        every = signed_headers(method, path, key or self.key, date) if sign else {}
        if body is not None:
            every["content-type"] = "application/json"
        every.update(headers or {})
        every = {name: value for name, value in every.items() if value is not None}
        own = connection is None
        connection = connection or self.connection()
        try:
            connection.request(method, path, body=body, headers=every)
            answer = connection.getresponse()
            return Response(answer.status, answer.headers, answer.read())
        finally:
            if own:
                connection.close()

    def health(self, path, method="GET", headers=None):
        """Asks the health port, unsigned."""
        return self._health(path, method, headers or {}, seconds_max=5)

    def order(self, path, method="POST", headers=None, key=None, date=None, seconds_max=90):
        """Gives a signed order on the health port. A header of None is left out."""
        every = {**order_headers(method, path, key or self.key, date), **(headers or {})}
        return self._health(path, method, {name: value for name, value in every.items() if value is not None}, seconds_max)

    def _health(self, path, method, headers, seconds_max):
        connection = http.client.HTTPConnection("127.0.0.1", self.health_port, timeout=seconds_max)
        try:
            connection.request(method, path, headers=headers)
            answer = connection.getresponse()
            return Response(answer.status, answer.headers, answer.read())
        finally:
            connection.close()

    def metric(self, name):
        """The sum over all labels of one metric; None when the node does not export it."""
        values = re.findall(rf"^{re.escape(name)}(?:{{[^}}]*}})? ([^ \n]+)", self.health("/metrics").body.decode(), re.M)
        return sum(map(float, values)) if values else None
