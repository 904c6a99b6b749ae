//! The server-side API of scripts, call by call, on a collection in memory.

#![allow(clippy::unwrap_used)] // a failed test names the line

mod support;

use headwater_script::{Call, Functions, Kind, Limits, Script, ScriptError, run};
use serde_json::{Value, json};
use support::{Memory, clock, procedure, response, script};

/// Checks the response of a procedure body, given the items of its collection.
fn check(body: &str, items: &[Value], expected: Value) {
    let source = format!(
        "function tested(a, b) {{ var context = getContext(), collection = context.getCollection(), \
         link = collection.getSelfLink(), response = context.getResponse(); {body} }}"
    );
    assert_eq!(response(&source, r#"["x", 2]"#, Memory::with(items)), expected, "{body}");
}

#[test]
fn a_procedure_gets_its_arguments_and_answers_with_what_it_sets() {
    check("response.setBody(a + b)", &[], json!("x2"));
    check("response.setBody({ a: [a, b, null] })", &[], json!({"a": ["x", 2, null]}));
    check("response.setBody('a'); response.appendBody('b')", &[], json!("ab"));
    check("for (var i = 0; i < 4; i++) response.appendValue('Body', i)", &[], json!("0123"));
    check(
        "response.setValue('BODY', a); response.appendBody(response.getValue('Body'))",
        &[],
        json!("xx"),
    );
    check("response.setBody(1); response.setBody(response.getBody() + 1)", &[], json!(2));
    check("", &[], Value::Null);
    check(
        "__.response.setBody(__ instanceof Object && __.getAltLink())",
        &[],
        json!("dbs/shop/colls/orders"),
    );
    check(
        "try { response.setValue('new', 1) } catch (e) { response.setBody(e.number) }",
        &[],
        json!(400),
    );
}

#[test]
fn sources_are_functions_in_every_form_people_write_them() {
    for source in [
        "function f(n) { getContext().getResponse().setBody(n) }",
        "function (n) { getContext().getResponse().setBody(n) }",
        "(n) => { getContext().getResponse().setBody(n) }",
        "async function f(n) { await null; getContext().getResponse().setBody(n) }",
        "// first a comment\nfunction f(n) { answer(n) }\nfunction answer(n) { __.response.setBody(n) }",
        "var answer = 1;\nfunction f(n) { getContext().getResponse().setBody(n) }",
        "function f(n) { undeclared = n; getContext().getResponse().setBody(undeclared) } // end",
    ] {
        assert_eq!(response(source, "[7]", Memory::default()), json!(7), "{source}");
    }
}

#[test]
fn callbacks_run_after_their_caller_and_in_order() {
    check(
        "var order = ['start'];
         collection.createDocument(link, { id: '1' }, function (e, d) { order.push(d.id);
           collection.createDocument(link, { id: '3' }, {}, function (e, d) { order.push(d.id); response.setBody(order) }) });
         collection.createDocument(link, { id: '2' }, function (e, d) { order.push(d.id) });
         order.push('end');",
        &[],
        json!(["start", "end", "1", "2", "3"]),
    );
}

#[test]
fn items_are_created_read_replaced_upserted_and_deleted() {
    check(
        "collection.createDocument(link, { id: '1', n: 1 }, function (e, made) {
           collection.replaceDocument(made._self, { id: '1', n: 2 }, { etag: made._etag }, function (e, now) {
             collection.readDocument(collection.getAltLink() + '/docs/1', function (e, read) {
               collection.upsertDocument(link, { id: '2', n: 3 }, function (e, other) {
                 collection.deleteDocument(other._self, {}, function (e, options) {
                   collection.readDocuments(link, function (e, feed) {
                     response.setBody([made.n, now.n, read.n, other.n, e === undefined, feed.length]) }) }) }) }) }) });",
        &[],
        json!([1, 2, 2, 3, true, 1]),
    );
    check(
        "collection.createDocument(link, { n: 1 }, function (e, d) { response.setBody(typeof d.id) })",
        &[],
        json!("string"),
    );
    check(
        "collection.createDocument(link, '{\"id\":\"t\"}', function (e, d) { response.setBody(d.id) })",
        &[],
        json!("t"),
    );
    check(
        "collection.readDocument(link + 'docs/1', { ifNoneMatch: '\"e\"' }, function (e, d, o) { response.setBody([d === undefined, o.notModified]) })",
        &[json!({"id": "1", "_etag": "\"e\""})],
        json!([true, true]),
    );
}

#[test]
fn refusals_reach_the_callback_with_their_number_and_body() {
    let item = [json!({"id": "1", "_etag": "\"e\""})];
    for (call, number, code) in [
        ("collection.createDocument(link, { id: '1' }, cb)", 409, "Conflict"),
        ("collection.readDocument(link + 'docs/2', cb)", 404, "NotFound"),
        ("collection.deleteDocument(link + 'docs/2', cb)", 404, "NotFound"),
        (
            "collection.replaceDocument(link + 'docs/1', {id:'1'}, { etag: '\"x\"' }, cb)",
            412,
            "PreconditionFailed",
        ),
    ] {
        let body = format!(
            "function cb(e) {{ response.setBody([e instanceof Error, e.number, JSON.parse(e.body).code]) }} {call}"
        );
        check(&body, &item, json!([true, number, code]));
    }
}

#[test]
fn a_refusal_without_a_callback_ends_the_script() {
    let source = "function f() { __.readDocument(__.getSelfLink() + 'docs/2') }";
    let (_, outcome) = procedure(source, "[]", Memory::default());
    let Err(ScriptError::Thrown { text, number, .. }) = outcome else { panic!("{outcome:?}") };
    assert_eq!((text.contains("Resource Not Found"), number), (true, 404));
}

#[test]
fn nonsense_is_refused_before_it_is_asked_for() {
    for call in [
        "collection.createDocument('dbs/x/colls/y/', { id: '1' })",
        "collection.createDocument(link, 7)",
        "collection.createDocument(link, null)",
        "collection.createDocument(link, { id: '1' }, 'options')",
        "collection.createDocument(link, { id: '1' }, {}, 'callback')",
        "collection.readDocument(7)",
        "collection.readDocument(link)",
        "collection.readDocument('dbs/D/colls/other/docs/1')",
        "collection.queryDocuments(link, 7)",
        "collection.queryDocuments(link, {})",
        "collection.filter(7)",
        "collection.pluck('')",
        "collection.createAttachment(link, {})",
        "collection.queryAttachments(link, 'SELECT * FROM c')",
    ] {
        check(
            &format!("try {{ {call} }} catch (e) {{ response.setBody(e.number) }}"),
            &[],
            json!(400),
        );
    }
}

#[test]
fn a_call_that_is_not_accepted_returns_false_and_never_calls_back() {
    let source = "function f() { var done = 0, accepted = true;
        for (var i = 0; accepted; i++) accepted = __.createDocument(__.getSelfLink(), { id: '' + i }, function () { done++; __.response.setBody(done) }) }";
    let memory = Memory { accepted: Some(3), ..Memory::default() };
    assert_eq!(response(source, "[]", memory), json!(3));
    let source =
        "function f() { __.response.setBody(__.filter(function () { return true }).isAccepted) }";
    let memory = Memory { accepted: Some(0), ..Memory::default() };
    assert_eq!(response(source, "[]", memory), json!(false));
}

#[test]
fn the_integrated_query_filters_maps_plucks_flattens_unwinds_and_sorts() {
    let items = [
        json!({"id": "1", "n": 3, "tags": ["a", "b"]}),
        json!({"id": "2", "n": 1, "tags": []}),
        json!({"id": "3", "n": 2, "tags": ["c", ["d"]]}),
    ];
    let set = "function (e, feed) { if (e) throw e; response.setBody(feed) }";
    for (call, expected) in [
        (format!("__.filter(function (d) {{ return d.n > 1 }}, {set})"), json!(null)),
        (format!("__.chain().filter(d => d.n > 1).map(d => d.id).value({set})"), json!(["1", "3"])),
        (
            format!("__.chain().sortBy(d => d.n).pluck('id').value({{ pageSize: 2 }}, {set})"),
            json!(["2", "3"]),
        ),
        (
            format!("__.chain().sortByDescending(d => d.n).pluck('id').value({set})"),
            json!(["1", "3", "2"]),
        ),
        (format!("__.chain().pluck('tags').flatten().value({set})"), json!(["a", "b", "c", "d"])),
        (
            format!("__.chain().pluck('tags').flatten(true).value({set})"),
            json!(["a", "b", "c", ["d"]]),
        ),
        (
            format!("__.chain().unwind(d => d.tags).map(p => p[0].id + p[1]).value({set})"),
            json!(["1a", "1b", "3c", "3d"]),
        ),
        (format!("__.unwind(d => d.tags, (d, t) => d.n, {{}}, {set})"), json!([3, 3, 2, 2])),
        (format!("__.pluck('n', {{ pageSize: 2 }}, {set})"), json!([3, 1])),
        ("__.map(d => d.n)".to_owned(), json!("[3,1,2]")),
    ] {
        let expected = if expected.is_null() { json!([items[0], items[2]]) } else { expected };
        check(&call, &items, expected);
    }
}

#[test]
fn the_integrated_query_goes_on_where_it_was() {
    let items: Vec<Value> = (0..7).map(|n| json!({"id": n.to_string(), "n": n})).collect();
    for query in ["filter(d => d.n % 2 === 0)", "sortBy(d => d.n).filter(d => d.n % 2 === 0)"] {
        check(
            &format!(
                "var all = []; (function page(continuation) {{
                   __.chain().{query}.pluck('n').value({{ pageSize: 2, continuation: continuation }}, function (e, feed, options) {{
                     all.push(feed); if (options.continuation) page(options.continuation); else response.setBody(all) }}) }})()"
            ),
            &items,
            json!([[0, 2], [4, 6]]),
        );
    }
}

#[test]
fn promises_and_async_callbacks_run_to_their_end() {
    let source = "async function f() {
        const create = (d) => new Promise((yes, no) => __.createDocument(__.getSelfLink(), d, (e, made) => e ? no(e) : yes(made)));
        const one = await create({ id: '1' }); const two = await create({ id: '2' });
        try { await create({ id: '1' }) } catch (e) { __.response.setBody([one.id, two.id, e.number]) } }";
    assert_eq!(response(source, "[]", Memory::default()), json!(["1", "2", 409]));
    for source in [
        "async function f() { throw new Error('lost') }",
        "function f() { __.createDocument(__.getSelfLink(), {}, async () => { await null; throw new Error('lost') }) }",
    ] {
        let (_, outcome) = procedure(source, "[]", Memory::default());
        assert!(
            matches!(&outcome, Err(ScriptError::Thrown { text, .. }) if text == "Error: lost"),
            "{outcome:?}"
        );
    }
}

#[test]
fn what_is_thrown_is_told_with_text_stack_and_number() {
    for (throw, text, number) in [
        ("throw new Error('boom')", "Error: boom", 0),
        ("throw new Error(404, 'gone')", "Error: gone", 404),
        ("throw 'text'", "text", 0),
        ("throw { number: 7, a: 1 }", "{\"number\":7,\"a\":1}", 7),
        ("throw undefined", "undefined", 0),
        ("null.x", "TypeError: cannot read property 'x' of null", 0),
        ("class E extends Error {}; throw new E('mine')", "Error: mine", 0),
        ("getContext().abort(new Error(449, 'no'))", "Error: no", 449),
        (
            "try { getContext().abort('no') } catch (e) {} finally { __.response.setBody(1) }",
            "no",
            0,
        ),
    ] {
        let (_, outcome) =
            procedure(&format!("function f() {{ {throw} }}"), "[]", Memory::default());
        let Err(ScriptError::Thrown { text: told, number: numbered, .. }) = &outcome else {
            panic!("{throw}: {outcome:?}")
        };
        assert_eq!((told.as_str(), *numbered), (text, number), "{throw}");
    }
    let (_, outcome) = procedure(
        "function f() { inner() } function inner() { throw new Error('x') }",
        "[]",
        Memory::default(),
    );
    let Err(ScriptError::Thrown { stack, .. }) = outcome else { panic!("{outcome:?}") };
    assert!(stack.contains("inner") && stack.contains("tested.js"), "{stack}");
}

#[test]
fn console_output_is_kept_up_to_its_limit() {
    let log = |source: &str| {
        let (_, outcome) = procedure(source, "[]", Memory::default());
        outcome.unwrap().log
    };
    assert_eq!(
        log(
            "function f() { console.log('a'); console.log('%s of %s', 1, {b:2}); console.log([1]) }"
        ),
        "a1 of {\"b\":2}[1]"
    );
    let long = log("function f() { for (var i = 0; i < 10000; i++) console.log('ééé') }");
    assert_eq!(long.len(), Limits::default().log_bytes);
}

#[test]
fn built_ins_behind_guards_do_what_they_always_did() {
    for (expression, expected) in [
        ("[3, 1, 2].sort()", json!([1, 2, 3])),
        ("[3, 1, 2].sort((a, b) => b - a).reverse()", json!([1, 2, 3])),
        ("[1, [2, [3, [4]]]].flat()", json!([1, 2, [3, [4]]])),
        ("[1, [2, [3, [4]]]].flat(Infinity)", json!([1, 2, 3, 4])),
        ("[1, 2].flatMap((n, at) => [n, [at]])", json!([1, [0], 2, [1]])),
        ("[1].concat(2, [3, [4]], 'x')", json!([1, 2, 3, [4], "x"])),
        ("[1, 2, 3, 4].slice(1, -1)", json!([2, 3])),
        (
            "(function () { return Array.prototype.slice.call(arguments, 1) })(1, 2, 3)",
            json!([2, 3]),
        ),
        (
            "(function () { var a = [1, 2, 3, 4]; return [a.splice(1, 2, 9), a] })()",
            json!([[2, 3], [1, 9, 4]]),
        ),
        ("[[1, [2]], null].join('-') + [1, 2]", json!("1,2-1,2")),
        ("new Array(3).fill(0)", json!([0, 0, 0])),
        ("Array.from({ length: 3 }, (_, n) => n)", json!([0, 1, 2])),
        (
            "(function () { var a = [1, 2]; a.unshift(0); return [a.shift(), a] })()",
            json!([0, [1, 2]]),
        ),
        ("'a-b-c'.split('-')", json!(["a", "b", "c"])),
        ("'abc'.split()", json!(["abc"])),
        ("'a1b2'.split(/\\d/)", json!(["a", "b", ""])),
        ("'a-b-c'.replace('-', '+') + 'a-b'.replace(/-/g, m => m + m)", json!("a+b-ca--b")),
        ("'aXbX'.replaceAll('X', (m, at) => at)", json!("a1b3")),
        (
            "['abc'.indexOf('c'), 'abc'.lastIndexOf('x'), 'abc'.includes('b'), 'abcb'.indexOf('b', 2)]",
            json!([2, -1, true, 3]),
        ),
        ("'e\\u0301'.normalize() === '\\u00e9'", json!(true)),
        ("JSON.stringify({ a: 1, b: 2 }, ['b'], 1)", json!("{\n \"b\": 2\n}")),
        ("Array.from(new Uint8Array([3, 1, 2]).sort())", json!([1, 2, 3])),
    ] {
        check(&format!("response.setBody({expression})"), &[], expected);
    }
}

#[test]
fn a_pre_trigger_changes_the_request_and_has_no_response() {
    let call = Call {
        kind: Kind::PreTrigger,
        arguments: "[]",
        operation: "Create",
        request_body: Some(r#"{"id":"1"}"#),
        response_body: None,
    };
    let source = "function f() { var request = getContext().getRequest(), item = request.getBody();
        item.seen = request.getOperationType() + typeof getContext().getResponse; request.setBody(item) }";
    let (_, outcome) = run(&script(source), &call, Memory::default(), &Limits::default(), &clock());
    assert_eq!(outcome.unwrap().request.unwrap(), r#"{"id":"1","seen":"Createundefined"}"#);
    // A change in place, without a set call, has no effect.
    let source = "function f() { getContext().getRequest().getBody().seen = 1 }";
    let (_, outcome) = run(&script(source), &call, Memory::default(), &Limits::default(), &clock());
    assert_eq!(outcome.unwrap().request, None);
}

#[test]
fn a_post_trigger_sees_the_answer_and_cannot_change_the_request() {
    let call = Call {
        kind: Kind::PostTrigger,
        arguments: "[]",
        operation: "Replace",
        request_body: Some(r#"{"id":"1"}"#),
        response_body: Some(r#"{"id":"1","_etag":"e"}"#),
    };
    let source = "function f() { try { __.request.setBody({}) } catch (e) { var body = __.response.getBody(); body.number = e.number; __.response.setBody(body) } }";
    let (_, outcome) = run(&script(source), &call, Memory::default(), &Limits::default(), &clock());
    let outcome = outcome.unwrap();
    assert_eq!(outcome.response.unwrap(), r#"{"id":"1","_etag":"e","number":403}"#);
    assert_eq!(outcome.request, None);
}

#[test]
fn a_collection_that_says_stop_is_obeyed_at_once() {
    let source = "function f() { try { __.readDocument(__.getSelfLink() + 'docs/9', function () {}) } catch (e) {} finally { __.createDocument(__.getSelfLink(), { id: 'late' }) } }";
    let memory = Memory { stop_at: Some("9"), ..Memory::default() };
    let (memory, outcome) = procedure(source, "[]", memory);
    assert_eq!(outcome, Err(ScriptError::Stopped));
    assert!(memory.items.is_empty());
}

#[test]
fn user_defined_functions_take_and_return_values_and_undefined() {
    let function =
        |name: &str, source: &str| Script { name: name.to_owned(), source: source.to_owned() };
    let functions = Functions::new(
        [
            function("twice", "function twice(n) { return n * 2 }"),
            function("same", "function (x) { return x }"),
            function("nothing", "function () {}"),
            function("kind", "x => typeof x"),
            function(
                "outside",
                "function () { return typeof getContext + typeof require + typeof __ }",
            ),
            function("throws", "function () { throw new Error('boom') }"),
            function("broken", "function ( {"),
        ],
        &Limits::default(),
        &clock(),
        None,
    );
    let call =
        |name: &str, argument: Option<&str>| functions.call(name, &[argument.map(str::to_owned)]);
    assert_eq!(call("twice", Some("21")), Ok(Some("42".to_owned())));
    assert_eq!(call("same", Some(r#"{"a":[1,"é"]}"#)), Ok(Some(r#"{"a":[1,"é"]}"#.to_owned())));
    assert_eq!(call("same", None), Ok(None));
    assert_eq!(call("kind", None), Ok(Some("\"undefined\"".to_owned())));
    assert_eq!(call("nothing", Some("1")), Ok(None));
    assert_eq!(call("outside", None), Ok(Some("\"undefinedundefinedundefined\"".to_owned())));
    assert!(matches!(call("throws", None), Err(ScriptError::Thrown { .. })));
    assert!(matches!(call("broken", None), Err(ScriptError::Compile(_))));
    assert!(matches!(call("absent", None), Err(ScriptError::Thrown { number: 404, .. })));
    // A failed call does not affect the others.
    assert_eq!(call("twice", Some("1")), Ok(Some("2".to_owned())));
}
