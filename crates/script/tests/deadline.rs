//! No built-in of the engine runs far beyond the deadline of its script.
//!
//! The engine looks at the clock between the steps of a script, and a step may be a built-in that walks over
//! megabytes. Each script here repeats one such built-in, or has the engine do much in a single call.

#![allow(clippy::unwrap_used)] // a test that cannot go on should say where

mod support;

use headwater_script::{Call, Limits, ScriptError, run};
use std::time::Duration;
use support::{Memory, clock, script};

const TIME: Duration = Duration::from_millis(300);
/// What is promised is a quarter of a second. A busy machine may take several times as long, and what is
/// prevented takes minutes.
const LATE: Duration = Duration::from_secs(3);

/// Texts and lists about as large as a value may be.
const LARGE: &str = "var t = 'x'.repeat(7e6), s = ' '.repeat(7e6), l = new Array(4e5).fill(0), b = new Uint8Array(7e6), \
                     d = new Set(l.map((_, at) => at)), e = new Set(l.map((_, at) => at)); l.length;";

const REPEATED: &[&str] = &[
    "t.indexOf('y')",
    "t.lastIndexOf('y')",
    "t.includes('xy')",
    "t.startsWith(t)",
    "t.endsWith(t)",
    "t.localeCompare(t)",
    "t.split('y', 0)",
    "t.replace('y', '')",
    "t.replaceAll('yy', '')",
    "t.isWellFormed()",
    "t.search('y')",
    "/y/.test(t)",
    "s.trim()",
    "s.trimStart()",
    "s.trimEnd()",
    "Number(s)",
    "parseInt(s)",
    "parseFloat(s)",
    "isNaN(s)",
    "Number.parseInt(t, 36)",
    "BigInt(s)",
    "JSON.parse(s + '1')",
    "JSON.parse(s)",
    "l.indexOf(1)",
    "l.lastIndexOf(1)",
    "l.includes(1)",
    "l.reverse()",
    "l.fill(0)",
    "l.copyWithin(0, 1)",
    "l.sort()",
    "l.shift(), l.push(0)",
    "l.unshift(0), l.pop()",
    "l.splice(0, 1, 0)",
    "b.indexOf(1)",
    "b.lastIndexOf(1)",
    "b.includes(1)",
    "b.fill(0)",
    "b.reverse()",
    "b.copyWithin(0, 1)",
    "b.set(b)",
    "d.isSubsetOf(e)",
    "d.isSupersetOf(e)",
    "d.isDisjointFrom(new Set([-1]))",
    "Object.isFrozen(l)",
    "Object.isSealed(l)",
    "Date.parse(t)",
    "decodeURIComponent(t)",
    "new RegExp(t.slice(0, 1e6))",
    "t.match(t.slice(0, 1e6))",
    "new Function(s)",
    "eval(s)",
    "Math.max.apply(null, l.slice(0, 1e4))",
    "String.raw({ raw: l })",
];

/// A structure of which every level has the one below twice, and above it a chain, so that each of the many
/// values it is written as is compared with all above it.
const SHARED: &str =
    "var a = {}; for (var i = 0; i < 22; i++) a = [a, a]; for (i = 0; i < 300; i++) a = [a];";

const ALONE: &[&str] = &[
    "JSON.stringify(a)",
    "JSON.stringify(a, null, 1)",
    "JSON.stringify(a, ['x'])",
    "JSON.stringify({ a: a })",
    "__.response.setBody(a)",
    "__.createDocument(__.getSelfLink(), { a: a })",
    "console.log(a)",
    "throw a",
    "String(a.flat(Infinity))",
    "a.flat(Infinity)",
    "a.join()",
    "a + ''",
    "eval('[' + 'var x;'.repeat(1e6))",
    "eval('var x' + Array.from({ length: 3e5 }, (_, at) => at).join(',x'))",
    "eval('9'.repeat(3e5) + 'n')",
    "new RegExp('(a|b)'.repeat(1e5))",
    "new RegExp('\\\\1'.repeat(1e5) + '()')",
    "'a'.repeat(1e6).match(/(a*)*b/)",
    "'a'.repeat(30000).replace(/a*a*a*b/g, '')",
    "JSON.parse('[' + '1,'.repeat(3e6) + '1]')",
    "JSON.parse('{' + Array.from({ length: 2e5 }, (_, at) => '\"' + at + '\":1').join() + '}')",
    "Array.from({ length: 1e9 })",
    "new Array(1e9).fill(0)",
    "new Array(4e9).join('x')",
    "Array(1e9).toString()",
    "Object.keys('x'.repeat(7e6))",
    "Object.assign({}, 'x'.repeat(7e6))",
    "2n ** 1000000n * (2n ** 1000000n)",
    "(3n ** 600000n).toString()",
    "BigInt('9'.repeat(3e5))",
    "'x'.padStart(1e9)",
    "'x'.repeat(7e6).normalize('NFKD')",
    "'x'.repeat(7e6).toUpperCase().toLowerCase()",
    "[...'x'.repeat(7e6)]",
    "Array.prototype.concat.apply([], new Array(1000).fill(new Array(100000)))",
];

fn late(body: &str) -> Option<String> {
    let limits = Limits { time: TIME, accepting: TIME, ..Limits::default() };
    let clock = clock();
    let before = clock();
    let source = format!("function f() {{ {body} }}");
    let (_, outcome) =
        run(&script(&source), &Call::procedure("[]"), Memory::default(), &limits, &clock);
    let took = clock().saturating_sub(before);
    let is_kept = !matches!(outcome, Err(ScriptError::Engine(_)));
    (took > TIME + LATE || !is_kept).then(|| format!("{took:?} {body}: {outcome:?}"))
}

#[test]
fn a_built_in_that_is_called_again_and_again_ends_with_its_script() {
    let loops = REPEATED
        .iter()
        .map(|one| format!("{LARGE} for (;;) {{ try {{ {one} }} catch (e) {{ }} }}"));
    let found: Vec<String> = loops.filter_map(|body| late(&body)).collect();
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn a_single_call_of_a_built_in_ends_with_its_script() {
    let calls = ALONE.iter().map(|one| format!("{SHARED} for (;;) {{ {one} }}"));
    let found: Vec<String> = calls.filter_map(|body| late(&body)).collect();
    assert!(found.is_empty(), "{found:#?}");
}
