//! A test case, and the two ways to run a list of them.

use crate::needs::{Need, Needs};
use libtest_mimic::{Arguments, Failed, Trial};
use serde_json::json;
use std::panic::{catch_unwind, AssertUnwindSafe};

/// What a case returns: `Ok`, or why it failed. A panic (an assertion) is a failure too.
pub type Outcome = Result<(), String>;

/// A case.
pub struct Case {
    name: String,
    needs: Vec<Need>,
    run: Box<dyn FnOnce() -> Outcome + Send>,
}

impl Case {
    /// A case that runs anywhere.
    pub fn new(name: &str, run: impl FnOnce() -> Outcome + Send + 'static) -> Case {
        Case {
            name: name.to_owned(),
            needs: Vec::new(),
            run: Box::new(run),
        }
    }

    /// True where `part` occurs in its name.
    pub fn is_named(&self, part: &str) -> bool {
        self.name.contains(part)
    }

    /// The same, only where `needs` are met.
    pub fn needs(mut self, needs: &[Need]) -> Case {
        self.needs.extend_from_slice(needs);
        self
    }
}

/// Runs by libtest's command line.
pub fn run_on_host(needs: &Needs, arguments: &[String], cases: Vec<Case>) {
    let arguments = Arguments::from_iter(arguments.iter().cloned());
    let trials = cases
        .into_iter()
        .map(|case| {
            let run = case.run;
            match needs.missing(&case.needs) {
                None => Trial::test(case.name, move || run().map_err(Failed::from)),
                Some(reason) if needs.must_have(&case.needs) => {
                    Trial::test(case.name, move || Err(Failed::from(reason)))
                }
                Some(reason) => Trial::test(case.name, || Ok(()))
                    .with_kind(reason)
                    .with_ignored_flag(true),
            }
        })
        .collect();
    libtest_mimic::run(&arguments, trials).exit();
}

/// Runs one after the other and prints a JSON line each, then a summary.
pub fn run_in_guest(needs: &Needs, cases: Vec<Case>) {
    let listed = cases.len();
    let (mut passed, mut failed, mut ignored) = (0, 0, 0);
    for case in cases {
        let (result, text) = match needs.missing(&case.needs) {
            Some(reason) if needs.must_have(&case.needs) => ("failed", reason),
            Some(reason) => ("ignored", reason),
            None => match catch_unwind(AssertUnwindSafe(case.run)) {
                Ok(Ok(())) => ("ok", String::new()),
                Ok(Err(why)) => ("failed", why),
                Err(panic) => ("failed", panic_text(panic.as_ref())),
            },
        };
        match result {
            "ok" => passed += 1,
            "failed" => failed += 1,
            _ => ignored += 1,
        }
        println!(
            "{}",
            json!({"test": case.name, "result": result, "text": text})
        );
    }
    println!(
        "{}",
        json!({"summary": {
            "listed": listed, "passed": passed, "failed": failed, "ignored": ignored,
        }})
    );
    std::process::exit(i32::from(failed != 0));
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    if let Some(text) = panic.downcast_ref::<String>() {
        return text.clone();
    }
    match panic.downcast_ref::<&str>() {
        Some(text) => (*text).to_owned(),
        None => "a panic without a text".to_owned(),
    }
}
