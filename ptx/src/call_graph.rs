//! The call graph of a PTX text: the functions and kernels, their frames and calls.
//!
//! Grammar: PTX ISA, "Control Flow Instructions: call", "Kernel and Function Directives: .func" and
//! "State Spaces: Local State Space".

use super::statements::{Kind, Statement, Statements};
use super::{Tokens, code_alone, variable};
use std::collections::HashMap;

/// A direct call.
#[derive(Clone, Copy)]
pub(super) struct Call<'a> {
    pub target: &'a str,
    /// The offset after the target's name.
    pub end: usize,
}

/// The functions and kernels of a text, with their calls.
pub(super) struct CallGraph<'a> {
    pub statements: Vec<Statement<'a>>,
    /// Where in `statements` the definition of a function is.
    defined: HashMap<&'a str, usize>,
    /// The body of each statement.
    bodies: Vec<Body<'a>>,
}

/// What matters of the body of a function.
#[derive(Default)]
struct Body<'a> {
    calls: Vec<Call<'a>>,
    /// Whether there is a call through a register.
    calls_pointers: bool,
    /// Bytes of its variables in local memory.
    frame: u64,
}

/// The stack that a thread of a kernel needs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stack {
    /// The variables of the kernel and of the functions along some chain of direct calls that
    /// enters none of them twice: the deepest one, if there is no recursion. Registers that are
    /// saved on the stack come on top, and functions that are called through pointers.
    pub least: u64,
    /// Whether the kernel can reach recursion, or a call through a pointer: then it may need any
    /// number of bytes more, and the driver does not know how many.
    pub is_open: bool,
}

/// The stack of each kernel of a PTX text.
pub fn stacks(text: &str) -> HashMap<String, Stack> {
    let code = code_alone(text);
    CallGraph::of(&code).stacks().into_iter().map(|(kernel, stack)| (kernel.into(), stack)).collect()
}

impl<'a> CallGraph<'a> {
    pub fn of(code: &'a str) -> Self {
        let statements: Vec<_> = Statements::of(code).collect();
        let bodies = statements.iter().map(|statement| Body::of(code, statement)).collect();
        let is_defined = |statement: &Statement<'_>| {
            matches!(statement.kind, Kind::Entry | Kind::Function)
                && code[statement.start..statement.end].ends_with('}')
        };
        let named = statements.iter().enumerate().filter(|(_, statement)| is_defined(statement));
        let defined = named.map(|(index, statement)| (statement.name, index)).collect();
        CallGraph { statements, defined, bodies }
    }

    pub fn definition(&self, name: &str) -> &Statement<'a> {
        &self.statements[self.defined[name]]
    }

    /// Calls without which the call graph has no cycle: those that a depth-first search finds to
    /// lead back to a function that it has entered and not left.
    pub fn closing_calls(&self) -> Vec<Call<'a>> {
        let mut closing = Vec::new();
        self.depth_first(|call| closing.push(call), |_| {});
        closing
    }

    /// The stack of each kernel.
    fn stacks(&self) -> HashMap<&'a str, Stack> {
        // `None` for functions that the search has not left.
        let mut stacks: Vec<Option<Stack>> = vec![None; self.statements.len()];
        self.depth_first(
            |_| {},
            |function| {
                let body = &self.bodies[function];
                let mut stack = Stack { least: 0, is_open: body.calls_pointers };
                let targets = body.calls.iter().filter_map(|call| self.defined.get(call.target));
                for &target in targets {
                    // The search is still in it: this call closes a cycle.
                    let Some(called) = stacks[target] else {
                        stack.is_open = true;
                        continue;
                    };
                    stack.least = stack.least.max(called.least);
                    stack.is_open |= called.is_open;
                }
                stack.least += body.frame;
                stacks[function] = Some(stack);
            },
        );
        let kernels = self.statements.iter().zip(stacks);
        let kernels = kernels.filter(|(statement, _)| statement.kind == Kind::Entry);
        kernels.map(|(kernel, stack)| (kernel.name, stack.unwrap_or_default())).collect()
    }

    /// Enters each statement once, by direct calls. Passes each call that leads back to a function
    /// that was entered and not left to `closing`, and each statement that is left to `leave`.
    fn depth_first(&self, mut closing: impl FnMut(Call<'a>), mut leave: impl FnMut(usize)) {
        #[derive(Clone, Copy, PartialEq)]
        enum State {
            New,
            Entered,
            Left,
        }
        let mut states = vec![State::New; self.statements.len()];
        for root in 0..self.statements.len() {
            if states[root] != State::New {
                continue;
            }
            // The functions that were entered, each with its next call.
            let mut path = vec![(root, 0)];
            states[root] = State::Entered;
            while let Some((function, next)) = path.last_mut() {
                let Some(call) = self.bodies[*function].calls.get(*next) else {
                    leave(*function);
                    states[*function] = State::Left;
                    path.pop();
                    continue;
                };
                *next += 1;
                let Some(&target) = self.defined.get(call.target) else { continue };
                match states[target] {
                    State::New => {
                        states[target] = State::Entered;
                        path.push((target, 0));
                    }
                    State::Entered => closing(*call),
                    State::Left => {}
                }
            }
        }
    }
}

impl<'a> Body<'a> {
    fn of(code: &'a str, statement: &Statement<'_>) -> Self {
        let mut body = Body::default();
        if !matches!(statement.kind, Kind::Entry | Kind::Function) {
            return body;
        }
        let mut tokens = Tokens { rest: &code[statement.start..statement.end] };
        while let Some(token) = tokens.next() {
            match token {
                ".local" => body.frame += variable(&mut tokens).map_or(0, |(_, local)| local.size as u64),
                "call" | "call.uni" => {
                    // `call (result), target, (arguments);`
                    if tokens.peek() == Some("(") {
                        while tokens.next().is_some_and(|token| token != ",") {}
                    }
                    match tokens.next() {
                        Some(register) if register.starts_with('%') => body.calls_pointers = true,
                        Some(target) => {
                            body.calls.push(Call { target, end: statement.end - tokens.rest.len() });
                        }
                        None => {}
                    }
                }
                _ => {}
            }
        }
        body
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl<'a> CallGraph<'a> {
        /// The direct calls: function and target.
        pub(in super::super) fn calls(&self) -> impl Iterator<Item = (&'a str, &'a str)> {
            let functions = self.statements.iter().zip(&self.bodies);
            functions.flat_map(|(from, body)| body.calls.iter().map(|call| (from.name, call.target)))
        }
    }

    const TEXT: &str = "\
        .visible .entry flat() { .local .align 8 .b8 __local_depot0[40]; .reg .b64 %SP; ret; }
        .visible .entry calls() { .local .align 4 .b8 d[8]; call.uni one, (); call.uni two, (); ret; }
        .func one() { .local .align 16 .b8 d[100]; .local .b64 x; call.uni leaf, (); ret; }
        .func two() { .local .align 16 .b8 d[90]; call.uni vprintf, (); ret; }
        .func leaf() { // .local .b8 no[7];\n ret; }
        .visible .entry recursive() { call.uni leaf, (); call.uni even, (); ret; }
        .func odd() { .local .b8 d[10]; call.uni even, (); ret; }
        .func even() { .local .b8 d[20]; call.uni odd, (); ret; }
        .visible .entry later() { call.uni odd, (); ret; }
        .visible .entry pointers() { .local .b8 d[3]; call.uni through, (); ret; }
        .func through() { .local .b8 d[4]; { .reg .b32 t; call (r), %rd1, (p), prototype_0; } ret; }
        .visible .entry kernels_may_call_themselves() { call kernels_may_call_themselves, (); }
        .global .align 8 .u64 vtable[1] = {through};";

    #[test]
    fn a_stack_has_the_frames_of_the_deepest_chain_of_calls() {
        let expected = [
            ("flat", 40, false),
            ("calls", 8 + 108, false),
            ("recursive", 30, true),
            ("later", 10, true),
            ("pointers", 7, true),
            ("kernels_may_call_themselves", 0, true),
        ];
        let expected = expected.map(|(name, least, is_open)| (name.into(), Stack { least, is_open }));
        assert_eq!(stacks(TEXT), HashMap::from(expected));
    }
}
