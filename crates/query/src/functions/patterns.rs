//! Regular expressions with searches that the meter can interrupt.
//!
//! A search takes time in proportion to the text and, at worst, to the compiled pattern: `(a{1,50}){1,50}b` has
//! thousands of states and may visit each of them for each byte. The `regex` crate cannot be interrupted, so it
//! only gets small patterns with short texts. Every other search feeds its text to a lazy DFA in blocks, and each
//! block is charged before it is searched.
//!
//! ```text
//! pattern ≤ 16 KiB compiled, text ≤ 8 KiB      regex, at once
//! otherwise                                    lazy DFA, block by block
//! Unicode \b on a text that is not ASCII       regex, up to STATE_BYTES_MAX; refused beyond
//! ```

use regex::{Regex, RegexBuilder};
use regex_automata::hybrid::dfa::{Cache, DFA};
use regex_automata::nfa::thompson::{self, WhichCaptures};
use regex_automata::util::syntax;
use regex_automata::{Input, MatchKind};

use crate::error::EvaluationError;
use crate::meter::Meter;

/// The longest pattern. Parsing expands Unicode classes before any limit on the compiled size applies.
const PATTERN_TEXT_MAX: usize = 4 << 10;
/// The most memory a compiled pattern takes.
const PATTERN_BYTES_MAX: usize = 1 << 20;
/// The largest compiled pattern that the `regex` crate searches at once.
const SMALL_PATTERN_BYTES: usize = 16 << 10;
/// The longest text that is searched at once.
const SHORT_TEXT_BYTES: usize = 8 << 10;
/// Bytes of text between two charges.
const BLOCK_BYTES: usize = 16;
/// States of a pattern visited for the cost of a step.
const STATES_PER_STEP: usize = 16;
/// The most states × bytes of a search that can be neither interrupted nor done by a DFA.
const STATE_BYTES_MAX: usize = 32 << 20;
/// Steps charged for compiling a pattern, so that the watch is checked between any two compilations.
const COMPILE_STEPS: usize = 1024;
/// How many compiled patterns a run keeps.
const PATTERNS_MAX: usize = 16;
const NEST_MAX: u32 = 64;

/// The compiled patterns of a run, the latest last.
#[derive(Default)]
pub(crate) struct Patterns(Vec<Pattern>);

impl Patterns {
    /// Whether a pattern matches anywhere in a text.
    pub(super) fn is_match(
        &mut self,
        pattern: &str,
        modifiers: &str,
        text: &str,
        meter: &mut Meter,
    ) -> Result<bool, EvaluationError> {
        let known = self.0.iter().position(|one| one.text == pattern && one.modifiers == modifiers);
        let place = match known {
            Some(place) => place,
            None => {
                let compiled = Pattern::compile(pattern, modifiers, meter)?;
                if self.0.len() >= PATTERNS_MAX {
                    self.0.remove(0).release(meter);
                }
                self.0.push(compiled);
                self.0.len() - 1
            }
        };
        self.0.get_mut(place).map_or(Ok(false), |pattern| pattern.is_match(text, meter))
    }
}

struct Pattern {
    text: String,
    modifiers: String,
    /// `None` if the pattern is too large to search at once.
    small: Option<Regex>,
    /// Built for the first text that needs it.
    automaton: Option<Automaton>,
}

impl Pattern {
    fn compile(text: &str, modifiers: &str, meter: &mut Meter) -> Result<Pattern, EvaluationError> {
        if text.len() > PATTERN_TEXT_MAX {
            return Err(EvaluationError::BadPattern(format!(
                "it is longer than {PATTERN_TEXT_MAX} bytes; split it into several"
            )));
        }
        meter.step(COMPILE_STEPS)?;
        let small = match regex(text, modifiers, SMALL_PATTERN_BYTES) {
            Ok(regex) => Some(regex),
            Err(regex::Error::CompiledTooBig(_)) => None,
            Err(error) => return Err(EvaluationError::BadPattern(error.to_string())),
        };
        Ok(Pattern {
            text: text.to_owned(),
            modifiers: modifiers.to_owned(),
            small,
            automaton: None,
        })
    }

    fn release(self, meter: &mut Meter) {
        if let Some(automaton) = self.automaton {
            meter.release(automaton.kept_bytes);
        }
    }

    fn is_match(&mut self, text: &str, meter: &mut Meter) -> Result<bool, EvaluationError> {
        if let Some(regex) = self.small.as_ref().filter(|_| text.len() <= SHORT_TEXT_BYTES) {
            meter.step(1 + text.len() / 8)?;
            return Ok(regex.is_match(text));
        }
        let automaton = match &mut self.automaton {
            Some(automaton) => automaton,
            none => none.insert(Automaton::build(&self.text, &self.modifiers, meter)?),
        };
        match automaton.is_match(text, meter)? {
            Some(is_match) => Ok(is_match),
            None => self.search_at_once(text, meter),
        }
    }

    /// Searches a text that the DFA cannot search, if the search is short enough.
    fn search_at_once(&self, text: &str, meter: &mut Meter) -> Result<bool, EvaluationError> {
        let states = self.automaton.as_ref().map_or(usize::MAX, |automaton| automaton.states);
        let work = text.len().saturating_mul(states);
        if work > STATE_BYTES_MAX {
            return Err(EvaluationError::SearchTooLong {
                text_bytes: text.len(),
                text_bytes_max: STATE_BYTES_MAX / states.max(1),
            });
        }
        meter.step(work / STATES_PER_STEP)?;
        let bad = |error: regex::Error| EvaluationError::BadPattern(error.to_string());
        match &self.small {
            Some(regex) => Ok(regex.is_match(text)),
            None => {
                let regex = regex(&self.text, &self.modifiers, PATTERN_BYTES_MAX).map_err(bad)?;
                Ok(regex.is_match(text))
            }
        }
    }
}

fn regex(pattern: &str, modifiers: &str, bytes_max: usize) -> Result<Regex, regex::Error> {
    RegexBuilder::new(pattern)
        .multi_line(modifiers.contains('m'))
        .dot_matches_new_line(modifiers.contains('s'))
        .case_insensitive(modifiers.contains('i'))
        .ignore_whitespace(modifiers.contains('x'))
        .size_limit(bytes_max)
        .dfa_size_limit(bytes_max)
        .nest_limit(NEST_MAX)
        .build()
}

/// A lazy DFA with its cache.
struct Automaton {
    dfa: DFA,
    cache: Cache,
    /// The number of the pattern's states: the most that one byte visits.
    states: usize,
    kept_bytes: usize,
}

impl Automaton {
    fn build(
        pattern: &str,
        modifiers: &str,
        meter: &mut Meter,
    ) -> Result<Automaton, EvaluationError> {
        meter.step(COMPILE_STEPS)?;
        let syntax = syntax::Config::new()
            .multi_line(modifiers.contains('m'))
            .dot_matches_new_line(modifiers.contains('s'))
            .case_insensitive(modifiers.contains('i'))
            .ignore_whitespace(modifiers.contains('x'))
            .nest_limit(NEST_MAX);
        let nfa = thompson::Config::new()
            .nfa_size_limit(Some(PATTERN_BYTES_MAX))
            .which_captures(WhichCaptures::None);
        let config = DFA::config()
            .match_kind(MatchKind::All)
            .unicode_word_boundary(true)
            .cache_capacity(PATTERN_BYTES_MAX)
            .skip_cache_capacity_check(true)
            .minimum_cache_clear_count(None);
        let built = DFA::builder().syntax(syntax).thompson(nfa).configure(config).build(pattern);
        let dfa = built.map_err(|_| {
            // `regex` has compiled it with a smaller limit, so only its size can be wrong.
            EvaluationError::BadPattern(format!(
                "it takes more than {PATTERN_BYTES_MAX} bytes compiled; repeat less, for example with {{1,10}}"
            ))
        })?;
        let cache = dfa.create_cache();
        let states = dfa.get_nfa().states().len();
        let kept_bytes = dfa.get_nfa().memory_usage()
            + dfa.get_config().get_cache_capacity().max(cache.memory_usage());
        meter.keep(kept_bytes)?;
        Ok(Automaton { dfa, cache, states, kept_bytes })
    }

    /// Whether it matches anywhere; `None` if a DFA cannot decide.
    fn is_match(&mut self, text: &str, meter: &mut Meter) -> Result<Option<bool>, EvaluationError> {
        let Automaton { dfa, cache, states, .. } = self;
        // A byte that leads to a state of the DFA that is not in its cache visits all states of the pattern.
        let uncached = 1 + BLOCK_BYTES * (*states).div_ceil(STATES_PER_STEP);
        meter.step(uncached)?;
        let Ok(mut state) = dfa.start_state_forward(cache, &Input::new(text)) else {
            return Ok(None);
        };
        let mut at = 0;
        let mut known = (cache.memory_usage(), cache.clear_count());
        for block in text.as_bytes().chunks(BLOCK_BYTES) {
            for byte in block {
                let Ok(next) = dfa.next_state(cache, state, *byte) else { return Ok(None) };
                state = next;
                if state.is_tagged() {
                    // Matches are reported one byte late.
                    if state.is_match() && text.is_char_boundary(at) {
                        return Ok(Some(true));
                    }
                    if state.is_dead() {
                        return Ok(Some(false));
                    }
                    if state.is_quit() {
                        return Ok(None);
                    }
                }
                at += 1;
            }
            let now = (cache.memory_usage(), cache.clear_count());
            meter.step(if now == known { 1 } else { uncached })?;
            known = now;
        }
        let end = dfa.next_eoi_state(cache, state);
        Ok(end.ok().map(|state| state.is_match()))
    }
}
