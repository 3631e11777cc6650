//! Scripts.

use crate::{Random, Sum};
use rhai::{Engine, INT, Scope};

const SCRIPT: &str = r#"
    fn fib(n) { if n < 2 { n } else { fib(n - 1) + fib(n - 2) } }
    let list = [];
    for i in 0..count { list.push((i * 7 + start) % 11); }
    let total = 0;
    for number in list { total += number; }
    let text = "";
    while text.len() < 5 { text += `${total},`; }
    total * 1000 + fib(8) + text.len() + start
"#;

/// Compiles a script and evaluates it.
pub fn checksum(seed: u64) -> u64 {
    let (mut random, mut sum) = (Random::new(seed), Sum::new());
    let engine = Engine::new();
    let mut scope = Scope::new();
    scope.push("count", random.below(12) as INT).push("start", random.below(100_000) as INT);
    match engine.eval_with_scope::<INT>(&mut scope, SCRIPT) {
        Ok(value) => sum.add(value as u64),
        Err(_) => sum.add(1),
    }
    sum.add(engine.eval::<INT>("1 +").is_err().into());
    sum.finish()
}
