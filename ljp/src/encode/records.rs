//! The records of version 3, each as one call on a [`Cursor`].
//!
//! Every call writes its record whole, or nothing and sets
//! [`Cursor::overflowed`].

use super::Cursor;
use crate::wire::{self, ULEB_MAX};
use crate::{Counters, Frame, FrameDef, FuncKind, NameKind, Reason, TraceDef, VmState};

/// The most bytes that [`Cursor::sample`] writes.
pub const MAX_SAMPLE: usize = 1 + 3 * ULEB_MAX;
/// The most bytes that [`Cursor::frame`] writes.
pub const MAX_FRAME: usize = 2 + 2 + 3 * ULEB_MAX;
/// The most bytes that [`Cursor::stack`] writes.
pub const MAX_STACK: usize = 2 + 2 * ULEB_MAX;

/// An optional id as the format has it: 0 for none, otherwise the id plus 1.
fn optional(id: Option<u32>) -> u64 {
    id.map_or(0, |id| u64::from(id) + 1)
}

impl Cursor<'_> {
    /// What a file begins with.
    pub fn prologue(&mut self) {
        self.whole(|out| {
            out.bytes(&wire::MAGIC);
            out.u8(wire::VERSION);
            out.bytes(&[0; wire::RESERVED]);
        });
    }

    /// META: something to know about the recording.
    pub fn meta(&mut self, key: &[u8], value: &[u8]) {
        self.record(wire::META, |out| {
            out.str(key);
            out.str(value);
        });
    }

    /// MODULE: a file that was mapped with its code from `low` to before `end`.
    /// `build_id` is raw bytes and may be empty; `bias` was added to the
    /// addresses in the file.
    pub fn module(&mut self, path: &[u8], build_id: &[u8], bias: u64, low: u64, end: u64) {
        self.record(wire::MODULE, |out| {
            out.str(path);
            out.str(build_id);
            out.uleb(bias);
            out.uleb(low);
            out.uleb(end);
        });
    }

    /// PROTO: a Lua function. `chunk` is the chunk name as Lua has it; the
    /// caller cuts it at 255 bytes.
    pub fn proto(
        &mut self,
        chunk: &[u8],
        first_line: u32,
        num_lines: u32,
        name: &[u8],
        kind: NameKind,
    ) {
        self.record(wire::PROTO, |out| {
            out.str(chunk);
            out.uleb(first_line.into());
            out.uleb(num_lines.into());
            out.str(name);
            out.u8(kind.number());
        });
    }

    /// FUNC: a C function or built-in. `address` is in the numbering of the
    /// module's file, absolute without a module.
    pub fn func(&mut self, kind: FuncKind, name: &[u8], module: Option<u32>, address: u64) {
        self.record(wire::FUNC, |out| {
            out.u8(kind.number());
            out.str(name);
            out.uleb(optional(module));
            out.uleb(address);
        });
    }

    /// TRACE: a trace.
    pub fn trace(&mut self, trace: &TraceDef) {
        self.record(wire::TRACE, |out| {
            for number in [
                trace.number,
                trace.parent,
                trace.exit,
                trace.root,
                trace.link,
            ] {
                out.uleb(number.into());
            }
            out.uleb(trace.mcode_size);
            out.uleb(optional(trace.proto));
            out.uleb(trace.line.into());
        });
    }

    /// ABORT: recordings that LuaJIT aborted at `line` of a chunk, 0 if that is not
    /// known, and why.
    pub fn abort(&mut self, times: u64, chunk: &[u8], line: u32, reason: &[u8]) {
        self.record(wire::ABORT, |out| {
            out.uleb(times);
            out.str(chunk);
            out.uleb(line.into());
            out.str(reason);
        });
    }

    /// FRAME: a frame, at most [`MAX_FRAME`] bytes.
    pub fn frame(&mut self, def: &FrameDef) {
        let flag = |set, flag| if set { flag } else { 0 };
        let flags = flag(def.compiled.is_some(), wire::FLAG_COMPILED)
            | flag(def.ancestor, wire::FLAG_ANCESTOR)
            | flag(def.in_loop, wire::FLAG_LOOP);
        self.record(wire::FRAME, |out| {
            match def.frame {
                Frame::Lua { proto, line } => {
                    out.u8(wire::FRAME_LUA);
                    out.uleb(flags);
                    out.uleb(proto.into());
                    out.uleb(line.into());
                }
                Frame::Func { func } => {
                    out.u8(wire::FRAME_FUNC);
                    out.uleb(flags);
                    out.uleb(func.into());
                }
                Frame::Native { module, address } => {
                    out.u8(wire::FRAME_NATIVE);
                    out.uleb(flags);
                    out.uleb(optional(module));
                    out.uleb(address);
                }
                Frame::Trace { trace } => {
                    out.u8(wire::FRAME_TRACE);
                    out.uleb(flags);
                    out.uleb(trace.into());
                }
                Frame::Mark(mark) => {
                    out.u8(wire::FRAME_MARK);
                    out.uleb(flags);
                    out.u8(mark.number());
                }
            }
            if let Some(trace) = def.compiled {
                out.uleb(trace.into());
            }
        });
    }

    /// STACK: the frame with this id, called from the stack with the id
    /// `parent`; `None` for the outermost frame. At most [`MAX_STACK`] bytes.
    pub fn stack(&mut self, parent: Option<u32>, frame: u32) {
        self.record(wire::STACK, |out| {
            out.uleb(optional(parent));
            out.uleb(frame.into());
        });
    }

    /// SYMBOL: the name of the native code that begins at `address`, for frames
    /// and functions without a module.
    pub fn symbol(&mut self, address: u64, name: &[u8]) {
        self.record(wire::SYMBOL, |out| {
            out.uleb(address);
            out.str(name);
        });
    }

    /// EPOCH: ids of all definitions but modules begin again at 0.
    pub fn epoch(&mut self) {
        self.record(wire::EPOCH, |_| {});
    }

    /// A sample: the id of its stack or why it has none, how many ticks of the
    /// clock it stands for, and the microseconds since the sample before. At
    /// most [`MAX_SAMPLE`] bytes.
    pub fn sample(
        &mut self,
        state: VmState,
        stack: Result<u32, Reason>,
        weight: u64,
        step_us: u64,
    ) {
        let mut head = wire::SAMPLE | state.number();
        if stack.is_err() {
            head |= wire::SAMPLE_NO_STACK;
        }
        if weight != 1 {
            head |= wire::SAMPLE_WEIGHT;
        }
        self.whole(|out| {
            out.u8(head);
            out.uleb(match stack {
                Ok(id) => id.into(),
                Err(reason) => reason.number().into(),
            });
            if weight != 1 {
                out.uleb(weight);
            }
            out.uleb(step_us);
        });
    }

    /// END: the recording was stopped; nothing may follow.
    pub fn end(&mut self, counters: &Counters) {
        self.record(wire::END, |out| {
            out.uleb(counters.duration_us);
            out.uleb(counters.samples);
            out.uleb(counters.overruns);
            for n in counters.by_state {
                out.uleb(n);
            }
            out.uleb(Reason::COUNT as u64);
            for n in counters.by_reason {
                out.uleb(n);
            }
            out.uleb(counters.errno.into());
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limits_hold_for_the_largest_numbers() {
        let mut buf = [0; 128];
        let mut out = Cursor::new(&mut buf);
        out.sample(VmState::Trace, Ok(u32::MAX), u64::MAX, u64::MAX);
        assert!(out.len() <= MAX_SAMPLE);

        let mut out = Cursor::new(&mut buf);
        out.frame(&FrameDef {
            frame: Frame::Native {
                module: Some(u32::MAX),
                address: u64::MAX,
            },
            compiled: Some(u32::MAX),
            in_loop: true,
            ancestor: true,
        });
        assert!(out.len() <= MAX_FRAME && out.len() > 20);

        let mut out = Cursor::new(&mut buf);
        out.stack(Some(u32::MAX), u32::MAX);
        assert!(out.len() <= MAX_STACK);
    }

    #[test]
    fn a_record_that_does_not_fit_leaves_the_one_before() {
        let mut buf = [0; 12];
        let mut out = Cursor::new(&mut buf);
        out.prologue();
        out.stack(None, 0);
        let whole = out.len();
        out.meta(b"k", b"v");
        assert!(out.overflowed());
        assert_eq!(out.written().len(), whole);
        assert_eq!(out.written(), b"ljp\x03\0\0\0\x07\x02\0\0");
    }
}
