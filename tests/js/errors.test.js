// What bad requests get, beyond what the SDK lets through: a status, a JSON body that says what is wrong, and nothing
// half done.

import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { connect, ids, newContainer, newDatabase, rejects } from "./support/cosmos.js";
import { startNode } from "./support/node.js";
import { request } from "./support/raw.js";

let node;
let client;
let docs;
let container;

before(async () => {
  node = await startNode();
  client = connect(node);
  const database = await newDatabase(client, { id: "db" });
  container = await newContainer(database, { id: "c" });
  docs = { path: "/dbs/db/colls/c/docs", type: "docs", link: "dbs/db/colls/c" };
});

after(async () => {
  client?.dispose();
  await node?.stop();
});

function assertError({ status, json, headers, text }, expected, message) {
  assert.equal(status, expected, text);
  assert.equal(typeof json?.code, "string", `a JSON error body, not ${text}`);
  assert.equal(typeof json.message, "string");
  assert.match(headers.get("content-type"), /^application\/json/);
  assert.ok(headers.get("x-ms-activity-id"));
  assert.ok(Number.isFinite(Number.parseFloat(headers.get("x-ms-request-charge"))));
  if (message) assert.match(json.message, message);
}

describe("a body", () => {
  const deep = `{"id":"deep","pk":"p","x":${"[".repeat(130)}${"]".repeat(130)}}`;
  const bodies = {
    "that is empty": "",
    "that is cut off": '{"id":"x","pk":"p"',
    "with something behind it": '{"id":"x","pk":"p"} x',
    "that is a list": '[{"id":"x","pk":"p"}]',
    "that is a number": "5",
    "with a key twice": '{"id":"x","pk":"p","a":1,"a":2}',
    "with a key twice inside": '{"id":"x","pk":"p","o":{"a":1,"a":2}}',
    "with a single quote": "{'id':'x','pk':'p'}",
    "with NaN": '{"id":"x","pk":"p","n":NaN}',
    "with a number out of range": '{"id":"x","pk":"p","n":1e400}',
    "with a leading zero": '{"id":"x","pk":"p","n":01}',
    "with a raw control character": '{"id":"x","pk":"p","s":"a\u0001b"}',
    "with a lone surrogate": '{"id":"x","pk":"p","s":"\\ud800"}',
    "too deep": deep,
    "with a number as id": '{"id":5,"pk":"p"}',
    "with null as id": '{"id":null,"pk":"p"}',
    "with a slash in the id": '{"id":"a/b","pk":"p"}',
    "with a backslash in the id": '{"id":"a\\\\b","pk":"p"}',
    "with a hash in the id": '{"id":"a#b","pk":"p"}',
  };
  for (const [name, body] of Object.entries(bodies)) {
    test(`${name}: 400`, async () => {
      const headers = { "x-ms-documentdb-partitionkey": '["p"]', "content-type": "application/json" };
      assertError(await request(node, { verb: "POST", ...docs, headers, body }), 400);
    });
  }

  test("with invalid UTF-8: 400", async () => {
    const body = Buffer.concat([Buffer.from('{"id":"x","pk":"p","s":"'), Buffer.from([0xc3, 0x28]), Buffer.from('"}')]);
    const headers = { "x-ms-documentdb-partitionkey": '["p"]', "content-type": "application/json" };
    assertError(await request(node, { verb: "POST", ...docs, headers, body }), 400);
  });

  test("far over the limit: 413", async () => {
    const headers = { "x-ms-documentdb-partitionkey": '["p"]', "content-type": "application/json" };
    const body = JSON.stringify({ id: "x", pk: "p", data: "x".repeat(3 * 1024 * 1024) });
    assertError(await request(node, { verb: "POST", ...docs, headers, body }), 413, /Request size is too large/);
  });

  test("in Cosmos' binary JSON is understood", async () => {
    const body = Buffer.from("80ed0e03826964816281" + "6e00" + "82706b827032", "hex");
    const headers = { "x-ms-documentdb-partitionkey": '["p2"]', "content-type": "application/json" };
    const answer = await request(node, { verb: "POST", ...docs, headers, body });
    assert.equal(answer.status, 201, answer.text);
    const { resource } = await container.item("b", "p2").read();
    assert.equal(resource.n, 0);
    await container.item("b", "p2").delete();
  });

  test("in binary JSON that is cut off: 400", async () => {
    const body = Buffer.from("80ed0e03826964816281", "hex");
    const headers = { "x-ms-documentdb-partitionkey": '["p2"]', "content-type": "application/json" };
    assertError(await request(node, { verb: "POST", ...docs, headers, body }), 400);
  });

  after(async () => {
    assert.deepEqual(ids((await container.items.readAll().fetchAll()).resources), []);
  });
});

describe("a partition key header", () => {
  const create = (value) =>
    request(node, {
      verb: "POST",
      ...docs,
      headers: value === undefined ? {} : { "x-ms-documentdb-partitionkey": value },
      body: '{"id":"k","pk":"p"}',
    });
  for (const [value, status, substatus] of [
    [undefined, 400, undefined],
    ["p", 400, undefined],
    ['"p"', 400, undefined],
    ['["p","q"]', 400, undefined],
    ['["other"]', 400, "1001"],
    ['[["p"]]', 400, undefined],
  ]) {
    test(`${value}: ${status}${substatus ? `/${substatus}` : ""}`, async () => {
      const answer = await create(value);
      assertError(answer, status);
      if (substatus) assert.equal(answer.headers.get("x-ms-substatus"), substatus);
    });
  }
});

describe("a request", () => {
  const account = { verb: "GET", path: "/" };

  test("without a signature: 401", async () => {
    assertError(await request(node, { ...account, headers: { authorization: "" } }), 401);
  });

  test("with a signature of another key: 401", async () => {
    const key = Buffer.alloc(64, 7).toString("base64");
    assertError(await request(node, { ...account, key }), 401);
  });

  test("with a signature of another resource: 401", async () => {
    assertError(await request(node, { verb: "GET", path: "/dbs/db", type: "dbs", link: "dbs/other" }), 401);
  });

  for (const minutes of [-16, 16]) {
    test(`with a date ${minutes} minutes off: 403`, async () => {
      const date = new Date(Date.now() + minutes * 60_000).toUTCString();
      assertError(await request(node, { ...account, date }), 403);
    });
  }

  for (const minutes of [-14, 14]) {
    test(`with a date ${minutes} minutes off is served`, async () => {
      const date = new Date(Date.now() + minutes * 60_000).toUTCString();
      assert.equal((await request(node, { ...account, date })).status, 200);
    });
  }

  test("of an API version that is not known: 400", async () => {
    const headers = { "x-ms-version": "1999-01-01" };
    assertError(await request(node, { verb: "GET", path: "/dbs", type: "dbs", headers }), 400, /1999-01-01/);
  });

  test("for a path that means nothing: JSON, and no success", async () => {
    for (const path of ["/nothing", "/dbs/db/nothing", "/dbs/db/colls/c/docs/x/nothing/y"]) {
      const answer = await request(node, { verb: "GET", path, type: "nothing", link: path.slice(1) });
      assert.ok(answer.status >= 400 && answer.status < 500, `${path}: ${answer.status}`);
      assert.equal(typeof answer.json?.message, "string");
    }
  });

  test("with a trailing slash is the same request", async () => {
    const answer = await request(node, { verb: "GET", path: "/dbs/db/", type: "dbs", link: "dbs/db" });
    assert.equal(answer.status, 200);
    assert.equal(answer.json.id, "db");
  });

  test("by resource id is the same request", async () => {
    const { resource } = await container.read();
    const path = `/${resource._self}`.replace(/\/$/, "");
    const answer = await request(node, { verb: "GET", path, type: "colls", link: resource._rid.toLowerCase() });
    assert.equal(answer.status, 200);
    assert.equal(answer.json.id, "c");
  });

  test("for an unknown partition key range: 410 with sub-status 1002", async () => {
    const headers = { "a-im": "Incremental Feed", "x-ms-documentdb-partitionkeyrangeid": "99" };
    const answer = await request(node, { verb: "GET", ...docs, headers });
    assertError(answer, 410);
    assert.equal(answer.headers.get("x-ms-substatus"), "1002");
  });

  test("with the rid of a container that was: 400 with sub-status 1024", async () => {
    const headers = { "x-ms-documentdb-partitionkey": '["p"]', "x-ms-cosmos-intended-collection-rid": "AAAD6YAAAAk=" };
    const path = `${docs.path}/x`;
    const answer = await request(node, { verb: "GET", path, type: "docs", link: `${docs.link}/docs/x`, headers });
    assertError(answer, 400);
    assert.equal(answer.headers.get("x-ms-substatus"), "1024");
  });

  test("that asks for a minimal answer gets no body but all headers", async () => {
    const headers = { "x-ms-documentdb-partitionkey": '["min"]', prefer: "return=minimal" };
    const answer = await request(node, { verb: "POST", ...docs, headers, body: '{"id":"min","pk":"min"}' });
    assert.equal(answer.status, 201);
    assert.equal(answer.text, "");
    assert.match(answer.headers.get("etag"), /^".+"$/);
    assert.ok(answer.headers.get("x-ms-session-token"));
    await container.item("min", "min").delete();
  });

  test("echoes the activity id of the client", async () => {
    const id = "7f3a1c52-0000-4000-8000-123456789abc";
    const answer = await request(node, { ...account, headers: { "x-ms-activity-id": id } });
    assert.equal(answer.headers.get("x-ms-activity-id"), id);
  });
});

describe("partition key ranges", () => {
  test("have an etag that turns the next request into 304", async () => {
    const ranges = { verb: "GET", path: "/dbs/db/colls/c/pkranges", type: "pkranges", link: "dbs/db/colls/c" };
    const first = await request(node, { ...ranges, headers: { "a-im": "Incremental Feed" } });
    assert.equal(first.status, 200);
    const etag = first.headers.get("etag");
    assert.ok(etag);
    const headers = { "a-im": "Incremental Feed", "if-none-match": etag };
    const second = await request(node, { ...ranges, headers });
    assert.equal(second.status, 304);
    assert.equal(second.text, "");
    assert.equal(second.headers.get("etag"), etag);
  });
});

describe("the SDK", () => {
  test("with a wrong key gets 401 that it can read", async () => {
    const wrong = connect(node, { key: Buffer.alloc(64, 1).toString("base64") });
    try {
      await rejects(wrong.getDatabaseAccount(), { code: 401 });
    } finally {
      wrong.dispose();
    }
  });

  test("reads activity id, charge and sub-status from an error", async () => {
    const error = await rejects(container.item("nothing", "p").delete(), { code: 404 });
    assert.match(error.activityId, /^[0-9a-f-]{36}$/i);
    assert.ok(Number.parseFloat(error.headers["x-ms-request-charge"]) > 0);
    assert.match(error.message, /ActivityId/i);
  });

  test("asks for the account once and not again for each operation", async () => {
    const { resource } = await client.getDatabaseAccount();
    assert.notEqual(resource.id, "localhost");
    assert.equal(resource.writableLocations.length, 1);
    assert.equal(resource.readableLocations.length, 1);
    assert.equal(resource.writableLocations[0].databaseAccountEndpoint, node.endpoint);
    assert.equal(resource.consistencyPolicy, "Session");
  });
});
