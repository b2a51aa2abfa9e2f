//! The stream that Tarantool's tools read: every sample with its whole stacks.
//!
//! Knows: which functions and traces a reader has been told of, and how version
//! 2 has a stack. Must not know: where frames come from.
//!
//! What says "handler" below runs in the signal handler, on memory that was laid
//! out before. The format has no weights: a sample that stands for several
//! intervals is written as often. One that there was no room for is owed, and
//! written without a stack as soon as there is.

use super::callback::Callback;
use super::intern::{Context, FunctionNames};
use super::ring::Producer;
use super::table::{Lookup, Table};
use super::writer::Signals;
use crate::native::modules::Module;
use crate::native::symbols::{self, Symbol};
use crate::native::tables;
use crate::stack::{Found, RawFrame};
use crate::vm::layout::Layout;
use crate::vm::lines;
use crate::vm::names::{self, MAX_CHUNK};
use crate::vm::objects::{Identity, Proto};
use crate::vm::trace::Trace;
use ljp::encode::{Cursor, MAX_V2_PIECE, MAX_V2_SYMBOL, Part, v2_has_lua_stack};
use ljp::{Mark, Reason, VmState};
use std::collections::BTreeMap;
use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, Ordering};

/// Places in the tables, besides those for what is known at the start.
const PROTO_PLACES: usize = 1 << 14;
const TRACE_PLACES: usize = 1 << 12;
/// How often one sample is written at most, and how many debts are settled, at
/// one signal: the rest waits. Its work must be bounded.
const MAX_REPEATS: u64 = 1000;

/// Takes the frames of a native stack from a backtracer of the host's: the
/// number of a frame, innermost 0, and its address. Null: no more are wanted.
pub type FrameWriter = unsafe extern "C" fn(frame_no: c_int, address: *mut c_void) -> *mut c_void;

/// A backtracer of the host's, called in the handler.
pub type BacktracerFn = unsafe extern "C" fn(FrameWriter);

/// Where the bytes go.
pub enum Sink {
    /// To a thread of ours, that writes a file.
    Ring {
        /// Where the thread takes them from.
        out: Producer,
        /// How it is woken.
        writer: Arc<Signals>,
    },
    /// To the host.
    Callback(Callback),
}

impl Sink {
    /// Handler: false if there is no room.
    fn put(&mut self, bytes: &[u8]) -> bool {
        match self {
            Sink::Ring { out, .. } => out.put(bytes),
            Sink::Callback(callback) => {
                callback.put(bytes);
                true
            }
        }
    }

    /// Handler: what was put in is good.
    fn publish(&mut self) {
        if let Sink::Ring { out, writer } = self {
            out.publish();
            if out.room() < out.capacity() / 2 {
                writer.wake();
            }
        }
    }

    /// Handler: what was put in since the last `publish` is taken back.
    fn retract(&mut self) {
        if let Sink::Ring { out, .. } = self {
            out.retract();
        }
    }

    /// Why nothing is written any more.
    pub fn failure(&self) -> Option<i32> {
        match self {
            Sink::Ring { writer, .. } => writer.failure(),
            Sink::Callback(callback) => callback.failure(),
        }
    }

    fn symbol(&mut self, write: impl FnOnce(&mut Cursor)) -> bool {
        let mut bytes = [0; MAX_V2_SYMBOL + MAX_CHUNK];
        let mut out = Cursor::new(&mut bytes);
        write(&mut out);
        self.put(out.written())
    }

    fn piece(&mut self, write: impl FnOnce(&mut Cursor)) -> bool {
        let mut bytes = [0; MAX_V2_PIECE];
        let mut out = Cursor::new(&mut bytes);
        write(&mut out);
        self.put(out.written())
    }
}

/// Addresses of a native stack, innermost first.
struct Native {
    addresses: Vec<u64>,
    limit: usize,
}

/// The native stack that a backtracer is filling in. Set only while the handler
/// calls one.
static FILLING: AtomicPtr<Native> = AtomicPtr::new(ptr::null_mut());

unsafe extern "C" fn frame_writer(_number: c_int, address: *mut c_void) -> *mut c_void {
    // SAFETY: null, or the stack that the handler below this call lets fill in,
    // and does not touch meanwhile.
    let Some(native) = (unsafe { FILLING.load(Ordering::Relaxed).as_mut() }) else {
        return ptr::null_mut();
    };
    if address.is_null() || native.addresses.len() >= native.limit {
        return ptr::null_mut();
    }
    native.addresses.push(address as u64);
    if native.addresses.len() < native.limit {
        address
    } else {
        ptr::null_mut()
    }
}

/// The state of the stream.
pub struct Version2 {
    sink: Sink,
    protos: Table<(Proto, Identity)>,
    traces: Table<(u32, usize, u32)>,
    native: Native,
    backtracer: Option<BacktracerFn>,
    /// Samples by state that are still to be written.
    owed: [u64; VmState::COUNT],
}

/// What a sample in a trace carries.
#[derive(Clone, Copy)]
struct InTrace {
    number: u32,
    proto: Proto,
    first_line: u32,
    start_line: u32,
}

impl Version2 {
    /// A stream into `sink`, whose reader knows `protos` already. Native stacks
    /// have `depth` frames at most; `backtracer` fills them in, or else they are
    /// the native frames of the samples.
    pub fn new(
        sink: Sink,
        layout: &Layout,
        protos: &[Proto],
        depth: usize,
        backtracer: Option<BacktracerFn>,
    ) -> Version2 {
        let mut known = Table::new((protos.len() * 2 + PROTO_PLACES).next_power_of_two());
        for &proto in protos {
            let Some(identity) = proto.identity(layout) else {
                continue;
            };
            let key = (proto, identity);
            if let Lookup::Unknown(place) = known.look_up(&key) {
                known.insert(place, key, 0);
            }
        }
        Version2 {
            sink,
            protos: known,
            traces: Table::new(TRACE_PLACES),
            native: Native {
                addresses: Vec::with_capacity(depth),
                limit: depth,
            },
            backtracer,
            owed: [0; VmState::COUNT],
        }
    }

    /// Handler: records a sample of `weight` intervals. Returns what became of
    /// its stack.
    pub fn record(
        &mut self,
        context: &Context,
        found: Found,
        frames: &[RawFrame],
        weight: u64,
    ) -> Result<(), Reason> {
        if self.sink.failure().is_some() {
            // The stream has ended; the counters go on.
            return Err(Reason::Full);
        }
        self.settle_debts();
        let frames = if found.stack.is_ok() { frames } else { &[] };
        self.collect_native(found, frames);
        let trace = (found.state == VmState::Trace)
            .then(|| in_trace(context.layout, frames))
            .flatten();
        let mut written = 0;
        while written < weight.min(MAX_REPEATS) {
            let fits = (written > 0 || self.announce(context, found.state, frames, trace))
                && self.sample(context.layout, found.state, frames, trace);
            if !fits {
                self.sink.retract();
                if written == 0 {
                    // What was announced is gone with it.
                    self.protos.clear();
                    self.traces.clear();
                }
                break;
            }
            self.sink.publish();
            written += 1;
        }
        self.owed[found.state as usize] += weight - written;
        if written == 0 {
            return Err(Reason::Full);
        }
        found.stack
    }

    /// Writes what is still owed and the end of the stream: returns it for a
    /// file, gives it to the host's writer otherwise. Not for the handler.
    pub fn finish(&mut self) -> Vec<u8> {
        let mut last = Vec::new();
        let mut put = |sink: &mut Sink, bytes: &[u8]| match sink {
            Sink::Ring { .. } => last.extend(bytes),
            Sink::Callback(callback) => callback.put(bytes),
        };
        for state in VmState::ALL {
            for _ in 0..self.owed[state as usize] {
                let mut bytes = [0; MAX_V2_PIECE];
                let mut out = Cursor::new(&mut bytes);
                stackless(&mut out, state);
                put(&mut self.sink, out.written());
            }
        }
        let mut bytes = [0; 1];
        let mut out = Cursor::new(&mut bytes);
        out.v2_final();
        put(&mut self.sink, out.written());
        if let Sink::Callback(callback) = &mut self.sink {
            callback.flush();
        }
        last
    }

    /// Why nothing was written any more at some point.
    pub fn failure(&self) -> Option<i32> {
        self.sink.failure()
    }

    fn settle_debts(&mut self) {
        let mut left = MAX_REPEATS;
        for state in VmState::ALL {
            while left > 0 && self.owed[state as usize] > 0 {
                if !self.sink.piece(|out| stackless(out, state)) {
                    return;
                }
                self.sink.publish();
                self.owed[state as usize] -= 1;
                left -= 1;
            }
        }
    }

    fn collect_native(&mut self, found: Found, frames: &[RawFrame]) {
        let native = &mut self.native;
        native.addresses.clear();
        // Without stacks there is no native one, and with a trace neither.
        if found.stack == Err(Reason::Mode) || found.state == VmState::Trace {
            return;
        }
        if let Some(backtracer) = self.backtracer {
            FILLING.store(native, Ordering::Relaxed);
            // SAFETY: the host's promise: it may be called in a handler.
            unsafe { backtracer(frame_writer) };
            FILLING.store(ptr::null_mut(), Ordering::Relaxed);
            return;
        }
        // A reader would take an address in no known module for part of the
        // symbol before it.
        let next = frames.iter().skip(1).map(Some).chain([None]);
        let addresses = frames.iter().zip(next).filter_map(|pair| match pair {
            (_, Some(RawFrame::Mark(Mark::UnknownCode))) => None,
            (RawFrame::Native { address }, _) => Some(*address as u64),
            _ => None,
        });
        for address in addresses.take(native.limit) {
            native.addresses.push(address);
        }
    }

    /// Tells of the functions and traces in a sample that are new.
    fn announce(
        &mut self,
        context: &Context,
        state: VmState,
        frames: &[RawFrame],
        trace: Option<InTrace>,
    ) -> bool {
        let layout = context.layout;
        if let Some(trace) = trace {
            return self.announce_trace(layout, trace);
        }
        if !v2_has_lua_stack(state) {
            return true;
        }
        frames.iter().all(|frame| match *frame {
            RawFrame::Lua {
                proto, identity, ..
            } => self.announce_proto(layout, proto, identity),
            _ => true,
        })
    }

    fn announce_proto(&mut self, layout: &Layout, proto: Proto, identity: Identity) -> bool {
        let key = (proto, identity);
        let mut lookup = self.protos.look_up(&key);
        if !self.protos.has_room(1) {
            self.protos.clear();
            lookup = self.protos.look_up(&key);
        }
        let Lookup::Unknown(place) = lookup else {
            return true;
        };
        self.protos.insert(place, key, 0);
        let mut chunk = [0; MAX_CHUNK];
        let chunk = names::chunk(layout, proto, &mut chunk);
        let line = proto.first_line(layout).unwrap_or(0);
        self.sink.symbol(|out| {
            out.v2_lua_symbol(Part::Events, proto.address() as u64, chunk, line.into());
        })
    }

    fn announce_trace(&mut self, layout: &Layout, trace: InTrace) -> bool {
        let announced = match trace.proto.identity(layout) {
            Some(identity) => self.announce_proto(layout, trace.proto, identity),
            None => true,
        };
        let key = (trace.number, trace.proto.address(), trace.start_line);
        let mut lookup = self.traces.look_up(&key);
        if !self.traces.has_room(1) {
            self.traces.clear();
            lookup = self.traces.look_up(&key);
        }
        let Lookup::Unknown(place) = lookup else {
            return announced;
        };
        self.traces.insert(place, key, 0);
        announced
            && self.sink.symbol(|out| {
                out.v2_trace_symbol(
                    Part::Events,
                    trace.number.into(),
                    trace.proto.address() as u64,
                    trace.start_line.into(),
                );
            })
    }

    fn sample(
        &mut self,
        layout: &Layout,
        state: VmState,
        frames: &[RawFrame],
        trace: Option<InTrace>,
    ) -> bool {
        let sink = &mut self.sink;
        if state == VmState::Trace {
            return sink.piece(|out| match trace {
                None => stackless(out, state),
                Some(trace) => out.v2_trace_sample(
                    trace.number.into(),
                    trace.proto.address() as u64,
                    trace.first_line.into(),
                ),
            });
        }
        let mut fits = sink.piece(|out| out.v2_sample(state));
        if v2_has_lua_stack(state) {
            for frame in frames {
                fits &= match *frame {
                    RawFrame::Lua { proto, .. } => {
                        let line = proto.first_line(layout).unwrap_or(0);
                        sink.piece(|out| out.v2_lua_frame(proto.address() as u64, line.into()))
                    }
                    RawFrame::Function { code, ffid: 1 } => {
                        sink.piece(|out| out.v2_c_frame(code as u64))
                    }
                    RawFrame::Function { ffid, .. } => {
                        sink.piece(|out| out.v2_builtin_frame(ffid.into()))
                    }
                    RawFrame::Native { .. } | RawFrame::Mark(_) => true,
                };
            }
            fits &= sink.piece(|out| out.v2_lua_end());
        }
        for &address in &self.native.addresses {
            fits &= sink.piece(|out| out.v2_native_frame(address));
        }
        fits && sink.piece(|out| out.v2_native_end())
    }
}

/// A sample of which the state is all that is known.
fn stackless(out: &mut Cursor, state: VmState) {
    if state == VmState::Trace {
        // Number 0 is no trace's.
        out.v2_trace_sample(0, 0, 0);
        return;
    }
    out.v2_sample(state);
    if v2_has_lua_stack(state) {
        out.v2_lua_end();
    }
    out.v2_native_end();
}

/// The trace that the innermost frame runs in.
fn in_trace(layout: &Layout, frames: &[RawFrame]) -> Option<InTrace> {
    let trace: Trace = frames.iter().find_map(|frame| match frame {
        RawFrame::Lua { compiled, .. } => *compiled,
        _ => None,
    })?;
    let (proto, pc) = trace.start(layout)?;
    Some(InTrace {
        number: trace.number(),
        proto,
        first_line: proto.first_line(layout).unwrap_or(0),
        start_line: lines::line_before(layout, proto, pc),
    })
}

/// What stands before the events: the symbol table, with the functions in Lua
/// that there are and those in C of all modules. Not for the handler.
///
/// C functions without a symbol have the name that Lua knows them by. Built-ins
/// are frames by number only: the symbols at those numbers, where no code can
/// be, are their names. The code of one in C has the symbol that LuaJIT's makers
/// gave it, which a stripped binary has lost: a reader finds by it which native
/// frame is a built-in's.
pub fn beginning(
    layout: &Layout,
    protos: &[Proto],
    modules: &[Module],
    functions: &FunctionNames,
) -> Vec<u8> {
    let mut bytes = Vec::new();
    append(&mut bytes, 0, |out| out.v2_symbols());
    let mut chunk = [0; MAX_CHUNK];
    for &proto in protos {
        let chunk = names::chunk(layout, proto, &mut chunk);
        let line = proto.first_line(layout).unwrap_or(0);
        append(&mut bytes, chunk.len(), |out| {
            out.v2_lua_symbol(Part::Table, proto.address() as u64, chunk, line.into());
        });
    }
    for (address, name) in native_symbols(modules, Some(functions)) {
        append(&mut bytes, name.len(), |out| {
            out.v2_c_symbol(Part::Table, address, &name);
        });
    }
    append(&mut bytes, 0, |out| out.v2_final());
    append(&mut bytes, 0, |out| out.v2_events());
    bytes
}

/// The symbols of modules that were loaded later, as events. Not for the
/// handler.
pub fn late_symbols(modules: &[Module]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (address, name) in native_symbols(modules, None) {
        append(&mut bytes, name.len(), |out| {
            out.v2_c_symbol(Part::Events, address, &name);
        });
    }
    bytes
}

/// The names of native code by where it begins. A reader takes an address for part
/// of the symbol before it: code that has no name gets its place for one, so that
/// it does not pass for what happens to lie before.
fn native_symbols(modules: &[Module], known: Option<&FunctionNames>) -> BTreeMap<u64, Vec<u8>> {
    let named: BTreeMap<u64, Symbol> = modules.iter().flat_map(symbols::functions).collect();
    let mut nameless = BTreeMap::new();
    for module in modules {
        for start in tables::starts(module) {
            let before = named.range(..=start as u64).next_back();
            if before.is_none_or(|(&at, symbol)| at.saturating_add(symbol.size) <= start as u64) {
                let file = module.path.rsplit('/').next().unwrap_or_default();
                let name = format!("{file}+{:#x}", start.wrapping_sub(module.bias));
                nameless.insert(start as u64, name.into_bytes());
            }
        }
    }
    let mut all = nameless;
    for function in known.iter().flat_map(|known| known.all()) {
        let name = function.name.as_bytes();
        match function.ffid {
            1 => all.insert(function.code as u64, name.to_vec()),
            number => all.insert(number.into(), name.to_vec()),
        };
        if function.in_c {
            let symbol = format!("lj_cf_{}", function.name.replace('.', "_"));
            all.insert(function.code as u64, symbol.into_bytes());
        }
    }
    all.extend(named.into_iter().map(|(at, symbol)| (at, symbol.name)));
    all
}

/// Appends what `write` writes, which has `text` bytes of text.
fn append(to: &mut Vec<u8>, text: usize, write: impl FnOnce(&mut Cursor)) {
    let mut bytes = vec![0; text + MAX_V2_SYMBOL];
    let mut out = Cursor::new(&mut bytes);
    write(&mut out);
    debug_assert!(!out.overflowed());
    to.extend(out.written());
}
