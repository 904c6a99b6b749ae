// Limits for built-ins that loop inside the engine without calling the interrupt handler. Runs in every
// sandbox before anything else.
//
// The engine checks the deadline between the steps of a script and inside most of its own loops, but not in
// all: `Array.prototype.reverse.call({ length: 2 ** 53 - 1 })` would block a thread for ever. So these take
// arrays of limited length only, or are written here, where the engine can end every step. The originals
// cannot be reached afterwards. A proxy could report another length after the check, so Proxy is not
// available.
(function () {
  'use strict';
  // The most array elements that a built-in walks in one call; about a second of work at worst.
  const ELEMENTS_MAX = 1000000;
  // The most characters that one search compares.
  const COMPARISONS_MAX = 1e10;
  const NORMALIZED_MAX = 10000;
  const { isArray } = Array;
  const { apply } = Reflect;
  const { defineProperty, getPrototypeOf } = Object;
  const NativeRangeError = RangeError, NativeTypeError = TypeError, NativeRegExp = RegExp;

  function bounded(length) {
    if (length > ELEMENTS_MAX) {
      throw new NativeRangeError('an array of ' + length + ' elements is too long for this; the most is ' + ELEMENTS_MAX);
    }
    return length;
  }

  function install(owner, name, value) {
    defineProperty(owner, name, { value, writable: true, configurable: true, enumerable: false });
  }

  // A real array with the elements of an array-like object. Reads its length once.
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
        bounded(this.length);
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

  const typed = getPrototypeOf(Uint8Array.prototype);
  for (const name of ['sort', 'toSorted']) {
    const native = typed[name];
    install(typed, name, {
      [name](...given) {
        if (ArrayBuffer.isView(this)) bounded(this.length);
        return apply(native, this, given);
      },
    }[name]);
  }

  // At worst a search compares every character with every one. Patterns with their own search method, such
  // as regular expressions, run it themselves, and the engine can end those.
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
        if (given.length > 0) given[0] = searched;
        return apply(native, text, given);
      },
    }[name]);
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

  const stringify = JSON.stringify;
  install(JSON, 'stringify', function (value, replacer, space) {
    if (isArray(replacer)) bounded(replacer.length);
    return stringify(value, replacer, space);
  });

  const iterator = getPrototypeOf(getPrototypeOf([][Symbol.iterator]()));
  delete iterator.drop;
  delete globalThis.Proxy;
})();
