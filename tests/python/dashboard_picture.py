"""Draws a dashboard as it looks over a loaded node: dashboard_picture.py NAME FILE.png

A node is loaded for a while under the eyes of a Prometheus; then the panels' own queries are asked, and what they answer is drawn.
Needs matplotlib, which the tests do not.
"""

import math
import sys
import threading
import time

import matplotlib
from azure.cosmos import PartitionKey

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402
from matplotlib.ticker import FuncFormatter  # noqa: E402

from dashboards import Driver, Prometheus, dashboard, fill, panels  # noqa: E402
from dashboards_test import load  # noqa: E402
from node import Node  # noqa: E402

SECONDS = 90
# A dashboard is 24 columns wide; a row of the grid is drawn this high.
COLUMNS, WIDTH_INCHES, ROW_INCHES = 24, 14, 0.32
INK, PAPER, GRID = "#d8d9da", "#181b1f", "#2c3235"


def shown(value, unit):
    """A figure as Grafana would print it."""
    if unit == "percentunit":
        return f"{value:.1%}"
    if unit == "s":
        steps = [(1, "s", 1), (1e-3, "ms", 1e3), (0, "µs", 1e6)]
        least, name, factor = next(step for step in steps if abs(value) >= step[0]) if value else (0, "s", 1)
        return f"{value * factor:.3g} {name}"
    for least, name in ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB")):
        if unit == "bytes" and abs(value) >= least:
            return f"{value / least:.3g} {name}"
    return f"{value:,.3g}" if abs(value) < 1000 else f"{value:,.0f}"


def draw_stat(axes, panel, series):
    value = next((points[-1][1] for _, points in series if points), math.nan)
    steps = panel["fieldConfig"]["defaults"]["thresholds"]["steps"]
    colour = [step["color"] for step in steps if step["value"] is None or value >= step["value"]][-1]
    coloured = panel["options"]["colorMode"] == "background"
    axes.set_facecolor({"green": "#1a7f4b", "red": "#c4162a"}[colour] if coloured else PAPER)
    text = shown(value, panel["fieldConfig"]["defaults"]["unit"])
    axes.text(0.5, 0.45, text, ha="center", va="center", fontsize=19, color="white", transform=axes.transAxes)
    axes.set_xticks([]), axes.set_yticks([])


def draw_series(axes, panel, series, now):
    defaults = panel["fieldConfig"]["defaults"]
    stacked = defaults["custom"]["stacking"]["mode"] == "normal"
    base = {}
    for labels, points in sorted(series, key=lambda one: str(one[0])):
        times = [at - now for at, _ in points]
        values = [value if math.isfinite(value) else math.nan for _, value in points]
        if stacked:
            values = [value + base.get(at, 0) for at, value in zip(times, values)]
            below = [base.get(at, 0) for at in times]
            axes.fill_between(times, below, values, alpha=0.25, linewidth=0)
            base.update(zip(times, values))
        axes.plot(times, values, linewidth=1, label=labels)
    if defaults["custom"]["scaleDistribution"]["type"] == "log":
        axes.set_yscale("log")
    elif "min" in defaults:
        axes.set_ylim(bottom=defaults["min"], top=defaults.get("max"))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: shown(value, defaults["unit"])))
    axes.minorticks_off()
    axes.grid(color=GRID, linewidth=0.5)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda seconds, _: f"{seconds:.0f} s"))
    if len(series) <= 12 and any(labels for labels, _ in series):
        # Below the plot, where it covers no line.
        axes.legend(fontsize=6, frameon=False, labelcolor=INK, ncols=6, loc="upper left", bbox_to_anchor=(0, -0.1), borderaxespad=0)
    if not any(points for _, points in series):
        axes.text(0.5, 0.5, "none", ha="center", va="center", fontsize=8, color=INK, transform=axes.transAxes)


def answers(prometheus, panel, variables):
    """Legend and points of all that the panel's queries answer."""
    for target in panel["targets"]:
        for labels, points in prometheus.query_range(fill(target["expr"], variables), SECONDS - 10):
            legend = target["legendFormat"]
            for name in set(labels) | {"container", "reason", "kind"}:
                legend = legend.replace(f"{{{{{name}}}}}", labels.get(name, ""))
            yield legend.strip(), points


def draw(board, prometheus, path):
    variables = {}
    for variable in board["templating"]["list"]:
        if variable["type"] == "query":
            variables[variable["name"]] = prometheus.variable(variable["query"]["query"], variables)
    every = list(panels(board))
    height = max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel in every)
    figure = plt.figure(figsize=(WIDTH_INCHES, height * ROW_INCHES), facecolor="#111217")
    now = time.time()
    for row in (panel for panel in board["panels"] if panel["type"] == "row"):
        # In the middle of its place in the grid.
        figure.text(0.004, 1 - (row["gridPos"]["y"] + 0.65) / height, row["title"], fontsize=9, color=INK, weight="bold")
    for panel in every:
        grid = panel["gridPos"]
        left, width = grid["x"] / COLUMNS, grid["w"] / COLUMNS
        bottom, tall = 1 - (grid["y"] + grid["h"]) / height, grid["h"] / height
        is_stat = panel["type"] == "stat"
        margin = (0.004, 0.012) if is_stat else (0.04, 0.045)
        axes = figure.add_axes([left + margin[0], bottom + margin[1], width - margin[0] - 0.006, tall - margin[1] - 0.03])
        axes.set_facecolor(PAPER)
        axes.set_title(panel["title"], fontsize=8, color=INK, loc="left", pad=3)
        axes.tick_params(colors=INK, labelsize=6)
        for spine in axes.spines.values():
            spine.set_visible(False)
        series = list(answers(prometheus, panel, variables))
        draw_stat(axes, panel, series) if is_stat else draw_series(axes, panel, series, now)
    figure.savefig(path, dpi=72, facecolor=figure.get_facecolor(), pil_kwargs={"optimize": True})


def main(name, path):
    node, driver, stop = Node(), Driver(), threading.Event()
    prometheus = Prometheus([node.health_port], driver.port)
    database = node.client().create_database("shop")
    for container, ttl in (("sessions", 5), ("carts", 20)):
        database.create_container(container, PartitionKey("/pk"), default_ttl=ttl, offer_throughput=10_000)
    workers = [threading.Thread(target=load, args=(node, stop, "shop", container)) for container in ("sessions", "carts")]
    try:
        for worker in workers:
            worker.start()
        time.sleep(SECONDS)
        draw(dashboard(name), prometheus, path)
    finally:
        stop.set()
        for worker in workers:
            worker.join()
        prometheus.close()
        driver.close()
        node.close()


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
