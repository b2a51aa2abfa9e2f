//! Whether a sequence of stacks is the one that the truth says.
//!
//! Knows: what may lie between two stacks that the hooks have shown. Must not
//! know: how stacks were found.
//!
//! Between two events there may be returns that no event shows: into a C
//! function that called back, or out of several frames by an error. So from one
//! true stack to the next one the calls that are not in the next one go, one
//! after the other; nothing else may be seen. In compiled code, where no event
//! is, a stack that is known as an ancestor only must be the beginning of one
//! that comes.

use crate::truth::{Call, Truth};

/// Follows the truth along.
pub struct Follower<'t> {
    truth: &'t Truth,
    /// The true stack that was reached last.
    at: usize,
    /// How many calls of it are still there.
    kept: usize,
}

/// What a seen stack is said to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claim {
    /// The stack.
    Exact,
    /// The stack without calls that were compiled into the innermost one.
    Ancestor,
}

impl<'t> Follower<'t> {
    /// At the beginning of `truth`.
    pub fn new(truth: &'t Truth) -> Follower<'t> {
        Follower {
            truth,
            at: 0,
            kept: truth.get(0).map_or(0, <[Call]>::len),
        }
    }

    /// How many calls lie around those that the truth is about.
    pub fn lowest(&self) -> usize {
        self.truth.get(0).map_or(0, <[Call]>::len)
    }

    /// Whether `seen` is the stack now with a finalizer on top: LuaJIT runs those
    /// without hooks, so that the truth does not know their functions.
    pub fn in_finalizer(&self, seen: &[Call]) -> bool {
        self.truth.get(self.at).is_some_and(|now| {
            seen.len() > now.len()
                && seen[..now.len()] == *now
                && !self.truth.knows(seen[now.len()].key)
        })
    }

    /// Where it is.
    pub fn position(&self) -> usize {
        self.at
    }

    /// Whether the end of the truth was reached.
    pub fn at_end(&self) -> bool {
        self.at + 1 >= self.truth.len()
    }

    /// Whether `seen` may be the stack now; goes on to there if so. `in_c` says
    /// whether C code runs that Lua knows nothing of.
    pub fn see(&mut self, seen: &[Call], claim: Claim, in_c: bool) -> bool {
        match claim {
            Claim::Exact => (in_c && self.is_back(seen)) || self.see_exact(seen),
            Claim::Ancestor => self.see_ancestor(seen),
        }
    }

    fn see_exact(&mut self, seen: &[Call]) -> bool {
        let Some(now) = self.truth.get(self.at) else {
            return false;
        };
        if now[..self.kept] == *seen || self.is_called_again(seen) {
            return true;
        }
        // Calls one after the other that make the same stack may look like one.
        let next = (self.at + 1..self.truth.len())
            .find(|&index| self.truth.get(index) != self.truth.get(self.at))
            .unwrap_or(self.truth.len());
        for index in [self.at + 1, next] {
            if self.truth.get(index).is_some_and(|stack| stack == seen) {
                self.at = index;
                self.kept = seen.len();
                return true;
            }
        }
        let popped =
            seen.len() < self.kept && now[..seen.len()] == *seen && self.may_be_popped(seen.len());
        if popped {
            self.kept = seen.len();
        }
        popped
    }

    /// Whether the stack may shrink to `len` calls before the next event: not
    /// below what the next stack keeps, and not to a Lua function that then
    /// calls, for the call would have been an event in that function; unless the
    /// VM itself calls again in the middle of one instruction (`a .. b .. c`).
    fn may_be_popped(&self, len: usize) -> bool {
        let Some(now) = self.truth.get(self.at) else {
            return false;
        };
        let Some(next) = self.truth.get(self.at + 1) else {
            return true;
        };
        let same = (now.iter().zip(next)).take_while(|(a, b)| a.key == b.key);
        // A call that has just been made is not the one before, alike or not.
        let new = usize::from(self.truth.is_call(self.at + 1));
        let common = same.count().min(next.len() - new);
        let Some(top) = len.checked_sub(1).and_then(|top| now.get(top)) else {
            return false;
        };
        let calls_again = !top.lua || next.get(len - 1) == Some(top);
        len > common || (len == common && (next.len() == common || calls_again))
    }

    /// A function whose frame must grow is called twice: it may be at its first
    /// line again.
    fn is_called_again(&self, seen: &[Call]) -> bool {
        let same_calls = |now: &[Call]| now.iter().map(|c| c.key).eq(seen.iter().map(|c| c.key));
        self.at > 0
            && self.truth.is_call(self.at - 1)
            && self
                .truth
                .get(self.at - 1)
                .is_some_and(|before| before == seen)
            && self.truth.get(self.at).is_some_and(same_calls)
    }

    /// LuaJIT puts the frame of an FFI callback back while it converts the
    /// callback's result (`lj_ccallback_leave`).
    fn is_back(&mut self, seen: &[Call]) -> bool {
        let back =
            self.kept + 1 == seen.len() && self.truth.get(self.at).is_some_and(|now| now == seen);
        if back {
            self.kept = seen.len();
        }
        back
    }

    /// Searches at any distance: compiled code passes over events.
    fn see_ancestor(&mut self, seen: &[Call]) -> bool {
        let found = self.nearest(|stack| is_ancestor(seen, stack));
        if let Some(index) = found {
            self.at = index;
            self.kept = self.truth.get(index).map_or(0, <[Call]>::len);
        }
        found.is_some()
    }

    /// The next true stack that `fits`, or else the last one before.
    fn nearest(&self, fits: impl Fn(&[Call]) -> bool) -> Option<usize> {
        let fits = |index: &usize| self.truth.get(*index).is_some_and(&fits);
        let ahead = (self.at..self.truth.len()).find(fits);
        ahead.or_else(|| (0..self.at).rev().find(fits))
    }

    /// Whether compiled code may have the stack `seen` while the program's clock
    /// says `tick`; goes on to there if so. Compiled code passes over events, but
    /// not over those at which the clock is set.
    pub fn see_compiled(&mut self, seen: &[Call], claim: Claim, tick: u64) -> bool {
        let fits = |stack: &[Call]| match claim {
            Claim::Exact => stack == seen,
            Claim::Ancestor => is_ancestor(seen, stack),
        };
        let at_tick = |index: usize| {
            let around = index.saturating_sub(1)..=index + 1;
            around.into_iter().any(|i| self.truth.tick(i) == Some(tick))
        };
        let found = (self.at..self.truth.len())
            .find(|&index| at_tick(index) && self.truth.get(index).is_some_and(fits));
        if let Some(index) = found {
            self.at = index;
            self.kept = self.truth.get(index).map_or(0, <[Call]>::len);
        }
        found.is_some()
    }

    /// A trace was left: what it did after its last snapshot is done again. It
    /// goes back to where the clock was set to `tick`.
    pub fn left_trace(&mut self, tick: u64) {
        let now = |index: &usize| self.truth.tick(*index) == Some(tick);
        self.at = (self.at..self.truth.len()).find(now).unwrap_or(self.at);
        while self.at > 0 && self.truth.tick(self.at - 1) == Some(tick) {
            self.at -= 1;
        }
        self.kept = self.truth.get(self.at).map_or(0, <[Call]>::len);
    }

    /// Goes to the next true stack that is `seen`, at any distance, or else to the
    /// last one before: without a clock it is not known how far compiled code has
    /// got, nor what is done again when it is left.
    pub fn catch_up(&mut self, seen: &[Call]) -> bool {
        let found = self.nearest(|stack| stack == seen);
        if let Some(index) = found {
            self.at = index;
            self.kept = seen.len();
        }
        found.is_some()
    }
}

/// Whether `seen` is `stack` without some of its innermost calls; at which line
/// its own innermost call is, it does not say.
fn is_ancestor(seen: &[Call], stack: &[Call]) -> bool {
    let Some((innermost, rest)) = seen.split_last() else {
        return true;
    };
    stack.len() >= seen.len()
        && stack[..rest.len()] == *rest
        && stack[rest.len()].key == innermost.key
}
