//! Gives each frame and each stack a number, and defines it in the stream the
//! first time that it is met.
//!
//! Knows: what a reader has been told. Must not know: where frames come from,
//! where bytes go.
//!
//! Runs in the signal handler. The tables are laid out before; when one is full
//! a new epoch begins, for the reader as well, and everything is defined anew.

use super::ring::Producer;
use super::table::{Lookup, Table};
use crate::jit::aborts::Abort;
use crate::jit::lines::Lines;
use crate::jit::tables::Tables;
use crate::native::modules::Module;
use crate::native::unwind::Unwinder;
use crate::stack::RawFrame;
use crate::vm::layout::Layout;
use crate::vm::lines;
use crate::vm::names::{self, MAX_CHUNK, MAX_NAME};
use crate::vm::objects::{Identity, Proto};
use crate::vm::trace::Trace;
use ljp::encode::{Cursor, Frame, FrameDef, TraceDef};
use ljp::{FuncKind, NameKind};

/// Places in the tables of frames and of stacks.
const FRAME_PLACES: usize = 1 << 15;
const STACK_PLACES: usize = 1 << 17;
/// Places in the tables of what frames refer to.
const OTHER_PLACES: usize = 1 << 14;
/// The most bytes that the definitions for one frame can take: a prototype with
/// its names, a trace, the frame, the stack.
const DEFINITION: usize = MAX_CHUNK + MAX_NAME + 256;

/// A built-in or C function with its name.
#[derive(Clone, Debug)]
pub struct NamedFunction {
    /// Its machine code.
    pub code: usize,
    /// Its number among the built-ins, 1 for other C functions.
    pub ffid: u8,
    /// Whether `code` is all of it, not what a built-in falls back to.
    pub in_c: bool,
    /// What it is called.
    pub name: String,
}

/// Names of built-ins and C functions that are known before they are met.
pub struct FunctionNames {
    names: Vec<NamedFunction>,
}

impl FunctionNames {
    /// From those of each function, in any order; it may have several.
    pub fn new(mut names: Vec<NamedFunction>) -> FunctionNames {
        // The shortest name of a function that has several is the best known.
        names.sort_by(|a, b| {
            (a.code, a.ffid, a.name.len(), &a.name).cmp(&(b.code, b.ffid, b.name.len(), &b.name))
        });
        names.dedup_by_key(|function| (function.code, function.ffid));
        FunctionNames { names }
    }

    /// All of them.
    pub fn all(&self) -> &[NamedFunction] {
        &self.names
    }

    /// The functions that have got a name which `before` did not know, defined
    /// with it: a reader gives it to the definitions that had none. Allocates.
    pub fn since(&self, before: &FunctionNames, unwinder: &Unwinder) -> Vec<u8> {
        let mut records = Vec::new();
        for function in &self.names {
            if before.get(function.code, function.ffid).is_empty() {
                let mut bytes = [0; DEFINITION];
                let mut record = Cursor::new(&mut bytes);
                let (module, address) = locate(unwinder, function.code);
                let name = &function.name.as_bytes()[..function.name.len().min(MAX_CHUNK)];
                record.func(kind_of(function.ffid), name, module, address);
                records.extend_from_slice(record.written());
            }
        }
        records
    }

    /// The name of a function by its machine code and number, empty if none is known.
    pub fn get(&self, code: usize, ffid: u8) -> &str {
        (self
            .names
            .binary_search_by_key(&(code, ffid), |function| (function.code, function.ffid)))
        .map_or("", |index| &self.names[index].name)
    }
}

/// What the definitions are made from.
pub struct Context<'a> {
    /// The VM.
    pub layout: &'a Layout,
    /// The loaded modules.
    pub unwinder: &'a Unwinder,
    /// What is known of traces.
    pub tables: Option<&'a Tables>,
    /// What is known of functions beforehand.
    pub functions: &'a FunctionNames,
}

/// The numbers that were given out.
pub struct Interner {
    frames: Table<RawFrame>,
    definitions: Table<FrameDef>,
    stacks: Table<(u32, u32)>,
    protos: Table<(Proto, Identity)>,
    functions: Table<(usize, u8)>,
    traces: Table<Trace>,
    /// The last stack, outermost frame first, with the number of the stack that
    /// ends at each frame: most of it is the same again next time.
    last: Vec<(RawFrame, u32)>,
}

/// A stack could not be written: the reader of the ring is too slow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoRoom;

/// Bytes that a ring needs so that a stack of `depth` frames, none of which was
/// met before, fits.
pub fn ring_size(depth: usize) -> usize {
    (2 * (depth + 2) * DEFINITION).max(1 << 20)
}

impl Interner {
    /// Tables for stacks of `depth` frames.
    pub fn new(depth: usize) -> Interner {
        Interner {
            frames: Table::new(FRAME_PLACES),
            definitions: Table::new(FRAME_PLACES),
            stacks: Table::new(STACK_PLACES),
            protos: Table::new(OTHER_PLACES),
            functions: Table::new(OTHER_PLACES),
            traces: Table::new(OTHER_PLACES),
            last: Vec::with_capacity(depth + 2),
        }
    }

    /// The number of the stack `frames`, innermost first, which is not empty.
    /// What the reader has not been told goes into `out`, unpublished.
    ///
    /// # Errors
    /// When it might not fit; nothing is defined then.
    pub fn stack(
        &mut self,
        context: &Context,
        frames: &[RawFrame],
        out: &mut Producer,
    ) -> Result<u32, NoRoom> {
        let count = frames.len();
        let outermost_first = || frames.iter().rev();
        let same = (self.last.iter().zip(outermost_first()))
            .take_while(|(last, frame)| last.0 == **frame)
            .count();
        let new = count - same;
        if new == 0 {
            self.last.truncate(count);
            return Ok(self.last[count - 1].1);
        }
        if out.room() < (new + 1) * DEFINITION {
            return Err(NoRoom);
        }
        let room = self.frames.has_room(new)
            && self.definitions.has_room(new)
            && self.stacks.has_room(new)
            && [self.protos.has_room(new), self.functions.has_room(new)] == [true; 2]
            && self.traces.has_room(new);
        let same = if room {
            same
        } else {
            if out.room() < (count + 1) * DEFINITION {
                return Err(NoRoom);
            }
            self.new_epoch(out);
            0
        };
        self.last.truncate(same);
        let mut parent = self.last.last().map(|last| last.1);
        for index in (0..count - same).rev() {
            let frame = &frames[index];
            let caller = frames[index + 1..].first();
            let id = self.frame(context, frame, caller, out);
            let key = (parent.map_or(0, |parent| parent + 1), id);
            let stack = match self.stacks.look_up(&key) {
                Lookup::Known(stack) => stack,
                Lookup::Unknown(place) => {
                    let stack = self.stacks.len() as u32;
                    self.stacks.insert(place, key, stack);
                    write(out, |record| record.stack(parent, id));
                    stack
                }
            };
            self.last.push((*frame, stack));
            parent = Some(stack);
        }
        Ok(self.last[count - 1].1)
    }

    /// Forgets all numbers, here and in the reader.
    pub fn new_epoch(&mut self, out: &mut Producer) {
        self.frames.clear();
        self.definitions.clear();
        self.stacks.clear();
        self.protos.clear();
        self.functions.clear();
        self.traces.clear();
        self.last.clear();
        write(out, |record| record.epoch());
    }

    fn frame(
        &mut self,
        context: &Context,
        frame: &RawFrame,
        caller: Option<&RawFrame>,
        out: &mut Producer,
    ) -> u32 {
        let place = match self.frames.look_up(frame) {
            Lookup::Known(id) => return id,
            Lookup::Unknown(place) => place,
        };
        // Different positions may make the same frame: those of one line do.
        let definition = self.define(context, frame, caller, out);
        let id = match self.definitions.look_up(&definition) {
            Lookup::Known(id) => id,
            Lookup::Unknown(place) => {
                let id = self.definitions.len() as u32;
                self.definitions.insert(place, definition, id);
                write(out, |record| record.frame(&definition));
                id
            }
        };
        self.frames.insert(place, *frame, id);
        id
    }

    fn define(
        &mut self,
        context: &Context,
        frame: &RawFrame,
        caller: Option<&RawFrame>,
        out: &mut Producer,
    ) -> FrameDef {
        match *frame {
            RawFrame::Lua {
                proto,
                identity,
                pc,
                compiled,
                in_loop,
                ancestor,
            } => {
                let line = lines::line_before(context.layout, proto, pc);
                let proto = self.proto(context, (proto, identity), caller, out);
                FrameDef {
                    frame: Frame::Lua { proto, line },
                    compiled: compiled.map(|trace| self.trace(context, trace, out)),
                    in_loop,
                    ancestor,
                }
            }
            RawFrame::Function { code, ffid } => Frame::Func {
                func: self.function(context, code, ffid, out),
            }
            .into(),
            RawFrame::Native { address } => {
                let (module, address) = locate(context.unwinder, address);
                Frame::Native { module, address }.into()
            }
            RawFrame::Mark(mark) => Frame::Mark(mark).into(),
        }
    }

    fn proto(
        &mut self,
        context: &Context,
        key: (Proto, Identity),
        caller: Option<&RawFrame>,
        out: &mut Producer,
    ) -> u32 {
        let place = match self.protos.look_up(&key) {
            Lookup::Known(id) => return id,
            Lookup::Unknown(place) => place,
        };
        let (proto, layout) = (key.0, context.layout);
        let first_line = proto.first_line(layout).unwrap_or(0);
        let mut name = [0; MAX_NAME];
        // Only a main chunk begins before the first line (`lj_parse.c`).
        let (kind, len) = if first_line == 0 {
            (NameKind::Main, 0)
        } else {
            name_of(context, caller, &mut name).unwrap_or((NameKind::None, 0))
        };
        let mut chunk = [0; MAX_CHUNK];
        let chunk = names::chunk(layout, proto, &mut chunk);
        let line_count = proto.line_count(layout).unwrap_or(0);
        write(out, |record| {
            record.proto(chunk, first_line, line_count, &name[..len], kind);
        });
        let id = self.protos.len() as u32;
        self.protos.insert(place, key, id);
        id
    }

    fn function(&mut self, context: &Context, code: usize, ffid: u8, out: &mut Producer) -> u32 {
        let key = (code, ffid);
        let place = match self.functions.look_up(&key) {
            Lookup::Known(id) => return id,
            Lookup::Unknown(place) => place,
        };
        let name = context.functions.get(code, ffid).as_bytes();
        let (module, address) = locate(context.unwinder, code);
        write(out, |record| {
            let name = &name[..name.len().min(MAX_CHUNK)];
            record.func(kind_of(ffid), name, module, address);
        });
        let id = self.functions.len() as u32;
        self.functions.insert(place, key, id);
        id
    }

    fn trace(&mut self, context: &Context, trace: Trace, out: &mut Producer) -> u32 {
        let layout = context.layout;
        let code = trace.code(layout).unwrap_or(0..0);
        let place = match self.traces.look_up(&trace) {
            Lookup::Known(id) => return id,
            Lookup::Unknown(place) => place,
        };
        let start = trace.start(layout);
        let proto = start.and_then(|(proto, _)| {
            let identity = proto.identity(layout)?;
            Some(self.proto(context, (proto, identity), None, out))
        });
        let side_of = (context.tables)
            .and_then(|tables| tables.of(trace))
            .and_then(Lines::side_of);
        let definition = TraceDef {
            number: trace.number(),
            parent: side_of.map_or(0, |exit| exit.trace),
            exit: side_of.map_or(0, |exit| exit.number),
            root: trace.root(layout).unwrap_or(0),
            link: trace.link(layout).unwrap_or(0),
            mcode_size: code.len() as u64,
            proto,
            line: start.map_or(0, |(proto, pc)| lines::line_before(layout, proto, pc)),
        };
        write(out, |record| record.trace(&definition));
        let id = self.traces.len() as u32;
        self.traces.insert(place, trace, id);
        id
    }
}

/// What the caller's bytecode calls its callee.
fn name_of(
    context: &Context,
    caller: Option<&RawFrame>,
    to: &mut [u8; MAX_NAME],
) -> Option<(NameKind, usize)> {
    match caller? {
        RawFrame::Lua {
            proto,
            pc,
            ancestor: false,
            ..
        } => names::of_call(context.layout, *proto, *pc, to),
        _ => None,
    }
}

/// Appends the record of a recording that was aborted. Allocates.
pub fn append_abort(abort: &Abort, to: &mut Vec<u8>) {
    let mut bytes = vec![0; abort.chunk.len() + abort.reason.len() + 64];
    let mut out = Cursor::new(&mut bytes);
    let reason = abort.reason.as_bytes();
    out.abort(abort.times, &abort.chunk, abort.line, reason);
    to.extend_from_slice(out.written());
}

/// What a function is by its number among the built-ins.
fn kind_of(ffid: u8) -> FuncKind {
    match ffid {
        1 => FuncKind::C,
        _ => FuncKind::Builtin,
    }
}

/// An address as the file of its module numbers it.
fn locate(unwinder: &Unwinder, address: usize) -> (Option<u32>, u64) {
    match unwinder.locate(address) {
        Some(place) => (Some(place.module), place.address as u64),
        None => (None, address as u64),
    }
}

/// Tells the reader of modules; false, and nothing is told, if they do not fit.
pub fn write_modules(modules: &[Module], out: &mut Producer) -> bool {
    const MAX_PATH: usize = 4096;
    let mut bytes = [0; MAX_PATH + 256];
    let room = modules
        .iter()
        .map(|module| module.path.len().min(MAX_PATH) + 256);
    if out.room() < room.sum() {
        return false;
    }
    for module in modules {
        let path = &module.path.as_bytes()[..module.path.len().min(MAX_PATH)];
        let mut record = Cursor::new(&mut bytes);
        record.module(
            path,
            &module.build_id,
            module.bias as u64,
            module.range.start as u64,
            module.range.end as u64,
        );
        out.put(record.written());
    }
    true
}

/// Encodes records of one definition; the caller has made sure of room.
fn write(out: &mut Producer, encode: impl FnOnce(&mut Cursor)) {
    let mut bytes = [0; DEFINITION];
    let mut record = Cursor::new(&mut bytes);
    encode(&mut record);
    out.put(record.written());
}
