// What a compatibility program needs around its checks: names, results, and a line to the runner.
// A check passes by returning. Nothing here knows a database operation.

import { createHmac, randomBytes } from "node:crypto";
import { createInterface } from "node:readline";
import { isDeepStrictEqual } from "node:util";

export const ENDPOINT = process.env.HEADWATER_ENDPOINT;
export const KEY = process.env.HEADWATER_ACCOUNT_KEY;
const CHECK_MS_MAX = 60_000;

const checks = [];
const answers = [];
let waiting = null;
const input = createInterface({ input: process.stdin });
input.on("line", (line) => (waiting ? waiting(line) : answers.push(line)));

/** Registers a check. Names are shared with the other languages' programs. */
export function check(group, name, work) {
  checks.push({ group, name, work });
}

/** Says that the client itself lacks what a check is about. */
export function notOffered(group, name) {
  checks.push({ group, name, work: null });
}

export function equal(found, expected, about = "") {
  if (!isDeepStrictEqual(found, expected)) {
    throw new Error(`${about} found ${JSON.stringify(found)}, expected ${JSON.stringify(expected)}`);
  }
}

export function ensure(holds, otherwise) {
  if (!holds) throw new Error(otherwise);
}

/** Does the work and demands that the server refuses it with this status. */
export async function fails(status, work) {
  try {
    await work();
  } catch (error) {
    equal(error.code ?? error.statusCode, status, `${error.message}:`);
    return error;
  }
  throw new Error(`expected ${status}, but it succeeded`);
}

export const sleep = (ms) => new Promise((done) => setTimeout(done, ms));
export const unique = (prefix) => `${prefix}-${randomBytes(4).toString("hex")}`;
export const numbers = (first, last) => Array.from({ length: last - first }, (_, at) => String(first + at));
export const sortedIds = (ids) => [...ids].sort((one, two) => Number(one) - Number(two));
export const plain = (item) => Object.fromEntries(Object.entries(item).filter(([name]) => !name.startsWith("_")));

export async function restartServer() {
  console.log(JSON.stringify({ control: "restart" }));
  const line = answers.shift() ?? (await new Promise((done) => (waiting = done)));
  waiting = null;
  ensure(JSON.parse(line).done, `the runner could not: ${line}`);
}

/** A signed request to Headwater's own paths, which no official client knows. */
export async function split(database, container, range) {
  const date = new Date().toUTCString();
  const text = `post\ncolls\ndbs/${database}/colls/${container}\n${date.toLowerCase()}\n\n`;
  const signature = createHmac("sha256", Buffer.from(KEY, "base64")).update(text).digest("base64");
  const response = await fetch(`${ENDPOINT}/_headwater/partitions/${database}/${container}/split`, {
    method: "POST",
    body: JSON.stringify({ range }),
    headers: {
      authorization: encodeURIComponent(`type=master&ver=1.0&sig=${signature}`),
      "x-ms-date": date,
      "content-type": "application/json",
    },
  });
  ensure(response.ok, `the split failed: ${response.status} ${await response.text()}`);
}

async function within(work) {
  let timer;
  const late = new Promise((_, fail) => {
    timer = setTimeout(() => fail(new Error("it took too long")), CHECK_MS_MAX);
  });
  try {
    await Promise.race([work, late]);
  } finally {
    clearTimeout(timer);
  }
}

/** Runs every check, one after the other; the exit code says whether all passed. */
export async function run(client, makeContext) {
  const only = process.env.HEADWATER_ONLY ?? "";
  let failed = 0;
  for (const { group, name, work } of checks) {
    if (!`${group}: ${name}`.includes(only)) continue;
    if (work === null) {
      console.log(JSON.stringify({ client, group, check: name, ok: true, offered: false }));
      continue;
    }
    let detail = "";
    const context = makeContext();
    try {
      await within(work(context));
      await context.end();
    } catch (error) {
      detail = `${error.name ?? "Error"}: ${error.message ?? JSON.stringify(error.body)}`.slice(0, 600);
      if (process.env.HEADWATER_VERBOSE) console.error(error);
    }
    failed += detail ? 1 : 0;
    console.log(JSON.stringify({ client, group, check: name, ok: !detail, detail }));
  }
  process.exit(failed ? 1 : 0);
}
