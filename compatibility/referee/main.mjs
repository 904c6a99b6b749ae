// Asks the query engine of @vercel/cosmosdb-server every case of our corpus and says where it answers
// otherwise. It decides nothing: docs/internals/query-referees.md says who is right and why.
//
//   npm ci && node main.mjs            a line per family: agree, differ, refused
//   node main.mjs --all                every case that differs
import { readFileSync, readdirSync } from 'node:fs';
import { createRequire } from 'node:module';

const require = createRequire(import.meta.url);
const query = require('@zeit/cosmosdb-query').default;
const corpus = new URL('../../crates/query/tests/corpus/', import.meta.url);
const test = readFileSync(new URL('../../crates/query/tests/corpus.rs', import.meta.url), 'utf8');
const odd = JSON.parse(/const ODD: &str =\s*r#"(.*?)"#;/s.exec(test)[1]);
const items = readFileSync(new URL('items.txt', corpus), 'utf8').trim().split('\n').map((line) => JSON.parse(line));

function ask(text, collection) {
  const { result } = query(text).exec(structuredClone(collection), {});
  return JSON.stringify(result);
}

// Numbers beyond 2^53 and -0 are not told apart by a program that reads JSON into doubles.
const normal = (text) => JSON.stringify(JSON.parse(text));

let total = [0, 0, 0];
for (const file of readdirSync(corpus).filter((name) => name.endsWith('.txt') && name !== 'items.txt').sort()) {
  const found = [0, 0, 0];
  for (const line of readFileSync(new URL(file, corpus), 'utf8').split('\n')) {
    if (!line.trim() || line.startsWith('#')) continue;
    const [asked, expected] = line.split('  =>  ');
    const isQuery = file === 'clauses.txt';
    const text = isQuery ? asked : `SELECT VALUE [${asked}] FROM c`;
    const wanted = isQuery ? expected : expected === 'undefined' ? '[[]]' : `[[${expected}]]`;
    let verdict, said;
    try {
      said = ask(text, isQuery ? items : [odd]);
      verdict = said === normal(wanted) ? 0 : 1;
    } catch (error) {
      said = String(error.message).split('\n')[0];
      verdict = 2;
    }
    found[verdict] += 1;
    if (verdict && process.argv.includes('--all')) console.log(`${file} | ${asked} | ours ${wanted} | theirs ${said}`);
  }
  total = total.map((sum, at) => sum + found[at]);
  console.log(`${file}: ${found[0]} agree, ${found[1]} differ, ${found[2]} refused`);
}
console.log(`all: ${total[0]} agree, ${total[1]} differ, ${total[2]} refused`);
