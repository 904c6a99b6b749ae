//! Scripts in worker processes: whatever a script does to its engine, the server's process continues, and the
//! script ends soon after its deadline.

#![allow(clippy::unwrap_used)] // a failed test names the line

mod support;

use headwater_script::{Call, Functions, Limits, Outcome, ScriptError, Workers, run, serve_worker};
use serde_json::json;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;
use support::{Memory, clock, script};

/// Set in the process of a worker.
const IS_WORKER: &str = "HEADWATER_TEST_IS_WORKER";

const TIME: Duration = Duration::from_millis(300);

/// The promised limit on the time beyond the deadline.
const PROMISED: Duration = Duration::from_millis(250);

/// Extra time for a busy machine. The scripts here take seconds to minutes when they are not ended.
const BUSY: Duration = Duration::from_millis(2750);

/// Not a test but the program of a worker: this file, started again.
#[test]
fn worker_program() {
    if std::env::var_os(IS_WORKER).is_some() {
        let served = serve_worker(&clock());
        std::process::exit(i32::from(served.is_err()));
    }
}

fn command() -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", "worker_program", "--nocapture", "--test-threads=1"])
        .env(IS_WORKER, "1");
    command
}

fn workers() -> Arc<Workers> {
    Arc::new(Workers::new(command, clock()))
}

fn short() -> Limits {
    Limits { time: TIME, accepting: TIME, ..Limits::default() }
}

fn procedure(
    workers: &Workers,
    body: &str,
    limits: &Limits,
    memory: Memory,
) -> (Memory, Result<Outcome, ScriptError>) {
    let script = script(&format!("function f(given) {{ {body} }}"));
    let (memory, outcome) =
        workers.run(&script, &Call::procedure("[\"x\"]"), memory, limits, &clock());
    (memory.unwrap(), outcome)
}

/// Runs a script that must be ended. Returns its time if that is too long, or its unexpected response.
fn overrun(workers: &Workers, body: &str) -> Option<String> {
    let (clock, memory) = (clock(), Memory::default());
    let before = clock();
    let (_, outcome) = procedure(workers, body, &short(), memory);
    let took = clock() - before;
    let is_ended = matches!(outcome, Err(ScriptError::Time(_) | ScriptError::Memory(_)));
    (took > TIME + PROMISED + BUSY || !is_ended).then(|| format!("{took:?} {body}: {outcome:?}"))
}

/// Each level holds the one below twice, with a chain above it, so that each of the many values written is compared
/// with all levels above it.
const SHARED: &str =
    "var a = {}; for (var i = 0; i < 22; i++) a = [a, a]; for (i = 0; i < 300; i++) a = [a];";

#[test]
fn json_of_a_shared_structure_is_interrupted() {
    let workers = workers();
    let bodies = ["JSON.stringify(a)", "__.response.setBody(a)", "throw a", "console.log(a)"];
    let late = bodies.iter().filter_map(|body| overrun(&workers, &format!("{SHARED} {body}")));
    assert_eq!(late.collect::<Vec<_>>(), Vec::<String>::new());
}

/// Single steps that take seconds, and short steps that never reach the check of the clock.
const ENDLESS_STEPS: &[&str] = &[
    "var t = 'x'.repeat(7e6); for (;;) t.indexOf('y')",
    "var t = 'x'.repeat(7e6); for (;;) /y/.test(t)",
    "var t = ' '.repeat(7e6); for (;;) +t",
    "var t = ' '.repeat(7e6); for (;;) t.trim()",
    "var t = ' '.repeat(7e6); for (;;) parseInt(t)",
    "var t = ' '.repeat(7e6); for (;;) try { JSON.parse(t) } catch (e) {}",
    "var l = new Array(4e5).fill(0); for (;;) l.indexOf(1)",
    "var l = new Array(4e5).fill(0); for (;;) l.reverse()",
    "var l = new Array(1e5).fill(0); for (;;) l.unshift(0), l.pop()",
    "var b = new Uint8Array(7e6); for (;;) b.indexOf(1)",
    "var d = new Set(Array.from({ length: 1e5 }, (_, i) => i)); for (;;) d.isSubsetOf(d)",
    "var a = 'x'.repeat(4e6) + 'y', b = 'x'.repeat(4e6) + 'y'; eval('for (;;) {' + 'a === b;'.repeat(1e4) + '}')",
    "for (;;) (3n ** 600000n).toString()",
    "for (;;) new RegExp('(?:a|b)'.repeat(1e5))",
    "eval('9'.repeat(3e5) + 'n'); for (;;) {}",
    // Without memory the engine throws an error that a script can catch.
    "var all = [], n = 1e5; for (;;) { try { for (var i = 0; i < n; i++) all.push([...'abc']) } catch (e) {}
        try { for (var i = 0; i < n; i++) all.push(function () {}) } catch (e) {}
        try { for (var i = 0; i < n; i++) all.push(new Set([1])) } catch (e) {} }",
    "(function again() { try { again() } finally { again() } })()",
];

#[test]
fn no_step_of_a_script_outlives_its_deadline() {
    let workers = workers();
    let late = ENDLESS_STEPS.iter().filter_map(|body| overrun(&workers, body));
    assert_eq!(late.collect::<Vec<_>>(), Vec::<String>::new());
}

#[test]
fn no_step_of_a_user_defined_function_outlives_its_deadline() {
    let source = "function f() { var t = ' '.repeat(7e6); for (;;) +t }";
    let clock = clock();
    let functions = Functions::new([script(source)], &short(), &clock, Some(workers()));
    let before = clock();
    for _ in 0..3 {
        let ended = functions.call("tested", &[]);
        assert!(matches!(ended, Err(ScriptError::Time(_))), "{ended:?}");
    }
    let took = clock() - before;
    assert!(took < TIME + PROMISED + BUSY, "{took:?}");
}

#[test]
fn a_script_that_is_killed_leaves_its_collection_and_the_next_script_runs() {
    let workers = workers();
    let body =
        format!("{SHARED} __.createDocument(__.getSelfLink(), {{ id: 'a' }}); JSON.stringify(a)");
    let (memory, outcome) = procedure(&workers, &body, &short(), Memory::default());
    assert_eq!(outcome, Err(ScriptError::Time(TIME)));
    assert_eq!(memory.items.len(), 1, "the caller decides what becomes of it");
    let body = "__.response.setBody([given, __.createDocument(__.getSelfLink(), { id: 'b' })])";
    let (memory, outcome) = procedure(&workers, body, &Limits::default(), memory);
    assert_eq!(outcome.unwrap().response.unwrap(), "[\"x\",true]");
    assert_eq!(memory.items.len(), 2);
}

/// With a stack limit larger than the thread's stack, a recursion faults and ends the engine's process.
#[test]
fn a_hostile_script_never_ends_the_process() {
    let workers = workers();
    let limits = Limits { stack_bytes: 1 << 40, ..Limits::default() };
    let body = "__.createDocument(__.getSelfLink(), {}); (function again() { again() })()";
    for _ in 0..2 {
        let (memory, outcome) = procedure(&workers, body, &limits, Memory::default());
        let Err(ScriptError::Engine(message)) = outcome else { panic!("{outcome:?}") };
        assert!(message.contains("its process ended while the script ran (signal"), "{message}");
        assert_eq!(memory.items.len(), 1);
        let functions = Functions::new(
            [script("function again() { again() }")],
            &limits,
            &clock(),
            Some(workers.clone()),
        );
        for _ in 0..2 {
            let ended = functions.call("tested", &[]);
            assert!(matches!(ended, Err(ScriptError::Engine(_))), "{ended:?}");
        }
    }
    let (_, outcome) = procedure(&workers, "", &Limits::default(), Memory::default());
    assert!(outcome.is_ok(), "{outcome:?}");
}

#[test]
fn scripts_in_a_worker_answer_as_in_this_process() {
    let workers = workers();
    let items = || Memory::with(&[json!({"id": "a", "n": 1}), json!({"id": "b", "n": 2})]);
    for body in [
        "__.response.setBody(given)",
        "__.filter(function (item) { return item.n > 1 })",
        "__.readDocument(__.getAltLink() + '/docs/none', function (e) { __.response.setBody(e.number) })",
        "__.readDocument(__.getAltLink() + '/docs/a', {}, function (e, item) { __.response.setBody(item) })",
        "console.log('%s!', given); throw new Error(404, 'gone')",
        "console.log('ünï'); __.response.setBody('\\ud800')",
        "return Promise.reject(null)",
        "getContext().abort(new Error(7, 'no'))",
        "__.response.setBody('x'.repeat(3000000))",
        "__.response.setBody(undefined)",
        "var all = []; for (;;) all.push({})",
        "this is not code",
    ] {
        let here = script(&format!("function f(given) {{ {body} }}"));
        let call = Call::procedure("[\"x\"]");
        let (_, here) = run(&here, &call, items(), &Limits::default(), &clock());
        let (_, there) = procedure(&workers, body, &Limits::default(), items());
        assert_eq!(here, there, "{body}");
    }
}

#[test]
fn functions_in_a_worker_answer_as_in_this_process() {
    let sources =
        [("twice", "n => n * 2"), ("same", "x => x"), ("bad", "() => { throw 1 }"), ("no", "(")];
    let scripts = || {
        let made = |(name, source): (&str, &str)| headwater_script::Script {
            name: name.to_owned(),
            source: source.to_owned(),
        };
        sources.map(made)
    };
    let workers = workers();
    for _ in 0..3 {
        let here = Functions::new(scripts(), &Limits::default(), &clock(), None);
        let there = Functions::new(scripts(), &Limits::default(), &clock(), Some(workers.clone()));
        for name in ["twice", "same", "bad", "no", "missing", "twice"] {
            for argument in [Some("21"), Some("[\"ü\"]"), None] {
                let arguments = [argument.map(str::to_owned)];
                assert_eq!(here.call(name, &arguments), there.call(name, &arguments), "{name}");
            }
        }
    }
}

#[test]
fn a_stopped_script_and_one_that_is_not_accepted_end_as_in_this_process() {
    let workers = workers();
    let stopped = Memory { stop_at: Some("a"), ..Memory::default() };
    let read = "__.readDocument(__.getAltLink() + '/docs/a')";
    let (_, outcome) = procedure(&workers, read, &Limits::default(), stopped);
    assert_eq!(outcome, Err(ScriptError::Stopped));
    let full = Memory { accepted: Some(0), ..Memory::default() };
    let body = format!("__.response.setBody({read})");
    let (_, outcome) = procedure(&workers, &body, &Limits::default(), full);
    assert_eq!(outcome.unwrap().response.as_deref(), Some("false"));
}

#[test]
fn a_worker_that_cannot_start_or_is_no_worker_fails_the_script() {
    let failing: [fn() -> Command; 2] =
        [|| Command::new("/nowhere/at-all"), || Command::new("/bin/true")];
    for command in failing {
        let workers = Workers::new(command, clock());
        let (_, outcome) = procedure(&workers, "", &Limits::default(), Memory::default());
        assert!(matches!(outcome, Err(ScriptError::NoWorker(_))), "{outcome:?}");
    }
}
