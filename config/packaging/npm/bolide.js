#!/usr/bin/env node
// Runs the program of this package: passes arguments, signals and the exit code on.
"use strict";

const { spawn } = require("node:child_process");
const { constants } = require("node:os");
const path = require("node:path");
const { bolide: made } = require("../package.json");

// A terminal sends Ctrl-C to npx and to this process, and npx sends it on: the node would take the second one as "at once".
const REPEATED_SIGNAL_MS = 300;
// How often it is looked whether npx is still there.
const PARENT_POLL_MS = 200;

function glibc() {
  process.report.excludeNetwork = true;
  return process.report.getReport().header.glibcVersionRuntime;
}

function isOlder(version, wanted) {
  const [major, minor] = version.split(".").map(Number);
  const [wantedMajor, wantedMinor] = wanted.split(".").map(Number);
  return major < wantedMajor || (major === wantedMajor && minor < wantedMinor);
}

// What keeps the program from running here; nothing if it can.
function mismatch() {
  const here = `${process.platform}-${process.arch}`;
  if (here !== `${made.os}-${made.cpu}`) return here;
  const version = glibc();
  if (!version) return `${here} without glibc`;
  return isOlder(version, made.glibc) ? `${here} with glibc ${version}` : undefined;
}

function fail(message, code) {
  console.error(`bolide: ${message}`);
  process.exit(code);
}

const found = mismatch();
if (found) {
  fail(`this package is for ${made.os}-${made.cpu} with glibc ${made.glibc} or newer, but this is ${found}`, 1);
}

// A session of its own: signals reach the program through this process, once.
const program = path.join(__dirname, "bolide");
const child = spawn(program, process.argv.slice(2), { stdio: "inherit", detached: true });
const last = {};
for (const signal of ["SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT"]) {
  process.on(signal, () => {
    const now = Date.now();
    if (now - (last[signal] ?? 0) > REPEATED_SIGNAL_MS) child.kill(signal);
    last[signal] = now;
  });
}
// npx, told to end, ends its shell but not what runs in it. After Ctrl-C the program knows already.
if (process.env.npm_command === "exec") {
  const parent = process.ppid;
  const poll = setInterval(() => {
    if (process.ppid === parent) return;
    clearInterval(poll);
    if (Object.keys(last).length === 0) child.kill("SIGTERM");
  }, PARENT_POLL_MS);
}
child.on("error", (error) => fail(`cannot run ${program}: ${error.message}`, 1));
child.on("exit", (code, signal) => process.exit(signal ? 128 + constants.signals[signal] : code));
