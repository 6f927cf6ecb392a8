// What "gone at the very second" means to a client on the same machine.

import assert from "node:assert/strict";
import { setTimeout as sleep } from "node:timers/promises";

/** A coarse system clock may lag by a tick. */
const CLOCK_SLACK_MS = 20;
const POLL_MS = 25;
/** How long before the deadline the watch begins. */
const WATCH_LEAD_MS = 400;

/** The deadline in milliseconds of an item written at `_ts` with this time to live. */
export function deadlineMs(item, ttl) {
  return (item._ts + ttl) * 1000;
}

/** Waits until every one of `deadlines` (milliseconds) has passed. */
export async function passed(...deadlines) {
  await sleep(Math.max(0, Math.max(...deadlines) - Date.now()) + CLOCK_SLACK_MS);
}

export async function isLive(container, { id, pk }) {
  const { statusCode } = await container.item(id, pk).read();
  assert.ok(statusCode === 200 || statusCode === 404, `status ${statusCode}`);
  return statusCode === 200;
}

/**
 * Watches `item` around its deadline: each answer must be right for the instant it was given at. An answer was given
 * between the request and the response, so only those that cross the deadline may be either.
 */
export async function expiresExactly(container, item, ttl) {
  const deadline = deadlineMs(item, ttl);
  await sleep(Math.max(0, deadline - WATCH_LEAD_MS - Date.now()));
  let answersBefore = 0;
  for (;;) {
    const asked = Date.now();
    const live = await isLive(container, item);
    const answered = Date.now();
    if (answered < deadline) {
      assert.ok(live, `${item.id} was gone ${deadline - answered} ms before its time`);
      answersBefore += 1;
    } else if (asked >= deadline + CLOCK_SLACK_MS) {
      assert.ok(!live, `${item.id} was still there ${asked - deadline} ms after its time`);
      return { answersBefore };
    }
    await sleep(POLL_MS);
  }
}
