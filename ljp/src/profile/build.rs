//! A profile out of the events of version 3.
//!
//! Knows epochs: which id of the stream stands for which of the profile.

use super::{Node, Profile, intern};
use crate::decode::{Event, Func};
use crate::{Frame, FrameDef, TraceDef};

/// Takes events in their order. It relies on the reader having checked the ids
/// in them.
#[derive(Debug, Default)]
pub(super) struct Builder {
    profile: Profile,
    epoch: Epoch,
}

/// What the ids of the current epoch are in the profile.
#[derive(Debug, Default)]
struct Epoch {
    protos: Vec<u32>,
    funcs: Vec<u32>,
    traces: Vec<u32>,
    frames: Vec<u32>,
    stacks: Vec<u32>,
}

impl Builder {
    pub(super) fn add(&mut self, event: Event) {
        let profile = &mut self.profile;
        let epoch = &mut self.epoch;
        match event {
            Event::Meta { key, value } => {
                let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
                profile.meta.insert(text(key), text(value));
            }
            Event::Module(module) => profile.modules.push(module),
            Event::Proto(proto) => epoch.protos.push(intern(&mut profile.protos, proto)),
            Event::Func(func) => epoch.funcs.push(intern::<Func>(&mut profile.funcs, func)),
            Event::Trace(trace) => {
                let trace = TraceDef {
                    proto: trace.proto.map(|id| epoch.protos[id as usize]),
                    ..trace
                };
                epoch.traces.push(intern(&mut profile.traces, trace));
            }
            Event::Frame(frame) => {
                let frame = epoch.frame(frame);
                epoch.frames.push(intern(&mut profile.frames, frame));
            }
            Event::Stack { parent, frame } => {
                let stack = profile.stacks.intern(Node {
                    parent: parent.map(|id| epoch.stacks[id as usize]),
                    frame: epoch.frames[frame as usize],
                });
                epoch.stacks.push(stack);
            }
            Event::Abort { times, abort } => {
                let sum = profile.aborts.entry(abort).or_default();
                *sum = sum.saturating_add(times);
            }
            Event::Symbol { address, name } => {
                profile.symbols.insert(address, name);
            }
            Event::Epoch => *epoch = Epoch::default(),
            Event::Sample(sample) => {
                let stack = sample.stack.map(|id| epoch.stacks[id as usize]);
                profile.count(sample.state, stack, sample.weight);
                profile.sampled_us = profile.sampled_us.saturating_add(sample.step_us);
            }
            Event::End(counters) => profile.end = Some(counters),
        }
    }

    pub(super) fn finish(mut self) -> Profile {
        self.profile.version = crate::wire::VERSION;
        self.profile
    }
}

impl Epoch {
    fn frame(&self, def: FrameDef) -> FrameDef {
        let frame = match def.frame {
            Frame::Lua { proto, line } => Frame::Lua {
                proto: self.protos[proto as usize],
                line,
            },
            Frame::Func { func } => Frame::Func {
                func: self.funcs[func as usize],
            },
            Frame::Trace { trace } => Frame::Trace {
                trace: self.traces[trace as usize],
            },
            // Modules stay what they are across epochs.
            frame @ (Frame::Native { .. } | Frame::Mark(_)) => frame,
        };
        FrameDef {
            frame,
            compiled: def.compiled.map(|id| self.traces[id as usize]),
            in_loop: def.in_loop,
            ..def
        }
    }
}
