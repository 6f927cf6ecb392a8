// Small helpers around the SDK, so that the tests say only what they are about.

import assert from "node:assert/strict";
import { CosmosClient } from "@azure/cosmos";
import { WELL_KNOWN_KEY } from "./node.js";

export function connect(node, options = {}) {
  return new CosmosClient({ endpoint: node.endpoint, key: WELL_KNOWN_KEY, ...options });
}

let names = 0;
/** A name that no other test of this process uses. */
export function uniqueName(prefix) {
  names += 1;
  return `${prefix}-${names}`;
}

export async function newDatabase(client, body = {}) {
  const { database } = await client.databases.create({ id: uniqueName("db"), ...body });
  return database;
}

/** A container with partition key `/pk` unless `body` says otherwise. */
export async function newContainer(database, body = {}, options = {}) {
  const { container } = await database.containers.create(
    { id: uniqueName("coll"), partitionKey: { paths: ["/pk"], version: 2 }, ...body },
    options,
  );
  return container;
}

/**
 * Asserts that the SDK reports a failure as the service would: status, sub-status, a parsed body with its code,
 * and a message that matches.
 */
export async function rejects(promise, { code, substatus, bodyCode, message } = {}) {
  let error;
  try {
    await promise;
  } catch (caught) {
    error = caught;
  }
  assert.ok(error, `expected a rejection with ${code}`);
  // The batch call wraps the answer of the server.
  if (error.code === undefined && error.cause) error = error.cause;
  assert.equal(error.code, code, `${error.code}: ${error.message}\n${error.stack}`);
  if (substatus !== undefined) assert.equal(error.substatus ?? 0, substatus, error.message);
  assert.equal(typeof error.body?.message, "string", "the error body has a message");
  assert.equal(error.body.code, bodyCode ?? CODE_NAMES[code]);
  if (message !== undefined) assert.match(error.message, message);
  return error;
}

const CODE_NAMES = {
  400: "BadRequest",
  401: "Unauthorized",
  403: "Forbidden",
  404: "NotFound",
  409: "Conflict",
  412: "PreconditionFailed",
  413: "RequestEntityTooLarge",
};

/** What the user stored: the item without the properties that the system adds. */
export function userProperties(item) {
  const { _rid, _self, _etag, _attachments, _ts, _lsn, ...rest } = item;
  return rest;
}

export function ids(items) {
  return items.map((item) => item.id);
}

/** Reads a change feed until it says that nothing is new. */
export async function drainChangeFeed(iterator) {
  const items = [];
  for (let page = 0; page < 1_000; page += 1) {
    const response = await iterator.readNext();
    if (response.statusCode === 304) return { items, continuation: response.continuationToken };
    assert.equal(response.statusCode, 200);
    assert.ok(response.result.length > 0, "a page with status 200 holds items");
    items.push(...response.result);
  }
  throw new Error("the change feed did not end");
}

/** Pages of a query iterator, as lists. */
export async function pagesOf(iterator) {
  const pages = [];
  while (iterator.hasMoreResults()) {
    const { resources } = await iterator.fetchNext();
    pages.push(resources ?? []);
    assert.ok(pages.length < 10_000, "paging ends");
  }
  return pages;
}
