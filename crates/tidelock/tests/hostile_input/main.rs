//! Bytes from outside: whatever they are, no reader panics or hangs.
//!
//! For each reader of [`hostile`](tidelock::testing::hostile) the inputs in `kept/` are read, and variations of them.
//! `cargo xtask fuzz` searches for more of them. `TIDELOCK_HOSTILE_VARIATIONS` sets how many variations are read.

use std::{fs, panic, path::Path};

use libtest_mimic::{Arguments, Trial};
use tidelock::testing::{
    hostile::{Reader, readers},
    rng::Rng,
};

/// How many variations of each reader's inputs are read.
const VARIATIONS: u64 = 50_000;
/// Of URLs, less: with TLS, each of them reads the certificates of the system.
const URLS: u64 = 500;

fn main() {
    let trials = readers()
        .into_iter()
        .map(|reader| Trial::test(reader.name, move || feed(reader).map_err(Into::into)))
        .collect();
    libtest_mimic::run(&Arguments::from_args(), trials).exit();
}

fn feed(reader: Reader) -> Result<(), String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/hostile_input/kept").join(reader.name);
    let entries = fs::read_dir(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let mut files: Vec<_> = entries.map(|entry| entry.expect("an entry").path()).collect();
    files.sort();
    let kept: Vec<Vec<u8>> = files.iter().map(|path| fs::read(path).expect("a kept input")).collect();
    if kept.is_empty() {
        return Err(format!("{} is empty: run cargo xtask fuzz", folder.display()));
    }
    for bytes in &kept {
        read(reader, bytes)?;
    }
    let variations = std::env::var("TIDELOCK_HOSTILE_VARIATIONS").ok();
    let usual = if reader.name == "url" { URLS } else { VARIATIONS };
    let variations = variations.map_or(usual, |text| text.parse().expect("a number"));
    for seed in 0..variations {
        read(reader, &vary(&kept, &mut Rng::new(seed)))?;
    }
    Ok(())
}

/// Reads bytes, and shows those that the reader cannot cope with.
fn read(reader: Reader, bytes: &[u8]) -> Result<(), String> {
    panic::catch_unwind(|| (reader.read)(bytes))
        .map_err(|_| format!("{} panics on b\"{}\"", reader.name, bytes.escape_ascii()))
}

/// An input with some of its bytes changed, cut out, doubled, or followed by those of another.
fn vary(kept: &[Vec<u8>], rng: &mut Rng) -> Vec<u8> {
    let pick = |rng: &mut Rng| &kept[rng.below(kept.len() as u64) as usize];
    let mut bytes = pick(rng).clone();
    for _ in 0..=rng.below(4) {
        let at = rng.below(bytes.len() as u64 + 1) as usize;
        let to = at + rng.below((bytes.len() - at) as u64 + 1) as usize;
        match rng.below(6) {
            0 if at < bytes.len() => bytes[at] ^= 1 << rng.below(8),
            1 if at < bytes.len() => bytes[at] = rng.below(256) as u8,
            2 => drop(bytes.drain(at..to)),
            3 => {
                let doubled = bytes[at..to].to_vec();
                bytes.splice(to..to, doubled);
            }
            4 => {
                let other = pick(rng);
                let from = rng.below(other.len() as u64 + 1) as usize;
                bytes.splice(at.., other[from..].iter().copied());
            }
            // Where a number is expected: the largest, and one that is negative.
            _ => drop(bytes.splice(at..to, [[0xFF; 4], *b"9999", *b"-1\r\n"][rng.below(3) as usize])),
        }
    }
    bytes.truncate(4_096);
    bytes
}
