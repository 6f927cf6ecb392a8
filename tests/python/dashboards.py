"""The dashboards as the tests and the picture see them, and a Prometheus of one's own that watches a node."""

import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
import urllib.parse
import urllib.request
from pathlib import Path

from node import binary, free_ports, settings_free, wait_until

FOLDER = Path(__file__).parent.parent.parent / "dashboards"
PROMETHEUS = FOLDER / "prometheus"
NAMES = ["overview", "expiry", "storage", "cluster", "driver"]
# What Grafana works out from the scrape interval and the time shown; scrapes are a second apart here.
RATE_INTERVAL = "15s"
RANGE = "1m"


def dashboard(name):
    return json.loads((FOLDER / "grafana" / "dashboards" / f"{name}.json").read_text())


def panels(board):
    """Every panel that shows something, those inside collapsed rows included."""
    for panel in board["panels"]:
        if panel["type"] == "row":
            yield from panels(panel)
        else:
            yield panel


def fill(expression, variables):
    """A query with its variables filled in, as Grafana does it for a choice of several values."""
    for name, values in variables.items():
        expression = expression.replace(f"${name}", "|".join(map(re.escape, values)).replace("\\", "\\\\"))
    return expression.replace("$__rate_interval", RATE_INTERVAL).replace("$__range", RANGE)


class Prometheus:
    """A real Prometheus with the project's own configuration, but other targets and a shorter interval."""

    def __init__(self, nodes, driver):
        self.folder = Path(tempfile.mkdtemp(prefix="bolide-prometheus-"))
        self.targets = len(nodes) + 1
        (self.port,) = free_ports(1)
        shutil.copytree(PROMETHEUS, self.folder / "config")
        config = self.folder / "config" / "prometheus.yml"
        targets = ", ".join(f'"127.0.0.1:{port}"' for port in nodes)
        replaced = config.read_text().replace('"127.0.0.1:8080"', targets).replace("127.0.0.1:8090", f"127.0.0.1:{driver}")
        config.write_text(replaced.replace("interval: 5s", "interval: 1s"))
        with open(self.folder / "log", "wb") as log:
            self.process = subprocess.Popen(
                [
                    "prometheus", f"--config.file={config}", f"--storage.tsdb.path={self.folder / 'data'}",
                    f"--web.listen-address=127.0.0.1:{self.port}",
                ],
                stdout=log, stderr=log,
            )  # fmt: skip

    def log(self):
        return (self.folder / "log").read_text(errors="replace")

    def ask(self, path, **parameters):
        query = urllib.parse.urlencode(parameters, doseq=True)
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/api/v1/{path}?{query}", timeout=30) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as refused:
            raise AssertionError(f"{parameters}: {refused.read().decode()}") from None

    def wait_ready(self):
        def ready():
            assert self.process.poll() is None, self.log()
            try:
                # It answers 503 to everything until it has read its own store.
                with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/-/ready", timeout=30):
                    return self.query("sum(up)") == [self.targets]
            except OSError:
                return False

        wait_until(ready, "Prometheus has reached its targets")

    def query(self, expression):
        """The values of an instant query, without those that are not numbers."""
        result = self.ask("query", query=expression)["result"]
        return [float(series["value"][1]) for series in result if series["value"][1] not in ("NaN",)]

    def query_range(self, expression, seconds):
        """Labels and points of each series over the last seconds."""
        end = time.time()
        result = self.ask("query_range", query=expression, start=end - seconds, end=end, step=1)["result"]
        return [(series["metric"], [(float(at), float(value)) for at, value in series["values"]]) for series in result]

    def variable(self, query, variables):
        """The values of a variable that is defined by label_values(series, label)."""
        series, label = re.fullmatch(r"label_values\((.*), (\w+)\)", query).groups()
        return self.ask(f"label/{label}/values", **{"match[]": fill(series, variables)})

    def close(self):
        self.process.terminate()
        self.process.wait(30)
        shutil.rmtree(self.folder, ignore_errors=True)


# Little of everything, and reads of items right after they expired.
DRIVER_WORKLOAD = """
about = "for the dashboard of the driver"
[container]
default_ttl = -1
[items]
count = 200
ttl = 1
[operations]
read = 10
insert = 5
update = 2
[keys]
distribution = "recent"
recent_seconds = 3
[run]
connections = 4
seconds = 3600
warm_up_seconds = 0
rate = 400
"""


class Driver:
    """A load driver at work on a node of its own, with its metrics on a port of its own."""

    def __init__(self):
        self.folder = Path(tempfile.mkdtemp(prefix="bolide-driver-"))
        (self.folder / "dashboard.toml").write_text(DRIVER_WORKLOAD)
        with open(self.folder / "table", "wb") as table, open(self.folder / "log", "wb") as log:
            self.process = subprocess.Popen(
                [
                    str(binary()), "bench", "run", str(self.folder / "dashboard.toml"), "--metrics-port", "0",
                    "--data-path", str(self.folder),
                ],
                stdout=table, stderr=log, env=settings_free(os.environ),
            )  # fmt: skip
        try:
            self.port = int(wait_until(self.told_port, "the driver says where its metrics are"))
        except BaseException:
            self.close()
            raise

    def log(self):
        return (self.folder / "log").read_text(errors="replace")

    def table(self):
        return (self.folder / "table").read_text(errors="replace")

    def told_port(self):
        assert self.process.poll() is None, self.log()
        told = re.search(r"http://127\.0\.0\.1:(\d+)/metrics", self.log())
        return told and told.group(1)

    def metrics(self):
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=30) as answer:
            return answer.read().decode()

    def stop(self):
        """Ends it as Ctrl-C does; its exit code."""
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(60)

    def close(self):
        if self.process.poll() is None:
            self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)
