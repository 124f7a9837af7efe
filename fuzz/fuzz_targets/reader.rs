//! Feeds the reader that `TIDELOCK_READER` names.
#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use tidelock::testing::hostile::{Reader, readers};

static READER: LazyLock<Reader> = LazyLock::new(|| {
    let name = std::env::var("TIDELOCK_READER").expect("TIDELOCK_READER is the name of a reader");
    let found = readers().into_iter().find(|reader| reader.name == name);
    found.unwrap_or_else(|| panic!("there is no reader {name:?}: {:?}", readers()))
});

fuzz_target!(|bytes: &[u8]| (READER.read)(bytes));
