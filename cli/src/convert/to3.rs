//! Any profile as version 3.
//!
//! Samples of one stack become one sample with their weight: versions 1 and 2
//! have no times that could be kept.

use std::io::{self, Write};

use ljp::profile::Profile;
use ljp::{Counters, Reason, VmState};

use super::record;

/// Writes `profile`; without an end if what it was read from has none.
pub fn write(profile: &Profile, whole: bool, out: &mut dyn Write) -> io::Result<()> {
    record(out, 0, |out| out.prologue())?;
    let from = profile.version.to_string();
    let meta = (profile.meta.iter()).map(|(key, value)| (key.as_str(), value.as_str()));
    for (key, value) in meta.chain([("converted_from", from.as_str())]) {
        record(out, key.len() + value.len(), |out| {
            out.meta(key.as_bytes(), value.as_bytes());
        })?;
    }
    for module in &profile.modules {
        record(out, module.path.len() + module.build_id.len(), |out| {
            out.module(
                &module.path,
                &module.build_id,
                module.bias,
                module.low,
                module.end,
            );
        })?;
    }
    for (address, name) in &profile.symbols {
        record(out, name.len(), |out| out.symbol(*address, name))?;
    }
    for (abort, times) in &profile.aborts {
        let text = abort.chunk.len() + abort.reason.len();
        record(out, text, |out| {
            out.abort(*times, &abort.chunk, abort.line, &abort.reason);
        })?;
    }
    for proto in &profile.protos {
        record(out, proto.chunk.len() + proto.name.len(), |out| {
            out.proto(
                &proto.chunk,
                proto.first_line,
                proto.num_lines,
                &proto.name,
                proto.name_kind,
            );
        })?;
    }
    for func in &profile.funcs {
        record(out, func.name.len(), |out| {
            out.func(func.kind, &func.name, func.module, func.address);
        })?;
    }
    for trace in &profile.traces {
        record(out, 0, |out| out.trace(trace))?;
    }
    for frame in &profile.frames {
        record(out, 0, |out| out.frame(frame))?;
    }
    for (node, _) in profile.stacks.iter() {
        record(out, 0, |out| out.stack(node.parent, node.frame))?;
    }
    for (id, (_, weights)) in profile.stacks.iter().enumerate() {
        for state in VmState::ALL {
            let weight = weights.map_or(0, |weights| weights[state as usize]);
            if weight > 0 {
                // Ids of a profile have 32 bits.
                record(out, 0, |out| out.sample(state, Ok(id as u32), weight, 0))?;
            }
        }
    }
    stackless(profile, out)?;
    if whole {
        record(out, 0, |out| out.end(&counters(profile)))?;
    }
    Ok(())
}

/// Samples without a stack. Which of their states had which reason is not kept,
/// and neither needs to be right: how often each occurs, does.
fn stackless(profile: &Profile, out: &mut dyn Write) -> io::Result<()> {
    let mut reasons = profile.by_reason.iter().map(|(reason, n)| (*reason, *n));
    let mut current = reasons.next();
    for state in VmState::ALL {
        let mut left = profile.stackless[state as usize];
        while left > 0 {
            let Some((reason, n)) = &mut current else {
                return Ok(());
            };
            let weight = left.min(*n);
            let known = Reason::from_number((*reason).into()).unwrap_or(Reason::Unreadable);
            if weight > 0 {
                record(out, 0, |out| out.sample(state, Err(known), weight, 0))?;
            }
            left -= weight;
            *n -= weight;
            if *n == 0 {
                current = reasons.next();
            }
        }
    }
    Ok(())
}

fn counters(profile: &Profile) -> Counters {
    let mut counters = Counters {
        duration_us: profile.duration_us(),
        samples: profile.samples(),
        by_state: profile.by_state,
        ..Counters::default()
    };
    for (reason, n) in &profile.by_reason {
        let known = Reason::from_number((*reason).into()).unwrap_or(Reason::Unreadable);
        counters.by_reason[known as usize] += n;
    }
    counters
}
