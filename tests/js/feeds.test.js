import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { connect, ids, newContainer, newDatabase, pagesOf, rejects, userProperties } from "./support/cosmos.js";
import { startNode } from "./support/node.js";

const ITEMS = 57;

let node;
let client;
let database;

before(async () => {
  node = await startNode();
  client = connect(node);
  database = await newDatabase(client);
});

after(async () => {
  client?.dispose();
  await node?.stop();
});

for (const throughput of [400, 30_000]) {
  describe(`feeds of a container of ${throughput} RU/s`, () => {
    let container;
    const expected = Array.from({ length: ITEMS }, (_, i) => `i${String(i).padStart(3, "0")}`);

    before(async () => {
      container = await newContainer(database, { throughput });
      const bodies = expected.map((id, i) => ({ id, pk: `p${i % 7}`, i, even: i % 2 === 0, text: `text ${i}` }));
      await Promise.all(bodies.map((body) => container.items.create(body)));
    });

    test("readAll returns every item once", async () => {
      const { resources } = await container.items.readAll().fetchAll();
      assert.deepEqual(ids(resources).sort(), expected);
      const one = resources.find(({ id }) => id === "i003");
      assert.deepEqual(one, (await container.item("i003", "p3").read()).resource);
    });

    for (const maxItemCount of [1, 10, 56, 57, 58, 1000]) {
      test(`readAll in pages of ${maxItemCount}`, async () => {
        const pages = await pagesOf(container.items.readAll({ maxItemCount }));
        for (const page of pages) assert.ok(page.length <= maxItemCount);
        assert.deepEqual(ids(pages.flat()).sort(), expected);
        assert.ok(pages.length >= Math.ceil(ITEMS / maxItemCount));
      });
    }

    test("readAll of one partition key", async () => {
      const { resources } = await container.items.readAll({ partitionKey: "p2" }).fetchAll();
      assert.deepEqual(
        resources.map(({ i }) => i).sort((a, b) => a - b),
        [2, 9, 16, 23, 30, 37, 44, 51],
      );
    });

    test("a continuation token resumes where another iterator stopped, and fits in 1 KB", async () => {
      const first = container.items.readAll({ maxItemCount: 20 });
      const page = await first.fetchNext();
      assert.ok(page.continuationToken);
      assert.ok(page.continuationToken.length <= 1024);
      const rest = container.items.readAll({ maxItemCount: 20, continuationToken: page.continuationToken });
      const others = (await pagesOf(rest)).flat();
      assert.deepEqual(ids([...page.resources, ...others]).sort(), expected);
    });

    test("paging survives changes between pages", async () => {
      const own = await newContainer(database, { throughput });
      for (let i = 0; i < 20; i += 1) await own.items.create({ id: `k${i}`, pk: `p${i % 5}` });
      const iterator = own.items.readAll({ maxItemCount: 5 });
      const seen = ids((await iterator.fetchNext()).resources);
      const untouched = Array.from({ length: 20 }, (_, i) => `k${i}`).filter((id) => !seen.includes(id));
      const victim = untouched.pop();
      await own.item(victim, `p${Number(victim.slice(1)) % 5}`).delete();
      await own.items.create({ id: "late", pk: "p0" });
      while (iterator.hasMoreResults()) seen.push(...ids((await iterator.fetchNext()).resources ?? []));
      assert.equal(new Set(seen).size, seen.length, "no item comes twice");
      for (const id of untouched) assert.ok(seen.includes(id), `${id} is not skipped`);
      assert.ok(!seen.includes(victim));
    });

    test("a continuation token that is garbage is refused", async () => {
      const iterator = container.items.readAll({ continuationToken: "garbage" });
      await rejects(iterator.fetchNext(), { code: 400, message: /Invalid Continuation Token/i });
    });

    test("for await walks the pages", async () => {
      const seen = [];
      for await (const { resources } of container.items.readAll({ maxItemCount: 10 }).getAsyncIterator()) {
        seen.push(...ids(resources));
      }
      assert.deepEqual(seen.sort(), expected);
    });

    const queries = {
      "a filter": ["SELECT * FROM c WHERE c.i < 5", [], ["i000", "i001", "i002", "i003", "i004"]],
      "a parameter": ["SELECT * FROM c WHERE c.i = @i", [{ name: "@i", value: 42 }], ["i042"]],
      "id and partition key": ["SELECT * FROM c WHERE c.id = 'i010' AND c.pk = 'p3'", [], ["i010"]],
      "a condition on two properties": ["SELECT * FROM root r WHERE r.even = true AND r.i > 52", [], ["i054", "i056"]],
      "nothing to find": ["SELECT * FROM c WHERE c.i > 1000", [], []],
    };
    for (const [name, [query, parameters, found]] of Object.entries(queries)) {
      test(`a query with ${name}`, async () => {
        const { resources } = await container.items.query({ query, parameters }).fetchAll();
        assert.deepEqual(ids(resources).sort(), found);
      });
    }

    test("a query for values", async () => {
      const { resources } = await container.items.query("SELECT VALUE c.text FROM c WHERE c.i = 7").fetchAll();
      assert.deepEqual(resources, ["text 7"]);
    });

    test("a query that projects", async () => {
      const { resources } = await container.items.query("SELECT c.id, c.i AS number FROM c WHERE c.i = 7").fetchAll();
      assert.deepEqual(resources, [{ id: "i007", number: 7 }]);
    });

    test("a query within one partition key", async () => {
      const { resources } = await container.items
        .query("SELECT * FROM c WHERE c.even = true", { partitionKey: "p2" })
        .fetchAll();
      assert.deepEqual(
        resources.map(({ i }) => i).sort((a, b) => a - b),
        [2, 16, 30, 44],
      );
    });

    test("a query in pages", async () => {
      const query = "SELECT * FROM c WHERE c.even = false";
      const pages = await pagesOf(container.items.query(query, { maxItemCount: 4 }));
      assert.ok(pages.every((page) => page.length <= 4));
      assert.equal(new Set(ids(pages.flat())).size, 28);
      assert.equal(pages.flat().length, 28);
    });

    test("a count", async () => {
      const { resources } = await container.items.query("SELECT VALUE COUNT(1) FROM c").fetchAll();
      assert.deepEqual(resources, [ITEMS]);
    });

    test("a query that is no SQL is refused with its place", async () => {
      const error = await rejects(container.items.query("SELEC * FROM c").fetchAll(), { code: 400 });
      assert.match(error.message, /SC1001|[Ss]yntax error/);
    });
  });
}

test("items of many sizes come back whole", async () => {
  const container = await newContainer(database);
  const sizes = [0, 1, 100, 10_000, 1_000_000];
  for (const size of sizes) await container.items.create({ id: `s${size}`, pk: "p", data: "é".repeat(size / 2) });
  const { resources } = await container.items.readAll().fetchAll();
  assert.equal(resources.length, sizes.length);
  for (const resource of resources) {
    const size = Number(resource.id.slice(1));
    assert.deepEqual(userProperties(resource), { id: resource.id, pk: "p", data: "é".repeat(size / 2) });
  }
});
