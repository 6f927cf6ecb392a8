"""What the fixture folders hold and how they are asked: shared by the script that makes them and the test that opens them."""

# Addresses are in the catalog of a cluster, so they are the same whenever it is opened; nobody else listens there.
CLUSTER_ADDRESSES = {1: "127.77.13.1:7813", 2: "127.77.13.2:7813", 3: "127.77.13.3:7813"}
CLUSTER_SECRET = "fixture-0123456789abcdef0123456789abcdef"

CONTAINERS = {
    "consistent": {"default_ttl": 3_600},
    "lazy": {"default_ttl": 3_600, "indexing_policy": {"indexingMode": "lazy", "automatic": True}},
    "none": {"indexing_policy": {"indexingMode": "none", "automatic": False}},
    "no_default": {"default_ttl": -1, "unique_key_policy": {"uniqueKeys": [{"paths": ["/email"]}]}},
    "off": {},
    "hierarchical": {"default_ttl": 3_600, "paths": ["/pk", "/n"]},
    "rich": {
        "default_ttl": 3_600,
        "indexing_policy": {
            "includedPaths": [{"path": "/*"}],
            "excludedPaths": [{"path": "/text/?"}],
            "compositeIndexes": [[{"path": "/pk", "order": "ascending"}, {"path": "/n", "order": "descending"}]],
            "spatialIndexes": [{"path": "/at/*", "types": ["Point"]}],
        },
    },
}
QUERIES = {
    "count": "SELECT VALUE COUNT(1) FROM c",
    "range": "SELECT VALUE c.id FROM c WHERE c.n >= 20 AND c.n < 40 ORDER BY c.n",
    "tags": "SELECT VALUE COUNT(1) FROM c WHERE ARRAY_CONTAINS(c.tags, 1)",
    "near": "SELECT VALUE COUNT(1) FROM c WHERE ST_DISTANCE(c.at, {'type': 'Point', 'coordinates': [10, 5]}) < 1000000",
}


def cluster_arguments(number, folder):
    """Settings of one node of the fixture cluster; the shared secret is written into `folder`."""
    key = folder / "cluster.key"
    if not key.exists():
        key.write_text(CLUSTER_SECRET)
        key.chmod(0o600)
    members = ",".join(f"{node}={address}" for node, address in CLUSTER_ADDRESSES.items())
    return [
        "--set", f"cluster.node={number}", "--set", f"cluster.members={members}",
        "--set", f"cluster.key_file={key}",
    ]  # fmt: skip


def answers(node):
    """All that a client can ask of the fixture's containers."""
    database = node.client().get_database_client("old")
    found = {}
    for name in CONTAINERS:
        container = database.get_container_client(name)
        found[name] = {
            "definition": container.read(),
            "items": sorted(container.read_all_items(), key=lambda item: item["id"]),
            "changes": sorted(item["id"] for item in container.query_items_change_feed(start_time="Beginning")),
            "queries": {
                query: list(
                    container.query_items(text, enable_cross_partition_query=True, enable_scan_in_query=name == "none")
                )
                for query, text in QUERIES.items()
            },
        }
    return found
