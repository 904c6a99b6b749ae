// The server-side API for scripts: getContext(), __, console. Runs first in every sandbox.
//
// `host` is the only access to the outside. It takes the name of an operation, its options as JSON and a body
// as text, and returns a text whose first character is the outcome: '+' done, '-' refused, '!' not accepted,
// '.' the script is stopped at once.
//
// A script that changes this code or the built-ins affects only itself: nothing here enforces security.
(function (host, print, setting) {
  'use strict';
  const { parse, stringify } = JSON;
  const PAGE_SIZE = 100;
  const ErrorCodes = Object.freeze({
    BadRequest: 400, Forbidden: 403, NotFound: 404, Conflict: 409, PreconditionFailed: 412,
    RequestEntityTooLarge: 413, RetryWith: 449, InternalServerError: 500,
  });

  // `new Error(404, "text")` sets the error's number, as scripts written for the service expect.
  const NativeError = globalThis.Error;
  const ScriptError = function Error(first, second) {
    const numbered = typeof first === 'number' && arguments.length > 1;
    const made = numbered ? new NativeError(second) : new NativeError(first, second);
    if (numbered) made.number = first;
    if (new.target && new.target !== ScriptError) Object.setPrototypeOf(made, new.target.prototype);
    return made;
  };
  ScriptError.prototype = NativeError.prototype;
  Object.setPrototypeOf(ScriptError, NativeError);
  Object.defineProperty(NativeError.prototype, 'constructor', { value: ScriptError });
  globalThis.Error = ScriptError;

  function bad(message) { return new ScriptError(ErrorCodes.BadRequest, message); }

  // Describes a thrown value for the caller of the script.
  function explain(thrown) {
    let text, stack = '', number;
    if (thrown !== null && typeof thrown === 'object') {
      if (thrown instanceof NativeError) {
        text = String(thrown);
        stack = String(thrown.stack);
      } else {
        text = typeof thrown.message === 'string' ? thrown.message : stringify(thrown);
      }
      number = thrown.number;
    } else {
      text = String(thrown);
    }
    return stringify({ text: String(text), stack, number: Number.isInteger(number) ? number : 0 });
  }

  // Pending callbacks, and unhandled rejections.
  let queue = [], at = 0, failures = [];

  function watch(value) {
    if (value instanceof Promise) value.then(undefined, (reason) => { failures.push(reason); });
  }

  function later(callback, error, ...results) {
    queue.push(() => {
      if (typeof callback === 'function') watch(error ? callback(error) : callback(undefined, ...results));
      else if (error) throw error;
    });
  }

  // Calls the host. `undefined` means that the call is not accepted.
  function ask(operation, options, body) {
    const answer = host(operation, stringify(options), body);
    switch (answer[0]) {
      case '+': return { value: parse(answer.slice(1)) };
      case '-': {
        const refused = parse(answer.slice(1));
        const error = new ScriptError(refused.number, stringify({ Errors: [refused.message] }));
        error.body = stringify({ code: refused.code, message: refused.message });
        return { error };
      }
      case '!': return undefined;
      default: for (;;) { /* the host interrupts */ }
    }
  }

  function optionsAndCallback(options, callback) {
    if (callback === undefined && typeof options === 'function') return [{}, options];
    if (options !== undefined && options !== null && typeof options !== 'object') {
      throw bad('options must be an object, not a ' + typeof options);
    }
    if (callback !== undefined && callback !== null && typeof callback !== 'function') {
      throw bad('the callback must be a function, not a ' + typeof callback);
    }
    return [options || {}, callback];
  }

  function checkCollection(link) {
    if (link !== setting.selfLink && link !== setting.altLink && link + '/' !== setting.selfLink) {
      throw bad('the link ' + link + ' is not that of this collection; use getSelfLink()');
    }
  }

  function documentIn(link) {
    const text = typeof link === 'string' ? link : '';
    for (const owner of [setting.selfLink, setting.altLink + '/']) {
      const prefix = owner + 'docs/';
      if (text.startsWith(prefix)) {
        const name = text.slice(prefix.length).replace(/\/$/, '');
        if (name !== '' && !name.includes('/')) return { name, byRid: owner === setting.selfLink };
      }
    }
    throw bad('the link ' + link + ' is not that of an item in this collection; use its _self, or '
      + 'getAltLink() + "/docs/" + id');
  }

  function bodyText(body, what) {
    if (typeof body === 'string') return body;
    if (body === null || typeof body !== 'object') throw bad(what + ' must be an object or JSON text');
    return stringify(body);
  }

  function simple(operation, request, body, callback, give) {
    const answer = ask(operation, request, body);
    if (answer === undefined) return false;
    if (answer.error) later(callback, answer.error);
    else later(callback, undefined, ...give(answer.value));
    return true;
  }

  const itemAndOptions = (value) => [value.item, { etag: value.etag }];

  function writeDocument(operation, link, body, options, callback) {
    checkCollection(link);
    [options, callback] = optionsAndCallback(options, callback);
    const request = { etag: options.etag, generateId: options.disableAutomaticIdGeneration !== true };
    if (request.generateId && body !== null && typeof body === 'object' && !body.id) {
      body = { ...body, id: undefined };
    }
    const text = bodyText(body, 'an item');
    return simple(operation, request, text, callback, itemAndOptions);
  }

  function pageRequest(options) {
    const size = options.pageSize === undefined ? PAGE_SIZE : Number(options.pageSize);
    const all = Number.isNaN(size) || size <= 0;
    return {
      pageSize: all ? 1000 : Math.min(Math.ceil(size), 1000),
      continuation: options.continuation || undefined,
    };
  }

  const feedAndOptions = (value) => [value.rows, pageOptions(value.continuation)];

  function pageOptions(continuation) {
    return continuation === undefined ? {} : { continuation };
  }

  function noAttachments() {
    throw bad('attachments are not kept here; store the bytes elsewhere and their address in an item');
  }

  const collection = {
    getSelfLink() { return setting.selfLink; },
    getAltLink() { return setting.altLink; },
    createDocument(link, body, options, callback) {
      return writeDocument('create', link, body, options, callback);
    },
    upsertDocument(link, body, options, callback) {
      return writeDocument('upsert', link, body, options, callback);
    },
    replaceDocument(link, body, options, callback) {
      const target = documentIn(link), text = bodyText(body, 'an item');
      [options, callback] = optionsAndCallback(options, callback);
      return simple('replace', { ...target, etag: options.etag }, text, callback, itemAndOptions);
    },
    deleteDocument(link, options, callback) {
      const target = documentIn(link);
      [options, callback] = optionsAndCallback(options, callback);
      return simple('delete', { ...target, etag: options.etag }, undefined, callback, () => [{}]);
    },
    readDocument(link, options, callback) {
      const target = documentIn(link);
      [options, callback] = optionsAndCallback(options, callback);
      const request = { ...target, ifNoneMatch: options.ifNoneMatch };
      return simple('read', request, undefined, callback, (value) =>
        value.notModified ? [undefined, { notModified: true }] : itemAndOptions(value));
    },
    readDocuments(link, options, callback) {
      checkCollection(link);
      [options, callback] = optionsAndCallback(options, callback);
      return simple('query', pageRequest(options), undefined, callback, feedAndOptions);
    },
    queryDocuments(link, query, options, callback) {
      checkCollection(link);
      if (typeof query === 'string') query = { query };
      if (query === null || typeof query !== 'object' || typeof query.query !== 'string') {
        throw bad('a query is a text, or { query: text, parameters: [{ name, value }] }');
      }
      [options, callback] = optionsAndCallback(options, callback);
      const request = { ...pageRequest(options), query: query.query, parameters: query.parameters };
      return simple('query', request, undefined, callback, feedAndOptions);
    },
    createAttachment: noAttachments,
    upsertAttachment: noAttachments,
    readAttachment: noAttachments,
    readAttachments: noAttachments,
    queryAttachments: noAttachments,
    replaceAttachment: noAttachments,
    deleteAttachment: noAttachments,
    chain() { return chained([]); },
  };
  collection.ErrorCodes = ErrorCodes;

  // The language-integrated query: steps that each turn one input into none, one or many outputs.
  const steps = {
    filter(predicate) {
      needFunction(predicate, 'filter needs a predicate');
      return { each: (input) => (predicate(input) ? [input] : []) };
    },
    map(transform) {
      needFunction(transform, 'map needs a function');
      return { each: (input) => [transform(input)] };
    },
    pluck(name) {
      if (typeof name !== 'string' || name === '') throw bad('pluck needs the name of a property');
      return { each: (input) => [input === null || input === undefined ? undefined : input[name]] };
    },
    flatten(shallow) {
      const depth = shallow === true ? 1 : Infinity;
      return { each: (input) => (Array.isArray(input) ? input.flat(depth - 1) : [input]) };
    },
    unwind(select, result) {
      needFunction(select, 'unwind needs a function that selects an array');
      return {
        each: (input) => {
          const inner = select(input);
          if (!Array.isArray(inner)) return [];
          return inner.map((one) => (typeof result === 'function' ? result(input, one) : [input, one]));
        },
      };
    },
    sortBy(by) { return { sort: by || ((input) => input), sign: 1 }; },
    sortByDescending(by) { return { sort: by || ((input) => input), sign: -1 }; },
  };
  const ARGUMENTS = { filter: 1, map: 1, pluck: 1, flatten: 1, unwind: 2, sortBy: 1, sortByDescending: 1 };

  function needFunction(value, message) {
    if (typeof value !== 'function') throw bad(message);
  }

  // The arguments of the step itself; the rest are options and callback. The second function of an
  // unwind is its result selector.
  function split(name, given) {
    const kind = name === 'flatten' ? 'boolean' : 'function', own = [];
    if (name !== 'flatten') own.push(given.shift());
    while (own.length < ARGUMENTS[name] && typeof given[0] === kind) own.push(given.shift());
    return [own, given];
  }

  for (const name of Object.keys(steps)) {
    collection[name] = function (...given) {
      if (given[0] === collection || given[0] === shortcut) given.shift();
      const [own, rest] = split(name, given);
      return evaluate([steps[name](...own)], ...rest);
    };
  }

  function chained(before) {
    const chain = { isAccepted: true };
    for (const name of Object.keys(steps)) {
      chain[name] = (...own) => {
        if (own[0] === collection || own[0] === shortcut) own.shift();
        return chained([...before, steps[name](...own)]);
      };
    }
    chain.value = (...rest) => evaluate(before, ...rest);
    return chain;
  }

  function evaluate(list, options, callback) {
    [options, callback] = optionsAndCallback(options, callback);
    const done = callback || ((error, feed) => {
      if (error) throw error;
      if (!response) throw bad('a query needs a callback where there is no response, as in a pre-trigger');
      response.appendBody(stringify(feed));
    });
    let found;
    try {
      found = list.some((step) => step.sort) ? sorted(list, options) : streamed(list, options);
    } catch (error) {
      later(done, error);
      return { isAccepted: true };
    }
    if (found === undefined) return { isAccepted: false };
    if (found.error) later(done, found.error);
    else later(done, undefined, found.rows, pageOptions(found.continuation));
    return { isAccepted: true };
  }

  function through(list, rows) {
    for (const step of list) rows = rows.flatMap(step.each);
    return rows;
  }

  // Reads items page by page until there are enough results. The position is always after a whole item.
  function streamed(list, options) {
    const request = pageRequest(options), wanted = request.pageSize, rows = [];
    for (;;) {
      request.pageSize = Math.max(wanted - rows.length, 1);
      const answer = ask('query', request);
      if (answer === undefined || answer.error) return answer;
      for (const row of through(list, answer.value.rows)) rows.push(row);
      request.continuation = answer.value.continuation;
      if (request.continuation === undefined || rows.length >= wanted) {
        return { rows, continuation: request.continuation };
      }
    }
  }

  // Sorting needs all results first; a position is then a number of results.
  function sorted(list, options) {
    const { pageSize, continuation } = pageRequest(options);
    let rows = [], position;
    do {
      const answer = ask('query', { pageSize: 1000, continuation: position });
      if (answer === undefined || answer.error) return answer;
      rows = rows.concat(answer.value.rows);
      position = answer.value.continuation;
    } while (position !== undefined);
    for (const step of list) {
      if (step.each) rows = rows.flatMap(step.each);
      else {
        const keyed = rows.map((row) => ({ row, key: step.sort(row) }));
        keyed.sort((one, two) => step.sign * compare(one.key, two.key));
        rows = keyed.map((pair) => pair.row);
      }
    }
    const from = continuation === undefined ? 0 : Number(continuation), to = from + pageSize;
    return { rows: rows.slice(from, to), continuation: to < rows.length ? String(to) : undefined };
  }

  const RANKS = { undefined: 0, boolean: 2, number: 3, string: 4, object: 5 };
  function compare(one, two) {
    const rank = (value) => (value === null ? 1 : RANKS[typeof value] || 0);
    if (rank(one) !== rank(two)) return rank(one) - rank(two);
    return one < two ? -1 : one > two ? 1 : 0;
  }

  const messages = [];

  // Requests and responses are maps of a few named values, one of which is the body.
  function message(values, writable) {
    const changed = new Set();
    // Old scripts write `Body` as often as `body`.
    const called = (given) => {
      const wanted = String(given).toLowerCase();
      return Object.keys(values).find((name) => name.toLowerCase() === wanted);
    };
    const set = (given, value) => {
      const name = called(given);
      if (name === undefined) throw bad('Cannot set new values: ' + given);
      if (!writable.includes(name)) {
        throw new ScriptError(ErrorCodes.Forbidden, 'Not a writable property: ' + name);
      }
      values[name] = value;
      changed.add(name);
    };
    const text = (value) => (typeof value === 'string' ? value : stringify(value));
    // Appends as text, also numbers.
    const append = (name, value) => {
      const before = values[called(name)];
      set(name, before === undefined || before === null ? value : text(before) + text(value));
    };
    // A value that the script did not set stays unchanged, even if it modified what getBody returned.
    messages.push(() => (changed.has('body') ? values.body : undefined));
    return {
      getBody: () => values.body,
      setBody: (value) => set('body', value),
      appendBody: (value) => append('body', value),
      getValue: (name) => values[called(name)],
      setValue: set,
      appendValue: append,
    };
  }

  const requestValues = { body: setting.requestBody, operationType: setting.operationType };
  const request = message(requestValues, setting.kind === 'pre' ? ['body'] : []);
  request.getOperationType = () => requestValues.operationType;
  const responseValues = { body: setting.responseBody };
  const response = setting.kind === 'pre' ? undefined : message(responseValues, ['body']);
  if (response) {
    response.getMaxResourceQuota = () => '';
    response.getResourceQuotaCurrentUsage = () => '';
    response.getCurrentResourceQuotaUsage = response.getResourceQuotaCurrentUsage;
  }

  const context = {
    getCollection: () => collection,
    getRequest: () => request,
    abort: (error) => { ask('abort', {}, explain(error)); },
  };
  if (response) context.getResponse = () => response;

  const shortcut = Object.create(collection);
  shortcut.request = request;
  if (response) shortcut.response = response;

  function formatted(first, rest) {
    if (typeof first !== 'string') return [first, ...rest].map(shown).join(' ');
    const text = first.replace(/%([%s])/g, (whole, kind) =>
      kind === '%' ? '%' : rest.length > 0 ? shown(rest.shift()) : whole);
    return [text, ...rest.map(shown)].join(' ');
  }

  function shown(value) {
    if (typeof value === 'object' && value !== null) {
      if (value instanceof NativeError) return String(value);
      try { return stringify(value); } catch (error) { return String(value); }
    }
    return String(value);
  }

  if (setting.kind !== 'function') {
    globalThis.getContext = () => context;
    globalThis.__ = shortcut;
  }
  globalThis.console = {};
  for (const name of ['log', 'info', 'warn', 'error', 'debug']) {
    globalThis.console[name] = (first, ...rest) => { print(formatted(first, rest)); };
  }

  // The functions that the host calls.
  return {
    explain,
    start(entry, given) { watch(entry(...parse(given))); },
    // Runs the next callback; false when none is left.
    next() {
      if (failures.length > 0) throw failures[0];
      if (at >= queue.length) return false;
      const callback = queue[at];
      queue[at] = undefined;
      at += 1;
      if (at > 1000) { queue = queue.slice(at); at = 0; }
      callback();
      return true;
    },
    finish() {
      return stringify({
        request: messages[0](),
        response: response ? messages[1]() : undefined,
      });
    },
    // Calls a user-defined function: an undefined argument is an empty list, an undefined result ''.
    call(entry, given) {
      const list = parse(given).map((one) => (one.length === 0 ? undefined : one[0]));
      const text = stringify(entry(...list));
      return text === undefined ? '' : text;
    },
  };
})
