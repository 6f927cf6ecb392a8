"""The SDK's asynchronous client: many requests at once on one node."""

import asyncio

import pytest
from azure.cosmos import PartitionKey, exceptions
from azure.cosmos.aio import CosmosClient

from node import EMULATOR_KEY


def run(node, work):
    async def session():
        async with CosmosClient(node.endpoint, EMULATOR_KEY) as client:
            database = await client.create_database_if_not_exists("async")
            container = await database.create_container(work.__name__, PartitionKey("/pk"), default_ttl=-1)
            await work(container)
            await database.delete_container(container.id)

    asyncio.run(session())


def test_all_operations(node):
    async def all_operations(container):
        item = await container.create_item({"id": "1", "pk": "p", "n": 1})
        assert await container.read_item("1", "p") == item
        await container.replace_item("1", {"id": "1", "pk": "p", "n": 2})
        await container.upsert_item({"id": "1", "pk": "p", "n": 3})
        patched = await container.patch_item("1", "p", [{"op": "incr", "path": "/n", "value": 1}])
        assert patched["n"] == 4
        await container.execute_item_batch([("create", ({"id": "2", "pk": "p"},)), ("read", ("1",))], "p")
        assert sorted([each["id"] async for each in container.read_all_items()]) == ["1", "2"]
        assert [each["id"] async for each in container.query_items_change_feed(start_time="Beginning")] == ["1", "2"]
        found = [each async for each in container.query_items("SELECT * FROM c WHERE c.n = 4", partition_key="p")]
        assert [each["id"] for each in found] == ["1"]
        await container.delete_item("1", "p")
        with pytest.raises(exceptions.CosmosResourceNotFoundError):
            await container.read_item("1", "p")

    run(node, all_operations)


def test_many_at_once(node):
    async def many_at_once(container):
        made = await asyncio.gather(*[container.create_item({"id": str(n), "pk": f"key {n % 7}"}) for n in range(200)])
        lsns = [int(each.get_response_headers()["lsn"]) for each in made]
        assert len(set(lsns)) == 200, "each write has a log sequence number of its own"
        read = await asyncio.gather(*[container.read_item(str(n), f"key {n % 7}") for n in range(200)])
        assert [each["id"] for each in read] == [str(n) for n in range(200)]

    run(node, many_at_once)


def test_only_one_of_many_creates_of_one_id_wins(node):
    async def one_of_many(container):
        results = await asyncio.gather(
            *[container.create_item({"id": "same", "pk": "p", "n": n}) for n in range(20)], return_exceptions=True
        )
        made = [each for each in results if isinstance(each, dict)]
        assert len(made) == 1
        assert all(isinstance(each, exceptions.CosmosResourceExistsError) for each in results if each is not made[0])
        assert await container.read_item("same", "p") == made[0]

    run(node, one_of_many)


def test_increments_are_never_lost(node):
    async def increments(container):
        await container.create_item({"id": "1", "pk": "p", "n": 0})
        step = [{"op": "incr", "path": "/n", "value": 1}]
        await asyncio.gather(*[container.patch_item("1", "p", step) for _ in range(50)])
        assert (await container.read_item("1", "p"))["n"] == 50

    run(node, increments)
