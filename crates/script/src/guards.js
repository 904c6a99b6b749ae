// Built-ins that loop inside the engine without asking whether they may go on, put behind bounds. Runs in
// every sandbox before anything else.
//
// The engine asks the deadline between the steps of a script and inside most of its own loops, but not in
// all: `Array.prototype.reverse.call({ length: 2 ** 53 - 1 })` would keep a thread for ever. So these take
// arrays of a sane length only, or are written here, where every step is one the engine can end. The
// originals are reachable from nowhere afterwards. A proxy could lie about its length after it was checked,
// so there are none.
(function () {
  'use strict';
  // Elements of an array that a built-in walks at once; about a second of work at worst.
  const ELEMENTS_MAX = 1000000;
  // Characters compared by one search, at worst.
  const COMPARISONS_MAX = 1e10;
  const NORMALIZED_MAX = 10000;
  // Characters or elements a built-in walks over for one step of the engine's own count.
  const WALKED_PER_STEP = 1000;
  // Steps for an element that takes longer than a character.
  const ELEMENT = 20;
  // Characters of the source of a `Function`, and of the pattern of a regular expression: neither can be ended
  // while it is compiled.
  const SOURCE_MAX = 200000;
  const PATTERN_MAX = 20000;
  const DIGITS_MAX = 20000;
  const { isArray } = Array;
  const { isView } = ArrayBuffer;
  const { apply, construct, ownKeys } = Reflect;
  const { create, defineProperty, getOwnPropertyDescriptor, getPrototypeOf } = Object;
  const NativeRangeError = RangeError, NativeTypeError = TypeError, NativeRegExp = RegExp;
  const NativeString = String, NativeNumber = Number, NativeBoolean = Boolean, NativeSet = Set, NativeMap = Map;

  function bounded(length) {
    if (length > ELEMENTS_MAX) {
      throw new NativeRangeError('an array of ' + length + ' elements is too long for this; the most is ' + ELEMENTS_MAX);
    }
    return length;
  }

  // The engine looks at the clock once in ten thousand of its own steps, and a call of a built-in is one of them
  // however long it takes. So whoever calls one that walks over much takes more steps.
  function pay(walked) {
    for (let left = walked / WALKED_PER_STEP; left >= 1; left -= 1);
  }

  // A built-in that pays for the length of what it is called on.
  function paid(owner, names, cost) {
    for (const name of names) {
      const native = owner[name];
      if (typeof native !== 'function') continue;
      install(owner, name, {
        [name](...given) {
          pay(cost(this, given));
          return apply(native, this, given);
        },
      }[name]);
    }
  }

  function lengthOf(value) {
    if (typeof value === 'string' || value instanceof NativeString) return value.length;
    return isArray(value) || isView(value) ? value.length : 0;
  }

  function install(owner, name, value) {
    defineProperty(owner, name, { value, writable: true, configurable: true, enumerable: false });
  }

  // A real array with the elements of something like one. Its length is read once.
  function arrayOf(list) {
    if (isArray(list)) {
      bounded(list.length);
      return list;
    }
    const source = Object(list), length = bounded(Math.max(Math.trunc(source.length) || 0, 0));
    const copy = [];
    for (let at = 0; at < length; at += 1) if (at in source) copy[at] = source[at];
    copy.length = length;
    return copy;
  }

  const array = Array.prototype;
  for (const name of ['join', 'toLocaleString', 'slice', 'toReversed', 'toSorted', 'toSpliced', 'with']) {
    const native = array[name];
    install(array, name, { [name](...given) { return apply(native, arrayOf(this), given); } }[name]);
  }
  for (const name of ['reverse', 'sort', 'splice', 'shift', 'unshift', 'fill', 'copyWithin']) {
    const native = array[name];
    install(array, name, {
      [name](...given) {
        if (!isArray(this)) throw new NativeTypeError(name + ' works on arrays only');
        pay(bounded(this.length) * ELEMENT);
        return apply(native, this, given);
      },
    }[name]);
  }

  function flattened(list, depth, out) {
    const length = bounded(list.length);
    for (let at = 0; at < length; at += 1) {
      if (at in list) {
        const element = list[at];
        if (depth > 0 && isArray(element)) flattened(element, depth - 1, out);
        else out[out.length] = element;
      }
    }
    return out;
  }
  install(array, 'flat', function flat(depth = 1) {
    return flattened(arrayOf(this), Math.trunc(depth) || 0, []);
  });
  install(array, 'flatMap', function flatMap(transform, self) {
    const list = arrayOf(this), out = [];
    for (let at = 0; at < list.length; at += 1) {
      if (at in list) {
        const made = apply(transform, self, [list[at], at, this]);
        if (isArray(made)) flattened(made, 0, out);
        else out[out.length] = made;
      }
    }
    return out;
  });
  install(array, 'concat', function concat(...given) {
    const out = [];
    let end = 0;
    const add = (list) => {
      if (!isArray(list)) {
        out[end] = list;
        end += 1;
        return;
      }
      const length = bounded(list.length);
      for (let at = 0; at < length; at += 1) if (at in list) out[end + at] = list[at];
      end += length;
    };
    add(Object(this));
    for (let at = 0; at < given.length; at += 1) add(given[at]);
    out.length = end;
    return out;
  });

  paid(array, ['indexOf', 'lastIndexOf', 'includes'], (list) => lengthOf(list) * ELEMENT);

  const typed = getPrototypeOf(Uint8Array.prototype);
  paid(typed, ['indexOf', 'lastIndexOf', 'includes', 'fill', 'reverse', 'copyWithin', 'set'], (list, given) =>
    lengthOf(list) + lengthOf(given[0]));
  for (const name of ['sort', 'toSorted']) {
    const native = typed[name];
    install(typed, name, {
      [name](...given) {
        if (isView(this)) pay(bounded(this.length) * ELEMENT);
        return apply(native, this, given);
      },
    }[name]);
  }

  // A search compares every character with every one at worst. Patterns with a behaviour of their own, such
  // as regular expressions, are asked to do it themselves, and the engine can end those.
  const string = String.prototype;
  const asked = { split: Symbol.split, replace: Symbol.replace, replaceAll: Symbol.replace };
  for (const name of ['indexOf', 'lastIndexOf', 'includes', 'split', 'replace', 'replaceAll']) {
    const native = string[name];
    install(string, name, {
      [name](...given) {
        const pattern = given[0];
        if (this === undefined || this === null) throw new NativeTypeError(name + ' of nothing');
        if (pattern !== null && typeof pattern === 'object') {
          const isExpression = pattern instanceof NativeRegExp;
          if (isExpression && (name === 'includes' || (name === 'replaceAll' && !pattern.global))) {
            throw new NativeTypeError(name + ' cannot take this regular expression');
          }
          const method = asked[name] === undefined ? undefined : pattern[asked[name]];
          if (method !== undefined && method !== null) {
            given[0] = this;
            return apply(method, pattern, given);
          }
        }
        if (name === 'split' && pattern === undefined) return apply(native, this, given);
        const text = String(this), searched = String(pattern);
        if (text.length * searched.length > COMPARISONS_MAX) {
          throw new NativeRangeError('the texts are too long to search one in the other');
        }
        pay(text.length * 2);
        if (given.length > 0) given[0] = searched;
        return apply(native, text, given);
      },
    }[name]);
  }
  // Each of these looks at every character at worst and makes nothing of it.
  paid(string, ['startsWith', 'endsWith', 'localeCompare', 'isWellFormed', 'trim', 'trimStart', 'trimEnd', 'trimLeft', 'trimRight'],
    (text) => lengthOf(text) * 4);
  for (const name of ['match', 'matchAll', 'search']) {
    const native = string[name];
    install(string, name, {
      [name](...given) {
        if (typeof given[0] === 'string') shortPattern(given[0]);
        pay(lengthOf(this));
        return apply(native, this, given);
      },
    }[name]);
  }
  for (const owner of [globalThis, Number]) paid(owner, ['parseInt', 'parseFloat'], (_, given) => lengthOf(given[0]) * 4);
  paid(globalThis, ['isNaN', 'isFinite'], (_, given) => lengthOf(given[0]) * 4);
  paid(NativeRegExp.prototype, ['exec', 'test'], (_, given) => 10 * WALKED_PER_STEP + lengthOf(given[0]));
  for (const kind of [Set.prototype, Map.prototype]) {
    paid(kind, ['isSubsetOf', 'isSupersetOf', 'isDisjointFrom', 'union', 'intersection', 'difference', 'symmetricDifference'],
      (set, given) => (sizeOf(set) + sizeOf(given[0])) * ELEMENT);
  }
  function sizeOf(value) {
    return value instanceof NativeSet || value instanceof NativeMap ? value.size : 0;
  }

  function shortPattern(pattern) {
    if (lengthOf(pattern) > PATTERN_MAX) throw new NativeRangeError('the pattern is too long; the most is ' + PATTERN_MAX);
  }

  // A constructor in the place of another, which looks at its arguments first.
  function replaced(owner, name, Native, check) {
    const made = { [name]: function (...given) {
      check(given);
      return new.target === undefined
        ? apply(Native, this, given)
        : construct(Native, given, new.target === made ? Native : new.target);
    } }[name];
    for (const key of ownKeys(Native)) {
      if (key !== 'prototype') defineProperty(made, key, getOwnPropertyDescriptor(Native, key));
    }
    defineProperty(made, 'prototype', { value: Native.prototype, writable: false });
    defineProperty(Native.prototype, 'constructor', { value: made, writable: true, configurable: true, enumerable: false });
    if (owner !== null) install(owner, name, made);
    return made;
  }
  replaced(globalThis, 'RegExp', NativeRegExp, (given) => shortPattern(given[0]));
  replaced(globalThis, 'Number', Number, (given) => pay(lengthOf(given[0]) * 4));
  // To read a number of many digits takes their square.
  replaced(globalThis, 'BigInt', BigInt, (given) => {
    const length = lengthOf(given[0]);
    if (length > DIGITS_MAX && lengthOf(given[0].trim()) > DIGITS_MAX) {
      throw new NativeRangeError('the number has too many digits; the most is ' + DIGITS_MAX);
    }
    pay(length * 4);
  });
  const shortSource = (given) => {
    let length = 0;
    for (let at = 0; at < given.length; at += 1) length += (given[at] = String(given[at])).length;
    if (length > SOURCE_MAX) throw new NativeRangeError('the source is too long; the most is ' + SOURCE_MAX);
    pay(length * 100);
  };
  replaced(globalThis, 'Function', Function, shortSource);
  for (const one of [async function () {}, function* () {}, async function* () {}]) {
    const Native = getPrototypeOf(one).constructor;
    const made = replaced(null, Native.name, Native, shortSource);
    // Read-only in the language, so it has to be defined.
    defineProperty(getPrototypeOf(one), 'constructor', { value: made, configurable: true });
  }

  const normalize = string.normalize;
  install(string, 'normalize', function (form) {
    const text = String(this);
    if (text.length > NORMALIZED_MAX) throw new NativeRangeError('the text is too long to normalize');
    return apply(normalize, text, form === undefined ? [] : [String(form)]);
  });

  install(String, 'raw', function raw(strings, ...given) {
    const list = arrayOf(Object(strings).raw);
    let text = '';
    for (let at = 0; at < list.length; at += 1) {
      text += String(list[at]);
      if (at + 1 < list.length && at < given.length) text += String(given[at]);
    }
    return text;
  });

  // A structure that has its parts many times is written as many times, each part compared with all above it. A
  // replacer is a function of the script, and a call of it is a step.
  const { parse, stringify } = JSON;
  const asItIs = (key, value) => value;
  function only(list) {
    const names = [];
    for (let at = 0; at < bounded(list.length); at += 1) {
      const name = list[at], kind = typeof name;
      const isBoxed = name instanceof NativeString || name instanceof NativeNumber;
      if (kind === 'string' || kind === 'number' || isBoxed) names[names.length] = NativeString(name);
    }
    return (key, value) => {
      if (value === null || typeof value !== 'object' || isArray(value)) return value;
      if (value instanceof NativeString || value instanceof NativeNumber || value instanceof NativeBoolean) return value;
      const kept = create(null);
      for (let at = 0; at < names.length; at += 1) kept[names[at]] = value[names[at]];
      return kept;
    };
  }
  install(JSON, 'stringify', function (value, replacer, space) {
    let given = typeof replacer === 'function' ? replacer : asItIs;
    if (isArray(replacer)) given = only(replacer);
    return stringify(value, given, space);
  });
  install(JSON, 'parse', function (text, reviver) {
    const source = String(text);
    pay(source.length * 10);
    return parse(source, reviver);
  });

  const iterator = getPrototypeOf(getPrototypeOf([][Symbol.iterator]()));
  delete iterator.drop;
  delete globalThis.Proxy;
})();
