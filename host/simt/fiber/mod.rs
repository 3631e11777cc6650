//! A fiber: a stack, and a function on it that suspends itself in the middle and goes on later.
//!
//! `Fiber<I, O>` gives an `I` at every resume and gets an `O` at every suspension, the last when the function
//! returns. The two sides run by turns on one OS thread.
//!
//! Every backend offers the same: `Fiber::new`, `Fiber::resume`, `Fiber::abandon` and `Yielder::suspend`.

#[cfg(any(test, not(all(target_arch = "x86_64", unix))))]
mod portable;
#[cfg(all(target_arch = "x86_64", unix))]
mod x86_64;

#[cfg(not(all(target_arch = "x86_64", unix)))]
pub(super) use portable::{Fiber, Yielder};
#[cfg(all(target_arch = "x86_64", unix))]
pub(super) use x86_64::{Fiber, Yielder};

#[cfg(test)]
mod tests {
    use crate::simt::stack::StackPool;
    use std::backtrace::Backtrace;
    use std::hint::black_box;
    use std::panic::catch_unwind;

    /// The same tests of a backend.
    macro_rules! tests_of {
        ($backend:ident) => {
            mod $backend {
                use super::*;
                use crate::simt::fiber::$backend::{Fiber, Yielder};

                #[test]
                fn two_fibers_keep_what_they_hold_while_the_other_runs() {
                    let stacks = StackPool::default().take(2).unwrap();
                    let mut fibers: Vec<_> = stacks
                        .into_iter()
                        .zip([1.5, 2.5])
                        .map(|(stack, first)| {
                            Fiber::new(stack, move |yielder: &Yielder<f64, f64>| {
                                let mut sums = black_box([first; 16]);
                                for i in 0..100 {
                                    let more = yielder.suspend(sums[i % 16]);
                                    sums.iter_mut().for_each(|sum| *sum += more);
                                }
                                -sums.iter().sum::<f64>()
                            })
                        })
                        .collect();
                    for i in 0..=100 {
                        let got = [0, 1].map(|n| fibers[n].resume(1.0 + n as f64));
                        let sums = [1.5 + f64::from(i), 2.5 + 2.0 * f64::from(i)];
                        assert_eq!(got, if i < 100 { sums } else { sums.map(|sum| -16.0 * sum) });
                    }
                    // SAFETY: both have returned.
                    fibers.into_iter().for_each(|fiber| drop(unsafe { fiber.abandon() }));
                }

                #[test]
                fn panics_and_backtraces_end_inside_and_a_stack_is_used_again() {
                    let mut stack = StackPool::default().take(1).unwrap().remove(0);
                    for round in 0..3 {
                        let mut fiber = Fiber::new(stack, move |yielder: &Yielder<(), String>| {
                            let trace = Backtrace::force_capture().to_string();
                            yielder.suspend(trace);
                            let caught = catch_unwind(|| panic!("round {}", black_box(round)));
                            yielder.suspend(*caught.unwrap_err().downcast().unwrap());
                            unreachable!("it is abandoned")
                        });
                        assert!(fiber.resume(()).contains("fiber"));
                        assert_eq!(fiber.resume(()), format!("round {round}"));
                        // SAFETY: its frames own nothing.
                        stack = unsafe { fiber.abandon() };
                    }
                }
            }
        };
    }

    tests_of!(portable);
    #[cfg(all(target_arch = "x86_64", unix))]
    tests_of!(x86_64);
}
