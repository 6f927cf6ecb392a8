import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { connect, newContainer, newDatabase, rejects, uniqueName } from "./support/cosmos.js";
import { startNode } from "./support/node.js";

let node;
let client;
let container;

before(async () => {
  node = await startNode();
  client = connect(node);
  container = await newContainer(await newDatabase(client));
});

after(async () => {
  client?.dispose();
  await node?.stop();
});

const ifMatch = (condition) => ({ accessCondition: { type: "IfMatch", condition } });
const ifNoneMatch = (condition) => ({ accessCondition: { type: "IfNoneMatch", condition } });

/** An item that was changed once: its handle, its current state, and the etag it had before. */
async function changedItem() {
  const { item, resource } = await container.items.create({ id: uniqueName("item"), pk: "p", n: 1 });
  const { resource: current } = await item.replace({ ...resource, n: 2 });
  return { item, current, stale: resource._etag };
}

describe("etags", () => {
  test("change with every write", async () => {
    const { item, resource } = await container.items.create({ id: uniqueName("item"), pk: "p", n: 1 });
    const seen = new Set([resource._etag]);
    seen.add((await item.replace(resource)).resource._etag);
    seen.add((await container.items.upsert(resource)).resource._etag);
    seen.add((await item.patch([{ op: "incr", path: "/n", value: 1 }])).resource._etag);
    assert.equal(seen.size, 4);
  });

  test("If-Match guards replace", async () => {
    const { item, current, stale } = await changedItem();
    await rejects(item.replace({ ...current, n: 3 }, ifMatch(stale)), { code: 412, substatus: 0 });
    assert.equal((await item.read()).resource.n, 2);
    assert.equal((await item.replace({ ...current, n: 3 }, ifMatch(current._etag))).resource.n, 3);
  });

  test("If-Match guards upsert of an item that is there", async () => {
    const { item, current, stale } = await changedItem();
    await rejects(container.items.upsert({ ...current, n: 3 }, ifMatch(stale)), { code: 412 });
    assert.equal((await item.read()).resource.n, 2);
    assert.equal((await container.items.upsert({ ...current, n: 3 }, ifMatch(current._etag))).statusCode, 200);
  });

  test("upsert of an item that is not there inserts whatever If-Match says", async () => {
    const { statusCode } = await container.items.upsert({ id: uniqueName("item"), pk: "p" }, ifMatch('"any"'));
    assert.equal(statusCode, 201);
  });

  test("If-Match guards patch", async () => {
    const { item, current, stale } = await changedItem();
    const operations = [{ op: "set", path: "/n", value: 3 }];
    await rejects(item.patch(operations, ifMatch(stale)), { code: 412 });
    assert.equal((await item.read()).resource.n, 2);
    assert.equal((await item.patch(operations, ifMatch(current._etag))).resource.n, 3);
  });

  test("If-Match guards delete", async () => {
    const { item, current, stale } = await changedItem();
    await rejects(item.delete(ifMatch(stale)), { code: 412 });
    assert.equal((await item.read()).statusCode, 200);
    assert.equal((await item.delete(ifMatch(current._etag))).statusCode, 204);
  });

  test("If-Match * matches whatever is there", async () => {
    const { item, current } = await changedItem();
    assert.equal((await item.replace({ ...current, n: 3 }, ifMatch("*"))).statusCode, 200);
    assert.equal((await item.delete(ifMatch("*"))).statusCode, 204);
  });

  test("a condition on what is not there: 404", async () => {
    const item = container.item("nothing", "p");
    await rejects(item.replace({ id: "nothing", pk: "p" }, ifMatch('"x"')), { code: 404 });
    await rejects(item.delete(ifMatch('"x"')), { code: 404 });
  });

  test("If-None-Match saves reading what has not changed", async () => {
    const { item, current, stale } = await changedItem();
    const unchanged = await item.read(ifNoneMatch(current._etag));
    assert.equal(unchanged.statusCode, 304);
    assert.ok(!unchanged.resource);
    assert.equal(unchanged.headers.etag, current._etag);
    assert.equal((await item.read(ifNoneMatch(stale))).resource.n, 2);
    assert.equal((await item.read(ifNoneMatch("*"))).statusCode, 304);
  });

  test("of 20 writers with the same etag one wins", async () => {
    const { item, current } = await changedItem();
    const attempts = Array.from({ length: 20 }, (_, writer) =>
      item.replace({ ...current, writer }, ifMatch(current._etag)).then(
        () => 200,
        (error) => error.code,
      ),
    );
    const codes = await Promise.all(attempts);
    assert.equal(codes.filter((code) => code === 200).length, 1);
    assert.equal(codes.filter((code) => code === 412).length, 19);
  });
});
