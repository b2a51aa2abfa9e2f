//! Which instruction of the intermediate representation each instruction of
//! machine code was made for.
//!
//! Knows: that machine code follows the order of the representation, what is
//! left out of it, and that each result is in the register that the
//! representation names. Must not know: bytecode, calls.
//!
//! Between two snapshots it is an alignment of two sequences: pairs that may
//! belong together weigh more the more they have in common, and the heaviest set
//! of pairs in order is taken, up to two for each of the representation: its guard
//! and its result. What is in no pair makes ready for the next pair.

use super::code::{Action, Token};
use crate::vm::ir::{Ins, NUMBER, op};

/// The most pairs that are weighed for one stretch.
const MOST_PAIRS: usize = 1 << 21;

/// The register of results of calls, in general and of SSE.
const RESULT: [u8; 2] = [0, 16];

/// How much speaks for `token` having been made for `ins`, whose exit is that of
/// the snapshot `exit`; 0 if nothing does.
fn weight((ins, exit): (Ins, u32), token: Token) -> u32 {
    let writes = token.target.is_some() && token.target == ins.register;
    let arithmetic = (ins.kind == NUMBER)
        .then(|| op::ARITHMETIC.iter().position(|&o| o == ins.op))
        .flatten();
    // Beyond these, operations have different numbers in different LuaJITs.
    let late = ins.op > op::LAST_COMMON;
    match token.action {
        Action::Arithmetic(_) if arithmetic.is_none() => 2 * u32::from(writes && late),
        Action::Arithmetic(which) if writes && arithmetic == Some(which.into()) => 8,
        Action::Arithmetic(_) => 0,
        _ if arithmetic.is_some() => u32::from(writes),
        Action::Call if !late => 0,
        Action::Call if ins.register.is_some_and(|r| RESULT.contains(&r)) => 6,
        Action::Call => 2 + 2 * u32::from(ins.register.is_none()),
        Action::Branch => match token.exit {
            Some(by) => 8 * u32::from(ins.guard && by == exit),
            None => 5 * u32::from(ins.guard),
        },
        Action::Compare => 2 * u32::from(ins.guard),
        Action::Store => 3 * u32::from(ins.register.is_none() && !ins.guard && late),
        Action::Load if writes && late => 5,
        Action::Load => 3 * u32::from(writes),
        Action::Other => 4 * u32::from(writes),
        Action::Move => u32::from(writes),
        Action::Jump => 0,
    }
}

/// For each of `tokens` the index of the one of `instructions` that it was made
/// for, ascending. Beside each instruction is the snapshot that it is after.
/// Neither is empty. None if they are too many.
pub fn align(instructions: &[(Ins, u32)], tokens: &[Token]) -> Option<Vec<usize>> {
    let pairs = pair(instructions, tokens)?;
    let mut owners = vec![0; tokens.len()];
    // What makes ready comes before what it makes ready for.
    let mut owner = pairs.iter().flatten().last().copied().unwrap_or(0);
    for index in (0..tokens.len()).rev() {
        if let Some(paired) = pairs[index] {
            owner = paired;
        }
        owners[index] = owner;
    }
    // But a result is put away after it was made.
    for index in 1..tokens.len() {
        let spills = pairs[index].is_none() && tokens[index].action == Action::Store;
        if spills && pairs[index - 1].is_some() {
            owners[index] = owners[index - 1];
        }
    }
    // And what is repeated belongs together: a search in a table is such a loop.
    for last in 0..tokens.len() {
        let first = tokens[last]
            .back_to
            .and_then(|to| tokens[..last].iter().position(|token| token.offset == to));
        if let Some(first) = first {
            let owner = owners[last];
            owners[first..last].fill(owner);
        }
    }
    Some(owners)
}

/// What an instruction can make a pair by, once each.
#[derive(Clone, Copy, PartialEq, Eq)]
enum By {
    /// What leaves the trace if the guard fails.
    Guard,
    /// What makes the result.
    Result,
}

impl By {
    fn of(action: Action) -> By {
        match action {
            Action::Branch | Action::Compare => By::Guard,
            _ => By::Result,
        }
    }
}

/// For each of `tokens` the index of the one of `instructions` that it makes a
/// pair with, so that the weights of all pairs are the most. An instruction makes
/// up to two: of those that look alike, one after the other, a guard alone could be
/// the one before's as well.
fn pair(instructions: &[(Ins, u32)], tokens: &[Token]) -> Option<Vec<Option<usize>>> {
    #[derive(Clone, Copy)]
    enum Step {
        Pair,
        NextToken,
        NextInstruction,
    }
    /// By what the instruction has made a pair already.
    const DONE: [Option<By>; 3] = [None, Some(By::Guard), Some(By::Result)];
    let (rows, columns) = (instructions.len(), tokens.len());
    if rows.checked_mul(columns)? > MOST_PAIRS {
        return None;
    }
    // best[c][d] is the most that `instructions[row..]` and `tokens[c..]` make, if
    // the first of them has made DONE[d]. From the back, as the assembler works: of
    // equals, the last one is taken.
    let mut steps = vec![[Step::NextToken; DONE.len()]; rows * columns];
    let mut below = vec![[0; DONE.len()]; columns + 1];
    let mut best = below.clone();
    for (row, &ins) in instructions.iter().enumerate().rev() {
        for (column, &token) in tokens.iter().enumerate().rev() {
            let weight = weight(ins, token);
            let by = By::of(token.action);
            for (done, before) in DONE.iter().enumerate() {
                let (step, sum) = if below[column][0] > best[column + 1][done] {
                    (Step::NextInstruction, below[column][0])
                } else {
                    (Step::NextToken, best[column + 1][done])
                };
                let rest = match before {
                    // It may make the other one as well.
                    None => best[column + 1][1 + by as usize],
                    Some(_) => below[column + 1][0],
                };
                let paired = weight + rest;
                let may = weight > 0 && *before != Some(by);
                (steps[row * columns + column][done], best[column][done]) = if may && paired > sum {
                    (Step::Pair, paired)
                } else {
                    (step, sum)
                };
            }
        }
        std::mem::swap(&mut best, &mut below);
    }
    let mut pairs = vec![None; columns];
    let (mut row, mut column, mut done) = (0, 0, 0);
    while row < rows && column < columns {
        match steps[row * columns + column][done] {
            Step::Pair => {
                pairs[column] = Some(row);
                (row, done) = match DONE[done] {
                    None => (row, 1 + By::of(tokens[column].action) as usize),
                    Some(_) => (row + 1, 0),
                };
                column += 1;
            }
            Step::NextToken => column += 1,
            Step::NextInstruction => (row, done) = (row + 1, 0),
        }
    }
    Some(pairs)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ins(op: u8, register: Option<u8>) -> (Ins, u32) {
        let ins = Ins {
            operands: [0; 2],
            kind: NUMBER,
            guard: false,
            op,
            register,
            sunk: false,
        };
        (ins, 0)
    }

    fn guard(op: u8, exit: u32) -> (Ins, u32) {
        let (ins, _) = ins(op, None);
        (Ins { guard: true, ..ins }, exit)
    }

    fn token(action: Action, target: Option<u8>) -> Token {
        Token {
            offset: 0,
            action,
            target,
            back_to: None,
            leaves_for: None,
            exit: None,
            place: None,
        }
    }

    #[test]
    fn sums_and_products_are_told_apart_by_operation_and_register() {
        let [add, mul] = [41, 43];
        let instructions = [ins(add, Some(21)), ins(mul, Some(22)), ins(add, Some(21))];
        let tokens = [
            token(Action::Move, Some(21)),
            token(Action::Arithmetic(0), Some(21)),
            token(Action::Move, Some(22)),
            token(Action::Arithmetic(2), Some(22)),
            token(Action::Arithmetic(0), Some(21)),
        ];
        assert_eq!(align(&instructions, &tokens), Some(vec![0, 0, 1, 1, 2]));
    }

    #[test]
    fn a_call_belongs_to_what_has_its_result() {
        let call = 90;
        let instructions = [ins(call, Some(16)), ins(call, Some(16))];
        let tokens = [
            token(Action::Move, Some(16)),
            token(Action::Call, None),
            token(Action::Store, None),
            token(Action::Load, Some(16)),
            token(Action::Call, None),
        ];
        // The store puts the first result away.
        assert_eq!(align(&instructions, &tokens), Some(vec![0, 0, 0, 1, 1]));
    }

    #[test]
    fn a_guard_leaves_by_the_exit_of_its_snapshot() {
        let instructions = [guard(8, 1), guard(8, 1), guard(8, 2)];
        let by = |exit| Token {
            exit: Some(exit),
            ..token(Action::Branch, None)
        };
        // The second one was eliminated, or the first.
        let owners = align(&instructions, &[by(1), by(2)]).unwrap();
        assert_eq!(owners[1], 2);
        assert!(owners[0] < 2);
    }

    #[test]
    fn of_alike_loads_in_a_row_each_has_its_own() {
        // An index is converted and checked, then what is there checked and loaded:
        // both results in the same registers each time, all guards by one exit.
        let [convert, load] = [91, 70];
        let (xmm7, rbx) = (Some(23), Some(3));
        let checked = |op, register| {
            let (ins, exit) = guard(op, 4);
            (Ins { register, ..ins }, exit)
        };
        let row = [
            checked(convert, rbx),
            ins(41, rbx),
            guard(10, 4),
            checked(load, xmm7),
        ];
        let exit = || Token {
            exit: Some(4),
            ..token(Action::Branch, None)
        };
        let made_for = [
            (token(Action::Other, rbx), 0),
            (token(Action::Other, Some(21)), 0),
            (token(Action::Compare, None), 0),
            (exit(), 0),
            (exit(), 0),
            (token(Action::Other, rbx), 1),
            (token(Action::Compare, None), 2),
            (exit(), 2),
            (token(Action::Compare, None), 3),
            (exit(), 3),
            (token(Action::Load, xmm7), 3),
        ];
        let instructions = [row, row, row].concat();
        let tokens: Vec<Token> = (0..3)
            .flat_map(|_| made_for.map(|(token, _)| token))
            .collect();
        let owners: Vec<usize> = (0..3)
            .flat_map(|turn| made_for.map(|(_, owner)| 4 * turn + owner))
            .collect();
        assert_eq!(align(&instructions, &tokens), Some(owners));
    }

    #[test]
    fn a_loop_of_its_own_is_one_instructions() {
        let instructions = [guard(87, 0), ins(58, Some(1))];
        let mut tokens = [
            token(Action::Compare, None),
            token(Action::Branch, None),
            token(Action::Load, Some(1)),
            token(Action::Compare, Some(1)),
            token(Action::Branch, None),
        ];
        for (offset, token) in tokens.iter_mut().enumerate() {
            token.offset = offset as u32;
        }
        tokens[4].back_to = Some(0);
        assert_eq!(align(&instructions, &tokens), Some(vec![1, 1, 1, 1, 1]));
    }

    #[test]
    fn instructions_without_code_get_none() {
        let instructions = [ins(60, None), guard(8, 0), ins(41, Some(17))];
        let tokens = [
            token(Action::Compare, None),
            token(Action::Branch, None),
            token(Action::Arithmetic(0), Some(17)),
        ];
        assert_eq!(align(&instructions, &tokens), Some(vec![1, 1, 2]));
    }
}
