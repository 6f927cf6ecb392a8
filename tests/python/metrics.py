"""Metrics as dashboards/README.md lists them, and as a process exports them."""

import re
from pathlib import Path

README = Path(__file__).parent.parent.parent / "dashboards" / "README.md"
OF_NODES = "## Metrics"
OF_THE_DRIVER = "## Metrics of the load driver"
SERIES = re.compile(r'^([a-z_]+)(?:\{(.*)\})? (\S+)$')
LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


def readme_rows(heading):
    """The table rows of one section, without code marks."""
    text = README.read_text()
    section = text.split(f"\n{heading}\n", 1)[1]
    section = re.split(r"\n#{1,3} ", section, maxsplit=1)[0]
    lines = [line.strip().strip("|").replace("`", "") for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.split("|")] for line in lines if not line.lstrip().startswith("---")]


def listed_metrics(heading=OF_NODES):
    """Kind and labels of every metric that the README lists."""
    rows = [row for row in readme_rows(heading) if len(row) == 5 and row[0] != "metric"]
    return {row[0]: (row[1], [] if row[3] == "–" else row[3].split(", ")) for row in rows}


def listed_values(heading=OF_NODES):
    """The values that labels may have, as the README lists them."""
    rows = [row for row in readme_rows(heading) if len(row) == 2 and row[0] != "label"]
    return {row[0]: row[1].split(", ") for row in rows}


class Exported:
    """What a node exports: kinds and help by name, and every series."""

    def __init__(self, text):
        self.kinds, self.helps, self.series = {}, {}, []
        for line in text.splitlines():
            if line.startswith("# TYPE "):
                name, kind = line.split()[2:]
                assert name not in self.kinds, f"{name} is exported twice"
                self.kinds[name] = kind
            elif line.startswith("# HELP "):
                name, help_text = line[7:].split(" ", 1)
                self.helps[name] = help_text
            elif line:
                name, labels, value = SERIES.match(line).groups()
                self.series.append((name, dict(LABEL.findall(labels or "")), float(value)))

    def value(self, name, **labels):
        """The sum of the series with these labels; None without any."""
        found = [value for each, have, value in self.series if each == name and labels.items() <= have.items()]
        return sum(found) if found else None


def scrape(node):
    answer = node.health("/metrics")
    assert answer.status == 200
    return Exported(answer.body.decode())
