//! Hostile scripts: each ends within its limits with an error that names the cause, and the process
//! continues.

#![allow(clippy::unwrap_used)] // a failed test names the line

mod support;

use headwater_script::{Call, Functions, Limits, ScriptError, run};
use support::{Memory, clock, procedure, script, short};

fn ends(source: &str) -> ScriptError {
    let (_, outcome) =
        run(&script(source), &Call::procedure("[]"), Memory::default(), &short(), &clock());
    outcome.expect_err(source)
}

#[test]
fn what_never_ends_is_ended() {
    for body in [
        "for (;;) {}",
        "while (true) { try { for (;;) {} } catch (e) {} finally { continue } }",
        "for (;;) { try { throw 1 } finally { continue } }",
        "(function again() { try { again() } finally { again() } })()",
        "/(a+)+$/.exec('aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaab')",
        "Array.prototype.indexOf.call({ length: Number.MAX_SAFE_INTEGER }, 1)",
        "Array.prototype.forEach.call({ length: Number.MAX_SAFE_INTEGER }, function () {})",
        "var a = []; a.length = 4294967295; for (;;) { a.lastIndexOf(1); a.includes(1) }",
        "new Set(Array.prototype.values.call({ length: Number.MAX_SAFE_INTEGER }))",
        "[].values().drop.call(Array.prototype.values.call({ length: 1e15 }), 1e15).next()",
        "(function next() { Promise.resolve().then(next) })()",
        "(async function f() { for (;;) await null })()",
        "for (var n = 3n;; n *= n) {}",
        // The engine checks the clock after ten thousand of these, which take a quarter of an hour.
        "var n = 3n ** 200000n; for (;;) n * n",
        "var n = 3n ** 20000n; for (;;) try { n ** 2n } catch (e) {}",
        "var n = 3n ** 20000n; for (;;) try { n.toString() } catch (e) {}",
        "var n = 3n ** 40000n, m = 3n ** 20000n; for (;;) try { n / m } catch (e) {}",
        // Two texts that differ only in the last character, compared in steps that allocate nothing.
        "var a = 'x'.repeat(1e6) + 'y', b = 'x'.repeat(1e6) + 'y'; for (;;) a === b",
        // Without memory for its own error the engine would throw one that a script can catch.
        "var all = []; for (;;) {
            try { for (var i = 0; i < 1e5; i++) all.push([...'abc']) } catch (e) {}
            try { for (var i = 0; i < 1e5; i++) all.push(function () {}) } catch (e) {}
            try { for (var i = 0; i < 1e5; i++) all.push(new Set([1])) } catch (e) {} }",
        "var all = []; for (;;) {
            try { all.push(new Promise((done) => done({ then(f) { f(1) } }))) } catch (e) {}
            try { all.push(decodeURIComponent('%20')) } catch (e) {}
            try { all.push(new Set([1])) } catch (e) { all = [] } }",
        "JSON.stringify({ toJSON() { for (;;) {} } })",
        "__.response.setBody({ toJSON() { for (;;) {} } })",
        "throw { toString() { for (;;) {} }, get message() { for (;;) {} } }",
        "for (;;) new Function('for (;;) {}')()",
        "for (;;) eval('1')",
        "(function again() { __.createDocument(__.getSelfLink(), {}, again) })(); for (;;) {}",
    ] {
        let error = ends(&format!("function f() {{ {body} }}"));
        let within = matches!(
            error,
            ScriptError::Time(_) | ScriptError::Memory(_) | ScriptError::Thrown { .. }
        );
        assert!(within, "{body}: {error:?}");
        let thrown = matches!(error, ScriptError::Thrown { .. });
        assert!(!thrown || body.contains("drop") || body.contains("n *= n"), "{body}: {error:?}");
    }
    // The limits apply outside of functions too.
    assert!(matches!(ends("for (;;) {}"), ScriptError::Time(_)));
    assert!(matches!(ends("function f() {} for (;;) {}"), ScriptError::Time(_)));
}

#[test]
fn built_ins_that_would_never_come_back_refuse_to_start() {
    let mut bodies: Vec<String> = Vec::new();
    for name in [
        "reverse",
        "sort",
        "join",
        "toLocaleString",
        "copyWithin",
        "slice",
        "splice",
        "shift",
        "unshift",
        "fill",
        "toReversed",
        "toSorted",
        "toSpliced",
        "with",
        "flat",
        "flatMap",
    ] {
        let call = format!("Array.prototype.{name}.call");
        bodies.push(format!("{call}({{ length: Number.MAX_SAFE_INTEGER }}, 0, 1)"));
        bodies.push(format!("var a = []; a.length = 4294967295; {call}(a, 0, 1)"));
        // A length that grows after it was checked.
        bodies.push(format!(
            "var n = 0; {call}({{ get length() {{ if (n++) return 9e15; return 1e7 }} }}, 0, 1)"
        ));
    }
    for body in [
        "var a = []; a.length = 4294967295; [].concat(a)",
        "var a = []; a.length = 4294967295; [[a]].flat(Infinity)",
        "var a = []; a.length = 4294967295; JSON.stringify({}, a)",
        "new Uint8Array(8000000).sort()",
        "'a'.repeat(4000000).indexOf('a'.repeat(3000000) + 'b')",
        "'a'.repeat(4000000).split('a'.repeat(3000000) + 'b')",
        "'\\u0315\\u0300'.repeat(1000000).normalize('NFD')",
        "new Proxy([], {})",
    ] {
        bodies.push(body.to_owned());
    }
    for body in bodies {
        let error = ends(&format!("function f() {{ {body} }}"));
        let ScriptError::Thrown { text, .. } = &error else { panic!("{body}: {error:?}") };
        let refused = ["too long", "arrays only", "not defined"];
        assert!(refused.iter().any(|one| text.contains(one)), "{body}: {text}");
    }
}

#[test]
fn what_takes_too_much_memory_is_ended() {
    for body in [
        "var all = []; for (;;) all.push(new Array(1000).fill('x'))",
        "var text = 'x'; for (;;) text += text",
        "'x'.repeat(1 << 29)",
        // These fit into memory, but comparing two of them would take too long.
        "'x'.repeat(9 << 20)",
        "new Uint8Array(9 << 20)",
        "var all = []; for (;;) { try { all.push(new Uint8Array(1 << 20)) } catch (e) { all.push(e) } }",
        "var o = {}; for (var i = 0;; i++) o['name' + i] = i",
        "var all = []; for (;;) all.push(__.createDocument(__.getSelfLink(), {}, function () {}))",
        "var a = []; a.length = 4294967295; JSON.stringify(a)",
    ] {
        let error = ends(&format!("function f() {{ {body} }}"));
        let within = match &error {
            ScriptError::Memory(_) | ScriptError::Time(_) => true,
            // The engine has its own limit on the length of a text.
            ScriptError::Thrown { text, .. } => {
                text.contains("length") || text.contains("string too long")
            }
            _ => false,
        };
        assert!(within, "{body}: {error:?}");
    }
}

#[test]
fn what_is_thrown_without_being_an_error_is_told_as_it_is() {
    for (body, expected) in [
        ("throw null", "null"),
        ("throw (null)", "null"),
        ("return Promise.reject(null)", "null"),
        ("throw undefined", "undefined"),
        ("throw 0", "0"),
        ("throw ''", ""),
        ("throw false", "false"),
        ("throw 7n", "7"),
        ("throw Symbol('s')", "Symbol(s)"),
        ("throw [1, 2]", "[1,2]"),
        ("throw { a: null }", "{\"a\":null}"),
        ("throw function () {}", "function () {}"),
    ] {
        let error = ends(&format!("function f() {{ {body} }}"));
        let ScriptError::Thrown { text, .. } = &error else { panic!("{body}: {error:?}") };
        assert_eq!(text, expected, "{body}");
    }
    // A null that no script threw comes from the engine, which has no memory left for an error.
    let error = ends("function f() { var all = []; for (;;) all.push({ a: null }) }");
    assert!(matches!(error, ScriptError::Memory(_) | ScriptError::Time(_)), "{error:?}");
}

#[test]
fn what_goes_too_deep_is_told_so() {
    for body in [
        "(function again() { again() })()",
        "var a = []; for (var i = 0; i < 100000; i++) a = [a]; JSON.stringify(a)",
        "JSON.parse('['.repeat(1000000))",
        "eval('('.repeat(100000))",
        "eval('[' .repeat(100000))",
        "new RegExp('('.repeat(100000))",
        "var o = {}; o.o = o; JSON.stringify(o)",
        "__.response.setBody((function () { var a = []; for (var i = 0; i < 100000; i++) a = [a]; return a })())",
    ] {
        // With a long time limit: reaching this depth takes a while on a busy machine.
        let source = format!("function f() {{ {body} }}");
        let error = procedure(&source, "[]", Memory::default()).1.expect_err(body);
        let told = matches!(error, ScriptError::Thrown { .. } | ScriptError::Memory(_));
        assert!(told, "{body}: {error:?}");
    }
}

#[test]
fn there_is_no_way_out() {
    for name in [
        "setTimeout",
        "setInterval",
        "require",
        "process",
        "std",
        "os",
        "fetch",
        "XMLHttpRequest",
        "importScripts",
        "Deno",
        "scriptArgs",
        "print",
        "loadScript",
    ] {
        let source =
            format!("function f() {{ if (typeof {name} !== 'undefined') throw '{name}' }}");
        let (_, outcome) = procedure(&source, "[]", Memory::default());
        assert!(outcome.is_ok(), "{name}: {outcome:?}");
    }
    for body in [
        "Atomics.wait(new Int32Array(new SharedArrayBuffer(8)), 0, 0)",
        "return import('std')",
        "return import('/etc/passwd')",
        "throw new Error('always')",
    ] {
        let error = ends(&format!("function f() {{ {body} }}"));
        assert!(matches!(error, ScriptError::Thrown { .. }), "{body}: {error:?}");
    }
}

#[test]
fn what_is_not_a_script_is_told_so() {
    for source in [
        "function (",
        "this is not code",
        "function f() { return",
        "}",
        "'use strict'; with (a) {}",
        "\0",
    ] {
        let error = ends(source);
        assert!(
            matches!(error, ScriptError::Compile(_) | ScriptError::Engine(_)),
            "{source}: {error:?}"
        );
    }
    for source in ["", "   ", "1 + 1", "var x = 1", "({})", "// nothing"] {
        assert_eq!(ends(source), ScriptError::NoFunction, "{source}");
    }
}

#[test]
fn nonsense_in_an_answer_is_told_or_left_out() {
    let answered = |body: &str| {
        let (_, outcome) =
            procedure(&format!("function f() {{ {body} }}"), "[]", Memory::default());
        outcome.map(|outcome| outcome.response)
    };
    assert_eq!(answered("__.response.setBody(undefined)"), Ok(None));
    assert_eq!(answered("__.response.setBody(function () {})"), Ok(None));
    assert_eq!(answered("__.response.setBody(NaN)"), Ok(Some("null".to_owned())));
    assert_eq!(answered("__.response.setBody('\\ud800')"), Ok(Some("\"\\ud800\"".to_owned())));
    assert!(matches!(answered("__.response.setBody(1n)"), Err(ScriptError::Thrown { .. })));
    let large = "__.response.setBody('x'.repeat(3000000))";
    assert_eq!(answered(large), Err(ScriptError::Response(Limits::default().response_bytes)));
}

#[test]
fn one_script_leaves_nothing_for_the_next() {
    let (_, outcome) = procedure(
        "function f() { globalThis.left = 1; Object.prototype.left = 2; JSON.parse = null; Array.prototype.push = null }",
        "[]",
        Memory::default(),
    );
    assert!(outcome.is_ok());
    let source = "function f() { __.response.setBody([typeof left, typeof ({}).left, typeof JSON.parse, typeof [].push]) }";
    let (_, outcome) = procedure(source, "[]", Memory::default());
    let expected = r#"["undefined","undefined","function","function"]"#;
    assert_eq!(outcome.unwrap().response.unwrap(), expected);
}

#[test]
fn a_script_that_breaks_the_built_ins_breaks_only_itself() {
    for body in [
        "JSON.stringify = null; __.createDocument(__.getSelfLink(), {})",
        "Array.prototype.push = function () { throw 1 }; __.createDocument(__.getSelfLink(), {}, function () {})",
        "Object.defineProperty(Object.prototype, 'then', { get() { throw 1 } })",
        "globalThis.getContext = null; globalThis.__ = null; globalThis.console = null",
        "Promise.prototype.then = null; return Promise.resolve()",
        "String.prototype.startsWith = null; Error = null; throw 1",
    ] {
        let (_, outcome) =
            procedure(&format!("function f() {{ {body} }}"), "[]", Memory::default());
        let harmless = match &outcome {
            Ok(_) | Err(ScriptError::Thrown { .. }) => true,
            Err(_) => false,
        };
        assert!(harmless, "{body}: {outcome:?}");
    }
}

#[test]
fn a_user_defined_function_that_never_ends_is_ended_for_all_calls_together() {
    let functions =
        Functions::new([script("function f() { for (;;) {} }")], &short(), &clock(), None);
    for _ in 0..3 {
        assert!(matches!(functions.call("tested", &[]), Err(ScriptError::Time(_))));
    }
}

#[test]
fn calls_are_not_accepted_when_time_is_nearly_up() {
    let limits = Limits { accepting: std::time::Duration::ZERO, ..Limits::default() };
    let source = "function f() { __.response.setBody(__.createDocument(__.getSelfLink(), {})) }";
    let call = Call::procedure("[]");
    let (memory, outcome) = run(&script(source), &call, Memory::default(), &limits, &clock());
    assert_eq!(outcome.unwrap().response.as_deref(), Some("false"));
    assert!(memory.unwrap().items.is_empty());
}
