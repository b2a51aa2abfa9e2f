//! Reading version 3.
//!
//! Knows its records and how many definitions of each kind there are. Keeps
//! none of them.

use std::io::Read;

use super::event::{Abort, Event, Func, Module, Proto, REASON_LIMIT, Sample};
use super::payload::{Payload, check};
use super::{Error, Input};
use crate::{Counters, Frame, FrameDef, FuncKind, Mark, NameKind, Reason, TraceDef, VmState, wire};

/// The longest payload of a record that is kept in memory.
const PAYLOAD_LIMIT: u64 = 1 << 20;

/// Gives the records of a stream of version 3 one by one.
///
/// After an error, and after [`Event::End`], it gives nothing more.
#[derive(Debug)]
pub struct Reader<R> {
    input: Input<R>,
    defined: Defined,
    payload: Vec<u8>,
    finished: bool,
}

/// How many definitions of each kind were read: ids below that are good.
#[derive(Debug, Default)]
struct Defined {
    modules: u32,
    protos: u32,
    funcs: u32,
    traces: u32,
    frames: u32,
    stacks: u32,
}

impl<R: Read> Reader<R> {
    pub(super) fn new(mut input: Input<R>) -> Result<Self, Error> {
        input.skip((wire::MAGIC.len() + 1 + wire::RESERVED) as u64)?;
        input.mark_good();
        Ok(Reader {
            input,
            defined: Defined::default(),
            payload: Vec::new(),
            finished: false,
        })
    }

    /// Where in the stream the reader is, in bytes.
    pub fn offset(&self) -> u64 {
        self.input.offset()
    }

    /// The next event, `None` once the end was read.
    ///
    /// # Errors
    ///
    /// [`Error::Truncated`] if the stream ends without its end record,
    /// [`Error::Damaged`] if it cannot be right, [`Error::Io`] if reading fails.
    pub fn next_event(&mut self) -> Result<Option<Event>, Error> {
        if self.finished {
            return Ok(None);
        }
        let event = self.read_event();
        match &event {
            Ok(Event::End(_)) | Err(_) => self.finished = true,
            Ok(_) => self.input.mark_good(),
        }
        event.map(Some)
    }

    fn read_event(&mut self) -> Result<Event, Error> {
        loop {
            let start = self.input.offset();
            let head = self.input.u8()?;
            if head & wire::SAMPLE != 0 {
                return self.sample(start, head).map(Event::Sample);
            }
            let len = self.input.uleb()?;
            if !known(head) {
                self.input.skip(len)?;
                self.input.mark_good();
                continue;
            }
            self.input
                .take(len, PAYLOAD_LIMIT, start, &mut self.payload)?;
            let payload = Payload::new(&self.payload, self.input.offset() - len);
            let event = self.defined.record(start, head, payload)?;
            if matches!(event, Event::End(_)) {
                let end = self.input.offset();
                if self.input.next()?.is_some() {
                    return Err(Error::damaged(end, "data after the end record"));
                }
            }
            return Ok(event);
        }
    }

    fn sample(&mut self, start: u64, head: u8) -> Result<Sample, Error> {
        let state = VmState::from_number((head & wire::SAMPLE_STATE).into())
            .filter(|_| head & wire::SAMPLE_RESERVED == 0)
            .ok_or_else(|| Error::damaged(start, format!("a sample that begins with {head:#x}")))?;
        let number = self.input.uleb()?;
        let stack = if head & wire::SAMPLE_NO_STACK == 0 {
            Ok(check(number, self.defined.stacks, "stack", start)?)
        } else {
            Err(check(number, REASON_LIMIT as u32, "reason", start)? as u8)
        };
        let weight = if head & wire::SAMPLE_WEIGHT != 0 {
            self.input.uleb()?
        } else {
            1
        };
        Ok(Sample {
            state,
            stack,
            weight,
            step_us: self.input.uleb()?,
        })
    }
}

impl Defined {
    /// Takes the payload of a known record apart.
    fn record(&mut self, start: u64, tag: u8, mut payload: Payload<'_>) -> Result<Event, Error> {
        let p = &mut payload;
        Ok(match tag {
            wire::META => Event::Meta {
                key: p.str()?,
                value: p.str()?,
            },
            wire::MODULE => {
                let module = Module {
                    path: p.str()?,
                    build_id: p.str()?,
                    bias: p.uleb()?,
                    low: p.uleb()?,
                    end: p.uleb()?,
                };
                count(&mut self.modules, start)?;
                Event::Module(module)
            }
            wire::PROTO => {
                let proto = Proto {
                    chunk: p.str()?,
                    first_line: p.u32()?,
                    num_lines: p.u32()?,
                    name: p.str()?,
                    // A kind that came later than this reader still has a name.
                    name_kind: NameKind::from_number(p.u8()?.into()).unwrap_or(NameKind::None),
                };
                count(&mut self.protos, start)?;
                Event::Proto(proto)
            }
            wire::FUNC => {
                let kind = p.u8()?;
                let func = Func {
                    kind: FuncKind::from_number(kind.into())
                        .ok_or_else(|| Error::damaged(start, format!("function kind {kind}")))?,
                    name: p.str()?,
                    module: p.optional(self.modules, "module")?,
                    address: p.uleb()?,
                };
                count(&mut self.funcs, start)?;
                Event::Func(func)
            }
            wire::TRACE => {
                let trace = TraceDef {
                    number: p.u32()?,
                    parent: p.u32()?,
                    exit: p.u32()?,
                    root: p.u32()?,
                    link: p.u32()?,
                    mcode_size: p.uleb()?,
                    proto: p.optional(self.protos, "prototype")?,
                    line: p.u32()?,
                };
                count(&mut self.traces, start)?;
                Event::Trace(trace)
            }
            wire::FRAME => {
                let frame = self.frame(start, p)?;
                count(&mut self.frames, start)?;
                Event::Frame(frame)
            }
            wire::STACK => {
                let stack = Event::Stack {
                    parent: p.optional(self.stacks, "stack")?,
                    frame: p.id(self.frames, "frame")?,
                };
                count(&mut self.stacks, start)?;
                stack
            }
            wire::EPOCH => {
                *self = Defined {
                    modules: self.modules,
                    ..Defined::default()
                };
                Event::Epoch
            }
            wire::ABORT => Event::Abort {
                times: p.uleb()?,
                abort: Abort {
                    chunk: p.str()?,
                    line: p.u32()?,
                    reason: p.str()?,
                },
            },
            wire::SYMBOL => Event::Symbol {
                address: p.uleb()?,
                name: p.str()?,
            },
            wire::END => Event::End(end(p)?),
            _ => return Err(Error::damaged(start, format!("a record of kind {tag:#x}"))),
        })
    }

    fn frame(&self, start: u64, p: &mut Payload<'_>) -> Result<FrameDef, Error> {
        let kind = p.u8()?;
        let flags = p.uleb()?;
        let frame = match kind {
            wire::FRAME_LUA => Frame::Lua {
                proto: p.id(self.protos, "prototype")?,
                line: p.u32()?,
            },
            wire::FRAME_FUNC => Frame::Func {
                func: p.id(self.funcs, "function")?,
            },
            wire::FRAME_NATIVE => Frame::Native {
                module: p.optional(self.modules, "module")?,
                address: p.uleb()?,
            },
            wire::FRAME_TRACE => Frame::Trace {
                trace: p.id(self.traces, "trace")?,
            },
            wire::FRAME_MARK => {
                let mark = p.u8()?;
                Frame::Mark(
                    Mark::from_number(mark.into())
                        .ok_or_else(|| Error::damaged(start, format!("mark {mark}")))?,
                )
            }
            _ => return Err(Error::damaged(start, format!("a frame of kind {kind}"))),
        };
        let compiled = if flags & wire::FLAG_COMPILED != 0 {
            Some(p.id(self.traces, "trace")?)
        } else {
            None
        };
        Ok(FrameDef {
            frame,
            compiled,
            in_loop: flags & wire::FLAG_LOOP != 0,
            ancestor: flags & wire::FLAG_ANCESTOR != 0,
        })
    }
}

fn end(p: &mut Payload<'_>) -> Result<Counters, Error> {
    let mut counters = Counters {
        duration_us: p.uleb()?,
        samples: p.uleb()?,
        overruns: p.uleb()?,
        ..Counters::default()
    };
    for n in &mut counters.by_state {
        *n = p.uleb()?;
    }
    // Reasons that came later than this reader are passed over. Each takes a
    // byte at least, so a count that lies runs into the end of the payload.
    let reasons = p.uleb()?;
    for reason in 0..reasons {
        let n = p.uleb()?;
        if let Some(reason) = Reason::from_number(reason) {
            counters.by_reason[reason as usize] = n;
        }
    }
    counters.errno = p.u32()?;
    Ok(counters)
}

/// Whether this reader knows what is in records with this tag.
fn known(tag: u8) -> bool {
    matches!(tag, wire::META..=wire::ABORT | wire::SYMBOL | wire::END)
}

fn count(defined: &mut u32, start: u64) -> Result<(), Error> {
    *defined = defined
        .checked_add(1)
        .ok_or_else(|| Error::damaged(start, "more definitions than ids"))?;
    Ok(())
}
