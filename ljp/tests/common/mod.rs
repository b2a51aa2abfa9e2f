//! A small stream with every record of version 3 in it.

use ljp::encode::Cursor;
use ljp::{Counters, Frame, FrameDef, FuncKind, Mark, NameKind, Reason, TraceDef, VmState};

/// Writes with `write` and gives the bytes.
pub fn encoded(write: impl FnOnce(&mut Cursor<'_>)) -> Vec<u8> {
    let mut buf = vec![0; 1 << 16];
    let mut out = Cursor::new(&mut buf);
    write(&mut out);
    assert!(!out.overflowed());
    out.written().to_vec()
}

/// The small stream: 3 samples of weights 1, 5 and 2, the second without a
/// stack, the third in a second epoch.
pub fn small() -> Vec<u8> {
    encoded(|out| {
        out.prologue();
        out.meta(b"clock", b"perf");
        out.module(b"/usr/bin/luajit", &[1, 2, 3], 0x1000, 0x1000, 0x9000);
        out.proto(b"@app.lua", 3, 10, b"work", NameKind::Local);
        out.func(FuncKind::Builtin, b"string.rep", Some(0), 0x40);
        out.trace(&TraceDef {
            number: 7,
            proto: Some(0),
            line: 4,
            ..TraceDef::default()
        });
        out.frame(&Frame::Lua { proto: 0, line: 5 }.into());
        out.frame(&FrameDef {
            frame: Frame::Func { func: 0 },
            compiled: Some(0),
            in_loop: true,
            ancestor: true,
        });
        out.frame(
            &Frame::Native {
                module: Some(0),
                address: 0x44,
            }
            .into(),
        );
        out.frame(&Frame::Trace { trace: 0 }.into());
        out.frame(&Frame::Mark(Mark::Cut).into());
        out.stack(None, 4);
        out.stack(Some(0), 0);
        out.stack(Some(1), 1);
        out.stack(Some(2), 2);
        out.stack(Some(1), 3);
        out.sample(VmState::Ffunc, Ok(3), 1, 1000);
        out.sample(VmState::Gc, Err(Reason::Unreadable), 5, 2000);
        out.epoch();
        out.proto(b"@app.lua", 3, 10, b"work", NameKind::Local);
        out.frame(&Frame::Lua { proto: 0, line: 5 }.into());
        out.stack(None, 0);
        out.sample(VmState::Lfunc, Ok(0), 2, 3000);
        let mut counters = Counters {
            duration_us: 7000,
            samples: 8,
            overruns: 5,
            ..Counters::default()
        };
        counters.by_state[VmState::Ffunc as usize] = 1;
        counters.by_state[VmState::Gc as usize] = 5;
        counters.by_state[VmState::Lfunc as usize] = 2;
        counters.by_reason[Reason::Unreadable as usize] = 5;
        out.end(&counters);
    })
}
