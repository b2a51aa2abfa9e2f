//! The one sample of a stream, in words.
//!
//! Knows: what the `ljp` crate reads. Must not know: how the stream was made.

use crate::host::Symbols;
use ljp::profile::{Node, Profile};
use ljp::{Frame, VmState};
use std::path::Path;

/// What a sample says.
#[derive(Debug)]
pub struct Sample {
    pub state: VmState,
    /// All frames, innermost first.
    pub stack: Vec<Shown>,
}

/// A frame in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Shown {
    /// A Lua function and its line, a built-in, or a C function: `work:3`,
    /// `tostring`.
    Lua(String),
    /// A native function, by the name that its file has for it.
    Native(String),
    /// A frame that is no call.
    Mark(&'static str),
}

impl Sample {
    /// The frames that Lua knows, innermost first.
    pub fn lua(&self) -> Vec<&str> {
        let known = self.stack.iter().filter_map(|frame| match frame {
            Shown::Lua(name) => Some(name.as_str()),
            Shown::Native(_) | Shown::Mark(_) => None,
        });
        known.collect()
    }

    /// The native frames above the innermost one that Lua knows, innermost first.
    pub fn native_on_top(&self) -> Vec<&str> {
        let above = self.stack.iter().map_while(|frame| match frame {
            Shown::Native(name) => Some(name.as_str()),
            Shown::Lua(_) | Shown::Mark(_) => None,
        });
        above.collect()
    }

    /// Whether the stack goes down to where the program began.
    pub fn is_rooted(&self) -> bool {
        self.stack.last() == Some(&Shown::Native("_start".to_owned()))
    }
}

/// Reads the stream at `path`, which must be whole and hold nothing but one
/// sample of weight 1.
pub fn only_sample(path: &Path) -> Sample {
    let profile = whole(path);
    assert_eq!(profile.records, 1, "one signal is one sample");
    assert_eq!(profile.samples(), 1, "a sample of weight 1");
    assert!(profile.by_reason.is_empty(), "{:?}", profile.by_reason);
    let nodes: Vec<_> = profile.stacks.iter().collect();
    let (mut node, weights) = nodes
        .iter()
        .find_map(|(node, weights)| Some((*node, (*weights)?)))
        .expect("the sample's stack");
    let state = (VmState::ALL.into_iter())
        .find(|&state| weights[state as usize] == 1)
        .expect("its state");
    let mut stack = vec![shown(&profile, node)];
    while let Some(parent) = node.parent {
        node = nodes[parent as usize].0;
        stack.push(shown(&profile, node));
    }
    Sample { state, stack }
}

/// Reads a stream that must be whole.
pub fn whole(path: &Path) -> Profile {
    let file = std::fs::File::open(path).expect("a stream");
    let reading = Profile::read(std::io::BufReader::new(file)).expect("a profile");
    assert!(reading.fault.is_none(), "{:?}", reading.fault);
    assert!(reading.profile.end.is_some(), "no end record");
    reading.profile
}

fn shown(profile: &Profile, node: Node) -> Shown {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    match profile.frames[node.frame as usize].frame {
        Frame::Lua { proto, line } => {
            let proto = &profile.protos[proto as usize];
            let name = match proto.name.as_slice() {
                b"" if proto.first_line == 0 => "main".to_owned(),
                b"" => format!("function at {}", proto.first_line),
                name => text(name),
            };
            Shown::Lua(format!("{name}:{line}"))
        }
        Frame::Func { func } => {
            let func = &profile.funcs[func as usize];
            Shown::Lua(match func.name.as_slice() {
                b"" => named(profile, func.module, func.address),
                name => text(name),
            })
        }
        Frame::Native { module, address } => Shown::Native(named(profile, module, address)),
        Frame::Trace { trace } => {
            Shown::Lua(format!("trace {}", profile.traces[trace as usize].number))
        }
        Frame::Mark(mark) => Shown::Mark(mark.name()),
    }
}

fn named(profile: &Profile, module: Option<u32>, address: u64) -> String {
    let path = module
        .map(|module| String::from_utf8_lossy(&profile.modules[module as usize].path).into_owned());
    (path.as_deref())
        .filter(|path| Path::new(path).exists())
        .and_then(|path| {
            Symbols::of(Path::new(path))
                .name(address)
                .map(str::to_owned)
        })
        .unwrap_or_else(|| format!("{address:#x} in {path:?}"))
}
