import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { connect, newContainer, newDatabase, rejects, uniqueName, userProperties } from "./support/cosmos.js";
import { startNode } from "./support/node.js";

let node;
let client;
let container;

before(async () => {
  node = await startNode();
  client = connect(node);
  container = await newContainer(await newDatabase(client), { defaultTtl: -1 });
});

after(async () => {
  client?.dispose();
  await node?.stop();
});

const START = {
  n: 5,
  f: 1.5,
  text: "old",
  list: ["a", "b", "c"],
  nested: { x: 1, y: { z: 2 } },
  "a/b": "slash",
  "m~n": "tilde",
};

async function newItem() {
  const { item } = await container.items.create({ id: uniqueName("item"), pk: "p", ...structuredClone(START) });
  return item;
}

/** The part of the item that `START` holds or the patch added. */
function patched(resource) {
  const { id, pk, ...rest } = userProperties(resource);
  return rest;
}

const works = {
  "add puts a property": [[{ op: "add", path: "/fresh", value: { a: 1 } }], { fresh: { a: 1 } }],
  "add overwrites a property": [[{ op: "add", path: "/text", value: "new" }], { text: "new" }],
  "add inserts into a list": [[{ op: "add", path: "/list/1", value: "x" }], { list: ["a", "x", "b", "c"] }],
  "add appends with a dash": [[{ op: "add", path: "/list/-", value: "x" }], { list: ["a", "b", "c", "x"] }],
  "add appends at the length": [[{ op: "add", path: "/list/3", value: "x" }], { list: ["a", "b", "c", "x"] }],
  "add reaches inside": [[{ op: "add", path: "/nested/y/w", value: 3 }], { nested: { x: 1, y: { z: 2, w: 3 } } }],
  "set puts a property": [[{ op: "set", path: "/fresh", value: null }], { fresh: null }],
  "set overwrites a property": [[{ op: "set", path: "/text", value: [1] }], { text: [1] }],
  "set overwrites in a list": [[{ op: "set", path: "/list/1", value: "x" }], { list: ["a", "x", "c"] }],
  "replace replaces": [[{ op: "replace", path: "/text", value: "new" }], { text: "new" }],
  "replace replaces in a list": [[{ op: "replace", path: "/list/0", value: 0 }], { list: [0, "b", "c"] }],
  "remove removes": [[{ op: "remove", path: "/text" }], { text: undefined }],
  "remove removes from a list": [[{ op: "remove", path: "/list/0" }], { list: ["b", "c"] }],
  "incr adds": [[{ op: "incr", path: "/n", value: 2 }], { n: 7 }],
  "incr takes away": [[{ op: "incr", path: "/n", value: -7 }], { n: -2 }],
  "incr adds a fraction": [[{ op: "incr", path: "/f", value: 0.25 }], { f: 1.75 }],
  "incr creates what is not there": [[{ op: "incr", path: "/count", value: 3 }], { count: 3 }],
  "incr reaches inside": [[{ op: "incr", path: "/nested/y/z", value: 1 }], { nested: { x: 1, y: { z: 3 } } }],
  "move moves": [[{ op: "move", from: "/text", path: "/name" }], { text: undefined, name: "old" }],
  "move overwrites": [[{ op: "move", from: "/text", path: "/n" }], { text: undefined, n: "old" }],
  "a slash in a name is ~1": [[{ op: "set", path: "/a~1b", value: 1 }], { "a/b": 1 }],
  "a tilde in a name is ~0": [[{ op: "set", path: "/m~0n", value: 1 }], { "m~n": 1 }],
  "operations see what earlier ones did": [
    [
      { op: "add", path: "/fresh", value: [] },
      { op: "add", path: "/fresh/-", value: 1 },
      { op: "incr", path: "/fresh/0", value: 1 },
      { op: "move", from: "/fresh", path: "/moved" },
      { op: "remove", path: "/nested/y" },
    ],
    { moved: [2], nested: { x: 1 } },
  ],
};

describe("patch", () => {
  for (const [name, [operations, change]] of Object.entries(works)) {
    test(name, async () => {
      const item = await newItem();
      const { resource: before } = await item.read();
      const answer = await item.patch({ operations });
      assert.equal(answer.statusCode, 200);
      const expected = Object.fromEntries(
        Object.entries({ ...START, ...change }).filter(([, value]) => value !== undefined),
      );
      assert.deepEqual(patched(answer.resource), expected);
      assert.deepEqual((await item.read()).resource, answer.resource);
      assert.equal(answer.resource._rid, before._rid);
      assert.notEqual(answer.resource._etag, before._etag);
    });
  }

  test("takes the bare list of operations", async () => {
    const item = await newItem();
    assert.equal((await item.patch([{ op: "incr", path: "/n", value: 1 }])).resource.n, 6);
  });

  test("takes ten operations, not eleven and not none", async () => {
    const item = await newItem();
    const operations = (count) => Array.from({ length: count }, () => ({ op: "incr", path: "/n", value: 1 }));
    assert.equal((await item.patch(operations(10))).resource.n, 15);
    await rejects(item.patch(operations(11)), { code: 400, message: /1[01]/ });
    await rejects(item.patch({ operations: [] }), { code: 400 });
  });

  test("of what is not there: 404", async () => {
    await rejects(container.item("nothing", "p").patch([{ op: "set", path: "/a", value: 1 }]), { code: 404 });
  });

  const refused = {
    "replace of what is not there": [{ op: "replace", path: "/nothing", value: 1 }],
    "remove of what is not there": [{ op: "remove", path: "/nothing" }],
    "move of what is not there": [{ op: "move", from: "/nothing", path: "/a" }],
    "move into itself": [{ op: "move", from: "/nested", path: "/nested/y/me" }],
    "add past the end of a list": [{ op: "add", path: "/list/5", value: 1 }],
    "a missing parent": [{ op: "set", path: "/no/such/parent", value: 1 }],
    "incr of text": [{ op: "incr", path: "/text", value: 1 }],
    "incr by text": [{ op: "incr", path: "/n", value: "1" }],
    "an unknown operation": [{ op: "explode", path: "/n", value: 1 }],
    "a path without a slash": [{ op: "set", path: "n", value: 1 }],
    "an operation without a value": [{ op: "set", path: "/n" }],
    "a change of the id": [{ op: "set", path: "/id", value: "other" }],
    "a change of the partition key": [{ op: "set", path: "/pk", value: "other" }],
    "removing the partition key": [{ op: "remove", path: "/pk" }],
    "a change of a system property": [{ op: "set", path: "/_ts", value: 1 }],
    "ttl 0": [{ op: "set", path: "/ttl", value: 0 }],
    "ttl null": [{ op: "add", path: "/ttl", value: null }],
    "ttl as text": [{ op: "set", path: "/ttl", value: "60" }],
    "ttl -1 counted down": [
      { op: "set", path: "/ttl", value: -1 },
      { op: "incr", path: "/ttl", value: -1 },
    ],
  };
  for (const [name, operations] of Object.entries(refused)) {
    test(`refuses ${name} and changes nothing`, async () => {
      const item = await newItem();
      const { resource } = await item.read();
      await rejects(item.patch([{ op: "set", path: "/text", value: "half done" }, ...operations]), { code: 400 });
      assert.deepEqual((await item.read()).resource, resource);
    });
  }
});

describe("conditional patch", () => {
  const cases = [
    ["from c where c.n = 5", true],
    ["FROM c WHERE c.n > 5", false],
    ["from c where c.text = 'old' and c.nested.x = 1", true],
    ["from c where IS_DEFINED(c.nothing)", false],
    ["from root r where r.n < 10 or false", true],
  ];
  for (const [condition, holds] of cases) {
    test(`${condition}: ${holds ? "applied" : "412"}`, async () => {
      const item = await newItem();
      const body = { condition, operations: [{ op: "set", path: "/text", value: "new" }] };
      if (holds) {
        assert.equal((await item.patch(body)).resource.text, "new");
      } else {
        await rejects(item.patch(body), { code: 412 });
        assert.equal((await item.read()).resource.text, "old");
      }
    });
  }

  test("a condition that is no SQL is refused", async () => {
    const item = await newItem();
    const body = { condition: "frm c whre", operations: [{ op: "set", path: "/text", value: "new" }] };
    await rejects(item.patch(body), { code: 400 });
  });
});
