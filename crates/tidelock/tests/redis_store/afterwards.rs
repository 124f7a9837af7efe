//! What all trials left behind on the server that they shared.

use crate::support::{report, shared};

trials! {
    every_key_that_is_left_goes_away_by_itself,
}

/// The longest lease of any trial and what an idle name is remembered for, twice, in milliseconds.
const LONGEST: i64 = 2 * (600_000 + 600_000);

async fn every_key_that_is_left_goes_away_by_itself() {
    let server = shared();
    let mut administrator = server.administrator().unwrap();
    let mut left = 0;
    for database in ["0", "1"] {
        administrator.call(&["SELECT", database]).unwrap();
        let keys = administrator.call(&["KEYS", "*"]).unwrap().unwrap_or_default();
        for key in keys.lines() {
            let expiry: i64 = administrator.call(&["PTTL", key]).unwrap().unwrap().parse().unwrap();
            assert!(0 < expiry && expiry < LONGEST, "{key} lives for another {expiry} ms");
            left += 1;
        }
    }
    report(&format!("{left} keys are left, and all of them go away by themselves"));
}
