"""Dashboards, rules and alerts: a real Prometheus watches a loaded node, and every panel shows something."""

import itertools
import json
import re
import subprocess
import threading

import pytest
from azure.cosmos import PartitionKey
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models.dashboard import Dashboard

from dashboards import FOLDER, NAMES, PROMETHEUS, Driver, Prometheus, dashboard, fill, panels
from metrics import OF_THE_DRIVER, Exported, listed_metrics, listed_values
from node import Node, wait_until

# A panel may need some scrapes before it has rates to show.
DATA_SECONDS_MAX = 60


@pytest.fixture(scope="module")
def watched():
    """A Prometheus that has watched a loaded node, an idle one, and a driver."""
    nodes = [Node(environment={"BOLIDE_LIMITS__ENFORCE_THROUGHPUT": "true"}), Node()]
    driver = Driver()
    stop = threading.Event()
    worker = threading.Thread(target=load, args=(nodes[0], stop))
    prometheus = None
    try:
        for node in nodes:
            node.client().create_database("d").create_container("c", PartitionKey("/pk"), default_ttl=5, offer_throughput=1_000)
        worker.start()
        prometheus = Prometheus([node.health_port for node in nodes], driver.port)
        prometheus.wait_ready()
        yield prometheus
    finally:
        stop.set()
        if worker.ident:
            worker.join()
        if prometheus:
            prometheus.close()
        driver.close()
        for node in nodes:
            node.close()


def load(node, stop, database="d", container="c"):
    """Writes, reads, queries and is throttled now and then; what it writes expires soon."""
    path = f"/dbs/{database}/colls/{container}/docs"
    headers = {"x-ms-documentdb-partitionkey": '["p"]'}
    query = {"content-type": "application/query+json", "x-ms-documentdb-isquery": "true", **headers}
    connection = node.connection()
    for number in itertools.count():
        if stop.wait(0.005):
            break
        item = {"id": str(number), "pk": "p", "text": "x" * 500}
        node.raw("POST", path, headers, item, connection=connection)
        node.raw("GET", f"{path}/{number}", headers, connection=connection)
        if number % 10 == 0:
            node.raw("POST", path, query, {"query": "SELECT VALUE COUNT(1) FROM c"}, connection=connection)
    connection.close()


def queries(name):
    return [(panel["title"], target["expr"]) for panel in panels(dashboard(name)) for target in panel["targets"]]


def chosen(watched, board):
    """The values that a person can choose for each variable; all of them are chosen."""
    variables = {}
    for variable in board["templating"]["list"]:
        if variable["type"] == "query":
            find = lambda: watched.variable(variable["query"]["query"], variables)  # noqa: E731, B023
            variables[variable["name"]] = wait_until(find, f"the variable {variable['name']} has values")
    return variables


@pytest.mark.parametrize("name", NAMES)
def test_every_panel_of_a_dashboard_shows_data(watched, name):
    board = dashboard(name)
    variables = chosen(watched, board)
    for title, expression in queries(name):
        filled = fill(expression, variables)
        assert "$" not in filled, f"{title}: {filled}"
        wait_until(lambda: watched.query(filled), f"{name}: '{title}' shows data: {filled}", DATA_SECONDS_MAX, 0.5)  # noqa: B023


def test_recording_rules_give_data(watched):
    for name in re.findall(r"record: (\S+)", (PROMETHEUS / "recording.yml").read_text()):
        wait_until(lambda: watched.query(name), f"{name} has data", DATA_SECONDS_MAX, 0.5)  # noqa: B023


def test_a_healthy_node_raises_no_alert(watched):
    wait_until(lambda: watched.query("bolide:requests:rate1m"), "the rules were evaluated")
    assert watched.ask("alerts")["alerts"] == []


def promtool(*arguments):
    done = subprocess.run(["promtool", *arguments], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_configuration_and_the_rules_are_valid():
    promtool("check", "config", str(PROMETHEUS / "prometheus.yml"))


def test_every_alert_fires_when_it_should():
    promtool("test", "rules", str(PROMETHEUS / "alerts.test.yml"))
    alerts = (PROMETHEUS / "alerts.yml").read_text()
    names = re.findall(r"- alert: (\w+)", alerts)
    assert len(re.findall(r"^ +action: ", alerts, re.M)) == len(names), "every alert says what to do"
    tests = (PROMETHEUS / "alerts.test.yml").read_text()
    fired = re.findall(r"alertname: (\w+)\n +exp_alerts:\n +- ", tests)
    assert sorted(fired) == sorted(names), "every alert is fired by a test"


def test_metrics_are_exported_as_promtool_wants_them(node):
    exported = node.health("/metrics").body
    done = subprocess.run(["promtool", "check", "metrics"], input=exported, capture_output=True)
    complaints = [line for line in done.stderr.decode().splitlines() if not line.startswith("process_cpu_seconds_total ")]
    assert not complaints


def test_the_driver_exports_what_the_readme_lists_and_ends_with_its_report():
    driver = Driver()
    try:
        wait_until(lambda: Exported(driver.metrics()).value("bolide_bench_expiry_lag_seconds_count"), "items that are due were read")
        told = Exported(driver.metrics())
        metrics, values = listed_metrics(OF_THE_DRIVER), listed_values(OF_THE_DRIVER)
        assert told.kinds == {name: kind for name, (kind, _) in metrics.items()}
        for name, labels, _ in told.series:
            listed = metrics[re.sub("_(bucket|sum|count)$", "", name)][1]
            assert set(labels) - {"le"} == set(listed), name
            assert all(labels[label] in values[label] for label in listed), (name, labels)
        for operation in ("read", "insert", "update"):
            done = told.value("bolide_bench_operations_total", operation=operation)
            assert done > 0 and done == told.value("bolide_bench_latency_seconds_count", operation=operation)
        assert told.value("bolide_bench_operations_total", operation="scan") is None, "only what the workload does"
        assert told.value("bolide_bench_operations_total") == told.value("bolide_bench_operations_total", outcome="ok")
        assert told.value("bolide_bench_rate_asked") == 400
        kinds = [labels["kind"] for name, labels, value in told.series if name == "bolide_bench_violations_total" and value == 0]
        assert sorted(kinds) == sorted(values["kind"])
        due = told.value("bolide_bench_expiry_lag_seconds_count")
        assert told.value("bolide_bench_expiry_lag_seconds_bucket", le="0") == due, "nobody saw an item after its second"
        assert driver.stop() == 0, driver.log()
        assert "every answer was right" in driver.table()
    finally:
        driver.close()


def test_dashboards_and_rules_ask_only_for_metrics_that_exist():
    known = listed_metrics() | listed_metrics(OF_THE_DRIVER)
    series = {"up"}
    for name, (kind, _) in known.items():
        series |= {f"{name}_bucket", f"{name}_sum", f"{name}_count"} if kind == "histogram" else {name}
    rules = "".join(path.read_text() for path in PROMETHEUS.glob("*.yml"))
    asked = {name: [expression for _, expression in queries(name)] for name in NAMES} | {"rules": [rules]}
    for where, expressions in asked.items():
        for expression in expressions:
            used = set(re.findall(r"\b((?:bolide|process)_[a-z_]+)\b(?!\.yml)", expression))
            assert used <= series, f"{where} asks for {used - series}"


@pytest.mark.parametrize("name", NAMES)
def test_a_dashboard_is_as_grafana_wants_it(name):
    """Grafana's own model of a dashboard reads it, and gives back every field: none is unknown, none has the wrong shape."""
    board = dashboard(name)
    assert_understood(board)
    assert 8 <= len(board["uid"]) <= 40 and board["title"].startswith("Bolide / ")
    assert board["uid"] == f"bolide-{name}"


def assert_understood(board):
    register_default_plugins()
    understood = json.loads(json.dumps(Dashboard.from_json(board), cls=JSONEncoder))
    assert_contained(board, understood, board["title"])


def test_a_field_that_grafana_does_not_know_is_noticed():
    board = dashboard("overview")
    next(panels(board))["options"]["colourMode"] = "none"
    with pytest.raises(AssertionError, match="does not know .*colourMode"):
        assert_understood(board)


def assert_contained(wanted, have, where):
    if isinstance(wanted, dict):
        assert isinstance(have, dict), where
        for key, value in wanted.items():
            if value not in (None, {}, []):
                assert key in have, f"Grafana does not know {where}.{key}"
                assert_contained(value, have[key], f"{where}.{key}")
    elif isinstance(wanted, list):
        assert isinstance(have, list) and len(have) == len(wanted), where
        for place, (one, other) in enumerate(zip(wanted, have)):
            assert_contained(one, other, f"{where}[{place}]")
    else:
        assert wanted == have, where


@pytest.mark.parametrize("name", NAMES)
def test_panels_say_what_to_do_and_do_not_overlap(name):
    board = dashboard(name)
    variables = [variable["name"] for variable in board["templating"]["list"]]
    assert variables == ["datasource", "node"] + ["container"] * (name != "driver")
    taken, ids = {}, [panel["id"] for panel in board["panels"]]
    assert len(ids) == len(set(ids))
    for panel in panels(board):
        title = panel["title"]
        assert len(panel["description"]) > 60, f"{title} does not say what to do when it looks wrong"
        assert panel["fieldConfig"]["defaults"]["unit"], title
        for source in [panel["datasource"], *(target["datasource"] for target in panel["targets"])]:
            assert source == {"type": "prometheus", "uid": "${datasource}"}, title
        for target in panel["targets"]:
            assert "$node" in target["expr"], f"{title} does not follow the choice of the node"
        grid = panel["gridPos"]
        assert grid["x"] + grid["w"] <= 24, title
        for cell in itertools.product(range(grid["x"], grid["x"] + grid["w"]), range(grid["y"], grid["y"] + grid["h"])):
            assert taken.setdefault(cell, title) == title, f"{title} covers {taken[cell]}"


def test_grafana_finds_the_dashboards_and_the_data_source():
    provisioning = FOLDER / "grafana" / "provisioning"
    assert "path: $DASHBOARDS_PATH" in (provisioning / "dashboards" / "bolide.yml").read_text()
    assert "type: prometheus" in (provisioning / "datasources" / "bolide.yml").read_text()
    found = sorted(path.stem for path in (FOLDER / "grafana" / "dashboards").glob("*.json"))
    assert found == sorted(NAMES)
