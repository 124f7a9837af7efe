//! Counting tests from what test binaries print.

use std::fmt;

/// How many tests went how.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) passed: u64,
    pub(super) failed: u64,
    pub(super) skipped: u64,
    /// What failed tests said, or their names: shown once more at the end, where it is looked for.
    pub(super) failures: Vec<String>,
    /// Whether a binary has started that has not yet said how it went.
    running: bool,
}

impl Counts {
    /// Reads a line of the output of `cargo test`.
    pub(super) fn see(&mut self, line: &str) {
        if let Some(result) = line.strip_prefix("test result: ") {
            self.running = false;
            for part in result.split([';', '.']) {
                if let Some((number, what)) = part.trim().split_once(' ')
                    && let Ok(number) = number.parse::<u64>()
                {
                    match what {
                        "passed" => self.passed += number,
                        "failed" => self.failed += number,
                        "ignored" => self.skipped += number,
                        _ => {}
                    }
                }
            }
        } else if line.starts_with("test ") && line.ends_with("... FAILED") {
            self.failures.push(line.to_owned());
        } else if line.starts_with("running ") && (line.ends_with(" tests") || line.ends_with(" test")) {
            self.crashed();
            self.running = true;
        }
    }

    /// Reads a line of the output of pytest, whose last one is `2 failed, 157 passed, 1 skipped in 8.04s`.
    pub(super) fn see_pytest(&mut self, line: &str) {
        if line.starts_with("FAILED ") || line.starts_with("ERROR ") {
            self.failures.push(line.to_owned());
        }
        let Some((counts, time)) = line.trim_matches([' ', '=']).rsplit_once(" in ") else { return };
        if !time.starts_with(|c: char| c.is_ascii_digit()) {
            return;
        }
        for (number, what) in counts.split(", ").filter_map(|part| part.split_once(' ')) {
            let number = number.parse::<u64>().unwrap_or_default();
            match what {
                "passed" => self.passed += number,
                "failed" | "error" | "errors" => self.failed += number,
                "skipped" => self.skipped += number,
                _ => {}
            }
        }
    }

    /// Reads a line of the output of `node --test`, in the format TAP.
    pub(super) fn see_node(&mut self, line: &str) {
        if line.trim_start().starts_with("not ok ") {
            self.failures.push(line.trim_start().to_owned());
        }
        if let Some((what, number)) = line.strip_prefix("# ").and_then(|rest| rest.split_once(' ')) {
            let number = number.parse::<u64>().unwrap_or_default();
            match what {
                "pass" => self.passed += number,
                "fail" | "cancelled" => self.failed += number,
                "skipped" | "todo" => self.skipped += number,
                _ => {}
            }
        }
    }

    /// Takes note that cargo has ended. A failure that no test owns up to is one more.
    pub(super) fn end(&mut self, success: bool) {
        self.crashed();
        if !success && self.failed == 0 {
            self.failed = 1;
        }
    }

    /// Counts a binary that went away without saying how it went.
    fn crashed(&mut self) {
        if std::mem::take(&mut self.running) {
            self.failed += 1;
        }
    }

    /// Counts a step as one test.
    pub(super) fn add_step(&mut self, passed: bool) {
        if passed {
            self.passed += 1;
        } else {
            self.failed += 1;
        }
    }

    /// Adds what was counted elsewhere.
    pub(super) fn add(&mut self, other: &Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
        self.failures.extend_from_slice(&other.failures);
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} passed, {} failed", self.passed, self.failed)?;
        if self.skipped > 0 {
            write!(f, ", {} skipped", self.skipped)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(output: &str, success: bool) -> String {
        let mut counts = Counts::default();
        output.lines().for_each(|line| counts.see(line));
        counts.end(success);
        counts.to_string()
    }

    #[test]
    fn results_of_all_binaries_are_added_up() {
        let output = "running 3 tests\n\
            test a ... ok\n\
            test result: ok. 3 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.07s\n\
            running 1 test\n\
            test result: FAILED. 0 passed; 1 failed; 2 ignored; 0 measured; 0 filtered out; finished in 1.50s";
        assert_eq!(count(output, false), "3 passed, 1 failed, 2 skipped");
    }

    #[test]
    fn results_of_pytest_and_of_node_are_read() {
        let mut counts = Counts::default();
        ["....F [100%]", "FAILED tests/a.py - in 3 steps", "1 failed, 157 passed, 2 skipped in 8.04s"]
            .into_iter()
            .for_each(|line| counts.see_pytest(line));
        assert_eq!(counts.to_string(), "157 passed, 1 failed, 2 skipped");
        let node = "ok 1 - a test\n# tests 12\n# pass 9\n# fail 2\n# cancelled 1\n# skipped 0\n# todo 0";
        node.lines().for_each(|line| counts.see_node(line));
        assert_eq!(counts.to_string(), "166 passed, 4 failed, 2 skipped");
        counts.see_node("    not ok 2 - a lock is held");
        assert_eq!(counts.failures, ["FAILED tests/a.py - in 3 steps", "not ok 2 - a lock is held"]);
    }

    #[test]
    fn a_binary_that_crashed_counts_as_a_failure() {
        let crash = "running 3 tests\ntest a ... ok";
        let next = "running 2 tests\n\
            test result: ok. 2 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s";
        assert_eq!(count(crash, false), "0 passed, 1 failed");
        assert_eq!(count(&format!("{crash}\n{next}"), false), "2 passed, 1 failed");
    }

    #[test]
    fn tests_that_do_not_compile_count_as_a_failure() {
        assert_eq!(count("", false), "0 passed, 1 failed");
        assert_eq!(count("", true), "0 passed, 0 failed");
    }
}
